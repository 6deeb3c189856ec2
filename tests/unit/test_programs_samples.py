"""The samples that ranks train with: files read as they are, and no sample twice."""

import gzip
import struct

import numpy
import pytest

from tests.unit.programs import program

IMAGES = bytes(range(24))
WRITTEN = {
    "train-images-idx3-ubyte": struct.pack(">4I", 0x803, 4, 2, 3) + IMAGES,
    "train-labels-idx1-ubyte": struct.pack(">2I", 0x801, 4) + bytes([3, 1, 4, 1]),
    "t10k-images-idx3-ubyte": struct.pack(">4I", 0x803, 2, 2, 3) + IMAGES[:12],
    "t10k-labels-idx1-ubyte": struct.pack(">2I", 0x801, 2) + bytes([5, 9]),
}


@pytest.fixture
def samples(monkeypatch):
    return program(monkeypatch, "samples")


@pytest.fixture
def folder(tmp_path):
    for name, content in WRITTEN.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("compressed", [False, True])
def test_the_four_files_are_read_plain_or_compressed(samples, folder, compressed):
    if compressed:
        for path in list(folder.iterdir()):
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    found = samples.load(str(folder))
    assert found.train_images.shape == (4, 2, 3)
    assert found.train_images.tobytes() == IMAGES
    assert found.train_labels.tolist() == [3, 1, 4, 1]
    assert found.test_labels.tolist() == [5, 9]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no IDX file"),
        (b"\0\0\x08", "no IDX file"),
        (b"\0\0\x0d\x01\0\0\0\x01aaaa", "no IDX file"),
        (b"\0\0\x08\x03\0\0", "ends within its header"),
        (WRITTEN["train-images-idx3-ubyte"][:-1], "23 values"),
        (WRITTEN["train-images-idx3-ubyte"] + b"x", "25 values"),
        (WRITTEN["t10k-images-idx3-ubyte"], "labels"),
        (WRITTEN["train-labels-idx1-ubyte"], "labels"),
    ],
)
def test_what_is_no_such_file_is_named(samples, folder, content, told):
    (folder / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(ValueError, match=told) as error:
        samples.load(str(folder))
    assert str(folder) in str(error.value)


def test_made_samples_are_the_same_for_every_rank_and_of_all_classes(samples):
    one, other = samples.make(7), samples.make(7)
    assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert sorted(set(one.train_labels.tolist())) == list(range(10))
    assert one.train_images.shape == (6000, 28, 28)
    assert one.train_images.dtype == numpy.uint8
    assert (samples.make(8).train_images != one.train_images).any()


@pytest.mark.parametrize(
    ("batch", "ranks", "scaling", "shares"),
    [
        (64, 3, "weak", [64, 64, 64]),
        (64, 1, "strong", [64]),
        (64, 3, "strong", [22, 21, 21]),
        (3, 4, "strong", [1, 1, 1, 0]),
    ],
)
def test_a_step_is_shared_out(samples, batch, ranks, scaling, shares):
    assert samples.shares(batch, ranks, scaling) == shares


@pytest.mark.parametrize(("scaling", "ranks"), [("weak", 3), ("strong", 3), ("strong", 1)])
def test_no_sample_is_used_twice_in_an_epoch(samples, scaling, ranks):
    shares = samples.shares(10, ranks, scaling)
    order = samples.order(100, 42, 3)
    steps = 100 // sum(shares)
    parts = [samples.place_of_rank(step, shares, rank) for step in range(steps) for rank in range(ranks)]
    used = [i for part in parts for i in order[part]]
    assert len(used) == len(set(used)) == steps * sum(shares)


def test_every_epoch_has_an_order_of_its_own(samples):
    orders = {tuple(samples.order(50, seed, epoch)) for seed in (1, 2) for epoch in (0, 1, 2)}
    assert len(orders) == 6
    assert all(sorted(order) == list(range(50)) for order in orders)
