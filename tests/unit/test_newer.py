"""Versions newer than the catalogue are resolved with what is known of their branch, and marked."""

from __future__ import annotations

import pytest

from hvlab.stack.resolver import HostRequest, Infeasible, Resolution, facts, lock, pins, plan
from hvlab.stack.resolver.catalogue import load
from hvlab.stack.resolver.newer import basis
from hvlab.stack.resolver.versions import numbers

H100 = {"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "memory_mib": 81559}
UBUNTU = {"distribution": "Ubuntu", "distribution_version": "24.04", "python": "3.12.3", "gcc": "13.2.0"}


def newest(name: str) -> tuple[int, ...]:
    known = load()
    releases = known.branches if name == "driver" else getattr(known, name)
    return max(map(numbers, releases))


def after(name: str, *, place: int, to: int | None = None) -> str:
    """Return the version after the newest known one in one of its numbers, with ``to`` numbers."""
    own = list(newest(name))
    own[place] += 1
    own[place + 1 :] = [0] * len(own[place + 1 :])
    return ".".join(map(str, own[:to]))


def asked(*texts: str, **changes: object) -> Resolution | Infeasible:
    hosts = facts.from_file({"n1": {**UBUNTU, "gpus": [H100], **changes}})
    return plan([HostRequest(host) for host in hosts.values()], [pins.parse(text) for text in texts])


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("cuda", after("cuda", place=1)),
        ("cuda", f"{after('cuda', place=1)}.1"),
        ("cuda", "13.0.9"),
        ("cudnn", after("cudnn", place=1)),
        ("nccl", after("nccl", place=1)),
        ("nccl", after("nccl", place=2)),
        ("torch", "2.13.9"),
        ("tensorflow", "2.15.9"),
        ("driver", f"{newest('driver')[0] + 5}.10.01"),
        ("driver", str(newest("driver")[0] + 5)),
        ("driver", "580.999.01"),
    ],
)
def test_a_newer_version_is_resolved_and_marked(name: str, version: str) -> None:
    texts = [f"{name}={version}", *(["python=3.11"] if name == "tensorflow" else [])]
    system = (
        {"distribution_version": "22.04", "python": "3.10.12", "gcc": "11.4.0"}
        if name == "tensorflow"
        else {}
    )
    answer = asked(*texts, **system)
    assert isinstance(answer, Resolution), answer.message
    stack = answer.hosts["n1"]
    assert stack["versions"][name].startswith(version)
    assert set(stack["not_known"]) == {name}
    notes = [note for note in stack["notes"] if "is not known to hvlab" in note]
    assert len(notes) == 1
    assert stack["not_known"][name] in notes[0]
    assert f"{stack['versions'][name]} ?" in lock.resolution(answer)
    assert "is a new-feature branch" not in "".join(stack["notes"])


def test_a_new_cuda_is_like_the_newest_release_and_a_new_point_like_the_newest_point() -> None:
    release, point = asked(f"cuda={after('cuda', place=1)}"), asked("cuda=13.0.9")
    assert isinstance(release, Resolution)
    assert isinstance(point, Resolution)
    newest_release = max(load().cuda, key=numbers)
    assert release.hosts["n1"]["not_known"] == {"cuda": newest_release}
    assert point.hosts["n1"]["not_known"] == {"cuda": max(load().cuda["13.0"].points, key=numbers)}


def test_known_versions_carry_no_mark() -> None:
    answer = asked()
    assert isinstance(answer, Resolution)
    assert answer.hosts["n1"]["not_known"] == {}
    assert " ?" not in lock.resolution(answer)


@pytest.mark.parametrize("text", ["cuda=12.7", "driver=600", "cuda=99.1", "nccl=3.1.1", "cudnn=9.11.0.1"])
def test_a_version_that_is_not_newer_or_of_an_unknown_major_is_refused(text: str) -> None:
    pin = pins.parse(text)
    assert basis(pin, load()) is None
    answer = asked(text)
    assert isinstance(answer, Infeasible)
    assert f"{pin.value} is known" in answer.message


def test_a_newer_release_that_is_pinned_in_part_says_how_to_pin_it() -> None:
    version = after("cudnn", place=1, to=2)
    answer = asked(f"cudnn={version}")
    assert isinstance(answer, Infeasible)
    assert f"a newer one is pinned in full (cudnn={version}.N.N)" in answer.message


def test_a_build_for_a_newer_cuda_is_taken_with_it() -> None:
    cuda, nccl = after("cuda", place=1), after("nccl", place=1)
    answer = asked(f"cuda={cuda}", f"nccl={nccl}+cuda{cuda}")
    assert isinstance(answer, Resolution), answer.message
    stack = answer.hosts["n1"]
    assert stack["versions"]["nccl"] == f"{nccl}-1+cuda{cuda}"
    assert set(stack["not_known"]) == {"cuda", "nccl"}
    assert stack["packages"]["cuda"][0]["name"] == f"cuda-toolkit-{cuda.replace('.', '-')}"


def test_an_installed_driver_of_a_newer_branch_stays_and_is_marked() -> None:
    driver = f"{newest('driver')[0] + 5}.10.01"
    answer = asked(driver=driver)
    assert isinstance(answer, Resolution), answer.message
    stack = answer.hosts["n1"]
    assert stack["versions"]["driver"] == driver
    assert any(f"the installed driver {driver} is not known to hvlab" in note for note in stack["notes"])


def test_what_runs_the_branch_is_asked_of_a_newer_version_too() -> None:
    """A GPU that the newest known CUDA has no code for gets none from a newer one."""
    old = {"name": "Tesla M40", "compute_capability": "5.2", "memory_mib": 22945}
    answer = asked(f"cuda={after('cuda', place=1)}", gpus=[old])
    assert isinstance(answer, Infeasible)
    assert "has no code for sm_52" in answer.message
