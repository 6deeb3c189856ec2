"""The OSU micro-benchmarks: text of every version, with -f and without, read and written."""

from pathlib import Path

import pytest

from hvlab.formats import nccl_text, osu
from hvlab.formats.launch import launches
from tests.unit.formats_run import measured

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
    "point-to-point-5.8.txt": ("latency", "5.8", "cpu", 3, (4194304, {"time": 1378.39})),
}  # fmt: skip


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
    assert (first.workload, first.device, len(first.rows), first.error) == (workload, device, count, None)
    assert first.stack["tool"] == f"OSU Micro-Benchmarks {version}"
    assert (first.rows[-1].size, first.rows[-1].values) == (size, figures)


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


def test_percentiles_and_types_of_new_versions():
    (found,) = osu.read(
        "# OSU MPI-ROCM Allreduce Latency Test v7.5\n# Datatype: MPI_DOUBLE.\n"
        "# Size       Avg Latency(us)  P50 Tail Lat(us)  P99 Tail Lat(us)\n"
        "8                      12.41             12.05             35.43\n"
    )
    assert (found.device, found.rows[0].dtype, found.rows[0].op) == ("rocm", "float64", "sum")
    assert found.rows[0].values == {"time": 12.41, "time_median": 12.05}


def test_the_text_is_that_of_the_tool():
    (made, *_) = launches(measured().records, pair=False)
    lines = osu.write([made]).splitlines()
    assert lines[:3] == ["", "# OSU MPI Allreduce Latency Test v7.5", "# Datatype: MPI_FLOAT."]
    assert lines[3].startswith('# hvlab: {"version": ')
    assert lines[5:] == [
        "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations",
        "1024                 1103.25            992.93           1654.88          25",
        "1048576              4366.46           3929.81           6549.69          25",
        "67108864           114977.06         103479.35         172465.59          25",
    ]
    recorded = text_of("allreduce-7.0-cuda-full.txt").splitlines()
    assert lines[5] in recorded
    without = [record for record in measured().records if record.metric != "time_min"]
    (short, *_) = launches(without, pair=False)
    assert "# Size       Avg Latency(us)" in osu.write([short]).splitlines()
    assert "# Size       Avg Latency(us)" in text_of("allreduce-5.4.1.txt").splitlines()
