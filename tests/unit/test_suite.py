"""Suites from files, with what the command line asks for put in."""

import pytest

from hvlab.base.errors import UsageError
from hvlab.bench import suite
from hvlab.bench.estimate import estimate
from hvlab.bench.matrix import Spec, expand
from hvlab.bench.suite import Overrides, Suite, blocks, build_plain, load
from hvlab.lab.backends import PARALLEL
from hvlab.results.store import Store
from tests.unit.labs import VARIANTS, lab


def made(text, folder):
    file = folder / "mine.yml"
    file.write_text(text)
    return load(str(file))


def only(entry, there=None, **asked):
    """The single block of a suite of one entry."""
    (found,) = blocks(Suite("s", (entry,)), there or lab(), Overrides(**asked))
    return found


@pytest.mark.parametrize("name", suite.NAMES)
@pytest.mark.parametrize(
    "there", [lab(), lab(1, slots=1), lab(8, slots=4, gpu=("n1",)), lab(2), lab(2, lab_horovod="torch")]
)
def test_every_suite_makes_cases_on_every_lab(name, there):
    found = load(name)
    assert found.about
    spec = Spec(blocks(found, there, Overrides()), repeats=found.repeats or 1)
    cases, _ = expand(spec, there)
    assert {case.repeat for case in cases} == set(range(1, (found.repeats or 1) + 1))


def test_the_suites_there_are():
    assert suite.NAMES == ("full", "horovod-ddp-fsdp", "horovod-or-ddp", "lab4", "lab7", "quick")


def ids(name, there, **asked):
    cases, left = expand(Spec(blocks(load(name), there, Overrides(**asked))), there)
    return sorted(case.id.removesuffix("-r1") for case in cases), left


def test_lab7_is_every_backend_of_the_sheet_inside_one_host_and_across_hosts():
    found, left = ids("lab7", lab(3, slots=2), workloads=("mnist",))
    places = ["1x1", "1x2", "2x1", "3x1"]
    assert found == sorted(f"mnist-{backend}-{place}" for backend in ("mpi", "gloo") for place in places)
    assert {one.case.split("-")[1] for one in left} == {"nccl"}
    assert all("GPU" in one.reason for one in left)


def test_lab7_with_torch_in_horovods_place_has_gloo_and_names_what_is_left_out():
    found, left = ids("lab7", lab(2, lab_horovod="torch"), workloads=("mnist",))
    assert found == [f"mnist-horovod-on-ddp-gloo-{place}" for place in ("1x1", "1x2", "2x1")]
    reasons = {
        one.case.removeprefix("mnist-").rpartition("-r")[0].rpartition("-")[0]: one.reason for one in left
    }
    assert set(reasons) == {"mpi", "horovod-on-ddp-nccl"}
    assert "lab_horovod: torch" in reasons["mpi"]


def test_lab7_measures_what_the_sheet_asks_for():
    found, _ = ids("lab7", lab(3, slots=2), backends=("mpi",))
    assert {name.split("-")[0] for name in found} == {"allreduce", "mnist", "rnn"}


@pytest.mark.parametrize(("name", "workloads"), [("lab4", None), ("lab7", ("mnist", "rnn"))])
def test_the_suite_of_a_lab_sheet_takes_a_quarter_of_an_hour_and_can_decide(name, workloads, tmp_path):
    found, there = load(name), lab(2, slots=2)
    asked = Overrides(workloads=workloads)
    cases, _ = expand(Spec(blocks(found, there, asked), repeats=found.repeats), there)
    assert estimate(cases, Store(tmp_path)).seconds < 15 * 60
    # One repeat of one side among the other's still leaves a verdict.
    assert found.repeats == 6


def test_lab4_compares_one_process_with_every_compression_on_2_and_4_devices():
    found, left = ids("lab4", lab(3, slots=2))
    assert found == sorted(
        [
            "mnist-serial-1x1-epochs=20",
            *(
                f"mnist-mpi-{place}-epochs=20{which}"
                for place in ("1x2", "2x2")
                for which in ("", *(f"-compression={name}" for name in ("fp16", "bf16", "8bit", "naive8")))
            ),
        ]
    )
    assert left == []


@pytest.mark.parametrize(
    ("there", "place", "reason"),
    [
        (lab(1, slots=2), "1x4", "4 slots requested, n1 has 2 (lab_slots)"),
        (lab(3, slots=1), "4x1", "4 hosts requested, the lab has 3"),
    ],
)
def test_devices_that_a_lab_has_no_room_for_are_listed_with_their_reason(there, place, reason):
    found, left = ids("lab4", there)
    assert {one.case.split("-")[2] for one in left} == {place}
    assert {one.reason for one in left} == {reason}
    assert len(left) == 5
    assert len(found) == 6


def test_lab4_on_gpus_is_over_nccl():
    there = lab(1, slots=4, gpu=("n1",), horovod_variants=VARIANTS)
    assert {name.split("-")[1] for name in ids("lab4", there)[0]} == {"serial", "nccl"}


def test_words_of_a_block():
    there = lab(3, slots=4)
    assert only({"workload": "rnn", "hosts": "all", "slots": "all"}, there).hosts == (1, 2, 3)
    assert only({"workload": "rnn", "hosts": ["each", "pairs", 2]}, there).hosts == ("each", "pairs", 2)
    assert only({"workload": "rnn", "slots": "all"}, there).slots == (1, 2, 3, 4)
    assert only({"workload": "rnn"}, there).slots == (1, 4)
    assert only({"workload": "rnn"}, there).backends == PARALLEL
    found = only({"workload": "rnn", "set": {"batch": [8, 16], "steps": 5, "fusion_threshold": "64M"}}, there)
    assert found.axes == {"batch": (8, 16), "steps": (5,), "fusion_threshold": (2**26,)}


def test_several_workloads_share_a_block_and_each_takes_what_it_has():
    found = blocks(
        Suite("s", ({"workload": ["mnist", "rnn"], "set": {"epochs": 3, "batch": 8}},)), lab(), Overrides()
    )
    assert {block.workload: dict(block.axes) for block in found} == {
        "mnist": {"epochs": (3,), "batch": (8,)},
        "rnn": {"batch": (8,)},
    }


def test_what_is_asked_for_goes_before_the_suites_own():
    entry = {"workload": "mnist", "backends": "all", "hosts": 2, "slots": 1, "set": {"batch": 8, "epochs": 3}}
    found = only(entry, backends=("gloo",), hosts="1,3", slots="2", sets={"batch": "16,32"})
    assert (found.backends, found.hosts, found.slots) == (("gloo",), (1, 3), (2,))
    assert found.axes == {"batch": (16, 32), "epochs": (3,)}


def test_devices_give_way_to_hosts_and_slots():
    entry = {"workload": "mnist", "backends": ["mpi"], "devices": [2, 4]}
    found = blocks(Suite("s", (entry,)), lab(), Overrides())
    assert [(block.hosts, block.slots) for block in found] == [((1,), (2,)), ((2,), (2,))]
    assert only(entry, hosts="2", slots="1").hosts == (2,)


def test_one_process_alone_stays_as_it_is():
    entries = ({"workload": "mnist", "backends": "serial", "set": {"epochs": 3}}, {"workload": "mnist"})
    given = Overrides(
        backends=("gloo",),
        hosts="2",
        slots="2",
        sets={"compression": "fp16", "epochs": "4", "cycle_time": "5", "threads": "2"},
    )
    alone, other = blocks(Suite("s", entries), lab(), given)
    assert (alone.backends, alone.hosts, alone.slots) == (("serial",), (1,), (1,))
    assert alone.axes == {"epochs": (4,), "threads": (2,)}
    assert (other.backends, other.hosts, other.slots) == (("gloo",), (2,), (2,))
    assert other.axes["compression"] == ("fp16",)


def test_a_command_line_without_a_suite():
    found = build_plain(Overrides(workloads=("mnist", "allreduce")), lab())
    made = blocks(found, lab(), Overrides(workloads=("mnist", "allreduce")))
    assert [block.workload for block in made] == ["mnist", "allreduce"]
    assert {block.backends for block in made} == {("mpi", "gloo", "ccl")}
    assert {(block.hosts, block.slots) for block in made} == {((1, 2, 3), (1, 2))}


def test_serial_beside_others_and_serial_alone():
    both = Overrides(workloads=("mnist",), backends=("serial", "mpi"), sets={"compression": "fp16"})
    alone, other = blocks(build_plain(both, lab()), lab(), both)
    assert (alone.backends, alone.hosts, alone.slots, alone.axes) == (("serial",), (1,), (1,), {})
    assert (other.backends, other.axes) == (("mpi",), {"compression": ("fp16",)})
    just = Overrides(workloads=("mnist",), backends=("serial",), hosts="2", sets={"compression": "fp16"})
    (found,) = blocks(build_plain(just, lab()), lab(), just)
    assert (found.hosts, found.slots, found.axes) == ((2,), (1,), {"compression": ("fp16",)})


@pytest.mark.parametrize(
    ("asked", "told", "near"),
    [
        (
            {"sets": {"bach": "3"}},
            "unknown parameter of mnist, rnn, allreduce (--set) 'bach'",
            "batch",
        ),
        ({"workloads": ("broadcast",)}, "suite lab7 has no broadcast", "it has mnist, rnn, allreduce"),
        ({"hosts": "x"}, "--hosts x", "1,2,3"),
        ({"sets": {"epochs": "many"}}, "epochs=many", "--set epochs=2"),
    ],
)
def test_wrong_requests(asked, told, near):
    with pytest.raises(UsageError) as caught:
        blocks(load("lab7"), lab(), Overrides(**asked))
    assert told in str(caught.value)
    assert near in str(caught.value.remedy)


def test_a_parameter_that_no_chosen_workload_has():
    with pytest.raises(UsageError, match="epochs: a parameter of mnist, not of allreduce"):
        blocks(load("lab7"), lab(), Overrides(workloads=("allreduce",), sets={"epochs": "1"}))


def test_an_unknown_suite():
    with pytest.raises(UsageError, match="unknown suite 'lab8'") as caught:
        load("lab8")
    assert "did you mean lab7?" in str(caught.value.remedy)


def test_a_suite_of_ones_own(tmp_path):
    found = made("about: mine\nrepeats: 2\ntimeout: 60\nblocks: [{workload: rnn}]\n", tmp_path)
    assert (found.name, found.about, found.repeats, found.timeout) == ("mine", "mine", 2, 60)


@pytest.mark.parametrize(
    ("text", "told", "near"),
    [
        ("bloks: []", "unknown key in the suite", "did you mean blocks?"),
        ("blocks: [{workload: rnn, host: 2}]", "unknown key in block 1 of the suite", "did you mean hosts?"),
        ("blocks: [{workload: rn}]", "unknown workload 'rn'", "did you mean rnn?"),
        ("blocks: [{workload: rnn, backends: [mpl]}]", "unknown backend 'mpl'", "did you mean mpi?"),
        ("blocks: [{workload: rnn, set: {hiden: 3}}]", "unknown parameter of rnn (set) 'hiden'", "hidden"),
        ("blocks: [{workload: rnn, set: {batch: no}}]", "batch=False", "--set batch=32"),
        ("blocks: [{workload: rnn, devices: many}]", "devices: 'many'", "[2, 4]"),
        ("blocks: [{workload: rnn, hosts: some}]", "--hosts some", "1,2,3"),
        ("blocks: [{hosts: 2}]", "block 1 of the suite", ""),
        ("blocks: []", "has no blocks", "blocks: ["),
        ("blocks: [1]", "is not a mapping", "workload"),
        ("- 1", "is not a mapping", "blocks"),
        ("repeats: 0\nblocks: [{workload: rnn}]", "repeats is 0", "from 1 to 10000"),
        ("repeats: true\nblocks: [{workload: rnn}]", "repeats is True", "from 1 to 10000"),
        (
            "repeats: 99999999999999999999\nblocks: [{workload: rnn}]",
            "repeats is 99999999999999999999",
            "from 1 to",
        ),
        ("repeats: 3\nrepeats: 5\nblocks: [{workload: rnn}]", "'repeats' stands twice", "suites to look at"),
        ("a: [", "cannot be read", ""),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, text, told, near):
    with pytest.raises(UsageError) as caught:
        blocks(made(text, tmp_path), lab(), Overrides())
    assert told in str(caught.value)
    assert near in str(caught.value.remedy)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(tmp_path / "none.yml"))
