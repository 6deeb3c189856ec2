"""nccl-tests: text of every version and JSON, read; and written as the tool itself writes it."""

import json
import re
from pathlib import Path

import pytest

from hvlab.errors import CheckError
from hvlab.formats import READERS, nccl_json, nccl_text
from hvlab.formats.launch import launches
from tests.unit.formats_run import measured

DATA = Path(__file__).parent.parent / "data/nccl-tests"
READ = READERS["nccl-tests"].read
A100 = ("localhost",), 8, 8
# For each file: operation, (hosts, ranks on each, ranks), rows; a row: size, in place, time, algbw, busbw.
FILES = {
    "allgather-8x-a100.txt": (None, A100, 16, (1048576, False, 72.95, 14.37, 12.58)),
    "allreduce-8x-a100.txt": ("allreduce", A100, 12, (1048576, True, 76.17, 13.77, 24.09)),
    "alltoall-8x-a100.txt": (None, A100, 12, (16777216, True, 158.8, 105.64, 92.43)),
    "broadcast-8x-a100.txt": ("broadcast", A100, 12, (33554432, False, 223.4, 150.21, 150.21)),
    "reduce-scatter-8x-a100.txt": ("reducescatter", A100, 12, (8589934592, True, 32502, 264.29, 231.25)),
    "allreduce-16x-a100-no-head.txt": (
        "allreduce", ((), None, None), 12, (67108864, True, 938.9, 71.48, 134.02),
    ),
    "allreduce-4x-1080-milliseconds.txt": (
        "allreduce", (("ncrh",), 4, 4), 8, (10000000, False, 1628, 6.14, 9.21),
    ),
    "allreduce-2x-gh200-wrong.txt": (
        "allreduce", (("gpu-1-1", "gpu-1-7"), 1, 2), 14, (262144, True, 557.18, 0.47, 0.47),
    ),
    "allreduce-8x-gh200-crashed.txt": ("allreduce", (("gpu-1-1", "gpu-1-7"), 4, 8), 0, None),
    "allreduce-2x-5090-tagged.txt": (
        "allreduce", (("lab",), 2, 2), 6, (134217728, False, 58479.5, 2.30, 2.30),
    ),
}  # fmt: skip


def text_of(name):
    return (DATA / name).read_text("utf-8")


def test_every_recorded_file_has_a_row_here():
    assert {path.name for path in DATA.iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_recorded_output_is_read(name):
    workload, place, count, row = FILES[name]
    assert nccl_text.knows(text_of(name))
    first = READ(text_of(name))[0]
    assert (first.workload, (first.hosts, first.slots, first.ranks), len(first.rows)) == (
        workload,
        place,
        count,
    )
    if row:
        size, in_place, time, algbw, busbw = row
        (found,) = [each for each in first.rows if (each.size, each.in_place) == (size, in_place)]
        assert found.values == {"time": time, "algbw": algbw, "busbw": busbw}
        assert found.dtype == ("int8" if "1080" in name else "float32")


def test_the_unit_of_time_is_that_of_the_program():
    both = text_of("allreduce-4x-1080-milliseconds.txt") + text_of("allreduce-8x-a100.txt")
    assert [one.rows[-1].values["time"] for one in READ(both)] == [1932, 63959]


def test_a_long_line_of_devices_is_read_at_once():
    line = "#   Rank  0 Pid " + "1 " * 50_000 + "on h"
    assert READ(f"# Using devices\n{line}\n")[0].hosts == ()


def test_rows_of_no_bytes_are_left_out():
    assert "           0             0   float" in text_of("allgather-8x-a100.txt")
    assert min(READ(text_of("allgather-8x-a100.txt"))[0].sizes) == 32


def test_versions_and_devices_are_told():
    (new,) = READ(text_of("allreduce-2x-gh200-wrong.txt"))
    assert new.stack == {
        "source": "nccl-tests", "tool": "nccl-tests 2.17.8", "nccl": "2.29.2",
        "gpus": "1 x NVIDIA GH200 120GB",
    }  # fmt: skip
    (old,) = READ(text_of("allreduce-8x-a100.txt"))
    assert old.stack == {"source": "nccl-tests", "gpus": "8 x A100-SXM4-40GB"}
    assert (old.warmup, old.iterations) == (5, 20)
    (debugged,) = READ("h:1:1 [0] NCCL INFO NCCL version 2.8.3+cuda11.1\n" + text_of("allreduce-8x-a100.txt"))
    assert debugged.stack["nccl"] == "2.8.3"


def test_wrong_values_fail_their_row_only():
    (found,) = READ(text_of("allreduce-2x-gh200-wrong.txt"))
    wrong = {(row.size, row.in_place): row.error for row in found.rows if row.error}
    assert wrong == {(1048576, False): "96 wrong values", (1048576, True): "32 wrong values"}
    assert found.error is None


def test_values_out_of_bounds_that_no_row_tells_of_fail_the_launch():
    text = text_of("allreduce-8x-a100.txt").replace("values : 0 OK", "values : 3 FAILED")
    assert READ(text)[0].error == "out of bounds values: 3"


def test_an_old_relative_error_is_no_count():
    text = text_of("allreduce-8x-a100.txt").replace("N/A", "5e-07")
    assert not any(row.error for row in READ(text)[0].rows)


def test_a_crash_is_told():
    (found,) = READ(text_of("allreduce-8x-gh200-crashed.txt"))
    assert found.error.startswith("Test CUDA failure common.cu:1304 'CUDA-capable device(s)")
    crashed = text_of("allreduce-8x-gh200-crashed.txt")
    both = READ(crashed + text_of("allreduce-2x-gh200-wrong.txt"))
    assert [(bool(one.error), len(one.rows)) for one in both] == [(True, 0), (False, 14)]


def test_output_that_ends_early_is_a_failure():
    head = text_of("allreduce-8x-a100.txt").partition("#       size")[0]
    assert READ(head)[0].error == "the output ends before the first row"


def test_launchers_put_words_before_each_line():
    plain = READ(text_of("allreduce-2x-5090-tagged.txt").replace("[1,0]<stdout>:", ""))
    assert READ(text_of("allreduce-2x-5090-tagged.txt")) == plain
    assert [len(one.rows) for one in plain] == [6, 6, 6]
    (wanted,) = READ(text_of("allreduce-2x-gh200-wrong.txt"))
    for before in ("0: ", " 12: ", "[0] ", "\x1b[32m", "2026-01-23T10:00:00.123Z "):
        tagged = "\n".join(before + line for line in text_of("allreduce-2x-gh200-wrong.txt").splitlines())
        assert READ(tagged) == [wanted], before


LEFT = "     1048576        262144     float     sum      -1"
OUT, INSIDE = "    74.78   14.02   24.54       0", "    76.17   13.77   24.09       0"
BODY = OUT + INSIDE
DEBUG = "ip-10-0-0-1:3442:3442 [0] NCCL INFO Launch mode Parallel"
NEW_DEBUG = (
    "[2026-01-23 10:00:00] gpu-1:81:97 [3] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed"
)


@pytest.mark.parametrize(
    "lines",
    [
        [LEFT + BODY],
        [LEFT + BODY + DEBUG],
        [LEFT + BODY + "  2026-01-23 10:00:00"],
        [LEFT + DEBUG, BODY],
        [LEFT + NEW_DEBUG, BODY],
        [LEFT, DEBUG, DEBUG, "", "some words", BODY],
        [LEFT + OUT + DEBUG, INSIDE],
        [LEFT + OUT + NEW_DEBUG, DEBUG, INSIDE],
        [LEFT.replace("      -1", DEBUG), "      -1" + BODY],
        [DEBUG, LEFT + BODY, DEBUG],
    ],
)
def test_rows_torn_by_other_lines_are_whole_again(lines):
    (found,) = READ("\n".join(["# nThread 1 nGpus 1", *lines, "# Out of bounds values : 0 OK"]))
    assert [(row.size, row.in_place, row.values["time"]) for row in found.rows] == [
        (1048576, False, 74.78), (1048576, True, 76.17),
    ]  # fmt: skip
    assert {row.op for row in found.rows} == {"sum"}


def test_a_row_without_its_end_is_no_row():
    text = "\n".join(["# nThread 1 nGpus 1", LEFT, LEFT.replace("1048576", "2097152") + BODY, LEFT])
    assert READ(text)[0].sizes == [2097152]


def test_only_in_place_was_measured():
    (found,) = READ(f"# nThread 1 nGpus 1\n{LEFT}{' ' * 32}{INSIDE}\n# Out of bounds values : 0 OK\n")
    assert [(row.in_place, row.values["time"]) for row in found.rows] == [(True, 76.17)]
    (given,) = READ(f"# nThread 1 nGpus 1\n{LEFT}{'  N/A' * 4}{INSIDE}\n")
    assert [row.in_place for row in given.rows] == [True]


def test_times_of_single_iterations_stand_between():
    each = "    70.00    99.00    98.00     3.10"
    (found,) = READ(f"# nThread 1 nGpus 1\n{LEFT}{OUT}{each}{INSIDE}{each}\n")
    assert found.rows[1].values == {
        "time": 76.17, "algbw": 13.77, "busbw": 24.09, "time_min": 70.0, "time_max": 99.0,
    }  # fmt: skip


def test_several_operations_in_one_file():
    text = "".join(
        f"$ mpirun -np 8 ./build/{name}_perf -b 8 -e 128M\n" + text_of(file)
        for name, file in (
            ("all_gather", "allgather-8x-a100.txt"),
            ("alltoall", "alltoall-8x-a100.txt"),
            ("all_reduce", "allreduce-8x-a100.txt"),
        )
    )
    assert [one.workload for one in READ(text)] == ["allgather", "alltoall", "allreduce"]


def test_ranks_that_ran_apart_are_refused():
    alone = text_of("allreduce-2x-gh200-wrong.txt").splitlines()
    alone = [line for line in alone if "Rank  1" not in line]
    mixed = "\n".join(line for line in alone for _ in range(2))
    with pytest.raises(CheckError, match="rank 0 is listed 2 times") as caught:
        READ(mixed)
    assert "MPI=1" in str(caught.value.remedy)


def test_json_of_nccl_tests_is_read():
    result = {
        "size": 1048576, "count": 262144, "type": "bfloat16", "redop": "avg", "root": "    -1",
        "out_of_place": {"time": 74.78, "alg_bw": 14.02, "bus_bw": 24.54, "nwrong": 0.0},
        "out_of_place_per_iter": {"min_us": 70.1, "max_us": 99.9, "avg_us": 74.8, "p50_us": 74.0},
        "in_place": {"time": 76.17, "alg_bw": 13.77, "bus_bw": "nan", "nwrong": 7.0},
        "actual_iterations": 20, "experiment_name": "all_reduce_perf",
    }  # fmt: skip
    device = {
        "rank": 0,
        "group": 0,
        "pid": 1,
        "hostname": "node-a",
        "device": 0,
        "device_info": "NVIDIA H100",
    }
    other = result | {"experiment_name": "all_gather_perf_mpi", "redop": "none", "out_of_place": None}
    found = {
        "version": 2, "start_time": "2026-01-23 10:00:00", "args": ["./build/all_reduce_perf", "-J"],
        "env": [], "nccl_version": 22907,
        "config": {"warmup_iters": 1, "iterations": 20, "devices": [device, device | {"hostname": "b"}]},
        "results": [result, other], "out_of_bounds": {"count": 2, "okay": "false"},
        "average_bus_bandwidth": {"bandwidth": 24.5, "okay": "unchecked"}, "errors": [],
    }  # fmt: skip
    text = json.dumps(found, indent=1)
    assert nccl_json.knows(text)
    assert not nccl_json.knows('{"results": []}')
    reduced, gathered = READ(text)
    assert (reduced.workload, gathered.workload) == ("allreduce", "allgather")
    assert (reduced.hosts, reduced.slots, reduced.ranks, reduced.iterations) == (("node-a", "b"), 1, 2, 20)
    assert (gathered.hosts, gathered.slots, gathered.ranks) == (("node-a", "b"), 1, 2)
    assert reduced.stack["nccl"] == "2.29.7"
    assert reduced.stack["measured_at"] == "2026-01-23 10:00:00"
    out, inside = reduced.rows
    assert out.values == {
        "time": 74.78, "algbw": 14.02, "busbw": 24.54,
        "time_min": 70.1, "time_max": 99.9, "time_median": 74.0,
    }  # fmt: skip
    assert (out.op, out.dtype, out.error, inside.error) == ("average", "bfloat16", None, "7 wrong values")
    assert inside.values == {"time": 76.17, "algbw": 13.77}
    assert [row.in_place for row in gathered.rows] == [True]


def test_json_without_results_is_a_failure():
    (found,) = READ(
        json.dumps({"args": ["all_reduce_perf"], "config": {}, "results": [], "errors": ["no GPU"]})
    )
    assert (found.workload, found.error) == ("allreduce", "no GPU")


HEAD = re.compile(r"# +(out-of-place|size|\(B\))")


def test_the_text_is_that_of_the_tool():
    made = [one for one in launches(measured().records) if not one.error]
    lines = [line.rstrip() for line in nccl_text.write(made).splitlines()]
    assert lines[0].startswith('# hvlab: {"version": ')
    assert lines[1:] == [
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 67108864 step: 0(bytes) warmup iters: 3 iters: 22"
        " agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        "#  Rank  0 Group  0 Pid      0 on         n1 device  0 [0000:00:00] cpu",
        "#  Rank  1 Group  0 Pid      0 on         n1 device  1 [0000:00:00] cpu",
        "#  Rank  2 Group  0 Pid      0 on         n2 device  0 [0000:00:00] cpu",
        "#  Rank  3 Group  0 Pid      0 on         n2 device  1 [0000:00:00] cpu",
        "#",
        *[line for line in text_of("allreduce-2x-gh200-wrong.txt").splitlines() if HEAD.match(line)],
        "        1024           256     float     sum      -1" + "  1103.25    0.00    0.00       0" * 2,
        "     1048576        262144     float     sum      -1" + "  4366.46    0.24    0.36       0" * 2,
        "    67108864      16777216     float     sum      -1" + "   114977    0.58    0.88       0" * 2,
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 0.412372",
        "#",
        "# Collective test concluded: all_reduce_perf",
        "#",
    ]


def test_a_half_that_was_not_measured_is_not_available():
    records = [record for record in measured().records if record.case_id == "c1"]
    rows = [line.split() for line in nccl_text.write(launches(records)).splitlines() if line[0] != "#"]
    assert rows[1][5:] == ["N/A", "N/A", "N/A", "N/A", "4366.46", "0.24", "0.36", "0"]
    (found,) = nccl_json.read(nccl_json.write(launches(records)))
    assert {row.in_place for row in found.rows} == {True}


@pytest.mark.parametrize(
    ("value", "width", "wanted"),
    [
        (0.004, 6, "  0.00"), (9.999, 7, "  10.00"), (9999.994, 7, "9999.99"), (58479.5, 7, "58479.5"),
        (323195.4, 7, " 323195"), (1234567.8, 7, "1234568"), (123456789.0, 7, "1.2e+08"),
        (1053.9, 6, "1053.9"),
    ],
)  # fmt: skip
def test_numbers_are_rounded_as_the_tool_rounds_them(value, width, wanted):
    assert nccl_text.rounded(value, width) == wanted
