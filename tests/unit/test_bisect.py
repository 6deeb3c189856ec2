"""The search for the change that costs speed, on stacks whose cost is known."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.records import filled
from hvlab.analysis.baseline import keeping
from hvlab.analysis.compare import measurements
from hvlab.base.errors import CheckError, UsageError
from hvlab.bench.settings import SettingsFile
from hvlab.lab import pin_variables
from hvlab.lab.inventory import Host, Lab
from hvlab.results.store import Store
from hvlab.searches.bisect import ends, session
from hvlab.searches.bisect.judge import Effect
from hvlab.searches.bisect.result import BisectResult, Culprit, Judge, TriedStack
from hvlab.searches.bisect.result import search as search_without
from hvlab.searches.bisect.stack import Stack, StackChange, chain, from_settings, without
from hvlab.statistics.interval import Interval


class Counted:
    """A judge that counts; ``bad`` says what is bad, ``impossible`` what cannot be tried."""

    def __init__(
        self, bad: Callable[[set[int]], bool], impossible: Callable[[set[int]], bool] = lambda _: False
    ) -> None:
        self.bad, self.impossible = bad, impossible
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, changes: tuple[int, ...]) -> bool | None:
        assert changes == tuple(sorted(set(changes)))
        if changes not in self.asked:
            self.asked.append(changes)
        return None if self.impossible(set(changes)) else self.bad(set(changes))


def search(count: int, judge: Judge) -> Culprit:
    """Search changes of which each is of an item of its own."""
    return search_without(count, judge, lambda taken: tuple(sorted(set(range(count)) - set(taken))))


def _all_of(*numbers: int) -> Callable[[set[int]], bool]:
    return lambda changes: set(numbers) <= changes


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 33])
def test_one_change_is_found_wherever_it_is_in_logarithmic_steps(count: int) -> None:
    for number in range(count):
        judge = Counted(_all_of(number))
        assert search(count, judge) == Culprit(((number,),), sole=True, whole=True)
        assert len(judge.asked) <= math.ceil(math.log2(count)) + 2


def test_changes_that_cost_only_together_are_all_found() -> None:
    for numbers in (*itertools.combinations(range(6), 2), *itertools.combinations(range(6), 3)):
        found = search(6, Counted(_all_of(*numbers)))
        assert found.changes == numbers
        assert found.groups == tuple((number,) for number in numbers)
        assert (found.sole, found.whole) == (True, True)


def test_a_second_cause_beside_the_first_is_said() -> None:
    found = search(8, Counted(lambda changes: bool(changes & {2, 6})))
    assert found == Culprit(((2,),), sole=True, whole=False)


def test_what_cannot_be_tried_is_gone_round() -> None:
    judge = Counted(_all_of(5), impossible=lambda changes: len(changes) == 4)
    assert search(8, judge).groups == ((5,),)


def test_what_lies_between_stacks_that_cannot_be_tried_is_named_together() -> None:
    found = search(8, Counted(_all_of(4), impossible=lambda changes: len(changes) in (4, 5)))
    assert found.groups == ((3, 4, 5),)
    assert found.sole
    nothing = search(3, Counted(_all_of(1), impossible=lambda changes: len(changes) < 3))
    assert nothing == Culprit(((0, 1, 2),), sole=True, whole=True)


def test_a_change_that_cannot_be_tried_alone() -> None:
    found = search(4, Counted(_all_of(3), impossible=lambda changes: changes == {3}))
    assert found == Culprit(((3,),), sole=None, whole=True)


GOOD = Stack({"torch": "2.4.1", "openmpi": "4.1.8", "horovod": "0.28.1", "python": "3.11", "env.A": "1"})
RELEASES = {"torch": ["2.4.1", "2.5.0", "2.6.0", "2.8.0", "2.10.0"], "openmpi": ["4.1.4", "4.1.6", "4.1.8"]}


def _changed(**items: Any) -> Stack:
    return Stack({**GOOD.items, **items})


def test_changes_go_item_by_item_and_release_by_release() -> None:
    bad = _changed(torch="2.8.0", openmpi="4.1.4", **{"env.A": None, "env.B": "2", "horovod_variants": {}})
    changes = chain(GOOD, bad, RELEASES, lambda _: True)
    assert [(change.item, change.before, change.after) for change in changes] == [
        ("env.A", "1", None),
        ("env.B", None, "2"),
        ("horovod_variants", None, {}),
        ("openmpi", "4.1.8", "4.1.6"),
        ("openmpi", "4.1.6", "4.1.4"),
        ("torch", "2.4.1", "2.5.0"),
        ("torch", "2.5.0", "2.6.0"),
        ("torch", "2.6.0", "2.8.0"),
    ]
    assert GOOD.with_(changes).variables == bad.variables
    assert GOOD.with_(changes).settings == bad.settings


def test_an_end_may_name_releases_by_their_beginning() -> None:
    """A stack file that says 2.4 means what the hosts have of it, or what the resolver takes."""
    assert not chain(GOOD, _changed(torch="2.4"), RELEASES, lambda _: True)
    for good, bad in (
        (_changed(torch="2.4"), _changed(torch="2.6")),
        (_changed(torch="2.6"), _changed(torch="2.4")),
    ):
        changes = chain(good, bad, RELEASES, lambda _: True)
        middle = [change.after for change in changes[:-1]]
        assert middle == ["2.5.0"]
    python = chain(_changed(python="3.1"), _changed(python="3.11"), {}, lambda _: True)
    assert [change.item for change in python] == ["python"]


def test_who_takes_a_release_back_has_none_after_it() -> None:
    changes = chain(GOOD, _changed(torch="2.8.0", openmpi="4.1.4"), RELEASES, lambda _: True)
    assert [change.item for change in changes] == ["openmpi"] * 2 + ["torch"] * 3
    assert without(changes, [3]) == (0, 1, 2)
    assert without(changes, [2, 3]) == (0, 1)
    assert without(changes, [0, 4]) == (2, 3)


def test_a_release_that_is_not_possible_is_left_out() -> None:
    changes = chain(GOOD, _changed(torch="2.8.0"), RELEASES, lambda stack: stack["torch"] != "2.5.0")
    assert [change.after for change in changes] == ["2.6.0", "2.8.0"]


def test_the_same_stack_has_no_changes() -> None:
    assert not chain(GOOD, GOOD, RELEASES, lambda _: True)
    assert not chain(GOOD, _changed(**{"env.X": None}), RELEASES, lambda _: True)


def test_settings_and_items_are_the_same() -> None:
    settings = SettingsFile(env={"NCCL_ALGO": "Ring"}, mpirun="--bind-to core")
    assert Stack(from_settings(settings)).settings == settings


def test_variables_are_pins_and_those_of_roles() -> None:
    stack = _changed(horovod_variants={"cpu": {}}, **{"env.A": "1"})
    assert stack.variables == {
        "lab_torch": "2.4.1",
        "lab_openmpi": "4.1.8",
        "lab_horovod": "0.28.1",
        "lab_python": "3.11",
        "horovod_variants": {"cpu": {}},
        "openmpi_parameters": {},
    }


def test_each_parameter_of_open_mpi_is_a_change_that_costs_no_build() -> None:
    in_use = Stack({**GOOD.items, "openmpi_parameters": {"btl_tcp_sndbuf": 65536, "btl_tcp_links": 2}})
    other = Stack({**GOOD.items, "openmpi_parameters": {"btl_tcp_sndbuf": 4096}, "horovod_arch_flags": "-O1"})
    own, good, bad, without_any = ends.with_defaults(in_use, in_use, other, GOOD)
    changes = chain(good, bad, {}, lambda _: True)
    assert [(change.item, change.before, change.after) for change in changes] == [
        ("openmpi_parameters.btl_tcp_links", 2, None),
        ("openmpi_parameters.btl_tcp_sndbuf", 65536, 4096),
        ("horovod_arch_flags", "auto", "-O1"),
    ]
    assert str(changes[1]) == "btl_tcp_sndbuf 65536 -> 4096"
    assert changes[1].pin == ("openmpi_parameters", {"btl_tcp_sndbuf": 65536})
    between = good.with_(changes[:2])
    asked = session.variables(between, own, _lab())
    assert asked["openmpi_parameters"] == {"btl_tcp_sndbuf": 4096}
    assert asked["openmpi_parameters_file"] == f"/opt/hvlab/stacks/{between.name}/openmpi-mca-params.conf"
    assert session.name_of(between, own), "what is in use has others"
    prefixes = [asked[f"{role}_prefix"] for role in ("openmpi", "python_env", "horovod")]
    assert prefixes == ["/opt/hvlab/openmpi", "/opt/hvlab", "/opt/hvlab/horovod"]
    assert session.variables(without_any, own, _lab())["openmpi_parameters"] == {}


def test_parameters_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(UsageError, match="openmpi_parameters is 'btl=tcp'"):
        ends.with_defaults(Stack({"openmpi_parameters": "btl=tcp"}))


def test_changes_of_several_parameters_are_undone_by_one_variable() -> None:
    good = ends.with_defaults(Stack({**GOOD.items, "openmpi_parameters": {"a": 1}}))[0]
    bad = ends.with_defaults(Stack({**GOOD.items, "openmpi_parameters": {"a": 2, "b": 2, "c": 2}}))[0]
    changes = chain(good, bad, {}, lambda _: True)
    result = _result(Counted(_all_of(0, 1)), changes)
    assert yaml.safe_load(result.remedy) == {"openmpi_parameters": {"a": 1, "b": None}}


def _lab(**variables: Any) -> Lab:
    host = Host("n1", "198.18.1.1", 22, None, 2, frozenset(), variables)
    return Lab("lab", Path("inventory"), "198.18.1.0/24", "eth0", (host,), variables)


def test_a_stack_shares_what_it_has_in_common_with_another() -> None:
    other, built = _changed(torch="2.6.0"), _changed(openmpi_configure_flags=["--x"])
    assert session.name_of(_changed(**{"env.A": "2"}), GOOD) == ""
    for_torch, for_flags = (session.variables(stack, GOOD, _lab()) for stack in (other, built))
    assert for_torch["openmpi_prefix"] == "/opt/hvlab/openmpi"
    assert for_torch["python_env_prefix"] == f"/opt/hvlab/stacks/python_env-{other.key('python_env')}"
    assert for_flags["openmpi_prefix"] == f"/opt/hvlab/stacks/openmpi-{built.key('openmpi')}"
    assert for_flags["python_env_prefix"] == "/opt/hvlab"
    prefixes = {stack.key("horovod") for stack in (GOOD, other, built)}
    assert len(prefixes) == 3
    for given in (for_torch, for_flags):
        assert "@" in given["openmpi_record"], "what is in use keeps its record"
        assert given["openmpi_profile"].startswith(given["hvlab_stack"])
    assert session.variables(other, GOOD, _lab(openmpi_prefix="/sw/mpi"))["openmpi_prefix"] == "/sw/mpi"


def _facts(**versions: Any) -> dict[str, Any]:
    given = {"openmpi": "4.1.8", "torch": "2.4.1+cpu", "horovod": "0.28.1", **versions}
    recorded = {
        "hvlab_openmpi": {"version": given["openmpi"]},
        "hvlab_horovod": {"version": given["horovod"], "variants": {}},
        "hvlab_python_env": {
            "python": "3.11",
            "environments": {"python": {"framework": "torch", "version": given["torch"]}},
        },
    }
    return {"ansible_local": {name: value for name, value in recorded.items() if value.get("version", 1)}}


def test_a_stack_with_another_version_than_was_requested_cannot_be_built() -> None:
    recorded = {"n1": _facts(openmpi="4.1.4"), "n2": _facts()}
    (wrong,) = session.find_differing(GOOD, recorded)
    assert (wrong.host, wrong.observed) == ("n1", "Open MPI 4.1.8 was requested, 4.1.4 is recorded")
    assert wrong.remedy.startswith("put openmpi-4.1.8.tar.bz2 into sources/ on the controller")
    assert "openmpi_sources: [file, url]" in wrong.remedy
    assert not session.find_differing(Stack({"torch": "2.4", "openmpi": "4.1.8"}), {"n1": _facts()})
    absent = session.find_differing(_changed(tensorflow="2.18.0"), {"n1": _facts()})
    assert [each.observed for each in absent] == ["TensorFlow 2.18.0 was requested, none is recorded"]


def test_an_installation_is_compared_with_what_was_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The play and the hosts' facts are those of a machine that this test does not have."""

    class Play:
        def __init__(self, *_given: object) -> None: ...
        def __enter__(self) -> Play:
            return self

        def __exit__(self, *_raised: object) -> None: ...
        def finish(self) -> None: ...
        def check(self, *_failed: object, **_remedy: object) -> None: ...

    stack = _changed(openmpi="4.1.6")
    name = session.name_of(stack, GOOD)
    local = {f"{role}@{name}": fact for role, fact in _facts(openmpi="4.1.4")["ansible_local"].items()}
    monkeypatch.setattr(session, "Play", Play)
    monkeypatch.setattr(
        session, "facts", lambda _: {"n1": {"ansible_local": {**_facts()["ansible_local"], **local}}}
    )
    with pytest.raises(
        CheckError, match=r"it cannot be built:\nn1: Open MPI 4\.1\.6 was requested, 4\.1\.4 is"
    ):
        session.install(stack, GOOD, _lab())


def test_what_is_in_use_comes_from_the_hosts_and_the_inventory() -> None:
    stack = ends.in_use(_lab(horovod_arch_flags="-O3", horovod_version="0.28.1"), {"n1": _facts()})
    assert stack.items == {
        "openmpi": "4.1.8",
        "horovod": "0.28.1",
        "python": "3.11",
        "torch": "2.4.1",
        "horovod_arch_flags": "-O3",
    }


def test_hosts_that_differ_or_have_nothing_are_no_end() -> None:
    with pytest.raises(CheckError, match=r"different versions of torch: 2\.4\.1 on n1; 2\.6\.0 on n2"):
        ends.in_use(_lab(), {"n1": _facts(), "n2": _facts(torch="2.6.0")})
    with pytest.raises(CheckError, match="n1: Open MPI not installed"):
        ends.in_use(_lab(), {"n1": _facts(openmpi=None)})


def test_hosts_that_the_inventory_builds_differently_are_no_end() -> None:
    one = dataclasses.replace(_lab().hosts[0], vars={"horovod_arch_flags": "-O3", "lab_slots": 1})
    other = dataclasses.replace(one, name="n2", vars={"horovod_arch_flags": "-O1", "lab_slots": 2})
    lab = dataclasses.replace(_lab(), hosts=(one, other))
    facts = {"n1": _facts(), "n2": _facts()}
    with pytest.raises(UsageError, match="of horovod_arch_flags: -O3 on n1; -O1 on n2") as caught:
        ends.in_use(lab, facts)
    assert "-l" in caught.value.remedy
    without_any = dataclasses.replace(other, vars={})
    with pytest.raises(UsageError, match="of horovod_arch_flags: -O3 on n1; none on n2"):
        ends.in_use(dataclasses.replace(lab, hosts=(one, without_any)), facts)
    alike = dataclasses.replace(other, vars=one.vars)
    assert ends.in_use(dataclasses.replace(lab, hosts=(one, alike)), facts)["horovod_arch_flags"] == "-O3"


def test_a_stack_file_says_what_differs_from_what_is_in_use(tmp_path: Path) -> None:
    file = tmp_path / "spring.yml"
    content = {"versions": {"torch": "2.6.0"}, "settings": {"env": {"OMP_NUM_THREADS": 2}}}
    file.write_text(yaml.safe_dump(content))
    read = ends.read(str(file), Store(tmp_path), _lab())
    assert read == {"torch": "2.6.0", "env.OMP_NUM_THREADS": 2}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("versions: {torch: 2.6}", "valid string"),
        ("versions: {cuda: '12.4'}", "cannot be installed beside another"),
        ("versions: {torch: new}", "new"),
        ("build: {openmpi_prefix: /x}", "not a build variable of the roles"),
        ("build: {cuda_method: repo}", "not a build variable of the roles"),
        ("setings: {}", "setings: unknown name"),
        ("settings: {env: {HVLAB_CASE: 1}}", "hvlab's own"),
        ("[1]", "valid dictionary"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_wrong_stack_file_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "spring.yml"
    file.write_text(text)
    with pytest.raises(UsageError, match=problem):
        ends.read(str(file), Store(tmp_path), _lab())


def test_a_lock_is_an_end(tmp_path: Path) -> None:
    build = {"horovod_arch_flags": "-O1"}
    hosts = {name: {"versions": {"torch": "2.5.0", "driver": None}, "build": build} for name in ("n1", "n2")}
    file = tmp_path / "lock.json"
    file.write_text(json.dumps({"hosts": hosts}))
    read = ends.read(str(file), Store(tmp_path), _lab())
    assert read == {"torch": "2.5.0", **build}
    hosts["n2"] = {"versions": {"torch": "2.6.0"}, "build": {}}
    file.write_text(json.dumps({"hosts": hosts}))
    # Among the hosts that take part: n2 is left out with -l.
    assert ends.read(str(file), Store(tmp_path), _lab()) == {"torch": "2.5.0", **build}
    other = dataclasses.replace(_lab().hosts[0], name="another")
    with pytest.raises(UsageError, match=r"its hosts differ in horovod_arch_flags: -O1 on n1; none on n2"):
        ends.read(str(file), Store(tmp_path), dataclasses.replace(_lab(), hosts=(other,)))


def test_a_lock_of_an_hvlab_with_other_patches_is_said(tmp_path: Path) -> None:
    file = tmp_path / "lock.json"
    entry = {"versions": {"torch": "2.5.0"}}
    assert ends.notes("lab") == []
    for patches, said in ((pin_variables.patches(), 0), (None, 0), ("0123456789abcdef", 1)):
        file.write_text(json.dumps({"hvlab": "0.0.9", "hosts": {"n1": {**entry, "patches": patches}}}))
        notes = ends.notes(str(file))
        assert len(notes) == said
    assert notes[0].startswith(f"{file} was written by hvlab 0.0.9, whose patches of Horovod differ")
    changes = chain(GOOD, _changed(torch="2.5.0"), RELEASES, lambda _: True)
    result = dataclasses.replace(_result(Counted(_all_of(0)), changes), notes=tuple(notes))
    assert f"Note: {notes[0]}" in result.markdown()
    assert result.as_json()["notes"] == notes


def test_a_default_that_changed_since_a_lock_is_a_change(tmp_path: Path) -> None:
    file = tmp_path / "lock.json"
    flags = ["--as-it-was"]
    of_then = pin_variables.defaults() | {"openmpi_configure_flags": flags}
    file.write_text(json.dumps({"hosts": {"n1": {"versions": {}, "build": of_then}}}))
    read = ends.read(str(file), Store(tmp_path), _lab())
    own, good, bad = ends.with_defaults(GOOD, Stack({**GOOD.items, **read}), GOOD)
    changes = chain(good, bad, {}, lambda _: True)
    now = pin_variables.defaults()["openmpi_configure_flags"]
    assert [(change.item, change.before, change.after) for change in changes] == [
        ("openmpi_configure_flags", flags, now)
    ]
    assert session.name_of(bad, own) == ""


def test_a_variable_that_only_one_end_names_has_its_default_in_the_other() -> None:
    other = _changed(horovod_arch_flags="-O1", openmpi_cuda_home="/x")
    own, good, bad = ends.with_defaults(GOOD, GOOD, other)
    assert session.name_of(good, own) == ""
    assert good["horovod_arch_flags"] == "auto"
    assert "openmpi_cuda_home" not in good.items, "its default is the host's"
    assert "horovod_variants" not in bad.items
    assert [change.item for change in chain(good, bad, {}, lambda _: True)] == [
        "horovod_arch_flags",
        "openmpi_cuda_home",
    ]


def test_what_is_no_end_is_refused_with_what_can_be_one(tmp_path: Path) -> None:
    assert ends.read("lab", Store(tmp_path), _lab()) == {}
    with pytest.raises(UsageError, match="neither a file nor a baseline, and there are no results"):
        ends.read("spring", Store(tmp_path), _lab())


def _result(bad: Judge, changes: Collection[StackChange], cost: float = 0.3) -> BisectResult:
    steps: list[TriedStack] = []

    def effect(numbers: tuple[int, ...]) -> Effect:
        log = cost if bad(numbers) else 0.0
        return Effect(Interval(log - 0.02, log, log + 0.02), slower=log > 0, run_id=f"r{len(steps)}")

    def judge(numbers: tuple[int, ...]) -> bool | None:
        if all(step.changes != numbers for step in steps):
            steps.append(TriedStack(numbers, effect(numbers)))
        return bad(numbers)

    whole = effect(tuple(range(len(changes))))
    steps.append(TriedStack(tuple(range(len(changes))), whole))
    changes = list(changes)
    culprit = None
    if cost:
        culprit = search_without(len(changes), judge, lambda taken: without(changes, taken))
    return BisectResult(tuple(changes), whole, culprit, tuple(steps))


def test_no_page_of_a_bisection_has_a_secret_of_its_ends() -> None:
    good, bad = ({"env.HF_TOKEN": token, "env.NCCL_ALGO": "Ring"} for token in ("hf-aaaa", "hf-bbbb"))
    changes = chain(Stack(good), Stack(bad), {}, lambda _: True)
    assert [change.after for change in changes] == ["hf-bbbb"]
    result = _result(Counted(_all_of(1)), changes)
    assert "HF_TOKEN *** -> ***" in result.answer
    assert "hf-" not in result.markdown() + json.dumps(result.as_json())


def test_the_answer_names_the_release_the_proof_and_the_way_back() -> None:
    changes = chain(GOOD, _changed(torch="2.8.0", openmpi="4.1.4"), RELEASES, lambda _: True)
    result = _result(Counted(_all_of(3)), changes)
    assert result.answer == (
        "Slower because of: torch 2.5.0 -> 2.6.0. All changes together cost +35.0 % (+32.3 to +37.7 %); "
        "this one alone +35.0 % (+32.3 to +37.7 %); all others +0.0 % (-2.0 to +2.0 %)."
    )
    assert result.remedy == "lab_torch: 2.5.0"
    assert result.as_json()["culprit"] == [[3]]
    assert "| 1 | 1, 2, 3, 4, 5 | +35.0 % (+32.3 to +37.7 %) | yes | r0 |" in result.markdown()


def test_the_answer_says_what_costs_only_together_and_what_is_left() -> None:
    changes = chain(GOOD, _changed(torch="2.8.0", **{"env.A": "2"}), RELEASES, lambda _: True)
    together = _result(Counted(_all_of(0, 2)), changes)
    assert together.answer.startswith("Slower because of: A 1 -> 2 together with torch 2.5.0 -> 2.6.0.")
    assert "these alone +35.0 %" in together.answer
    assert together.remedy == "A: '1'\nlab_torch: 2.5.0"
    both = _result(Counted(lambda numbers: bool(set(numbers) & {0, 3})), changes)
    assert "The others are slow as well" in both.answer


def test_nothing_to_look_for_is_said() -> None:
    changes = chain(GOOD, _changed(torch="2.5.0"), RELEASES, lambda _: True)
    result = _result(Counted(_all_of(0)), changes, cost=0.0)
    assert result.answer.startswith("The bad stack is not significantly slower")
    assert result.remedy == ""
    assert result.as_json()["slower"] is False


def test_a_change_of_a_variable_says_where() -> None:
    before = {"cpu": {"mpi": True, "env": {}}}
    after = {"cpu": {"mpi": True, "env": {"HOROVOD_DEBUG": "1"}}}
    assert (
        str(StackChange("horovod_variants", before, after))
        == "horovod_variants: cpu.env.HOROVOD_DEBUG nothing -> 1"
    )


def test_a_run_is_an_end_by_its_versions(tmp_path: Path) -> None:
    store = filled(Store(tmp_path), 200, run_records=100)
    run_id = store.runs()[0].run_id
    read = ends.read(run_id, store, _lab())
    assert read == {"openmpi": "4.1.8", "horovod": "0.28.1", "torch": "2.13.0", "python": "3.11"}


def test_a_baseline_is_an_end_by_the_versions_of_its_runs(tmp_path: Path) -> None:
    store = filled(Store(tmp_path), 200, run_records=100)
    runs = [measurements(run, store.records(run.run_id)) for run in store.runs()]
    lab = dataclasses.replace(_lab(), name=runs[0].lab)
    keeping.save(tmp_path, runs, name="spring")
    expected = {"openmpi": "4.1.8", "horovod": "0.28.1", "torch": "2.13.0", "python": "3.11"}
    assert ends.read("spring", store, lab) == expected
    newer = dataclasses.replace(runs[0], run_id="newer", stack={**runs[0].stack, "torch": ("2.14.0",)})
    keeping.save(tmp_path, [*runs, newer], name="spring")
    with pytest.raises(UsageError, match=r"the baseline spring has several versions of torch"):
        ends.read("spring", store, lab)
