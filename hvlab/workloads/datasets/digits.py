"""Handwritten digits, as IDX files: digits.xz holds the values of the four files, one after another.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
doi:10.24432/C50P49, CC BY 4.0; its test part of 1797 images of 8x8 pixels, with values 0 to 16 scaled to 255.
Both parts hold the ten digits in the same proportion.
"""

from __future__ import annotations

import lzma
import math
from pathlib import Path

from hvlab.workloads.datasets import idx

_IMAGES = {"train": 1297, "test": 500}
_PIXELS = (8, 8)


def write(folder: Path) -> None:
    """Write the four files: 1297 images to train with and 500 to test with, values 0 to 255."""
    content = lzma.decompress(Path(__file__).with_suffix(".xz").read_bytes())
    shapes = [shape for count in _IMAGES.values() for shape in ((count, *_PIXELS), (count,))]
    for name, shape in zip(idx.FILES, shapes, strict=True):
        size = math.prod(shape)
        idx.write(folder / name, shape, content[:size])
        content = content[size:]
