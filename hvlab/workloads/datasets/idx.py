"""Four IDX files, MNIST's format: hvlab's handwritten digits, or a folder of the user's.

An IDX file is a big-endian header, then one byte a pixel or a label. digits.xz holds the values of the four
files of digits. Their source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI
Machine Learning Repository, doi:10.24432/C50P49, CC BY 4.0; its test part of 1797 images of 8x8 pixels, with
values 0 to 16 scaled to 255. Both parts hold the ten digits in the same proportion.
"""

from __future__ import annotations

import gzip
import lzma
import math
import shutil
import struct
import zlib
from pathlib import Path

from hvlab.base.errors import UsageError

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CLASSES = 10
# Two zero bytes, the type (8: unsigned byte), the number of dimensions.
_MAGIC = {"idx3": 0x00000803, "idx1": 0x00000801}


class FormatError(ValueError):
    """A file does not match its name; the text names it and the mistake."""


def shape(path: Path) -> tuple[int, ...]:
    """Return (images, rows, columns) or (labels,). Raises FormatError for a wrong header or length."""
    kind = next(kind for kind in _MAGIC if kind in path.name)
    count = _MAGIC[kind] & 0xFF
    with path.open("rb") as file:
        header = file.read(4 * (count + 1))
    if len(header) < 4 * (count + 1):
        raise FormatError(f"{path.name}: {len(header)} bytes are too short for an IDX file")
    magic, *dimensions = struct.unpack(f">{count + 1}I", header)
    if magic != _MAGIC[kind]:
        raise FormatError(f"{path.name}: begins with 0x{magic:08x}, not 0x{_MAGIC[kind]:08x}")
    expected, size = len(header) + math.prod(dimensions), path.stat().st_size
    if size != expected:
        shape = "x".join(map(str, dimensions))
        raise FormatError(f"{path.name}: {size} bytes, but its header says {shape}, so {expected} bytes")
    return tuple(dimensions)


def check(folder: Path) -> None:
    """Raise FormatError unless the four files of ``folder`` belong together, labels 0 to 9."""
    pictures: dict[str, str] = {}
    for images, labels in (FILES[:2], FILES[2:]):
        (number, rows, columns), (labelled,) = shape(folder / images), shape(folder / labels)
        if number != labelled:
            raise FormatError(f"{images} holds {number} images, {labels} {labelled} labels")
        if not number * rows * columns:
            raise FormatError(f"{images}: it holds no image")
        highest = max((folder / labels).read_bytes()[8:])
        if highest >= CLASSES:
            raise FormatError(f"{labels}: it holds a label {highest}; labels are 0 to {CLASSES - 1}")
        pictures[images] = f"{rows}x{columns}"
    if len(set(pictures.values())) > 1:
        sizes = ", ".join(f"{name} {size}" for name, size in pictures.items())
        raise FormatError(f"the images differ in size: {sizes}")


def write(path: Path, dimensions: tuple[int, ...], values: bytes) -> None:
    """Write an IDX file of unsigned bytes, ``values`` in row-major order."""
    kind = next(kind for kind in _MAGIC if kind in path.name)
    path.write_bytes(struct.pack(f">{len(dimensions) + 1}I", _MAGIC[kind], *dimensions) + values)


_IMAGES = {"train": 1297, "test": 500}
_PIXELS = (8, 8)


def write_digits(folder: Path) -> None:
    """Write the four files: 1297 images to train with and 500 to test with, values 0 to 255."""
    content = lzma.decompress(Path(__file__).with_name("digits.xz").read_bytes())
    shapes = [shape for count in _IMAGES.values() for shape in ((count, *_PIXELS), (count,))]
    for name, shape in zip(FILES, shapes, strict=True):
        size = math.prod(shape)
        write(folder / name, shape, content[:size])
        content = content[size:]


_NAMES = (
    f"the four files are {', '.join(FILES)}, plain or with .gz, also written like train-images.idx3-ubyte"
)


def copy_files(source: Path, folder: Path) -> None:
    """Copy the four files of ``source``, unpacked and renamed. Raises UsageError naming a wrong one."""
    files = {name: _find(source, name) for name in FILES}
    missing = [name for name, path in files.items() if path is None]
    if missing:
        raise UsageError(f"{source} has no {', no '.join(missing)}", remedy=_NAMES)
    for name, path in files.items():
        if path is not None:
            _unpack(path, folder / name)
    try:
        check(folder)
    except FormatError as error:
        raise UsageError(f"{source}: {error}", remedy="use IDX files in MNIST's format") from error


def _find(source: Path, name: str) -> Path | None:
    names = (name, name.replace("-idx", ".idx"))
    paths = [source / f"{each}{suffix}" for suffix in ("", ".gz") for each in names]
    return next((path for path in paths if path.is_file()), None)


def _unpack(path: Path, target: Path) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        source = opened(path, "rb")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", remedy="correct its permissions"
        ) from error
    with source, target.open("wb") as file:
        try:
            shutil.copyfileobj(source, file)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UsageError(f"{path} is damaged: {error}", remedy="download it again") from error
