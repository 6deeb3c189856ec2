"""Releases that a user adds to the catalogue in a file of their own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hvlab.base import paths
from hvlab.cli import run
from hvlab.stack.resolver import HostRequest, Infeasible, Resolution, facts, pins, plan
from hvlab.stack.resolver.catalogue import files, load
from hvlab.stack.resolver.own import CatalogueError, merge

H100 = {"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}
UBUNTU = {"distribution": "Ubuntu", "distribution_version": "24.04", "python": "3.12.3", "gcc": "13.2.0"}
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    path = tmp_path / "catalogue.yml"
    monkeypatch.setenv("HVLAB_CATALOGUE", str(path))

    def written(text: str) -> Path:
        path.write_text(text, encoding="utf-8")
        return path

    return written


def asked(*texts: str, **changes: object) -> Resolution | Infeasible:
    hosts = facts.from_file({"n1": {**UBUNTU, "gpus": [H100], **changes}})
    return plan([HostRequest(host) for host in hosts.values()], [pins.parse(text) for text in texts])


def test_the_file_lies_in_the_users_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HVLAB_CATALOGUE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert paths.own_catalogue() == tmp_path / "hvlab/catalogue.yml"


def test_without_the_file_the_catalogue_is_hvlabs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HVLAB_CATALOGUE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load().own == {}


@pytest.mark.usefixtures("write")
def test_a_file_that_is_named_and_not_there_is_refused() -> None:
    with pytest.raises(CatalogueError, match=r"catalogue\.yml does not exist, and HVLAB_CATALOGUE names it"):
        load()


def test_a_release_is_added_like_another(write: Write) -> None:
    path = write('cuda:\n  "13.60": {like: "13.0", points: {"13.60.1": "580.65.06"}}\n')
    answer = asked("cuda=13.60", "driver=580")
    assert isinstance(answer, Resolution), answer.message
    stack = answer.hosts["n1"]
    assert stack["versions"]["cuda"] == "13.60"
    assert stack["not_known"] == {}
    assert f"CUDA 13.60 is of your own catalogue file, {path}" in stack["notes"]


def test_a_driver_branch_is_offered_where_the_newest_one_is(write: Write) -> None:
    write('drivers:\n  "901": {like: "595", first: "901.10", latest: "901.20.01"}\n')
    answer = asked("driver=901")
    assert isinstance(answer, Resolution), answer.message
    assert answer.hosts["n1"]["versions"]["driver"] == "901.20.01"
    older = asked("driver=901", distribution_version="20.04", python="3.8.10", gcc="9.4.0")
    assert isinstance(older, Infeasible)
    assert "does not have driver 901" in older.message


def test_a_gpu_and_a_system_are_added(write: Write) -> None:
    write(
        'gpus:\n  - {match: "H900", capability: "9.0"}\n'
        'systems:\n  - {name: ubuntu3004, like: ubuntu2404, version: "30.04"}\n'
    )
    answer = asked(gpus=[{"name": "NVIDIA H900 PCIe"}], distribution_version="30.04")
    assert isinstance(answer, Resolution), answer.message
    assert answer.hosts["n1"]["system"]["name"] == "ubuntu3004"


def test_a_file_that_changes_is_read_again(write: Write) -> None:
    write('cuda:\n  "13.60": {like: "13.0"}\n')
    assert "13.60" in load().cuda
    path = write('cuda:\n  "13.70": {like: "13.0"}\n')
    os.utime(path, ns=(1, 1))
    assert "13.70" in load().cuda


@pytest.mark.parametrize("file", ["cuda", "cudnn", "nccl", "torch", "tensorflow", "drivers", "capabilities"])
def test_every_field_that_is_read_can_be_given(file: str, tmp_path: Path) -> None:
    data = files()
    place = {"drivers": "branches", "capabilities": "capabilities"}.get(file, "releases")
    entries = data[file][place]
    known = getattr(load(), {"drivers": "branches"}.get(file, file))
    fields = {field.name for field in dataclasses.fields(next(iter(known.values())))[1:]}
    # The majors of CUDA that a library serves stand under this name, or are those of its builds.
    for field in {"cuda" if field == "majors" else field for field in fields}:
        value: Any = next((entry[field] for entry in entries.values() if field in entry), [])
        merge(data, {file: {"999": {"like": list(entries)[-1], field: value}}}, tmp_path)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- cuda\n", "is not a mapping"),
        ('cudda:\n  "13.6": {}\n', "did you mean cuda?"),
        ("cuda:\n  13.6: {like: '13.0'}\n", "write the version in quotes"),
        ('cuda:\n  "13.60": {like: "13.99"}\n', "like '13.99' is not known"),
        ('cuda:\n  "13.60": {gcc: 15}\n', "driver, gcc_min, points missing"),
        ('cuda:\n  "13.60": {like: "13.0", drivers: "580"}\n', "did you mean driver?"),
        ('cuda:\n  "13.60": 15\n', "15 is not a mapping"),
        ('cuda:\n  "13.60": {like: 13.0}\n', "like 13.0 is not a text"),
        ('drivers:\n  R625: {like: "595"}\n', "write the branch's number"),
        ("gpus: {match: H900}\n", "not a list"),
        ("gpus:\n  - {name: H900}\n", "has no match"),
        ("cuda: [\n", "cannot be read"),
    ],
)
def test_a_mistake_names_the_file_and_the_entry(write: Write, text: str, part: str) -> None:
    path = write(text)
    with pytest.raises(CatalogueError) as raised:
        load()
    assert str(path) in str(raised.value)
    assert part in f"{raised.value} {raised.value.remedy}"


def test_a_mistake_ends_the_plan_with_exit_code_2(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("cuda: [\n")
    recorded = tmp_path / "facts.json"
    recorded.write_text('{"n1": {"distribution": "Debian", "distribution_version": "12"}}', encoding="utf-8")
    assert run(["plan", "--facts", str(recorded)]) == 2
    assert "catalogue.yml cannot be read" in capsys.readouterr().err
