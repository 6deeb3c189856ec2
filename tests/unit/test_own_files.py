"""A user's own files: which go to the hosts, and that they are what the run was started with."""

import os
import shlex
import tarfile

import pytest

from hvlab.base.errors import UsageError
from hvlab.workloads.datasets import archive, own_files


@pytest.fixture
def folder(tmp_path):
    """A folder as users have it: a script, a package, data, and what is no part of a program."""
    place = tmp_path / "my project"
    for name in ("train.py", "net/model.py", "conf.yml", ".git/config", "net/__pycache__/x.pyc"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)
    (place / "results").mkdir()
    (place / "results/hvlab.db").write_text("")
    (place / "go.sh").write_text("#!/bin/sh\n")
    (place / "go.sh").chmod(0o755)
    return place


def names(line, cache):
    """Return the modes of an archive's files."""
    _, place = own_files.pack(line, cache=cache)
    with tarfile.open(place / own_files.ARCHIVE) as tar:
        return {member.name: member.mode for member in tar}


@pytest.mark.parametrize(
    ("words", "paths", "copied"),
    [
        (["python", "train.py", "--epochs", "1"], [], {"train.py"}),
        (["python", "train.py", "--config", "conf.yml"], ["net"], {"train.py", "conf.yml", "net/model.py"}),
        (["python", "train.py"], ["."], {"train.py", "conf.yml", "net/model.py", "go.sh"}),
        (["python", "-m", "net.model"], ["net"], {"net/model.py"}),
        (["python", "/opt/train.py"], [], set()),
    ],
)
def test_what_is_copied(folder, tmp_path, words, paths, copied):
    line = own_files.format_chosen(words, paths, folder)
    assert set(names(line, tmp_path / "cache") if line else {}) == copied


def test_linked_folders_are_copied_and_rounds_end(folder, tmp_path):
    data = tmp_path / "data"
    (data / "deep").mkdir(parents=True)
    (data / "deep/x.bin").write_text("x")
    (data / "back").symlink_to(folder)
    (folder / "data").symlink_to(data)
    (folder / "again").symlink_to(data / "deep")
    (folder / "net/here").symlink_to(".")
    (folder / "net/above").symlink_to("..")
    line = own_files.format_chosen(["python", "train.py"], ["."], folder)
    expected = {"train.py", "conf.yml", "net/model.py", "go.sh", "data/deep/x.bin", "again/x.bin"}
    assert set(names(line, tmp_path / "cache")) == expected


def test_a_linked_folder_may_be_named(folder, tmp_path):
    (folder / "conf").symlink_to("net")
    (folder / "net/here").symlink_to(".")
    line = own_files.format_chosen(["true"], ["conf"], folder)
    assert set(names(line, tmp_path / "cache")) == {"net/model.py"}


def test_a_script_may_be_run_and_content_is_the_key(folder, tmp_path):
    line = own_files.format_chosen(["./go.sh", "train.py"], [], folder)
    assert names(line, tmp_path / "cache") == {"go.sh": 0o755, "train.py": 0o644}
    (folder / "train.py").touch()
    assert own_files.format_chosen(["./go.sh", "train.py"], [], folder) == line
    (folder / "train.py").write_text("other")
    assert (
        shlex.split(own_files.format_chosen(["./go.sh", "train.py"], [], folder))[0] != shlex.split(line)[0]
    )


def test_files_that_changed_do_not_continue_a_run(folder, tmp_path):
    line = own_files.format_chosen(["python", "train.py"], [], folder)
    (folder / "train.py").write_text("other")
    with pytest.raises(UsageError, match="have changed since this run was started"):
        own_files.pack(line, cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("words", "paths", "told"),
    [
        (["true"], ["../x"], "no such file"),
        (["true"], ["nothing"], "no such file"),
        (["true"], ["/etc/hostname"], "is not in"),
        (["python", "model.py"], [], r"no file model\.py in .*my project"),
    ],
)
def test_what_cannot_be_copied(folder, words, paths, told):
    with pytest.raises(UsageError, match=told):
        own_files.format_chosen(words, paths, folder)


def test_a_folder_that_is_too_large(folder, monkeypatch):
    monkeypatch.setattr(own_files, "LIMIT", 10)
    with pytest.raises(UsageError, match="more than"):
        own_files.format_chosen(["python", "train.py"], ["."], folder)


@pytest.mark.parametrize("program", ["cd src && python train.py", "print(1)\n" * 100])
def test_a_program_in_a_word_is_no_file(folder, program):
    assert own_files.format_chosen(["bash", "-c", program], [], folder) == ""


def test_only_the_newest_archives_are_kept(folder, tmp_path):
    cache, lines = tmp_path / "cache", []
    first = own_files.format_chosen(["./go.sh"], [], folder)
    for number in range(own_files.KEPT + 2):
        (folder / "train.py").write_text(str(number))
        lines.append(own_files.format_chosen(["python", "train.py"], [], folder))
        _, place = own_files.pack(lines[-1], cache=cache)
        archive(place)
        # What is used again counts as new.
        _, used = own_files.pack(first, cache=cache)
        for age, path in enumerate((used, place)):
            os.utime(path, (number * 2 + age, number * 2 + age))
    kept = {path.name for path in place.parent.iterdir() if path.is_dir()}
    assert kept == {shlex.split(line)[0] for line in (first, *lines[-own_files.KEPT + 1 :])}
    assert {path.name for path in place.parent.glob("*.tar.gz")} <= {f"{key}.tar.gz" for key in kept}
