"""The IDX format of MNIST: a big-endian header, then one byte a pixel or a label."""

from __future__ import annotations

import math
import struct
from pathlib import Path

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CLASSES = 10
# Two zero bytes, the type (8: unsigned byte), the number of dimensions.
_MAGIC = {"idx3": 0x00000803, "idx1": 0x00000801}
_BLOCK = 1 << 20


class FormatError(ValueError):
    """A file is not what its name says; the text names it and what is wrong."""


def shape(path: Path) -> tuple[int, ...]:
    """Return the dimensions of an IDX file: (images, rows, columns) or (labels,).

    Raises FormatError where the header or the length is wrong.
    """
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
        highest = _highest(folder / labels)
        if highest >= CLASSES:
            raise FormatError(f"{labels}: it holds a label {highest}; labels are 0 to {CLASSES - 1}")
        pictures[images] = f"{rows}x{columns}"
    if len(set(pictures.values())) > 1:
        sizes = ", ".join(f"{name} {size}" for name, size in pictures.items())
        raise FormatError(f"the images differ in size: {sizes}")


def _highest(labels: Path) -> int:
    with labels.open("rb") as file:
        file.seek(8)
        return max(max(block) for block in iter(lambda: file.read(_BLOCK), b""))


def write(path: Path, dimensions: tuple[int, ...], values: bytes) -> None:
    """Write an IDX file of unsigned bytes, ``values`` in row-major order."""
    kind = next(kind for kind in _MAGIC if kind in path.name)
    path.write_bytes(struct.pack(f">{len(dimensions) + 1}I", _MAGIC[kind], *dimensions) + values)
