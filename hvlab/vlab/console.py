"""Write a node's console to a file of limited size, keeping its end.

``python console.py FILE BYTES`` reads until systemd-nspawn ends. Runs as a script, without hvlab's packages.
"""

import os
import sys
from contextlib import suppress


def main() -> None:
    """Write the input; a full disk must not keep the node waiting."""
    path, most = sys.argv[1], int(sys.argv[2])
    with open(path, "w+b", buffering=0) as file:  # noqa: PTH123 - pathlib takes longer to load than all else
        while chunk := os.read(0, most // 4):
            with suppress(OSError):
                if file.tell() + len(chunk) > most:
                    file.seek(-most // 2, os.SEEK_END)
                    end = file.read()
                    file.seek(0)
                    file.truncate()
                    file.write(end)
                file.write(chunk)


if __name__ == "__main__":
    main()
