"""Files of other tools become runs; what hvlab wrote comes back as it was."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvlab.base.errors import CheckError, HvlabError, UsageError
from hvlab.cli import run as hvlab
from hvlab.report import data
from hvlab.report.words import load
from hvlab.results import configurations, formats
from hvlab.results.formats import READERS, importing, launch
from hvlab.results.formats.records import LaunchOverrides, LogSource, records
from hvlab.results.store import Store
from hvlab.workloads import operations
from tests.unit import reports
from tests.unit.formats_run import FAILED, RUN, TIMES, measured

DATA = Path(__file__).parent.parent / "data"
ALL = sorted([*DATA.glob("nccl-tests/*"), *DATA.glob("osu/*")])
NCCL = DATA / "nccl-tests/allreduce-2x-gh200-wrong.txt"
OSU = DATA / "osu/allreduce-6.2-full-two-algorithms.txt"


def taken(*files, reader="nccl-tests", **told):
    """The records of files, not put into any store."""
    sources = [
        LogSource(path.name, f"runs/r/{path.name}", READERS[reader].read(path.read_text())) for path in files
    ]
    return records(sources, LaunchOverrides(**told), run_id="r", started_at="2026")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def test_the_tool_is_seen_in_its_output():
    for path in ALL:
        assert formats.detect(path.read_text("utf-8"), path.name).name == path.parent.name, path


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        ("", "it is empty"),
        ("\n\nbytes,time\n1,2\n", "its first line is 'bytes,time'"),
        ('{"a": 1}', "'{\"a\": 1}'"),
    ],
)
def test_a_file_of_no_tool_is_told_what_was_seen(text, observed):
    with pytest.raises(UsageError, match=re.escape(observed)):
        formats.detect(text, "x.txt")


def test_a_file_of_two_tools_needs_a_word():
    with pytest.raises(UsageError, match="nccl-tests and osu") as caught:
        formats.detect(NCCL.read_text() + OSU.read_text(), "x.txt")
    assert "--from" in str(caught.value.remedy)


def test_a_run_is_made_of_files_and_keeps_them(store):
    run_id, made = importing.import_files(store, [NCCL, OSU], LaunchOverrides(), lab="rack 7")
    run = store.run(run_id)
    assert (run.state, run.lab) == ("finished", "rack 7")
    assert store.records(run_id) == made
    assert set(run.planned) == {record.case_id for record in made}
    first, last = made[0], made[-1]
    assert (first.workload, first.backend, first.hosts, first.slots_per_host) == (
        "allreduce",
        "nccl",
        ("gpu-1-1", "gpu-1-7"),
        1,
    )
    assert (first.world_size, first.proved_backend, first.launcher) == (2, None, "unknown")
    assert first.params == {
        "size_bytes": 8, "dtype": "float32", "op": "sum", "in_place": False, "iterations": 20,
        "warmup_iterations": 1, "device": "cuda",
    }  # fmt: skip
    assert first.stack["tool"] == "nccl-tests 2.17.8"
    assert (last.backend, last.hosts, last.slots_per_host, last.world_size) == ("mpi", (), 0, None)
    for record, path in ((first, NCCL), (last, OSU)):
        assert (store.folder / record.raw_path).read_bytes() == path.read_bytes()
    assert json.loads(json.dumps([vars(record) for record in made]))


def test_files_of_one_name_are_all_kept(store, tmp_path):
    (tmp_path / NCCL.name).write_text(NCCL.read_text())
    _, made = importing.import_files(store, [NCCL, tmp_path / NCCL.name], LaunchOverrides(), lab="x")
    assert len({record.raw_path for record in made}) == 2
    assert {record.repeat for record in made} == {1, 2}


@pytest.mark.parametrize(
    "names",
    [
        ("3-a.log", "a.log", "d/a.log"),
        ("a.log", "d/a.log", "2-a.log", "d/2-a.log"),
        ("store.jsonl", "facts.json", "left-out.json", "summary.md", "report.html"),
    ],
)
def test_no_file_takes_the_name_of_another_or_of_hvlab(store, tmp_path, names):
    for number, name in enumerate(names):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{NCCL.read_text()}# {number}\n")
    files = [tmp_path / name for name in names]
    run_id, made = importing.import_files(store, files, LaunchOverrides(), lab="x")
    kept = dict.fromkeys(record.raw_path for record in made)
    assert [(store.folder / path).read_text() for path in kept] == [path.read_text() for path in files]
    found = data.read(store, run_id)
    assert (found.facts, found.unreadable) == ({}, ())


def test_a_file_may_have_a_name_that_is_no_utf8(store, tmp_path):
    path = tmp_path / "caf\udce9.txt"
    path.write_bytes(NCCL.read_bytes())
    assert hvlab(["results", "import", str(path), "--results", str(store.folder)]) == 0
    run = store.run()
    assert {record.stack["file"] for record in store.records(run.run_id)} == {"caf\\xe9.txt"}
    assert (store.run_folder(run.run_id) / "caf\\xe9.txt").is_file()
    output = ["--output", str(tmp_path / "out.csv"), "--results", str(store.folder)]
    assert hvlab(["results", "export", "--format", "csv", *output]) == 0


def test_alike_launches_are_repeats():
    made = taken(DATA / "nccl-tests/allreduce-2x-5090-tagged.txt")
    found = configurations.gather(made)
    assert {cell.get("in_place") for cell in found} == {True, False}
    assert {len(one.of("time")) for one in found.values()} == {3}
    (large,) = [
        one for cell, one in found.items() if cell.get("size_bytes") == 134217728 and not cell.get("in_place")
    ]
    assert large.of("time") == (58479.5, 58458.9, 58468.9)
    assert len({(record.case_id, record.repeat) for record in made}) == 6


MILLISECONDS = DATA / "nccl-tests/allreduce-4x-1080-milliseconds.txt"


def test_a_time_that_contradicts_its_bandwidth_is_refused(tmp_path):
    path = tmp_path / "allreduce.txt"
    rows = [line for line in MILLISECONDS.read_text().splitlines() if line[:1] != "#"]
    path.write_text("\n".join(rows))
    with pytest.raises(
        CheckError, match=r"allreduce\.txt, line 4: 1024 bytes in 0\.021 us are 48\.8 GB/s"
    ) as caught:
        taken(path)
    assert "algbw in its row is 0.05 GB/s" in str(caught.value)
    assert "whose header tells the unit" in str(caught.value.remedy)


def test_a_time_rounded_as_printed_contradicts_nothing(tmp_path):
    path = tmp_path / "allreduce.txt"
    path.write_text(MILLISECONDS.read_text().replace("0.021   0.05", "0.021   0.02"))
    assert taken(path)
    path.write_text(MILLISECONDS.read_text().replace("0.021   0.05", "0.021   0.01"))
    with pytest.raises(CheckError, match="1024 bytes in 21 us"):
        taken(path)


def test_an_old_allgather_on_two_ranks_may_print_half_its_bandwidth(tmp_path):
    path = tmp_path / "allgather.txt"
    head = (
        "#      bytes             N    type     time  algbw  busbw      res     time  algbw  busbw      res"
    )
    path.write_text(f"{head}\n  8192  1024  float  0.010  0.39  0.39  0e+00  0.010  0.39  0.39  0e+00\n")
    assert {record.value for record in taken(path) if record.metric == "time"} == {10}


@pytest.mark.parametrize(
    ("title", "backend"),
    [("NCCL-CUDA", "nccl"), ("RCCL-ROCM", "nccl"), ("RCCL", "nccl"), ("MPI-CUDA", "mpi"), ("MPI", "mpi")],
)
def test_what_carried_osu_stands_in_its_title(title, backend, tmp_path):
    path = tmp_path / "osu.txt"
    path.write_text((DATA / "osu/allreduce-7.5-nccl.txt").read_text().replace("NCCL-CUDA", title))
    assert {record.backend for record in taken(path, reader="osu")} == {backend}


def test_a_size_that_was_measured_again_is_a_repeat():
    text = NCCL.read_text()
    row = next(line for line in text.splitlines() if line.split()[:1] == ["1024"])
    launches = READERS["nccl-tests"].read(text.replace(row, f"{row}\n{row}"))
    made = records([LogSource("x", "x", launches)], LaunchOverrides(), run_id="r", started_at="2026")
    assert {record.repeat for record in made if record.params["size_bytes"] == 1024} == {1, 2}


def test_failures_are_records():
    made = taken(NCCL)
    assert {(r.params["size_bytes"], r.error) for r in made if r.status == "failed"} == {
        (1048576, "96 wrong values"), (1048576, "32 wrong values"),
    }  # fmt: skip
    (crashed,) = taken(DATA / "nccl-tests/allreduce-8x-gh200-crashed.txt")
    assert (crashed.status, crashed.metric, crashed.slots_per_host) == ("failed", None, 4)


def test_nothing_was_checked_where_every_row_was_refused():
    rows = (launch.LaunchRow(8, error="line 4: cut"), launch.LaunchRow(16, error="line 5: cut"))
    checked = launch.LaunchRow(4, {"time": 1.0}, checked=True)

    def stacks(*rows):
        one = launch.Launch("allreduce", rows, stack={"source": "nccl-tests"})
        made = records([LogSource("x", "x", [one])], LaunchOverrides(), run_id="r", started_at="2026")
        return {record.stack["checked"] for record in made}

    assert stacks(*rows) == {False}
    assert stacks(checked, *rows) == {True}


def test_a_printed_bandwidth_stays_as_it_was_printed():
    made = taken(DATA / "nccl-tests/allreduce-8x-a100.txt")
    busbw = {r.params["size_bytes"]: r.value for r in made if r.metric == "busbw" and r.params["in_place"]}
    assert (busbw[4], busbw[8192], busbw[1048576]) == (0.0, 0.4, 24.09)


@pytest.mark.parametrize(
    ("name", "workload"), [("alltoall-8x-a100.txt", "alltoall"), ("allgather-8x-a100.txt", "allgather")]
)
def test_an_old_file_says_by_its_name_what_it_measured(name, workload, tmp_path):
    assert {record.workload for record in taken(DATA / "nccl-tests" / name)} == {workload}
    other = tmp_path / "log.txt"
    other.write_text((DATA / "nccl-tests" / name).read_text())
    with pytest.raises(UsageError, match=r"log\.txt does not name its operation"):
        taken(other)
    assert {record.workload for record in taken(other, workload="alltoall")} == {"alltoall"}


def test_what_a_file_does_not_say_is_told_by_options():
    made = taken(OSU, reader="osu", backend="ucx", hosts=("a", "b"), slots=4)
    assert {(r.backend, r.hosts, r.slots_per_host, r.world_size) for r in made} == {("ucx", ("a", "b"), 4, 8)}
    assert {r.metric for r in made} == {"time", "time_min", "time_max", "algbw", "busbw"}
    gathers = DATA / "osu/alltoall-7.5-validated.txt"
    with pytest.raises(UsageError, match="the size of one message") as caught:
        taken(gathers, reader="osu")
    assert "--ran-on and --slots" in str(caught.value.remedy)
    assert {r.params["size_bytes"] for r in taken(gathers, reader="osu", hosts=("a",), slots=4)} == {
        4,
        8,
        16,
        32,
    }


OTHER = ("bandwidth-7.5-two-buffers.txt", "non-blocking-5.3.2-two-settings.txt")


@pytest.mark.parametrize("name", OTHER)
def test_launches_with_other_settings_are_no_repeats(name):
    made = taken(DATA / "osu" / name, reader="osu")
    assert {record.repeat for record in made} == {1}
    assert len(configurations.gather(made)) == 2


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
@pytest.mark.parametrize("name", ["nccl-tests", "nccl-tests-json", "osu"])
def test_a_log_that_is_exported_and_imported_is_as_it_was(name, path):
    told = {"workload": "alltoall"} if "alltoall" in path.name else {}
    told |= {"hosts": ("a",), "slots": 8} if path.name.startswith(("all", "reduce", "several")) else {}
    before = [r for r in taken(path, reader=path.parent.name, **told) if r.workload in operations.COLLECTIVES]
    measured = [record for record in before if record.metric]
    if not measured or (name == "osu" and not any(record.metric == "time" for record in measured)):
        return
    text = formats.export(name, formats.MeasuredRun(RUN, measured))
    launches = [one for reader in READERS.values() if reader.knows(text) for one in reader.read(text)]
    after = records([LogSource("x", "x", launches)], LaunchOverrides(), run_id="r", started_at="2026")
    was, is_ = configurations.gather(measured), configurations.gather(after)
    assert was.keys() == is_.keys()
    for cell, one in was.items():
        assert is_[cell].values == one.values, cell


@pytest.mark.parametrize("text", ["# nccl-tests version", "nothing"])
def test_a_file_without_figures_is_an_error(store, tmp_path, text):
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises((CheckError, UsageError)):
        importing.import_files(store, [path], LaunchOverrides(), reader="osu", lab="x")
    assert store.runs() == []


def test_a_file_that_is_not_there(store, tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        importing.import_files(store, [tmp_path / "no.txt"], LaunchOverrides(), lab="x")


@pytest.mark.parametrize("name", ["nccl-tests", "nccl-tests-json", "osu"])
def test_what_hvlab_wrote_comes_back(store, tmp_path, name):
    run = measured()
    kept = [record for record in run.records if record.workload == "allreduce"]
    path = tmp_path / "exported"
    path.write_text(formats.export(name, formats.MeasuredRun(run.run, kept)), "utf-8")
    _, made = importing.import_files(store, [path], LaunchOverrides(), lab="x")
    before, after = configurations.gather(kept), configurations.gather(made)
    assert before.keys() == after.keys()
    for cell, one in before.items():
        assert after[cell].errors.keys() == one.errors.keys()
        for metric in ("time", "algbw", "busbw", "time_min", "time_max", "time_median"):
            assert after[cell].of(metric) == one.of(metric)
    assert {record.backend: record.proved_backend for record in made} == {"mpi": "mpi", "gloo": None}
    assert len(TIMES) * 2 + 1 == len(after)


def test_parameters_that_were_not_set_are_not_made_up(store, tmp_path):
    kept = [
        vars(record)
        | {"params": {k: v for k, v in record.params.items() if k != "in_place"}, "workload": "allgather"}
        for record in measured().records
        if record.case_id == "c1"
    ]
    kept = [type(FAILED)(**row) for row in kept]
    path = tmp_path / "exported"
    path.write_text(formats.export("nccl-tests", formats.MeasuredRun(measured().run, kept)), "utf-8")
    _, made = importing.import_files(store, [path], LaunchOverrides(), lab="x")
    assert configurations.gather(kept).keys() == configurations.gather(made).keys()


def mangled(text, data):
    """The text with pieces cut out, doubled or replaced by others."""
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 200)))
        piece = data.draw(
            st.sampled_from(["", text[start:end] * 2, "\n", "99999999999999999999", "NaN", "-1", "{", "\x00"])
            | st.text(max_size=9)
        )
        text = text[:start] + piece + text[end:]
    return text


JSON = formats.export("nccl-tests-json", measured())


@settings(max_examples=150, suppress_health_check=[HealthCheck.data_too_large])
@given(st.sampled_from([*(path.read_text("utf-8") for path in ALL), JSON]) | st.text(max_size=300), st.data())
def test_mangled_output_never_breaks_the_readers(text, data):
    text = mangled(text, data)
    for reader in READERS.values():
        try:
            reader.knows(text)
            launches = reader.read(text)
            records(
                [LogSource("allreduce.txt", "x", launches)], LaunchOverrides(), run_id="r", started_at="2026"
            )
        except HvlabError:
            continue


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "results",
                        "config",
                        "devices",
                        "size",
                        "type",
                        "in_place",
                        "time",
                        "nwrong",
                        "args",
                        "hvlab",
                        "params",
                        "hosts",
                        "errors",
                        "rank",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_json_of_any_shape_never_breaks_the_reader(found):
    text = json.dumps({"results": found, "config": found, "args": found, "hvlab": found, "errors": found})
    try:
        launches = READERS["nccl-tests"].read(text)
        records([LogSource("x", "x", launches)], LaunchOverrides("allreduce"), run_id="r", started_at="2026")
    except HvlabError:
        return


def test_on_the_command_line(tmp_path, capsys):
    results = ["--results", str(tmp_path / "results")]
    assert hvlab(["results", "import", str(NCCL), "--lab", "rack", *results]) == 0
    told = capsys.readouterr().out
    assert "cases 2, " in told
    assert "96 wrong values" in told
    assert hvlab(["results", "list", *results]) == 0
    assert "rack" in capsys.readouterr().out
    assert hvlab(["results", "show", *results]) == 0
    assert "failed: allreduce-nccl-2x1-in-r1: 32 wrong values" in capsys.readouterr().out
    assert (
        hvlab(["results", "export", "--format", "csv", "--case", "allreduce-nccl-2x1-in-r1", *results]) == 0
    )
    assert len(capsys.readouterr().out.splitlines()) == 1 + 6 * 3 + 1
    target = tmp_path / "out.xml"
    assert hvlab(["results", "export", "--format", "junit", "--output", str(target), *results]) == 0
    assert target.read_text().count("<testcase") == 2
    assert capsys.readouterr().out == ""


def test_a_file_that_does_not_tell_the_layout_gets_advice(tmp_path, capsys):
    results = ["--results", str(tmp_path / "results")]
    assert hvlab(["results", "import", str(OSU), str(NCCL), *results]) == 0
    network, told = capsys.readouterr().err.splitlines()
    assert "--nic 8x400" in network
    assert told.startswith(f"{OSU.name} does not say on which hosts")
    assert "--ran-on and --slots" in told


@pytest.mark.parametrize(
    ("gpus", "told"), [("a100:8", False), ("A100-SXM:8", False), ("a100:4", True), ("b200:8", True)]
)
def test_gpus_that_the_file_contradicts_are_told(tmp_path, capsys, gpus, told):
    words = ["--workload", "all_gather", "--gpus", gpus, "--results", str(tmp_path / "results")]
    assert hvlab(["results", "import", str(DATA / "nccl-tests/allgather-8x-a100.txt"), *words]) == 0
    printed = capsys.readouterr()
    assert "workload allgather" in printed.out
    assert "8 x A100-SXM4-40GB a host" in printed.err or not told
    assert "a host" not in printed.err or told


def test_ranks_that_each_ran_alone_are_refused(tmp_path):
    # nccl-tests issue 294: built without MPI.
    rows = "134217728 33554432 float sum -1 631.9 212.41 0.00 0 0.51 263017.30 0.00 0\n"
    path = tmp_path / "log"
    path.write_text(rows * 2 + "# Out of bounds values : 0 OK\n")
    with pytest.raises(CheckError, match="each rank ran alone"):
        taken(path, workload="allreduce", hosts=("n1", "n2"), slots=8)
    assert taken(path, workload="allreduce", hosts=("n1",), slots=1)


def test_columns_that_no_record_holds_are_told(tmp_path, capsys):
    path = DATA / "osu/message-rate-5.7.1.txt"
    assert hvlab(["results", "import", str(path), "--results", str(tmp_path / "results")]) == 0
    assert f"{path.name}: left out, as hvlab has no metric for it: Messages/s" in capsys.readouterr().err


def test_unequal_ranks_a_host_get_advice(tmp_path, capsys):
    path = tmp_path / "unequal.log"
    path.write_text(
        "# Using devices\n"
        + "".join(f"#   Rank  {rank} on {host} device  0 [0x05] T4\n" for rank, host in enumerate("aab"))
        + MILLISECONDS.read_text().partition("GTX 1080\n\n")[2]
    )
    assert hvlab(["results", "import", str(path), "--results", str(tmp_path / "results")]) == 0
    assert capsys.readouterr().err.startswith("unequal.log does not say")


def test_a_layout_that_was_told_needs_no_advice(tmp_path, capsys):
    results = ["--results", str(tmp_path / "results")]
    assert hvlab(["results", "import", str(OSU), "--ran-on", "2", "--slots", "2", *results]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["export", "--format", "csv"], 2, "there are no results"),
        (["import", "no.txt"], 2, "no.txt cannot be read"),
        (["import", str(DATA / "two-keys.asc")], 2, "holds no output that hvlab can read"),
        (["import", str(OSU), "--ran-on", "0"], 2, "it names no host"),
        (["import", str(OSU), "--from", "nccl-tests"], 1, "no figures of nccl-tests"),
    ],
)
def test_errors_on_the_command_line(tmp_path, capsys, arguments, code, told):
    assert hvlab(["results", *arguments, "--results", str(tmp_path / "results")]) == code
    assert told in capsys.readouterr().err


def test_a_case_that_is_not_there_and_a_file_that_cannot_be_written(tmp_path, capsys):
    results = ["--results", str(tmp_path / "results")]
    assert hvlab(["results", "import", str(OSU), "--ran-on", "2", "--slots", "2", *results]) == 0
    assert hvlab(["results", "export", "--format", "csv", "--case", "c9", *results]) == 2
    assert hvlab(["results", "export", "--format", "csv", "--output", str(tmp_path / "no/x"), *results]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_report_has_the_figures_of_other_measurements(store):
    path = DATA / "osu/point-to-point-5.8.txt"
    run_id, made = importing.import_files(store, [path], LaunchOverrides(), lab="x")
    page = reports.report(data.read(store, run_id))
    head, *rows = reports.said(reports.table(page, "others"), "en")
    assert head[3:] == ["Size", "Time", "Bandwidth", "Bus bandwidth", "n / N"]
    assert len(rows) == len({(row.workload, row.params.get("size_bytes")) for row in made})
    first = next(row for row in made if row.workload == "bandwidth")
    shown = next(row for row in rows if row[0] == "bandwidth")
    assert shown[3] == load("en").number(first.params["size_bytes"], "B").replace("\N{NO-BREAK SPACE}", " ")
    assert float(shown[5].split()[0]) == pytest.approx(first.value, rel=0.01)
    assert shown[4] == "\N{EN DASH}"


def test_what_a_file_states_of_its_parameters_is_read_as_they_are():
    with pytest.raises(CheckError, match=r"a\.log: .*cycle"):
        _stated({"cycle_time": "{}"})
    for wrong in (
        {"iterations": "x"},
        {"iterations": -1},
        {"threads": 0.5},
        {"env": {}},
        {"cycle_time": True},
    ):
        with pytest.raises(CheckError, match=next(iter(wrong))):
            _stated(wrong)
    assert _stated({"dtype": "float8", "own": {}}) == {"dtype": "float8", "own": {}}
    assert _stated({"\ud800x\x1b]0;pwn\x07": "\ud800"}) == {"x": ""}


def _stated(params):
    stated = launch.Launch(
        rows=(), workload="allreduce", stack={"source": "nccl-tests"}, error="e", origin={"params": params}
    )
    source = LogSource("a.log", "runs/r/a.log", [stated])
    (record,) = records([source], LaunchOverrides(), run_id="r", started_at="2026-11-20T00:00:00Z")
    return dict(record.params)
