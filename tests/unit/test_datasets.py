"""Data sets on the controller: made once, fetched with care, and the errors of folders and mirrors."""

import gzip
import hashlib
import re
import struct
import tarfile

import pytest

from hvlab.base.errors import CheckError, UsageError
from hvlab.workloads import datasets
from hvlab.workloads.datasets import idx, shelf
from hvlab.workloads.datasets.idx import FILES

TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = FILES


def contents(train=6, test=2, size=4, seed=1):
    """The bytes of four IDX files that belong together."""
    made = {}
    for images, labels, count in ((TRAIN_IMAGES, TRAIN_LABELS, train), (TEST_IMAGES, TEST_LABELS, test)):
        pixels = bytes((seed * 31 + step * 7) % 256 for step in range(count * size * size))
        made[images] = struct.pack(">4I", 0x803, count, size, size) + pixels
        made[labels] = struct.pack(">2I", 0x801, count) + bytes(step % 10 for step in range(count))
    return made


def written(folder, files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def sum_of(content):
    return hashlib.sha256(content).hexdigest()


# Names.


def test_digits_are_the_real_ones_and_always_the_same(tmp_path):
    made = datasets.prepare("digits", cache=tmp_path)
    again = datasets.prepare("digits", cache=tmp_path / "elsewhere")
    assert made.key == again.key == shelf.key_of(datasets._sets()["digits"]["sha256"])
    assert made.folder == tmp_path / "datasets" / made.key
    assert sorted(path.name for path in made.folder.iterdir()) == sorted(FILES)
    assert idx.shape(made.folder / TRAIN_IMAGES) == (1297, 8, 8)
    assert idx.shape(made.folder / TEST_IMAGES) == (500, 8, 8)
    idx.check(made.folder)


def test_digits_are_split_in_proportion(tmp_path):
    folder = datasets.prepare("digits", cache=tmp_path).folder
    labels = {name: (folder / name).read_bytes()[8:] for name in (TRAIN_LABELS, TEST_LABELS)}
    for digit in range(10):
        share = labels[TEST_LABELS].count(digit) / (labels[TRAIN_LABELS] + labels[TEST_LABELS]).count(digit)
        assert share == pytest.approx(500 / 1797, abs=0.005)


def test_digits_are_written_once(tmp_path, monkeypatch):
    made = datasets.prepare("digits", cache=tmp_path)
    monkeypatch.setattr(datasets.idx, "write_digits", lambda folder: pytest.fail("written again"))
    assert datasets.prepare("digits", cache=tmp_path) == made


@pytest.mark.parametrize("damage", ["shorter", "changed", "missing"])
def test_a_damaged_set_is_made_anew(tmp_path, damage):
    made = datasets.prepare("digits", cache=tmp_path)
    file = made.folder / TEST_LABELS
    if damage == "missing":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(content[:-1] + (b"" if damage == "shorter" else b"\x00"))
    assert datasets.prepare("digits", cache=tmp_path) == made
    assert shelf.key_in(made.folder) == made.key


def test_where_the_cache_is_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path))
    assert datasets.prepare("digits").folder.parent == tmp_path / "datasets"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("mnits", "did you mean mnist?"), ("/nowhere/at/all", "digits, mnist, synthetic or a folder")],
)
def test_an_unknown_name_is_refused(tmp_path, name, remedy):
    with pytest.raises(UsageError, match=name) as caught:
        datasets.prepare(name, cache=tmp_path)
    assert remedy in caught.value.remedy


def test_a_synthetic_set_has_no_files(tmp_path):
    with pytest.raises(UsageError, match="has no files"):
        datasets.prepare("synthetic", cache=tmp_path)


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckError, match=re.escape(str(tmp_path / "file"))) as caught:
        datasets.prepare("digits", cache=tmp_path / "file")
    assert "HVLAB_CACHE" in caught.value.remedy


# Folders.


def test_all_ways_to_write_the_names_give_one_set(tmp_path):
    plain = written(tmp_path / "plain", contents())
    dots = written(tmp_path / "dots", {name.replace("-idx", ".idx"): c for name, c in contents().items()})
    packed = written(tmp_path / "packed", {f"{name}.gz": gzip.compress(c) for name, c in contents().items()})
    both = written(
        tmp_path / "both",
        {f"{name.replace('-idx', '.idx')}.gz": gzip.compress(c) for name, c in contents().items()},
    )
    found = [
        datasets.prepare(str(folder), cache=tmp_path / "cache") for folder in (plain, dots, packed, both)
    ]
    assert len({made.key for made in found}) == len({made.folder for made in found}) == 1
    assert {name: (found[0].folder / name).read_bytes() for name in FILES} == contents()
    assert found[0].key == shelf.key_of({name: sum_of(content) for name, content in contents().items()})


def test_another_content_is_another_key(tmp_path):
    folder = written(tmp_path / "data", contents())
    first = datasets.prepare(str(folder), cache=tmp_path / "cache")
    written(folder, contents(seed=2))
    second = datasets.prepare(str(folder), cache=tmp_path / "cache")
    assert first.key != second.key
    assert shelf.key_in(first.folder) == first.key


def broken(name, change):
    return lambda: {**contents(), name: change(contents()[name])}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (broken(TRAIN_IMAGES, lambda c: c[:-1]), "111 bytes, but its header says 6x4x4, so 112"),
        (broken(TEST_IMAGES, lambda c: c + b"x"), f"{TEST_IMAGES}: 49 bytes, but"),
        (broken(TEST_LABELS, lambda c: c[:5]), f"{TEST_LABELS}: 5 bytes are too short for an IDX file"),
        (broken(TRAIN_LABELS, lambda c: b"\x00\x00\x08\x03" + c[4:]), "idx1-ubyte: begins with 0x00000803"),
        (broken(TRAIN_IMAGES, lambda c: b"PK\x03\x04" + c[4:]), f"{TRAIN_IMAGES}: begins with 0x504b0304"),
        (broken(TEST_LABELS, lambda c: c[:-1] + b"\x0a"), f"{TEST_LABELS}: it holds a label 10"),
        (lambda: {**contents(), TEST_LABELS: contents(test=3)[TEST_LABELS]}, f"{TEST_IMAGES} holds 2 images"),
        (lambda: contents(test=0), f"{TEST_IMAGES}: it holds no image"),
        (lambda: {**contents(), TEST_IMAGES: contents(size=5)[TEST_IMAGES]}, "differ in size"),
    ],
)  # fmt: skip
def test_a_folder_with_something_wrong_names_the_file(tmp_path, files, told):
    folder = written(tmp_path / "data", files())
    with pytest.raises(UsageError, match=re.escape(told)) as caught:
        datasets.prepare(str(folder), cache=tmp_path / "cache")
    assert str(folder) in str(caught.value)
    assert not [path for path in (tmp_path / "cache/datasets").iterdir() if path.is_dir()]


def test_what_lacks_is_named_with_the_names_that_would_do(tmp_path):
    files = contents()
    del files[TRAIN_LABELS], files[TEST_IMAGES]
    folder = written(tmp_path / "data", files)
    with pytest.raises(UsageError, match=f"no {TRAIN_LABELS}, no {TEST_IMAGES}") as caught:
        datasets.prepare(str(folder), cache=tmp_path / "cache")
    assert ".gz" in caught.value.remedy


@pytest.mark.parametrize(
    "change", [lambda c: c[: len(c) // 2], lambda c: b"no gzip", lambda c: c[:-8] + b"\0" * 8]
)
def test_a_damaged_archive_is_named(tmp_path, change):
    files = {f"{name}.gz": gzip.compress(content) for name, content in contents().items()}
    folder = written(tmp_path / "data", {**files, f"{TEST_IMAGES}.gz": change(files[f"{TEST_IMAGES}.gz"])})
    with pytest.raises(UsageError, match=re.escape(f"{folder}/{TEST_IMAGES}.gz is damaged")):
        datasets.prepare(str(folder), cache=tmp_path / "cache")


def test_the_pinned_sets_are_complete():
    known = datasets._sets()
    assert set(known) == set(datasets.NAMES) - {"synthetic"}
    for each in known.values():
        assert set(each["sha256"]) == set(FILES)
    assert set(known["mnist"]["archives"]) == {f"{name}.gz" for name in FILES}
    assert all(re.fullmatch(r"https?://\S+/", address) for address in known["mnist"]["mirrors"])


# The archive that goes to the hosts.


def test_the_archive_holds_the_four_files(tmp_path):
    made = datasets.prepare("digits", cache=tmp_path)
    archive = datasets.archive(made.folder)
    assert archive.stat().st_size < sum(path.stat().st_size for path in made.folder.iterdir())
    with tarfile.open(archive) as tar:
        assert sorted(tar.getnames()) == sorted(FILES)
        assert {member.uid for member in tar} == {0}
    before = archive.stat().st_ino
    assert datasets.archive(made.folder).stat().st_ino == before


def test_an_archive_that_broke_off_is_none(tmp_path):
    made = datasets.prepare("digits", cache=tmp_path)
    (made.folder / TEST_IMAGES).unlink()
    with pytest.raises(CheckError, match="have changed"):
        datasets.archive(made.folder)
    assert not list(made.folder.parent.glob("*.tar.gz*"))
