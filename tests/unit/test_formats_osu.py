"""The OSU micro-benchmarks: text of every version, with -f and without, read and written."""

from pathlib import Path

import pytest

from hvlab.base.errors import CheckError
from hvlab.results.formats import nccl_text, osu
from hvlab.results.formats.launch import launches
from tests.unit.formats_run import PREFIXES, measured

DATA = Path(__file__).parent.parent / "data/osu"
# For each file what its first benchmark is: operation, version, device, rows, and the last row.
FILES = {
    "allreduce-5.4.1.txt": ("allreduce", "5.4.1", "cpu", 5, (1048576, {"time": 2173.25})),
    "allreduce-5.9-cuda-warnings.txt": ("allreduce", "5.9", "cuda", 3, (16, {"time": 1.6})),
    "allreduce-6.2-full-two-algorithms.txt": (
        "allreduce", "6.2", "cpu", 3, (3200000, {"time": 9006.89, "time_min": 8725.43, "time_max": 9220.24}),
    ),
    "allreduce-7.0-cuda-full.txt": (
        "allreduce", "7.0", "cuda", 1, (16777216, {"time": 8630.58, "time_min": 8619.5, "time_max": 8642.46}),
    ),
    "allreduce-7.5-nccl.txt": ("allreduce", "7.5", "cuda", 1, (1073741824, {"time": 8955.18})),
    "alltoall-7.5-validated.txt": ("alltoall", "7.5", "cpu", 4, (8, {"time": 11.84})),
    "several-5.6.3.txt": ("allreduce", "5.6.3", "cpu", 3, (1048576, {"time": 927.1})),
    "bandwidth-7.5-two-buffers.txt": ("bandwidth", "7.5", "cuda", 1, (268435456, {"algbw": 279.57781})),
    "bandwidth-7.3-device-to-host.txt": (
        "bidirectional-bandwidth", "7.3", "cuda", 3, (67108864, {"algbw": 1.27212}),
    ),
    "bandwidth-7.5-crashed.txt": ("bidirectional-bandwidth", "7.5", "cuda", 4, (4096, {"algbw": 0.32756})),
    "non-blocking-5.3.2-two-settings.txt": (
        "non-blocking-allgather", "5.3.2", "cpu", 1, (1, {"time": 135.61}),
    ),
    "non-blocking-barrier-5.8.txt": ("non-blocking-barrier", "5.8", "cpu", 1, (0, {"time": 2505.98})),
    "message-rate-5.7.1.txt": (
        "multiple-bandwidth-message-rate", "5.7.1", "cpu", 2, (1024, {"algbw": 51.84446}),
    ),
    "one-sided-5.8.txt": ("get-latency", "5.8", "cpu", 2, (4194304, {"time": 578.12})),
    "point-to-point-5.8.txt": ("latency", "5.8", "cpu", 3, (4194304, {"time": 1378.39})),
}  # fmt: skip


CRASH = "Caught signal 7 (Bus error: nonexistent physical address)"


def text_of(name):
    return (DATA / name).read_text("utf-8")


def test_every_recorded_file_has_a_row_here():
    assert {path.name for path in DATA.iterdir()} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_recorded_output_is_read(name):
    workload, version, device, count, (size, figures) = FILES[name]
    assert osu.knows(text_of(name))
    assert not nccl_text.knows(text_of(name))
    first = osu.read(text_of(name))[0]
    assert (first.workload, first.device, len(first.rows)) == (workload, device, count)
    assert first.error == (CRASH if "crashed" in name else None)
    assert first.stack["tool"] == f"OSU Micro-Benchmarks {version}"
    assert (first.rows[-1].size, first.rows[-1].values) == (size, pytest.approx(figures))


def test_several_benchmarks_in_one_file():
    assert [one.workload for one in osu.read(text_of("several-5.6.3.txt"))] == [
        "allreduce", "reducescatter", "scatterv",
    ]  # fmt: skip
    two = osu.read(text_of("allreduce-6.2-full-two-algorithms.txt"))
    assert [(len(one.rows), one.iterations) for one in two] == [(3, 100), (2, 100)]
    assert two[0].stack["spread"]


def test_point_to_point_bandwidth_and_barrier():
    latency, bandwidth, barrier = osu.read(text_of("point-to-point-5.8.txt"))
    assert latency.sizes == [1, 1024, 4194304]
    assert bandwidth.rows[0].values == {"algbw": pytest.approx(12.25416)}
    assert (barrier.workload, barrier.rows[0].size, barrier.rows[0].values) == ("barrier", 0, {"time": 8.32})


def test_a_failed_validation_fails_its_row():
    text = text_of("alltoall-7.5-validated.txt").replace("11.99              Pass", "11.99              Fail")
    (found,) = osu.read(text)
    assert [row.error for row in found.rows] == [None, None, "the validation failed", None]


def test_one_sided_tests_keep_their_call():
    get, put = osu.read(text_of("one-sided-5.8.txt"))
    assert (get.workload, put.workload) == ("get-latency", "put-latency")
    assert put.settings["window_creation"] == "MPI_Win_allocate"
    assert put.settings["synchronization"] == "MPI_Win_flush"
    assert put.settings["command"].endswith("-np 2 ./osu_put_latency")


def test_what_the_launches_differ_in_is_a_setting():
    two = osu.read(text_of("bandwidth-7.5-two-buffers.txt"))
    assert [one.settings["command"][-3:] for one in two] == ["D D", "H D"]
    (older,) = osu.read(text_of("bandwidth-7.3-device-to-host.txt"))
    assert older.settings == {"buffers": "DEVICE HOST"}
    (rate,) = osu.read(text_of("message-rate-5.7.1.txt"))
    assert rate.settings == {"pairs": "48", "window_size": "64"}


def test_columns_without_a_metric_are_named():
    (first, _) = osu.read(text_of("non-blocking-5.3.2-two-settings.txt"))
    assert first.left_out == ("Overall(us)", "Compute(us)", "Overlap(%)")
    assert osu.read(text_of("message-rate-5.7.1.txt"))[0].left_out == ("Messages/s",)
    assert osu.read(text_of("point-to-point-5.8.txt"))[0].left_out == ("rows of 0 bytes",)


def test_blanks_that_were_lost_change_no_column():
    text = text_of("bandwidth-7.3-device-to-host.txt")
    (squeezed,) = osu.read("\n".join(" ".join(line.split()) for line in text.splitlines()))
    assert squeezed == osu.read(text)[0]


@pytest.mark.parametrize(
    ("row", "observed"),
    [
        ("8  12.05  11.99", "line 4: '8 12.05 11.99' is no row: cut, or not of the columns Avg Latency(us)"),
        ("8  0.00", "line 4: time is 0, which nothing measured can be"),
        ("8  -1.50", "line 4: time is -1.5, which nothing measured can be"),
        ("8  12.05 [n1:mpi_rank_0] Warning", "it contains other words"),
        ("8", "line 4: '8' is no row: cut after its size"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_line(row, observed):
    (one,) = osu.read(
        f"# OSU MPI Allreduce Latency Test v7.5\n# Size       Avg Latency(us)\n4  12.46\n{row}\n"
    )
    assert [each.values for each in one.rows if not each.error] == [{"time": 12.46}]
    assert observed in one.rows[1].error


@pytest.mark.parametrize(
    "name", ["allreduce-5.4.1.txt", "allreduce-7.0-cuda-full.txt", "message-rate-5.7.1.txt"]
)
def test_a_line_cut_anywhere_gives_no_figure_that_was_not_there(name):
    text = text_of(name).rstrip()
    whole = {(row.size, *row.values.items()) for row in osu.read(text)[0].rows}
    for end in range(text.index("# Size"), len(text)):
        (one,) = osu.read(text[:end])
        # A number of iterations alone may lose its end unseen: it is a whole number.
        rows = {(row.size, *row.values.items()) for row in one.rows if not row.error}
        assert rows <= whole, text[:end].splitlines()[-1]


@pytest.mark.parametrize("place", ["before the table", "after it"])
def test_a_number_that_is_no_next_size_is_no_row(place):
    title = "# OSU MPI Allreduce Latency Test v7.5\n"
    table = "# Size       Avg Latency(us)\n4  12.46\n"
    (one,) = osu.read(f"{title}{table}0\n" if place == "after it" else f"{title}8\n{table}")
    assert [(row.size, row.error) for row in one.rows] == [(4, None)]


def test_a_table_of_columns_that_nobody_knows_is_refused_by_its_lines():
    (one,) = osu.read("# OSU MPI Allreduce Latency Test v9\n# Size  Speed(m/s)\n4  12.46\n")
    assert one.error is None
    assert one.rows[0].error.startswith("line 3: ")
    assert "Speed(m/s)" in one.rows[0].error


def test_two_tables_in_one_are_refused():
    twice = [line for line in text_of("allreduce-5.4.1.txt").splitlines() for _ in range(2)]
    with pytest.raises(CheckError, match="line 14: 4 bytes come after 4") as caught:
        osu.read("\n".join(twice))
    assert "own file" in str(caught.value.remedy)


def test_each_type_has_a_table_of_its_own_below_one_title():
    (one,) = osu.read(
        "# OSU MPI Allreduce Latency Test v7.4\n# Datatype: MPI_INT.\n# Size       Avg Latency(us)\n4  1.5\n"
        "# Datatype: MPI_FLOAT.\n# Size       Avg Latency(us)\n4  1.6\n"
    )
    assert [(row.size, row.dtype) for row in one.rows] == [(4, "int32"), (4, "float32")]


@pytest.mark.parametrize("before", PREFIXES)
def test_what_launchers_put_before_a_line_is_learned(before):
    text = text_of("one-sided-5.8.txt")
    tagged = "\n".join(before + line for line in text.splitlines())
    assert [one.rows for one in osu.read(tagged)] == [one.rows for one in osu.read(text)]


def test_percentiles_and_types_of_new_versions():
    (found,) = osu.read(
        "# OSU MPI-ROCM Allreduce Latency Test v7.5\n# Datatype: MPI_DOUBLE.\n"
        "# Size       Avg Latency(us)  P50 Tail Lat(us)  P99 Tail Lat(us)\n"
        "8                      12.41             12.05             35.43\n"
    )
    assert (found.device, found.rows[0].dtype, found.rows[0].op) == ("rocm", "float64", "sum")
    assert found.rows[0].values == {"time": 12.41, "time_median": 12.05}
    assert found.left_out == ("P99 Tail Lat(us)",)


def test_the_text_is_that_of_the_tool():
    (made, *_) = launches(measured().records, pair=False)
    lines = osu.write([made]).splitlines()
    assert lines[:3] == ["", "# OSU MPI Allreduce Latency Test v7.5", "# Datatype: MPI_FLOAT."]
    assert lines[3].startswith('# hvlab: {"version": ')
    assert lines[5:] == [
        "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations",
        "1024                 1103.25            992.93           1654.88          22",
        "1048576              4366.46           3929.81           6549.69          22",
        "67108864           114977.06         103479.35         172465.59          22",
    ]
    recorded = text_of("allreduce-7.0-cuda-full.txt").splitlines()
    assert lines[5] in recorded
    without = [record for record in measured().records if record.metric != "time_min"]
    (short, *_) = launches(without, pair=False)
    assert "# Size       Avg Latency(us)" in osu.write([short]).splitlines()
    assert "# Size       Avg Latency(us)" in text_of("allreduce-5.4.1.txt").splitlines()
