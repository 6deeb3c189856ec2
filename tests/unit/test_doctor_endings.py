"""The end of a process, as each launcher words it, before what others noticed of it."""

import pytest
import yaml

from hvlab.doctor import last_words, text
from hvlab.doctor.reading import LOST, diagnose
from tests.contract.tree import ROOT

TORCHRUN = yaml.safe_load((ROOT / "tests/data/torchrun_ends.yml").read_text())

CAUSES = {
    (4, "SIGILL", "Illegal instruction"): "illegal-instruction",
    (6, "SIGABRT", "Aborted"): "rank-aborted",
    (7, "SIGBUS", "Bus error"): "bus-error",
    (8, "SIGFPE", "Floating point exception"): "rank-segfault",
    (11, "SIGSEGV", "Segmentation fault"): "rank-segfault",
    (15, "SIGTERM", "Terminated"): "rank-terminated",
}
LINES = (
    "[ERROR] [launch.py:321:sigkill_handler] ['python3', '-u', 'main.py'] exits with return code = -{number}",
    "torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -{number}) local_rank: 5",
    "  exitcode  : -{number} (pid: 15420)",
    "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.{name}: {number}>.",
    "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal {name}",
    "mpirun noticed that process rank 0 with PID 0 on node n1 exited on signal {number} ({words}).",
    "[n1:4711] Signal: {words} ({number})",
    "=   KILLED BY SIGNAL: {number} ({words})",
    "=   EXIT CODE: {number}",
    "=   EXIT CODE: {status}",
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: {words} (signal {number})",
    "    exit status of rank 0: killed by signal {number}",
    "x4213c4s7b0n0: rank 27421 died from signal {number}",
    "MPT ERROR: Rank 3(g:3) received signal {name}({number}).",
    "run.sh: line 12:  2343 {words}                 (core dumped) python train.py",
    "Fatal Python error: {words}",
    "command terminated with exit code {status}",
)


@pytest.mark.parametrize(("signal", "cause"), CAUSES.items(), ids=[name for _, name, _ in CAUSES])
def test_the_signal_is_seen_in_the_words_of_each_launcher(signal, cause):
    number, name, words = signal
    logs = [line.format(number=number, name=name, words=words, status=128 + number) for line in LINES]
    assert {log: [each.cause.id for each in diagnose([log]).causes[:1]] for log in logs} == {
        log: [cause] for log in logs
    }


@pytest.mark.parametrize("others", TORCHRUN["others"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("first", "cause", "told"),
    [("exit", "child-failed", "with exit status 1"), ("signal", "rank-segfault", "by signal 11")],
)
def test_the_first_end_stands_before_what_others_noticed(first, cause, told, others, turned):
    logs = [TORCHRUN["first"][first], TORCHRUN["others"][others]]
    if others == "static":
        # Its agent saw an end, too, of a rank that lost another: earlier in the log, later by the clock.
        logs = [log.replace("11:06:10", "11:10:59") for log in logs]
    log = "".join(logs[::-1] if turned else logs)
    found = diagnose(log.splitlines()).causes
    assert (found[0].cause.id, found[0].says) == (cause, (f"rank 0 on n1 ended first, {told}",))
    assert not {each.cause.id for each in found} & {"store-timeout"}
    ended = last_words.read(log)
    assert (ended and (ended.kind, ended.ranks)) == (("crashed", [0]) if first == "signal" else None)


@pytest.mark.parametrize("others", TORCHRUN["others"])
def test_a_first_end_that_is_not_in_the_log_is_said_to_be_missing(others):
    found = diagnose(TORCHRUN["others"][others].splitlines()).causes
    assert (found[0].cause.id, found[0].says) == ("gloo-peer-gone", (LOST,))


def test_without_marks_of_ranks_no_end_is_told_as_the_first():
    log = TORCHRUN["others"]["static"].replace("[rank1]: ", "")
    assert [each.cause.id for each in diagnose(log.splitlines()).causes] == ["gloo-peer-gone", "child-failed"]


def test_the_last_line_of_the_rank_that_ended_first_is_told():
    log = "[rank0]: shards.Missing: no shard 7\n" + TORCHRUN["first"]["exit"] + TORCHRUN["others"]["c10d"]
    told = "rank 0 on n1 ended first, with exit status 1; its last line: shards.Missing: no shard 7"
    assert diagnose(log.splitlines()).causes[0].says == (told,)


def test_signals_that_torchrun_sent_are_no_cause():
    log = (
        TORCHRUN["others"]["static"]
        + "Sending process 77 closing signal SIGTERM\n  exitcode  : -15 (pid: 77)"
    )
    assert diagnose(log.splitlines()).causes[0].cause.id == "gloo-peer-gone"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("137", "by signal 9"),
        ("139", "by signal 11"),
        ("255", "with exit status 255"),
        ("1", "with exit status 1"),
    ],
)
def test_an_exit_status_above_all_signals_is_none(code, told):
    """Ranks of Gloo that lost their peers, and logins that failed, end with 255."""
    log = (
        f"Process 1 exit with status code {code}.\nTerminating remaining workers after failure of Process 1."
    )
    assert [str(end) for end in last_words.ends(text.read(log.splitlines()))] == [
        f"rank 1 ended first, {told}"
    ]
