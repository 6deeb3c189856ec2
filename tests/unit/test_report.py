"""The page of a run: what it shows, and that a value keeps to its cell."""

from dataclasses import replace

from hvlab.environment import Row
from hvlab.report import run_page
from hvlab.results import Record

RUN = {"run_id": "r1", "lab": "t", "started_at": "2026", "state": "finished", "ok": 1, "cases": 2}
GOOD = Record(
    run_id="r1", case_id="c1", started_at="2026", workload="allreduce", launcher="mpirun", backend="mpi",
    proved_backend="mpi", hosts=("n1", "n2"), slots_per_host=1, world_size=2, params={"size_bytes": 1024},
    repeat=1, metric="time", value=1234.5, unit="us", status="ok", error=None, stack={"openmpi": "4.1.8"},
    raw_path="runs/r1/c1",
)  # fmt: skip
BAD = replace(
    GOOD, case_id="c2", metric=None, value=None, unit=None, status="failed", error="a|b\nc", params={}
)


def test_a_page_shows_stack_figures_failures_and_commands():
    lines = run_page(RUN, [GOOD, BAD], {"c1": ["mpirun", "-np", "2", "a b"]}).splitlines()
    assert "| openmpi | 4.1.8 |" in lines
    assert "- c1: `mpirun -np 2 'a b'`" in lines
    assert "- c2: a\\|b c" in lines
    table = [line for line in lines if line.startswith(("| backend", "| mpi"))]
    assert len(table) == 3
    assert "| 1234 |" in table[1]
    assert len({line.count("|") for line in table}) == 1


def test_a_run_without_failures_has_no_such_part():
    assert "Failed" not in run_page(RUN, [GOOD], {})


def test_the_machines_come_first_where_they_are_known():
    rows = (Row("GPU", {"4 x T4": ("n1",), "none": ("n2",)}),)
    lines = run_page(RUN, [GOOD], {}, rows).splitlines()
    assert "| GPU | 4 x T4 (n1); none (n2) |" in lines
    assert lines.index("## Environment") < lines.index("## Stack")
    assert "## Environment" not in run_page(RUN, [GOOD], {})
