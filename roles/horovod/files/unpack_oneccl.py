"""Take the CPU build of oneCCL out of its wheel; the rest is four times as large and for other devices."""

import re
import sys
import zipfile
from pathlib import Path

LIBRARY = "lib/ccl/cpu/lib/libccl.so.1"
WANTED = re.compile(r"[^/]+\.data/data/(include/.+|share/doc/.+|lib/ccl/cpu/lib/libccl\.so\.1)$")


def main(wheel, target):
    """Unpack ``wheel`` into the folder ``target``."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            match = WANTED.match(entry.filename)
            if match and not entry.is_dir():
                path = Path(target, match.group(1))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(entry))
    library = Path(target, LIBRARY)
    library.with_suffix("").symlink_to(library.name)


main(*sys.argv[1:])
