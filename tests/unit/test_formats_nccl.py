"""nccl-tests: text of every version and JSON, read; and written as the tool itself writes it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hvlab.base.errors import CheckError
from hvlab.results.formats import READERS, nccl_document, nccl_json, nccl_text
from hvlab.results.formats.launch import launches
from tests.unit.formats_run import PREFIXES, measured

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
    "allreduce-72x-gb200-last-device.txt": (
        "allreduce", ((), None, None), 4, (8589934592, True, 20006, 429.37, 846.82),
    ),
    "allreduce-8x-mi300x-rccl.txt": (
        "allreduce", (("g100n126",), 8, 8), 2, (8388608, True, 94.94, 88.36, 154.63),
    ),
    "single-half-8x-h200.txt": (
        "allreduce", (("nccl-single-node-validation",), 8, 8), 1, (34359738368, None, 875713, 39.24, 68.66),
    ),
    "allreduce-2x-2080-commented-rows.txt": (
        "allreduce", (("ncrh",), 2, 2), 4, (8, True, 9, 0.0, 0.0),
    ),
    "allgather-masked.txt": (None, ((), None, None), 1, None),
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


@pytest.mark.parametrize("filler", ["1 ", "on ", " ", "device ", "on device 1 "])
@pytest.mark.parametrize("before", ["#   Rank  0 Pid ", "#   Rank  0 on "])
def test_a_long_line_of_devices_is_read_at_once(before, filler):
    line = before + filler * 20_000 + "on h"
    assert READ(f"# Using devices\n{line}\n")[0].hosts == ()


def test_a_head_whose_names_stand_on_two_lines_loses_no_figure():
    text = (
        "#   size      count    type  redop root     out-of-place                 in-place\n"
        "#    (B)   (elements)                   time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
        "134217728     33554432 float sum -1           2073  64.73 113.29 N/A        2081  64.47 112.82 N/A\n"
    )
    (one,) = READ(text)
    assert (one.workload, [row.values["busbw"] for row in one.rows]) == ("allreduce", [113.29, 112.82])


def test_a_program_without_a_word_of_hvlabs_keeps_its_name():
    text = text_of("allreduce-2x-gh200-wrong.txt").replace("all_reduce_perf", "alltoallv_perf")
    assert READ(text)[0].workload == "alltoallv"


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
    assert (old.settings["warmup_iterations"], old.iterations) == (5, 20)
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
    for before in PREFIXES:
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
        [LEFT, DEBUG, DEBUG, "", BODY],
        [LEFT + DEBUG, OUT, DEBUG, INSIDE],
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


@pytest.mark.parametrize(
    ("torn", "pieces"),
    [
        (LEFT, ["some words", BODY]),
        (LEFT, ["some words", "", DEBUG, BODY]),
        (LEFT + "    74.78   14.0", ["     24.54       0" + INSIDE]),
        (LEFT + "    74.78   14.02   24.5", ["       0" + INSIDE, OUT]),
        (LEFT + OUT + "    76.17   13.7", ["     24.09       0"]),
        (LEFT.removesuffix("      -1") + "    74.78", ["   14.02   24.54       0"]),
    ],
)
def test_rows_torn_inside_a_half_or_by_other_words_stay_torn(torn, pieces):
    head = "# nThread 1 nGpus 1\n#  size count type redop root" + " time algbw busbw #wrong" * 2
    (one,) = READ("\n".join([head, torn, *pieces, "# Out of bounds values : 0 OK"]))
    assert {row.error.partition(":")[0] for row in one.rows if row.error} == {"line 3"}
    assert [row for row in one.rows if not row.error] == []


@pytest.mark.parametrize(
    ("row", "dtype", "observed"),
    [
        ("     1048576        262144     f4e2m1     sum      -1" + BODY, "f4e2m1", "its type, f4e2m1"),
        ("     1048576        262144     f4e2m1     sum", "f4e2m1", "its type, f4e2m1"),
        ("     1048576        262144     fl", None, "it ends in its type, fl"),
        ("     1048576        262144     float", "float32", "its figures are not the 8"),
    ],
)
def test_a_row_whose_type_cannot_be_read_is_refused_with_its_line(row, dtype, observed):
    text = text_of("allreduce-2x-gh200-wrong.txt")
    (at,) = (number for number, line in enumerate(text.splitlines(), 1) if line.split()[:1] == ["1024"])
    lines = text.splitlines()
    lines.insert(at, row)
    (one,) = READ("\n".join(lines))
    (refused,) = [each for each in one.rows if each.error and each.error.startswith("line")]
    assert refused.error.startswith(f"line {at + 1}: ")
    assert observed in refused.error
    assert (refused.size, refused.dtype) == (1048576, dtype)
    assert one.workload == "allreduce"
    (before,) = READ(text)
    assert [each for each in one.rows if not each.error and each.size == 1024] == [
        each for each in before.rows if each.size == 1024
    ]


@pytest.mark.parametrize("words", ["12 34 files 5", "1048576 262144 fl"])
def test_words_outside_of_a_table_are_no_rows(words):
    text = text_of("allreduce-8x-a100.txt")
    assert READ(f"{words}\n{text}{words}\n")[0].rows == tuple(
        replace(row, place=f"line {int(row.place.split()[1]) + 1}") for row in READ(text)[0].rows
    )


def test_the_operation_is_guessed_from_rows_that_were_read():
    text = text_of("allreduce-8x-a100.txt")
    first = next(line for line in text.splitlines() if " float " in line)
    assert READ(text.replace(first, f"       4        1   fl\n{first}"))[0].workload == "allreduce"


@pytest.mark.parametrize(
    ("left", "ranks", "share", "checked", "workload"),
    [
        ("none -1", 8, 7 / 8, "0 0", "allgather"),
        ("none -1", 8, 7 / 8, "0 N/A", "alltoall"),
        ("none -1", 8, 7 / 8, "N/A N/A", None),
        ("none 0", 8, 1, "0 0", "broadcast"),
        ("none 0", 8, 7 / 8, "0 0", None),
        ("sum -1", 2, 1, "0 0", "allreduce"),
        ("sum -1", 2, 1, "0 N/A", "sendrecv"),
        ("sum -1", 8, 1, "N/A N/A", "sendrecv"),
        ("sum -1", 8, 7 / 4, "N/A N/A", "allreduce"),
        ("sum -1", 8, 7 / 8, "0 0", "reducescatter"),
    ],
)
def test_the_operation_is_guessed_from_what_was_checked(left, ranks, share, checked, workload):
    devices = "".join(
        f"#  Rank {rank} Group 0 Pid 7 on n1 device {rank} [0x1b] NVIDIA H100\n" for rank in range(ranks)
    )
    halves = "  ".join(f"100.0 100.00 {100 * share:.2f} {wrong}" for wrong in checked.split())
    text = f"# nThread 1 nGpus {ranks} minBytes 8\n{devices}  10000000  312500  float  {left}  {halves}\n"
    assert READ(text)[0].workload == workload


@pytest.mark.parametrize("name", ["allreduce-8x-a100.txt", "allreduce-2x-gh200-wrong.txt"])
def test_a_log_that_ends_between_rows_was_cut(name):
    lines = text_of(name).splitlines()
    (end,) = (number for number, line in enumerate(lines) if "Out of bounds" in line)
    rows = [number for number, line in enumerate(lines[:end], 1) if " float " in line]
    assert READ(text_of(name))[0].error is None
    assert READ("\n".join(lines[: end + 1]))[0].error is None
    for number in rows:
        (one,) = READ("\n".join(lines[:number]))
        assert one.error.startswith(f"line {number}: the output was cut"), number
    cut = "\n".join(lines[: rows[-1]])
    assert [bool(one.error) for one in READ(f"{cut}\n{text_of(name)}")] == [True, False]


def test_only_a_head_that_promises_an_end_makes_a_log_cut():
    assert READ(text_of("allreduce-8x-mi300x-rccl.txt"))[0].error.startswith("line 17: the output was cut")
    table = text_of("allreduce-16x-a100-no-head.txt").partition("f1d5e1df")[0]
    assert READ(table)[0].error is None
    assert READ(text_of("single-half-8x-h200.txt"))[0].error is None


def test_a_row_without_its_end_is_no_row():
    text = "\n".join(["# nThread 1 nGpus 1", LEFT, LEFT.replace("1048576", "2097152") + BODY, LEFT])
    whole = [(row.size, row.values["time"]) for row in READ(text)[0].rows if not row.error]
    assert whole == [(2097152, 74.78), (2097152, 76.17)]
    refused = [row.error for row in READ(text)[0].rows if row.error]
    assert [error.partition(":")[0] for error in refused] == ["line 2", "line 4"]


def test_only_in_place_was_measured():
    (found,) = READ(f"# nThread 1 nGpus 1\n{LEFT}{' ' * 32}{INSIDE}\n# Out of bounds values : 0 OK\n")
    assert [(row.in_place, row.values["time"]) for row in found.rows] == [(True, 76.17)]
    (given,) = READ(f"# nThread 1 nGpus 1\n{LEFT}{'  N/A' * 4}{INSIDE}\n")
    assert [row.in_place for row in given.rows] == [True]


def test_times_of_single_iterations_stand_between():
    half = " time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    each = "    70.00    99.00    98.00     3.10"
    (found,) = READ(f"#  size count type redop root{half * 2}\n{LEFT}{OUT}{each}{INSIDE}{each}\n")
    assert found.rows[1].values == {
        "time": 76.17, "algbw": 13.77, "busbw": 24.09, "time_min": 70.0, "time_max": 99.0,
    }  # fmt: skip
    assert found.left_out == ("p99_us", "cv_pct")


def test_a_row_that_was_cut_after_its_first_half_is_not_in_place():
    whole, cut = LEFT + BODY, LEFT.replace("1048576", "2097152") + OUT
    (one,) = READ(f"# nThread 1 nGpus 1\n{whole}\n{cut}\n")
    assert [(row.size, row.in_place, row.error) for row in one.rows] == [
        (1048576, False, None), (1048576, True, None), (2097152, False, None),
        (2097152, None, "line 3: it ends before its figures in-place"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["allreduce-2x-gh200-wrong.txt", "allreduce-8x-a100.txt"])
def test_a_line_cut_anywhere_gives_no_figure_that_was_not_there(name):
    lines = text_of(name).splitlines()
    at = max(number for number, line in enumerate(lines) if line.strip()[:1].isdigit() and " float " in line)
    head, last = "\n".join(lines[:at]), lines[at]

    def figures(line):
        rows = READ(f"{head}\n{line}\n")[0].rows
        return {(row.size, row.in_place, *row.values.items()) for row in rows if not row.error}

    for end in range(len(last)):
        assert figures(last[:end]) <= figures(last), last[:end]
        assert {row[0] for row in figures(last[end:])} <= {row[0] for row in figures(last)}, last[end:]


def test_one_table_of_several_types_and_operations():
    head = "#  bytes  N  type  op" + "  time  algbw  busbw  res" * 2
    rows = [
        "    10000000   10000000    char     sum  0.286  34.98  52.47    0e+00  0.303  32.98  49.46    0e+00",
        "    10000000   10000000    char    prod  0.291  34.31  51.47    0e+00  0.309  32.36  48.54    0e+00",
        "    10000000       2500000     int     sum  0.283  35.35  53.02    0e+00  0.298  33.53     ...",
    ]
    (one,) = READ("\n".join([head, *rows]))
    assert [(row.dtype, row.op, row.values.get("time")) for row in one.rows] == [
        ("int8", "sum", 286), ("int8", "sum", 303), ("int8", "prod", 291), ("int8", "prod", 309),
        ("int32", "sum", None),
    ]  # fmt: skip
    assert one.rows[-1].error.startswith("line 4: ")


def test_a_half_of_which_nothing_is_said_is_neither():
    (one,) = READ(text_of("single-half-8x-h200.txt"))
    assert [row.in_place for row in one.rows] == [None]
    above = "#                    in-place\n"
    head = "#  size count type redop root time algbw busbw #wrong\n"
    assert [row.in_place for row in READ(f"{above}{head}{LEFT}{INSIDE}\n")[0].rows] == [True]


def test_the_time_of_the_cpu_is_no_time():
    head = "#  size count type redop root" + " cputime algbw busbw #wrong" * 2
    (one,) = READ(f"{head}\n{LEFT}{BODY}\n")
    assert [row.values for row in one.rows] == [
        {"algbw": 14.02, "busbw": 24.54}, {"algbw": 13.77, "busbw": 24.09},
    ]  # fmt: skip
    assert one.left_out == ("cpu_time",)
    half = {"cpu_time": 3.1, "alg_bw": 14.02, "bus_bw": 24.54, "nwrong": 0}
    result = {"size": 1048576, "type": "float", "redop": "sum", "out_of_place": half, "in_place": None}
    (one,) = READ(json.dumps({"args": ["all_reduce_perf"], "config": {}, "results": [result]}))
    assert [row.values for row in one.rows] == [{"algbw": 14.02, "busbw": 24.54}]
    assert one.left_out == ("cpu_time",)


@pytest.mark.parametrize("time", ["0.00", "-3.10"])
def test_a_time_that_cannot_be_is_refused_with_its_line(time):
    (one,) = READ(f"# nThread 1 nGpus 1\n{LEFT}    {time}   14.02   24.54       0{INSIDE}\n")
    assert one.rows[0].error.startswith("line 2: time is ")
    assert one.rows[1].error is None
    half = {"time": float(time), "alg_bw": 14.02, "bus_bw": 24.54, "nwrong": 0}
    result = {"size": 1048576, "type": "float", "redop": "sum", "out_of_place": half}
    (one,) = READ(json.dumps({"args": ["all_reduce_perf"], "config": {}, "results": [result]}))
    assert one.rows[0].error.startswith("result 1: time is ")


def test_a_figure_that_is_none_is_refused_with_its_line():
    (one,) = READ(text_of("allgather-masked.txt"))
    assert one.rows[0].error == "line 5: its figures are not the 8 that the table's head names"


def test_the_json_lists_one_device_of_each_process():
    device = {"rank": 0, "group": 0, "hostname": "a", "device": 0, "device_info": "NVIDIA H100"}
    devices = [device, device | {"rank": 8, "hostname": "b"}]
    document = {"args": ["all_gather_perf"], "config": {"nthreads": 1, "ngpus": 8}, "results": []}
    (one,) = READ(json.dumps(document | {"config": document["config"] | {"devices": devices}}))
    assert (one.hosts, one.slots, one.ranks) == (("a", "b"), 8, 16)
    (one,) = READ(json.dumps(document | {"config": document["config"] | {"devices": devices[1:]}}))
    assert (one.hosts, one.slots, one.ranks) == ((), None, None)


def test_a_list_of_devices_that_the_bandwidths_contradict_says_no_ranks():
    text = text_of("allreduce-8x-a100.txt")
    kept = [line for line in text.splitlines() if not re.match(r"#\s+Rank\s+[4-7] ", line)]
    kept = [line for line in kept if "nThread" not in line]
    assert len(kept) == len(text.splitlines()) - 5
    (one,) = READ("\n".join(["# Using devices", *kept]))
    assert (one.hosts, one.ranks) == ((), None)


def _listed(*devices):
    model = "NVIDIA A100-SXM4-40GB"
    lines = [
        f"#  Rank {rank:2} Group  0 Pid 74 on {host} device {number:2} [0000:0{number}:00] {model}"
        for rank, host, number in devices
    ]
    row = "8589934592 2147483648 float sum -1 84948.7 101.12 189.60 0 84992.3 101.07 189.50 0"
    (one,) = READ("\n".join(["# Using devices", *lines, row]))
    return one.hosts, one.slots, one.stack["gpus"]


@pytest.mark.parametrize("names", [("a", "b"), ("NODE A", "NODE B ")])
def test_people_leave_out_the_middle_of_a_list_of_devices(names):
    a, b = names
    hosts = (a.strip(), b.strip())
    assert _listed((0, a, 0), (7, a, 7), (8, b, 0), (15, b, 7)) == (hosts, 8, "8 x NVIDIA A100-SXM4-40GB")


@pytest.mark.parametrize(
    "devices",
    [
        [(0, "a", 0), (15, "b", 7)],
        [(0, "a", 0), (6, "a", 6), (8, "b", 0), (15, "b", 7)],
        [(0, "a", 0), (5, "a", 5), (6, "b", 0), (15, "b", 7)],
        [(rank, "", rank % 8) for rank in range(16)],
    ],
)
def test_a_list_that_does_not_tell_who_ran_where_is_not_believed(devices):
    assert _listed(*devices)[:2] == ((), None)


@pytest.mark.parametrize("on", ["on        ", "", "on "])
def test_devices_of_a_host_whose_name_was_taken_out_are_its_own(on):
    lines = [
        f"#  Rank  {rank} Group  0 Pid   4349 {on}device  {rank} [0x{rank}1] NVIDIA A100" for rank in (0, 1)
    ]
    (one,) = READ(
        "\n".join(["# Using devices", *lines, "134217728 33554432 float sum -1 11744 11.43 11.43 0"])
    )
    assert (len(one.hosts), one.slots, one.stack["gpus"]) == (1, 2, "2 x NVIDIA A100")


def test_the_devices_of_rccl_are_its_own():
    (one,) = READ(text_of("allreduce-8x-mi300x-rccl.txt"))
    assert (one.device, one.settings) == ("rocm", {"gpus_per_thread": 8, "warmup_iterations": 5})


def test_how_a_launch_was_set_is_kept():
    head = "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 0(bytes) warmup iters: 5 iters: 20 agg iters: 4 "
    set_ = "h:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring."
    (one,) = READ(f"$ ./all_reduce_perf -g 2 -m 4\n{head}validation: 0 graph: 2\n{set_}\n{LEFT}{BODY}\n")
    assert one.settings == {
        "gpus_per_thread": 2, "warmup_iterations": 5, "aggregated_iterations": 4, "graph": 2,
        "command": "./all_reduce_perf -g 2 -m 4", "environment": "NCCL_ALGO=Ring",
    }  # fmt: skip


def test_what_was_not_checked_is_not_said_to_be():
    unchecked = OUT.replace("       0", "     N/A") + INSIDE.replace("       0", "     N/A")
    table = f"{LEFT}{unchecked}\n# Avg bus bandwidth    : 24.315\n"
    (one,) = READ(f"# Collective test starting: all_reduce_perf\n{table}")
    document = nccl_document.document(one)
    assert [row.checked for row in one.rows] == [False, False]
    config = {key: document["config"][key] for key in ("nthreads", "ngpus", "warmup_iters", "iterations")}
    assert config == {"nthreads": None, "ngpus": None, "warmup_iters": None, "iterations": None}
    assert (document["config"]["validation"], document["out_of_bounds"]) == (0, None)
    assert document["results"][0]["in_place"]["nwrong"] is None
    written = nccl_document.write([one])
    assert "nGpus" not in written
    assert "warmup" not in written
    assert "Out of bounds" not in written
    assert "    76.17   13.77   24.09     N/A" in written


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
        "out_of_place": {"time": 74.78, "alg_bw": 14.02, "bus_bw": 14.02, "nwrong": 0.0},
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
    devices = [device, device | {"hostname": "b", "rank": 1}]
    found = {
        "version": 2, "start_time": "2026-01-23 10:00:00", "args": ["./build/all_reduce_perf", "-J"],
        "env": [], "nccl_version": 22907,
        "config": {"warmup_iters": 1, "iterations": 20, "devices": devices},
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
        "time": 74.78, "algbw": 14.02, "busbw": 14.02,
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
    lines = [line.rstrip() for line in nccl_document.write(made).splitlines()]
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
    rows = [line.split() for line in nccl_document.write(launches(records)).splitlines() if line[0] != "#"]
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
    assert nccl_document.round_to_width(value, width) == wanted
