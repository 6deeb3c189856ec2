"""Logs with very long lines, and very many: the time they take grows no faster than they do."""

import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from hvlab.results.formats import READERS, nccl_json, nccl_text, osu
from hvlab.results.formats.launch import origin_line
from tests.unit.fuzzing import MANY

DATA = Path(__file__).parent.parent / "data"
LONG = 2_000_000 if MANY else 500_000
SECONDS = 10


@contextmanager
def time_limit():
    """Break off what takes more processor time: patterns that go wrong would take hours."""

    def stop(*_):
        raise TimeoutError(f"takes over {SECONDS} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def repeated(words):
    return words * (LONG // len(words))


# By which part of a pattern each is slow in: failures, rows, blanks, commands, titles, heads.
LINES = {
    "one word": "x" * LONG,
    "digits": "1" * LONG,
    "a few digits, blanks": "1" * 2000 + " " * LONG + "x",
    "counts": repeated("1 "),
    "blanks": " " * LONG + "x",
    "blanks in a row": "1048576 262144 float" + " " * LONG + "x",
    "mpirun": repeated("mpirun"),
    "assertions": repeated("Assertion `"),
    "Abort": repeated("Abort("),
    "a command": "all_reduce_perf " + "a" * LONG,
    "commands": repeated("all_reduce_perf"),
    "osu commands": repeated("osu_") + "1",
    "titles": repeated("OSU MPI x "),
    "a head": "# Size" + " " * LONG + "=",
    "brackets in a head": "# Size  " + repeated("( "),
    "buffers": "# Send Buffer on " + "a" * (LONG // 2) + " " + "b" * (LONG // 2),
    "debug": repeated("h:1:1 [0] "),
    "a version": "h:1:1 [0] NCCL INFO NCCL version " + "2" * LONG + ".1.1",
    "a device": "#  Rank  0 Pid " + repeated("1 "),
}


@pytest.mark.parametrize("name", LINES)
def test_a_long_line_is_read_at_once(name):
    for tool, text in (
        (nccl_text, (DATA / "nccl-tests/allreduce-8x-a100.txt").read_text("utf-8")),
        (osu, (DATA / "osu/allreduce-5.4.1.txt").read_text("utf-8")),
    ):
        (whole,) = tool.read(text)
        with time_limit():
            assert tool.knows(f"{LINES[name]}\n{text}")
            with_line = tool.read(f"{text}{LINES[name]}\n")[0]
            assert [row for row in with_line.rows if not row.error] == list(whole.rows)


@pytest.mark.parametrize("name", LINES)
def test_a_long_line_alone_is_looked_at_at_once(name):
    with time_limit():
        for reader in READERS.values():
            reader.knows(LINES[name])


def test_a_prefix_of_many_numbers_is_matched_at_once():
    before = "1 2 3 4 5 6 7 8 [0] "
    with time_limit():
        (one,) = nccl_text.read(f"{before}# nThread 1 nGpus 1\n{before}{'1' * 50_000}\n{'1' * 50_000}\n")
    assert one.error == "the output ends before the first row"


def test_only_the_usual_prefixes_are_taken_off():
    text = (DATA / "nccl-tests/allreduce-8x-a100.txt").read_text("utf-8")
    tagged = "".join(f"[1,0]<stdout>: {line}\n" for line in text.splitlines())
    letters = str.maketrans("0123456789", "abcdefghij")
    others = "".join(f"{str(number).translate(letters)} # Using devices\n" for number in range(LONG // 40))
    with time_limit():
        assert nccl_text.read(f"{tagged}{others}")[0] == nccl_text.read(text)[0]


def test_many_objects_are_read_at_once():
    with time_limit():
        assert not nccl_json.knows(repeated("{} "))
        assert not nccl_json.knows("[" * LONG)


def test_numbers_after_a_torn_row_are_not_collected():
    torn = "# nThread 1 nGpus 1\n     1048576        262144     float     sum      -1\n"
    with time_limit():
        (one,) = nccl_text.read(torn + "0\n" * 50_000)
    assert [row.error.partition(":")[0] for row in one.rows] == ["line 2"]


def test_the_figures_that_hvlab_wrote_are_not_cut():
    figures = [[size, None, {"time": size + 0.123456}] for size in range(1, 5000)]
    line = origin_line({"version": "1", "figures": figures})
    assert len(line) > 100_000
    table = "# OSU MPI Allreduce Latency Test v7.5\n# Size       Avg Latency(us)\n4999           4999.12\n"
    title, _, rest = table.partition("\n")
    (one,) = osu.read(f"{title}\n{line}\n{rest}")
    assert one.rows[0].values == {"time": 4999.123456}
