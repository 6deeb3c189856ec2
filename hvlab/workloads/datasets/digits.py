"""The handwritten digits that scikit-learn carries, as IDX files.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository;
1797 images of 8x8 pixels, values 0 to 16 (sklearn.datasets.load_digits).
"""

from __future__ import annotations

from pathlib import Path

from hvlab.workloads.datasets import idx

TEST_IMAGES = 500
_HIGHEST = 16
_SEED = 42


def write(folder: Path) -> None:
    """Write the four files, 1297 images to train with and 500 to test with, values 0 to 255.

    Both parts hold the ten digits in the same proportion; the split is always the same.
    """
    import numpy  # noqa: PLC0415 - these take seconds to import, and the files are written once
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    images, labels = (load_digits()[name] for name in ("images", "target"))
    pixels = numpy.rint(images * (255 / _HIGHEST)).astype(numpy.uint8)
    parts = train_test_split(
        pixels, labels.astype(numpy.uint8), test_size=TEST_IMAGES, stratify=labels, random_state=_SEED
    )
    train_images, test_images, train_labels, test_labels = parts
    for name, values in zip(idx.FILES, (train_images, train_labels, test_images, test_labels), strict=True):
        idx.write(folder / name, values.shape, values.tobytes())
