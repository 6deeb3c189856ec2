"""Files that are meant to do harm, or are merely broken: a message in time, whatever they hold."""

import json
import re
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.analysis.baseline import keeping
from hvlab.analysis.compare.comparison import compare, measurements
from hvlab.base.errors import HvlabError, UsageError
from hvlab.bench import suite
from hvlab.checks import machine_types
from hvlab.doctor import reading
from hvlab.lab import inventory
from hvlab.remote.known_hosts import read_known_keys
from hvlab.report import data, sheet, write
from hvlab.results import formats, journal
from hvlab.results.formats import READERS, detect, importing, pods
from hvlab.results.formats.records import LaunchOverrides
from hvlab.results.store import Store
from hvlab.results.summary import sections
from hvlab.stack.resolver import catalogue, own
from hvlab.vlab import topology
from hvlab.workloads import command, sizes
from hvlab.workloads.launchers import slurm, slurm_queue
from tests.unit import formats_run
from tests.unit.fuzzing import MANY, QUICK, SLOW

pytestmark = pytest.mark.fuzz

SECONDS = 60
ONE_LINE = 2**20 * (24 if MANY else 2)


@contextmanager
def in_time(seconds=SECONDS):
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


def bomb(levels=30):
    """A billion laughs: each line names the one before nine times."""
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def aliased(key, levels=30):
    """The same below a key that is known."""
    return f"{bomb(levels)}\n{key}: *a{levels - 1}\n"


RECURSIVE = "blocks: &b\n  - *b\nhosts: &h {a: *h}\nracks: *h\nreleases: *h\n"
DEEP = "[" * 1500 + "]" * 1500
TEXTS = {
    "empty": b"",
    "nul": b"\0" * 1000,
    "latin": b"a: \xff\xfe\n",
    "surrogate": b"a: \xed\xa0\x80\n",
    "escape": b"a: \x1b]0;x\x07\n",
    # Deeper than Python goes; PyYAML takes a second for 1500.
    "deep": b"[" * 600 + b"]" * 600,
    "deep mapping": ("{a: " * 3000 + "1" + "}" * 3000).encode(),
    "bomb": bomb().encode(),
    "aliased blocks": aliased("blocks").encode(),
    "aliased hosts": aliased("hosts").encode(),
    "aliased racks": aliased("racks").encode(),
    "aliased match": aliased("match").encode(),
    "aliased cuda": aliased("cuda").encode(),
    "merged": aliased("all").encode(),
    "aliased variables": f"{bomb(9)}\nall: {{hosts: {{n1: {{x: *a8}}}}}}\n".encode(),
    "aliased children": "\n".join(
        ["a0: &a0 {hosts: {n: {}}}"]
        + [f"a{n}: &a{n} {{children: {{b: *a{n - 1}, c: *a{n - 1}, d: *a{n - 1}}}}}" for n in range(1, 25)]
    ).encode(),
    "recursive": RECURSIVE.encode(),
    "tag": b"blocks: !!python/object/apply:os.system ['false']\n",
    "large number": b"repeats: " + b"9" * 10_000 + b"\nblocks: [{workload: allreduce}]\n",
    "large date": b"blocks: 9999-99-99\n",
    "list": b"- 1\n- 2\n",
    "keys": b"? [a]\n: 1\n? {b: c}\n: 2\n1: 3\nnull: 4\n",
}


# Reading an inventory starts Ansible.
INVENTORIES = (
    "nul",
    "surrogate",
    "deep mapping",
    "bomb",
    "aliased hosts",
    "merged",
    "recursive",
    "aliased variables",
    "aliased children",
)
CASES = [(reader, name) for reader in ("suite", "topology", "catalogue", "health") for name in TEXTS]


@pytest.mark.parametrize(("reader", "name"), [*CASES, *(("inventory", name) for name in INVENTORIES)])
def test_yaml(tmp_path, reader, name):
    content = TEXTS[name]
    path = tmp_path / "file.yml"
    path.write_bytes(content)
    readers = {
        "suite": lambda: suite.load(str(path)),
        "topology": lambda: topology.load(path, ["n1"]),
        "catalogue": lambda: own.merge(catalogue.files(), own.read(path), path),
        "health": lambda: machine_types._read(tmp_path, []),
        "inventory": lambda: inventory.load(path),
    }
    with in_time():
        try:
            readers[reader]()
        except HvlabError as error:
            said = str(error)
            assert len(said) < 20_000


def throughput(text):
    """It says itself what a wrong value is: its caller makes the case's error of it."""
    try:
        command.throughput(text)
    except ValueError as error:
        assert "is no positive number" in str(error)  # noqa: PT017 - most end without one


TEXT_READERS = {
    **{f"read {name}": reader.read for name, reader in READERS.items()},
    "detect": lambda text: detect(text, "file"),
    "pods": lambda text: pods.read(text, "file") if pods.knows(text) else None,
    "sheet answers": lambda text: sheet.fill_in(text, sheet.Content()),
    "doctor": lambda text: reading.diagnose(text.splitlines()),
    "slurm waiting": slurm_queue.waiting,
    "slurm unfit": slurm_queue.read_unfit,
    "slurm granted": slurm.read_granted_job,
    "slurm revoked": slurm.is_revoked,
    "slurm state": slurm.state,
    "slurm longest": slurm.longest,
    "sizes": sizes.parse_sizes,
    "throughput": throughput,
    "pattern": command.check_pattern,
}


def read(reader, text):
    """Whatever it returns, or an error in words."""
    try:
        TEXT_READERS[reader](text)
    except HvlabError as error:
        assert str(error)  # noqa: PT017 - most end without one


WORDS = st.sampled_from(
    [
        "# nccl-tests version 2.13.8\n",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n",
        "        1024           256     float     sum      -1    5.0    0.2    0.4      0\n",
        "# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n",
        "1024 nan\n",
        "4 1e999\n",
        "n1|idle|none\n",
        "salloc: Granted job allocation 7\n",
        "JobState=NODE_FAIL Reason=NodeDown\n",
        "[1,0]<stderr>: NCCL WARN \x1b[31m",
        "| a | b |\n|---|---|\n",
        "## 1. Task\n",
        "images/sec: 1e400\n",
        "1K:1E:2",
        "\0",
        "\ud800",
        "{",
        '{"a": [',
        "\u202e",
        "9" * 5000,
    ]
)


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@pytest.mark.parametrize("reader", TEXT_READERS)
@QUICK
@given(parts=st.lists(WORDS | st.text(max_size=40), max_size=8))
def test_text(reader, parts):
    read(reader, "".join(parts))


FOLDER = Path(__file__).parent.parent / "data"
LOGS = [
    path.read_text("utf-8") for tool in ("nccl-tests", "osu") for path in sorted(FOLDER.glob(f"{tool}/*"))
]
# Two sizes on two numbers of ranks, which are fitted; most of it states the parameters.
OWN = [
    replace(record, **where)
    for record in formats_run.figures(formats_run.BASE)
    if record.params["size_bytes"] < max(formats_run.TIMES)
    for where in ({}, {"hosts": ("n1", "n2", "n3"), "slots_per_host": 1, "world_size": 3})
]
SMALL = formats.MeasuredRun(formats_run.RUN, OWN, {})
EXPORTS = [
    formats.export(name, run)
    for name in ("nccl-tests", "nccl-tests-json", "osu")
    for run in (SMALL, SMALL, formats_run.measured())
]
PART = re.compile(r'"[^"\n]*"|-?[\w.+]+|\n')
HARM = st.sampled_from(
    ['"{}"', r'"\ud800"', r'"\u001b]0;x"', '"x"', "[]", "{}", "null", "true", "-1", "0", "0.5", "1e999",
     "nan", "inf", "9" * 400, "", "\n", "\0", "\ud800", "=1+1", "__proto__"]
)  # fmt: skip
STATED = st.sampled_from(
    [
        *formats_run.PARAMS,
        "workload",
        "backend",
        "proved",
        "launcher",
        "hosts",
        "slots",
        "repeat",
        "in_place",
        "params",
    ]
)


def taken_in(text):
    """What comes in is shown, reported and exported, or refused in words."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "file.log").write_bytes(text.encode("utf-8", "surrogatepass"))
        results = Store(Path(folder) / "results")
        try:
            run_id, _ = importing.import_files(
                results, [Path(folder) / "file.log"], LaunchOverrides(), lab="x"
            )
        except HvlabError as error:
            assert str(error)  # noqa: PT017 - most end without one
            return
        used(results, run_id)


def used(results, run_id):
    """What a store has is shown, reported, compared and exported; what cannot be is refused in words."""
    made = data.read(results, run_id)
    sections(made.records)
    write.write(made, results.folder / "x.html", output_format="html", lang="en")
    measured = formats.MeasuredRun(results.run(run_id), made.records, {})
    for name in formats.FORMATS:
        try:
            formats.export(name, measured).encode()
        except UsageError as error:
            assert str(error)  # noqa: PT017 - most end without one
    figures = measurements(results.run(run_id), made.records)
    with suppress(UsageError):  # where no configuration is in both
        compare(figures, figures)


COLUMNS = (
    "slots_per_host",
    "world_size",
    "repeat",
    "value",
    "metric",
    "unit",
    "status",
    "workload",
    "backend",
)
NAMES = {
    "params": (*formats_run.PARAMS, "size_bytes", "in_place", "batch", "data", "compression", "env", "rules"),
    "stack": ("cores", "oversubscribed", "cpus", "openmpi", "library", "file", "left_out", "checked"),
    "spec": ("sides", "auto", "blocks"),
}
VALUES = (
    *("x", "", "25", "nan", "1e999", "9" * 400, "env='"),
    *(None, True, -1, 0, 0.5, 2**62, 10**40, {}, [], [[]], {"A": 1}),
)


def stored(folder, place, name, value):
    """Write what no hvlab writes: a run whose cases have a value in the place of another."""
    run_id, rows = formats_run.RUN.run_id, []
    spec = {name: value} if place == "spec" else {}
    for record in formats_run.measured().records:
        row = {**asdict(record), "params": dict(record.params), "stack": dict(record.stack)}
        if place in row:
            row[place][name] = value
        elif place == "column":
            row[name] = value
        rows.append(
            [json.dumps(cell) if isinstance(cell, dict | tuple | list) else cell for cell in row.values()]
        )
    state = value if (place, name) == ("run", "state") else "finished"
    run = (1, run_id, "2026-11-20", "lab", "k", json.dumps(spec), "[]")
    lines = [("run", run), ("state", (run_id, "2026-11-20", state))]
    cases = [
        ("records", [row for row in rows if row[1] == case]) for case in dict.fromkeys(r[1] for r in rows)
    ]
    journal.write(folder / "runs" / run_id, [*lines, *cases])
    return Store(folder), run_id


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("params", "iterations", "9" * 20),
        ("params", "size_bytes", "25"),
        ("params", "size_bytes", 0),
        ("params", "in_place", "nan"),
        ("params", "batch", "x"),
        ("stack", "cores", {}),
        ("column", "status", "1K"),
        ("column", "slots_per_host", 2**62),
        ("spec", "sides", {"A": 1}),
    ],
)
def test_a_store_with_values_of_the_wrong_kind_is_told(tmp_path, place, name, value):
    """Each ended a report, a comparison or an export in a traceback, or took all memory."""
    results, run_id = stored(tmp_path, place, name, value)
    if place == "spec":
        assert results.runs() == []
    else:
        used(results, run_id)
    assert results.rebuild()[1]


@pytest.mark.usefixtures("warm")
@SLOW
@given(
    where=st.sampled_from([(place, name) for place, names in NAMES.items() for name in names])
    | st.tuples(st.just("column"), st.sampled_from(COLUMNS)),
    value=st.sampled_from(VALUES),
)
def test_a_store(where, value):
    with tempfile.TemporaryDirectory() as folder:
        try:
            used(*stored(Path(folder), *where, value))
        except HvlabError as error:
            assert str(error)  # noqa: PT017 - most end without one


@pytest.fixture(scope="module")
def warm():
    """The first report loads plotly."""
    taken_in(EXPORTS[0])


@pytest.mark.usefixtures("warm")
@SLOW
@given(
    text=st.sampled_from([*EXPORTS, *LOGS]),
    stated=st.lists(st.tuples(STATED, HARM), max_size=2),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), HARM), max_size=3),
)
def test_an_import(text, stated, changes):
    for name, harm in stated:
        pattern = rf'("{name}": )("[^"]*"|\[[^]]*\]|[^,}}]*)'
        text = re.sub(pattern, lambda match, harm=harm: match[1] + harm, text)
    for place, harm in changes:
        parts = list(PART.finditer(text))
        start, end = parts[int(place * len(parts))].span() if parts else (0, 0)
        text = text[:start] + harm + text[end:]
    taken_in(text)


@pytest.mark.parametrize("reader", TEXT_READERS)
@pytest.mark.parametrize("part", ["x", "1 "])
def test_megabytes_on_one_line(reader, part):
    if reader == "pattern":
        pytest.skip("a pattern comes from the command line, which holds less")
    with in_time():
        read(reader, part * (ONE_LINE // len(part)))


@pytest.mark.parametrize("text", ["9" * 10**6, "throughput" + " " * 10**6, "throughput(" * 10**5])
def test_a_throughput_is_looked_for_in_time_that_grows_with_the_line(text):
    with in_time(20):
        assert command.throughput(text) is None


@QUICK
@given(st.binary(max_size=300))
def test_known_hosts(tmp_path, content):
    (tmp_path / "known_hosts").write_bytes(content)
    try:
        read_known_keys(["n1"], [tmp_path / "known_hosts"])
    except HvlabError as error:
        assert str(error)  # noqa: PT017 - most end without one


@QUICK
@given(st.binary(max_size=300) | st.sampled_from([DEEP.encode(), b"{}", b"[]", b'{"runs": [1]}', b"NaN"]))
def test_a_baseline(tmp_path, content):
    folder = tmp_path / "baselines/t"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "default.json").write_bytes(content)
    try:
        keeping.load(tmp_path, "t")
    except HvlabError as error:
        assert str(error)  # noqa: PT017 - most end without one


@pytest.mark.parametrize("size", ["9" * 5000, f"1K:{'9' * 5000}:2", f"1K:1M:{'9' * 5000}", "1:2:\u00b2"])
def test_a_size_of_too_many_digits(size):
    with pytest.raises(UsageError, match=r"is no size|not min:max:factor"):
        sizes.parse_sizes(size)


@pytest.mark.parametrize(
    "text", ['{"a":' * 500 + "1" + "}" * 500, f"{bomb(7)}\nall: {{hosts: {{n1: *a6}}}}\n"]
)
def test_a_message_on_an_inventory_is_one_that_can_be_read(tmp_path, text):
    path = tmp_path / "hosts.yml"
    path.write_text(text)
    with pytest.raises(HvlabError) as caught:
        inventory.load(path)
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("content", ["42", "[]", '{"schema": 3, "runs": 7}'])
def test_a_baseline_of_something_else_is_told_without_words_of_python(tmp_path, content):
    (tmp_path / "baselines/t").mkdir(parents=True)
    (tmp_path / "baselines/t/default.json").write_text(content)
    with pytest.raises(UsageError) as caught:
        keeping.load(tmp_path, "t")
    assert "Error" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hosts.ini", "[gpu]\nn[1:99999999]\n"),
        ("hosts.yml", "all: {children: {gpu: {hosts: {'n[0:999]r[00:99]': {}}}}}\n"),
    ],
)
def test_a_range_of_too_many_hosts_is_told_at_once(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with in_time(10), pytest.raises(HvlabError, match=r"(99999999|100000) hosts") as caught:
        inventory.load(tmp_path / name)
    assert caught.value.remedy == "list 65536 at most"
