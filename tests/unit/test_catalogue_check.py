"""The catalogue against a package index: what pip prints, what differs, and what is written for review."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from hvlab.base import process
from hvlab.base.errors import HvlabError
from hvlab.base.yaml_files import load_shipped
from hvlab.cli import catalogue as verb
from hvlab.cli import run
from hvlab.stack.catalogue import differences, update
from hvlab.stack.catalogue.differences import Metadata, Pip
from hvlab.stack.resolver import catalogue, own

# As pip 23.2 printed it, without the older ones.
VERSIONS = """nvidia-nccl-cu13 (2.32.3)
Available versions: 2.32.3, 2.31.2, 2.30.7, 2.30.4, 2.30.3, 2.29.7, 2.29.3, 2.29.2
"""
# The parts of pip's report on torch 2.15.0 that matter here.
TORCH: dict[str, Any] = {
    "name": "torch",
    "version": "2.15.0",
    "requires_python": ">=3.11",
    "classifier": [
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 16)),
    ],
    "requires_dist": [
        "filelock",
        "sympy>=1.13.3",
        'cuda-toolkit[cublas,cudart,cufft,cufile,cupti,nvrtc,nvtx]==13.2.2; platform_system == "Linux"',
        'cuda-bindings<14,>=13.0.3; platform_system == "Linux" and python_version < "3.15"',
        'nvidia-cudnn-cu13==9.26.0.51; platform_system == "Linux"',
        'nvidia-nccl-cu13==2.30.7; platform_system == "Linux"',
        'triton~=3.9.0; platform_system == "Linux" and python_version < "3.16"',
    ],
}
TENSORFLOW: dict[str, Any] = {
    "requires_python": ">=3.10",
    "classifier": [f"Programming Language :: Python :: 3.{minor}" for minor in (10, 11, 12, 13)],
    "requires_dist": [
        'nvidia-cuda-runtime-cu12<13.0,>=12.5.82; extra == "and-cuda"',
        'nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"',
    ],
}
FILES = catalogue.files()


class Fixed:
    """An index that has what the catalogue knows, and what a test adds to it."""

    def __init__(self, **more: Sequence[str]) -> None:
        self.more = {name.replace("_", "-"): list(versions) for name, versions in more.items()}
        self.wheels: dict[str, Metadata] = {}

    def versions(self, package: str) -> list[str]:
        listed = self.more.get(package, [])
        if package == "cuda-toolkit":
            return [*listed, *(point for e in FILES["cuda"]["releases"].values() for point in e["points"])]
        if package in ("torch", "tensorflow"):
            return [*listed, *FILES[package]["releases"]]
        _, name, family = package.split("-")
        releases = FILES[name]["releases"].items()
        return [*listed, *(version for version, e in releases if family in (e.get("wheels") or ()))]

    def metadata(self, package: str, version: str) -> Metadata:
        if version in self.wheels:
            return self.wheels[version]
        entry = FILES[package]["releases"][version]
        oldest, newest = entry["python"]
        if package == "tensorflow":
            requires = {
                "nvidia-cuda-runtime-cu12": f">={entry['cuda']}.1",
                "nvidia-cudnn-cu12": f">={entry['cudnn']}.1",
            }
            return Metadata((oldest, newest), requires)
        build = entry["index"]
        requires = {"cuda-toolkit": f"=={build}.1"}
        for name in ("cudnn", "nccl"):
            requires[f"nvidia-{name}-cu{build.split('.')[0]}"] = f"=={entry[name][build]}"
        return Metadata((oldest, newest), requires)


def test_metadata_of_torch_as_pip_reports_it() -> None:
    data = differences.metadata(TORCH)
    assert data.python == ("3.11", "3.15")
    assert data.exact("cuda-toolkit") == "13.2.2"
    assert data.exact("nvidia-cudnn-cu13") == "9.26.0.51"
    assert data.exact("cuda-bindings") is None


def test_metadata_of_tensorflow_as_pip_reports_it() -> None:
    data = differences.metadata(TENSORFLOW)
    assert data.python == ("3.10", "3.13")
    assert data.least("nvidia-cuda-runtime-cu12") == "12.5.82"
    assert data.least("nvidia-nccl-cu12") is None


def test_pip_is_asked_with_its_own_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def answer(
        argv: Sequence[str], *, env: Mapping[str, str], **_: object
    ) -> subprocess.CompletedProcess[str]:
        calls.append(list(argv))
        assert env["PIP_CONSTRAINT"] == os.devnull
        report = json.dumps({"install": [{"metadata": TORCH}]})
        return subprocess.CompletedProcess(argv, 0, VERSIONS if "index" in argv else report, "")

    monkeypatch.setattr(process, "run", answer)
    assert Pip().versions("nvidia-nccl-cu13")[:2] == ["2.32.3", "2.31.2"]
    assert Pip().metadata("torch", "2.15.0").python == ("3.11", "3.15")
    words = [word for argv in calls for word in argv]
    assert not any(option in words for option in ("--index-url", "-i", "--extra-index-url", "--find-links"))
    assert {"--no-deps", "--dry-run"} <= set(calls[1])


@pytest.mark.parametrize(
    ("status", "out", "err", "part"),
    [
        (1, "", "ERROR: No matching distribution found for torch\n", "No matching distribution"),
        (0, "torch\n", "", "lists no versions"),
    ],
)
def test_a_failure_of_pip_names_the_package_and_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch, status: int, out: str, err: str, part: str
) -> None:
    monkeypatch.setattr(process, "run", lambda argv, **_: subprocess.CompletedProcess(argv, status, out, err))
    with pytest.raises(HvlabError, match=part) as raised:
        Pip().versions("torch")
    assert "torch" in str(raised.value)
    assert "pip config list" in str(raised.value.remedy)


def test_a_catalogue_that_agrees_has_no_differences() -> None:
    assert differences.differences(FILES, Fixed()) == []


def test_new_releases_and_points_are_missing() -> None:
    fixed = Fixed(
        cuda_toolkit=["13.9.1.0", "13.0.9"],
        nvidia_nccl_cu12=["2.99.1"],
        nvidia_nccl_cu13=["2.99.1"],
        nvidia_cudnn_cu13=["9.99.0.1", "9.99.0.1.post1"],
        torch=["2.99.0"],
    )
    fixed.wheels["2.99.0"] = differences.metadata(TORCH)
    missing = {(item.file, item.release): item for item in differences.differences(FILES, fixed)}
    assert set(missing) == {
        *(("cuda", "13.9"), ("cuda", "13.0"), ("nccl", "2.99.1"), ("cudnn", "9.99.0.1"), ("torch", "2.99.0")),
    }
    assert missing["cuda", "13.9"].changes == {"driver": None, "points": {"13.9.1": None}}
    assert missing["cuda", "13.0"].changes["points"]["13.0.9"] is None
    assert missing["nccl", "2.99.1"].changes == {"builds": [], "cuda": [12, 13], "wheels": ["cu12", "cu13"]}
    assert missing["torch", "2.99.0"].changes == {
        "python": ["3.11", "3.15"],
        "index": "13.2",
        "cudnn": {"13.2": "9.26.0.51"},
        "nccl": {"13.2": "2.30.7"},
    }


def test_what_a_wheel_says_otherwise_is_a_difference() -> None:
    fixed = Fixed()
    wrong = deepcopy(FILES)
    newest = list(FILES["torch"]["releases"])[-1]
    entry = wrong["torch"]["releases"][newest]
    entry["python"] = ["3.7", "3.9"]
    [found] = differences.differences(wrong, fixed)
    assert (found.file, found.release, found.missing) == ("torch", newest, False)
    assert found.as_json()["catalogue"] == {"python": ["3.7", "3.9"]}
    assert found.as_json()["index"] == {"python": FILES["torch"]["releases"][newest]["python"]}


def text(file: str) -> str:
    return (catalogue.FOLDER / f"{file}.yml").read_text(encoding="utf-8")


def changed(**more: Sequence[str]) -> list[differences.Difference]:
    fixed = Fixed(**more)
    fixed.wheels["2.99.0"] = differences.metadata(TORCH)
    fixed.wheels["2.98.0"] = differences.metadata(TENSORFLOW)
    return differences.differences(FILES, fixed)


@pytest.mark.parametrize(
    ("file", "more", "release"),
    [
        ("cuda", {"cuda_toolkit": ["13.9.1"]}, "13.9"),
        ("cuda", {"cuda_toolkit": ["12.4.9"]}, "12.4"),
        ("cuda", {"cuda_toolkit": ["12.6.9", "12.6.10"]}, "12.6"),
        ("cuda", {"cuda_toolkit": ["13.0.9"]}, "13.0"),
        ("nccl", {"nvidia_nccl_cu12": ["2.27.99"]}, "2.27.99"),
        ("cudnn", {"nvidia_cudnn_cu13": ["9.99.0.1"]}, "9.99.0.1"),
        ("torch", {"torch": ["2.99.0"]}, "2.99.0"),
        ("tensorflow", {"tensorflow": ["2.98.0"]}, "2.98.0"),
    ],
)
def test_an_update_changes_these_lines_alone_and_the_loader_takes_it(
    file: str, more: dict[str, list[str]], release: str
) -> None:
    before = text(file)
    after = update.update(before, update.entries_of(before), changed(**more))
    lost = set(before.splitlines()) - set(after.splitlines())
    assert len(lost) == (release in update.entries_of(before))
    assert all(len(line) <= 160 for line in set(after.splitlines()) - set(before.splitlines()))
    entries = update.entries_of(after)
    assert list(entries) == sorted(entries, key=catalogue.versions.numbers)
    data = {**FILES, file: load_shipped(after)}
    known = catalogue.build(data)
    assert release in getattr(known, file)
    assert data[file]["releases"][release].get("source", "known") in data[file]["sources"]
    # What was written is what the index says.
    again = Fixed(**more)
    again.wheels = {"2.99.0": differences.metadata(TORCH), "2.98.0": differences.metadata(TENSORFLOW)}
    assert differences.differences(data, again) == []


def test_a_users_file_gets_the_same(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.yml"
    comment = '# ours\ngpus:\n  - {match: "H900", capability: "9.0"}\n'
    changes = changed(cuda_toolkit=["13.9.1"], torch=["2.99.0"])
    path.write_text(update.apply_changes(comment, changes), encoding="utf-8")
    assert path.read_text(encoding="utf-8").startswith(comment)
    known = catalogue.build(own.merge(FILES, own.read(path), path))
    assert known.torch["2.99.0"].python == ("3.11", "3.15")
    assert known.cuda["13.9"].driver is None
    twice = update.apply_changes(path.read_text(encoding="utf-8"), changes)
    assert twice == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # In one line, with a comment behind it.
        (
            '# ours\nnccl:\n  "2.99.1": {like: "2.32.3", capability: "7.0", wheels: [cu13]}  # n1\n',
            '# ours\nnccl:\n  "2.99.1": {like: "2.32.3", capability: "7.0", wheels: [cu12, cu13]}  # n1\n',
        ),
        # In a block, with another release and a section behind it.
        (
            'nccl:\n    "2.99.1":\n        like: "2.32.3"\n        # as the others\n        wheels: [cu13]\n'
            '    "2.99.2": {like: "2.99.1"}\n\n# drivers\ndrivers: {}\n',
            'nccl:\n        # as the others\n    "2.99.1": {like: "2.32.3", wheels: [cu12, cu13]}\n'
            '    "2.99.2": {like: "2.99.1"}\n\n# drivers\ndrivers: {}\n',
        ),
        # At the end of the file, with other quotes.
        (
            "nccl:\n  '2.99.1':\n    like: '2.32.3'\n    wheels: [cu13]",
            'nccl:\n  "2.99.1": {like: "2.32.3", wheels: [cu12, cu13]}\n',
        ),
        # The whole section in one line.
        (
            'nccl: {"2.99.1": {like: "2.32.3", wheels: [cu13]}}\ncuda:\n',
            'nccl:\n  "2.99.1": {like: "2.32.3", wheels: [cu12, cu13]}\ncuda:\n',
        ),
    ],
)
def test_a_release_in_a_users_file_keeps_its_other_fields(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "catalogue.yml"
    change = differences.Difference("nccl", "2.99.1", {"wheels": ["cu12", "cu13"]}, {"wheels": ["cu13"]})
    assert update.apply_changes(before, [change]) == after
    path.write_text(after, encoding="utf-8")
    assert catalogue.build(own.merge(FILES, own.read(path), path)).nccl["2.99.1"].wheels == (12, 13)


@pytest.mark.parametrize("release", ["2.99.1", "2.99.2"])
def test_a_release_with_an_alias_in_a_users_file_is_named(release: str) -> None:
    text = 'nccl:\n  "2.99.1": &one {like: "2.32.3"}\n  "2.99.2": *one\n'
    change = differences.Difference("nccl", release, {"wheels": ["cu13"]}, {"wheels": []})
    with pytest.raises(HvlabError, match=f"nccl, {release} of your own file .* alias") as refused:
        update.apply_changes(text, [change])
    assert "{wheels: [cu13]}" in str(refused.value.remedy)
    other = differences.Difference("cuda", "13.9", {"driver": None}, like="13.1")
    assert update.apply_changes(text, [other]).startswith(text)


def test_a_shipped_release_in_a_users_file_is_like_itself() -> None:
    change = differences.Difference(
        "nccl", "2.32.3", {"wheels": ["cu13"]}, FILES["nccl"]["releases"]["2.32.3"]
    )
    assert (
        update.apply_changes("nccl:\n", [change]) == 'nccl:\n  "2.32.3": {like: "2.32.3", wheels: [cu13]}\n'
    )


def test_each_release_of_the_index_can_be_added_to_a_users_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "catalogue.yml"
    monkeypatch.setenv("HVLAB_CATALOGUE", str(path))
    listed: dict[str, list[str]] = {}
    steps: list[tuple[str, list[str]]] = [
        ("nvidia_nccl_cu13", ["2.32.9"]),
        ("nvidia_nccl_cu12", ["2.32.9"]),
        ("nvidia_nccl_cu13", ["2.32.9", "2.32.10"]),
        ("nvidia_cudnn_cu13", ["9.99.0.1"]),
        ("nvidia_cudnn_cu12", ["9.99.0.1"]),
        ("cuda_toolkit", ["13.9.1"]),
        ("cuda_toolkit", ["13.9.1", "13.9.2"]),
    ]
    for package, releases in steps:
        listed[package] = releases
        index_now = Fixed(**listed)
        monkeypatch.setattr(verb, "Pip", lambda fixed=index_now: fixed)
        assert run(["catalogue", "update", "--own"]) == 0
        assert run(["catalogue", "check"]) == 0
    known = catalogue.load()
    assert {release: known.nccl[release].wheels for release in ("2.32.9", "2.32.10")} == {
        "2.32.9": (12, 13),
        "2.32.10": (13,),
    }
    assert known.nccl["2.32.9"].majors == (13,)
    assert known.cudnn["9.99.0.1"].wheels == (12, 13)
    assert set(known.cuda["13.9"].points) == {"13.9.1", "13.9.2"}


def test_the_catalogues_files_are_compared_without_a_users_releases(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, folder = tmp_path / "catalogue.yml", tmp_path / "catalogue"
    shutil.copytree(catalogue.FOLDER, folder)
    (tmp_path / ".git").mkdir()
    path.write_text('nccl:\n  "2.32.9": {like: "2.32.3", wheels: [cu13]}\n', encoding="utf-8")
    monkeypatch.setenv("HVLAB_CATALOGUE", str(path))
    monkeypatch.setattr(verb, "FOLDER", folder)
    monkeypatch.setattr(verb, "project_dir", lambda: tmp_path)
    monkeypatch.setattr(verb, "Pip", lambda: Fixed(nvidia_nccl_cu13=["2.32.9"], cuda_toolkit=["13.9.1"]))
    assert run(["catalogue", "update"]) == 0
    known = catalogue.build(catalogue.files(folder))
    assert known.nccl["2.32.9"].majors == (13,)
    assert "13.9" in known.cuda


@pytest.mark.parametrize("words", [["--own"], []])
def test_nothing_is_written_that_cannot_be_read(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, folder = tmp_path / "catalogue.yml", tmp_path / "catalogue"
    shutil.copytree(catalogue.FOLDER, folder)
    (tmp_path / ".git").mkdir()
    path.write_text("# ours\n", encoding="utf-8")
    monkeypatch.setenv("HVLAB_CATALOGUE", str(path))
    monkeypatch.setattr(verb, "FOLDER", folder)
    monkeypatch.setattr(verb, "project_dir", lambda: tmp_path)
    good = differences.Difference("cuda", "13.9", {"driver": None, "points": {}}, like="13.0")
    bad = differences.Difference("nccl", "2.99.1", {"wheels": ["thirteen"]}, like="2.32.3")
    monkeypatch.setattr(verb, "differences", lambda *_: [good, bad])
    assert run(["catalogue", "update", *words]) == 2
    assert path.read_text(encoding="utf-8") == "# ours\n"
    assert catalogue.files(folder) == FILES


def test_the_verb_checks_and_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "catalogue.yml"
    monkeypatch.setenv("HVLAB_CATALOGUE", str(path))
    monkeypatch.setattr(verb, "Pip", lambda: Fixed(cuda_toolkit=["13.9.1"]))
    assert run(["catalogue", "check", "--format", "json"]) == 1
    assert [item["release"] for item in json.loads(capsys.readouterr().out)] == ["13.9"]
    assert run(["catalogue", "update", "--own"]) == 0
    assert f"written; review them: {path}" in capsys.readouterr().out
    assert run(["catalogue", "check"]) == 0
    assert "matches the index" in capsys.readouterr().out
