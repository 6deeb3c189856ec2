"""Run a program as a rank, then print its files for readers of the log.

    logged.py CASE FOLDER PROGRAM ...

For ranks whose files nobody can fetch: rank 0 prints those of ``FILES`` in FOLDER, compressed (zlib), in
base64 and cut, since logs break long lines: the second of seven parts is `hvlab: file: CASE NAME 2/7 TEXT`.
Ends as the program did. Needs Python 3.8+ and no package.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import zlib

import launched

PART = 1000
# Each with how many bytes of its end are printed.
FILES = (("result.json", None), ("output.txt", 256 * 1024))


def main() -> int:
    case, folder, *argv = sys.argv[1:]
    # `timeout` above this ends both.
    status = subprocess.Popen(argv).wait()
    if launched.place()[0] == 0:
        for name, most in FILES:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    content = file.read()
                for line in lines(case, name, content[-most:] if most else content):
                    print(line, flush=True)
    return status if status >= 0 else 128 - status


def lines(case: str, name: str, content: bytes) -> list[str]:
    """Return the lines that carry a file of a case."""
    text = base64.b64encode(zlib.compress(content)).decode()
    parts = [text[start : start + PART] for start in range(0, len(text), PART)]
    return [
        "hvlab: file: {} {} {}/{} {}".format(case, name, number, len(parts), part)
        for number, part in enumerate(parts, 1)
    ]


if __name__ == "__main__":
    sys.exit(main())
