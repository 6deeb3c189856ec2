"""The end of a process by a signal, as each launcher words it."""

import pytest

from hvlab.doctor.reading import diagnose

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
