"""A bisection from its two ends to its report, with stacks whose cost is known instead of hosts."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from hvlab.base.errors import CheckError, UsageError
from hvlab.bench.matrix import Block, Spec
from hvlab.results import searches
from hvlab.results.store import Store
from hvlab.searches.bisect import session
from hvlab.searches.bisect.judge import Effect, InstalledStack, Judge, StackFailsError
from hvlab.searches.bisect.session import BisectRequest, bisect, check
from hvlab.searches.bisect.stack import Stack
from hvlab.statistics.interval import Interval
from tests.unit import labs

GOOD = Stack({"openmpi": "4.1.8", "horovod": "0.28.1", "python": "3.11", "torch": "2.13.0"})
SPEC = Spec((Block("allreduce", ("mpi",), (2,), (1,)),))


class Hosts:
    """What is done to hosts; a stack takes ``cost`` times as long with one item at a value."""

    def __init__(self, slow: tuple[str, str], cost: float = 1.3) -> None:
        self.slow, self.cost = slow, cost
        self.stacks: dict[str, Stack] = {}
        self.halves: list[float | None] = []
        self.unbuildable: set[str] = set()
        self.failing: set[str] = set()
        self.removed = 0

    def install(self, stack: Stack, own: Stack, _lab: object) -> None:
        name = session.name_of(stack, own)
        if self.unbuildable & set(map(str, stack.items.values())):
            raise CheckError("it could not be installed: no wheel", remedy="put its wheel there")
        self.stacks[name] = stack

    def remove(self, _lab: object) -> None:
        self.removed += 1

    def effect(self, other: InstalledStack, half: float | None = None) -> Effect:
        self.halves.append(half)
        stack = self.stacks.get(other.name, GOOD)
        if self.failing & set(map(str, stack.items.values())):
            raise StackFailsError("it does not run: libtorch.so is gone")
        settings = dict(other.parameters).get("env", "")
        name, value = self.slow
        slow = stack[name] == value or f"{name}={value}" in settings
        log = math.log(self.cost) if slow else 0.0
        return Effect(Interval(log - 0.01, log, log + 0.01), slower=log > 0, run_id=f"r{len(self.halves)}")


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    hosts = Hosts(("horovod_arch_flags", "-O0"))
    monkeypatch.setattr(session, "install", hosts.install)
    monkeypatch.setattr(session, "remove", hosts.remove)
    monkeypatch.setattr(Judge, "effect", lambda _, *given: hosts.effect(*given))
    monkeypatch.setattr(BisectRequest, "possible", lambda *_: True)
    return hosts


def _request(**changed: object) -> BisectRequest:
    return BisectRequest(GOOD, Stack({**GOOD.items, **changed}), GOOD, SPEC, labs.lab(), ())


BAD = {"horovod_arch_flags": "-O0", "openmpi_configure_flags": ["--x"], "env.HARMLESS": "1"}


def test_from_two_ends_to_the_report(hosts: Hosts, tmp_path: Path) -> None:
    said: list[str] = []
    request = _request(**BAD)
    result = bisect(request, Store(tmp_path), tmp_path / "b", keep=False, note=said.append)
    assert result.answer.startswith(
        "Slower because of: horovod_arch_flags nothing -> -O0. All changes together"
    )
    assert "Slower because of" in (tmp_path / "b/bisect.md").read_text()
    assert json.loads((tmp_path / "b/result.json").read_text())["remedy"] == "horovod_arch_flags: null"
    assert hosts.halves[0] is None
    assert hosts.halves[1] == pytest.approx(math.log(1.3) / 2)
    assert hosts.removed == 1
    assert said[-1] == "removing the stacks from the hosts"


def test_what_cannot_be_built_or_does_not_run_is_gone_round(hosts: Hosts, tmp_path: Path) -> None:
    hosts.slow = ("torch", "2.10.0")
    hosts.unbuildable.add("2.12.1")
    hosts.failing.add("2.12.0")
    request = _request(torch="2.10.0", **{"env.HARMLESS": "1"})
    result = bisect(request, Store(tmp_path), tmp_path / "b", keep=True, note=lambda _: None)
    assert result.answer.startswith("Slower because of: torch 2.11.0 -> 2.10.0.")
    problems = [step.problem for step in result.steps if step.effect is None]
    assert "it could not be installed: no wheel; put its wheel there" in problems
    assert hosts.removed == 0


def test_a_bad_end_that_does_not_run_is_refused_and_nothing_is_left(hosts: Hosts, tmp_path: Path) -> None:
    hosts.failing.add("-O0")
    with pytest.raises(CheckError, match="the bad stack cannot be measured: it does not run: libtorch"):
        bisect(_request(**BAD), Store(tmp_path), tmp_path / "b", keep=False, note=lambda _: None)
    assert hosts.removed == 1


def test_a_good_end_that_cannot_be_built_is_named(hosts: Hosts, tmp_path: Path) -> None:
    hosts.unbuildable.add("4.1.6")
    good = Stack({**GOOD.items, "openmpi": "4.1.6"})
    request = BisectRequest(good, GOOD, GOOD, SPEC, labs.lab(), ())
    with pytest.raises(
        CheckError, match="the good stack cannot be measured: it could not be installed"
    ) as raised:
        bisect(request, Store(tmp_path), tmp_path / "b", keep=False, note=lambda _: None)
    assert raised.value.remedy == "put its wheel there"


def test_hosts_that_are_gone_at_the_end_do_not_hide_the_answer(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_lab: object) -> None:
        raise CheckError("n2 does not answer", remedy="boot it")

    monkeypatch.setattr(session, "remove", gone)
    said: list[str] = []
    assert bisect(_request(**BAD), Store(tmp_path), tmp_path / "b", keep=False, note=said.append).culprit
    assert said[-1] == "n2 does not answer; boot it"


def test_a_results_folder_that_is_none_is_named(hosts: Hosts, tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.touch()
    with pytest.raises(UsageError, match=r"the results folder .*/results cannot be written: "):
        bisect(_request(**BAD), Store(results), results / "bisect/b", keep=False, note=lambda _: None)


def test_a_stack_that_is_as_fast_needs_no_search(hosts: Hosts, tmp_path: Path) -> None:
    hosts.cost = 1.0
    result = bisect(_request(**BAD), Store(tmp_path), tmp_path / "b", keep=False, note=lambda _: None)
    assert result.culprit is None
    assert len(result.steps) == 1


def test_two_equal_ends_and_several_configurations_are_refused(hosts: Hosts, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both ends are the same stack"):
        bisect(_request(), Store(tmp_path), tmp_path / "b", keep=False, note=lambda _: None)
    several = Spec((Block("allreduce", ("mpi", "gloo"), (2,), (1,)),))
    request = BisectRequest(GOOD, GOOD, GOOD, several, labs.lab(), ())
    with pytest.raises(UsageError, match="2 configurations are asked for"):
        check(request)


def test_an_unfinished_bisection_goes_on_in_its_folder(tmp_path: Path) -> None:
    request = _request(**BAD)
    first = searches.folder_of(tmp_path, "bisect", request.key(), restart=False)
    first.mkdir(parents=True)
    assert searches.folder_of(tmp_path, "bisect", request.key(), restart=False) == first
    assert searches.folder_of(tmp_path, "bisect", request.key(), restart=True) != first
    (first / "result.json").touch()
    assert searches.folder_of(tmp_path, "bisect", request.key(), restart=False) != first
    other = _request(torch="2.12.0").key()
    assert searches.folder_of(tmp_path, "bisect", other, restart=False) != first
    second = searches.folder_of(tmp_path, "bisect", request.key(), restart=False)
    second.mkdir()
    (second / "result.json").touch()
    shutil.rmtree(first)
    # An ended search is never resumed, whatever else was removed.
    third = searches.folder_of(tmp_path, "bisect", request.key(), restart=False)
    assert third not in (second, second.with_name(f"{first.name}-2"))


def test_settings_of_an_end_that_cannot_run_are_refused_before_anything_is_installed(
    hosts: Hosts, tmp_path: Path
) -> None:
    gloo = Spec((Block("allreduce", ("gloo",), (2,), (1,)),))
    bad = Stack({**GOOD.items, "mpirun": "--bind-to core"})
    request = BisectRequest(GOOD, bad, GOOD, gloo, labs.lab(), ())
    with pytest.raises(UsageError, match="the settings of the bad stack do not fit what is measured: hor"):
        bisect(request, Store(tmp_path), tmp_path / "b", keep=False, note=lambda _: None)
    assert not hosts.stacks
