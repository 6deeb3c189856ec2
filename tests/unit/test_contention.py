"""What others took of the cores while a case ran, and ranks that have none of their own."""

import json
import os
from dataclasses import replace

import pytest

from hvlab.results.summary import sections
from hvlab.workloads import Outcome, contention, outcome
from hvlab.workloads.outcome import figure
from tests.unit.labs import case
from tests.unit.programs import program
from tests.unit.test_summary import collective
from tests.unit.test_workloads import files, trained, values

STAT = """\
cpu  30 0 10 400 0 0 0 6 0 0
cpu0 {0} 0 5 200 7 9 9 {1} 0 0
cpu1 20 0 5 200 0 0 0 3 0 0
btime 1700000000
"""


@pytest.fixture
def stolen(monkeypatch):
    imported = program(monkeypatch, "stolen")
    monkeypatch.setattr(imported.os, "sched_getaffinity", lambda _: {0})
    return imported


def machine(root, user=10, steal=2, throttled=0):
    files_of = {
        "proc/stat": STAT.format(user, steal),
        "proc/self/cgroup": "4:cpu,cpuacct:/a/b\n0::/c/d\n",
        "sys/fs/cgroup/cpu,cpuacct/a/cpu.stat": f"nr_periods 5\nthrottled_time {throttled}\n",
        "sys/fs/cgroup/c/d/cpu.stat": "usage_usec 5\nthrottled_usec 1000\n",
        "proc/sys/kernel/random/boot_id": "abc\n",
    }
    for name, text in files_of.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def test_the_program_counts_the_cpus_it_may_use(stolen, tmp_path):
    tick = 1 / os.sysconf("SC_CLK_TCK")
    before = stolen.read(machine(tmp_path))
    assert before["cpus"] == {"0": [pytest.approx(15 * tick), pytest.approx(2 * tick)]}
    assert before["throttled_s"] == pytest.approx(1e-3)
    counted = stolen.since(before, machine(tmp_path, user=110, steal=12, throttled=3 * 10**9))
    assert counted["cpus"] == {"0": [pytest.approx(100 * tick), pytest.approx(10 * tick)]}
    assert counted["throttled_s"] == pytest.approx(3 - 1e-3)
    assert counted["machine"] == "abc"


def test_containers_of_one_machine_are_told_by_its_time_of_boot(stolen, tmp_path):
    root = machine(tmp_path)
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/container").write_text("systemd-nspawn\n")
    assert stolen.machine(root) == "btime 1700000000"


def counters(own, cpus, *, seconds=10.0, throttled=0.0, name="m"):
    return {"machine": name, "seconds": seconds, "cpus": cpus, "own_s": own, "throttled_s": throttled}


def test_the_load_of_others_is_what_the_ranks_of_all_hosts_did_not_compute():
    """Two hosts with a core each; on one of them somebody else takes 2 s of 10."""
    (one,) = contention.stolen_time(
        {"n1": counters(8.0, {"0": [10.0, 0.0]}), "n2": counters(9.0, {"1": [9.0, 1.0]})}
    )
    assert (one.hosts, one.steal, one.throttled, one.outside) == (("n1", "n2"), 5.0, 0.0, 10.0)


def test_hosts_that_share_cores_are_not_each_others_outside_load():
    both = {"0": [10.0, 0.0], "1": [10.0, 0.0]}
    (one,) = contention.stolen_time({"n1": counters(10.0, both), "n2": counters(10.0, both)})
    assert one.total == 0.0


def test_machines_are_judged_by_themselves():
    first, second = contention.stolen_time(
        {
            "a": counters(5.0, {"0": [5.0, 0.0]}),
            "b": counters(5.0, {"0": [7.5, 0.0]}, throttled=1.0, name="o"),
        }
    )
    assert first.total == 0.0
    assert second.total == pytest.approx(35.0)


def test_each_size_gets_the_figure_and_the_record_says_who_lacked_cores(tmp_path):
    shared = {"0": [10.0, 0.0]}
    hosts = {"n1": counters(4.0, shared), "n2": counters(4.0, shared)}
    found = outcome(case(), files(tmp_path, result={"stolen": hosts}))
    assert values(found, 1024)["stolen"] == values(found, 4096)["stolen"] == pytest.approx(20.0)
    assert found.versions["cores"] == "shared"
    assert found.versions["oversubscribed"] == "2 ranks on 1 core (n1, n2)"


def test_hosts_with_cores_of_their_own_are_not_oversubscribed(tmp_path):
    hosts = {"n1": counters(10.0, {"0": [10.0, 0.0]}), "n2": counters(10.0, {"1": [10.0, 0.0]})}
    found = trained(tmp_path, {"stolen": hosts})
    assert values(found)["stolen"] == 0.0
    assert (found.versions["cores"], "oversubscribed" in found.versions) == ("own", False)


def test_files_without_counters_are_read_as_before(tmp_path):
    found = outcome(case(), files(tmp_path, result={}))
    assert "stolen" not in values(found, 1024)
    assert "cores" not in found.versions


def own_training(folder, *lines):
    two_ranks = replace(case(workload="command", command="true"), slots=2)
    folder.joinpath("case.json").write_text(json.dumps({"started_at": 1.0, "ended_at": 3.0, "rc": 0}))
    folder.joinpath("stderr").write_text("\n".join(["a warning", *lines, ""]))
    return contention.with_contention(two_ranks, Outcome(2.0, figures=(figure("real", 2.0),)), folder)


def line(rank, *, host, before="", **counted):
    return f"{before}hvlab: cores: {json.dumps({'rank': rank, 'node': host, **counted})}"


def test_ranks_of_an_own_training_print_their_counters(tmp_path):
    printed = [
        line(0, host="x", before="[0]<stderr>:", **counters(4.0, {"0": [9.0, 1.0]})),
        line(1, host="x", before="[1]<stderr>:", own_s=4.0),
        line(2, host="y", **counters(6.0, {"0": [9.0, 0.0]}, name="o")),
        line(3, host="y", own_s=3.0),
    ]
    assert values(own_training(tmp_path, *printed))["stolen"] == pytest.approx(20.0)
    assert values(own_training(tmp_path, *printed[:2])).keys() == {"real"}
    assert values(own_training(tmp_path, *printed, "hvlab: cores: {2 batches of 7}")).keys() == {"real"}


def test_much_is_marked_in_the_tables():
    rows = []
    for name, value in (("a", 12.4), ("b", 3.0)):
        own = collective(
            name, 1024, params={"dtype": name}, stack={"oversubscribed": "3 ranks on 2 cores (n1, n2, n3)"}
        )
        rows += [*own, replace(own[0], metric="stolen", unit="%", value=value)]
    (table,) = sections(rows)
    assert [row["stolen %"] for row in table.rows] == ["12 (much)", "3"]
    assert {row["oversubscribed"] for row in table.rows} == {"3 ranks on 2 cores"}
    assert table.columns[-4:] == ("oversubscribed", "stolen %", "proved", "status")
