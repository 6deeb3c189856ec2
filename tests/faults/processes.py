"""Commands and ranks that are ended from outside, in all the ways."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.faults.fault import LIST, fault
from tests.faults.stores import BENCH, TINY
from tests.faults.world import PROBE

LONG = (*BENCH, "--iterations", "100000")
RANKS = "pgrep -f '[c]ollective.py'"


def sent(world, *numbers):
    """Return what sends these signals, once ranks run."""

    def act(process):
        world.until(lambda: world.ranks(world.hosts[1]))
        for number in numbers:
            process.send_signal(number)

    return act


def ended(name, *numbers, what, short=False):
    def put_in(world):
        yield sent(world, *numbers)

    put_in.__name__, put_in.__doc__ = name, what
    fault("processes", *LONG, code=130, says=("interrupted", "what to do"), then=TINY, short=short)(put_in)


ended("bench_and_ctrl_c", signal.SIGINT, what="Ctrl-C in a bench.", short=True)
ended("bench_and_sigterm", signal.SIGTERM, what="SIGTERM to a bench.")
ended("bench_and_sighup", signal.SIGHUP, what="The terminal of a bench is closed (SIGHUP).")
ended("bench_and_two_ctrl_c", signal.SIGINT, signal.SIGINT, what="Ctrl-C twice in a bench.")


@fault("processes", *LONG, code=-9, then=TINY, seconds=60)
def bench_and_sigkill(world):
    """SIGKILL to a bench: the next one ends what it left, before it measures."""
    yield sent(world, signal.SIGKILL)


def on_host(world, number, command):
    def act(process):
        world.until(lambda: world.ranks(world.hosts[number]))
        world.on(world.hosts[number], command)

    return act


@fault("processes", *LONG, code=1, says=("what to do",), then=TINY, seconds=60, short=True)
def rank_that_is_killed(world):
    """A rank on the second host is killed."""
    yield on_host(world, 1, f"kill -9 $({RANKS} | head -1)")


@fault("processes", *LONG, code=1, says=("mpirun",), then=TINY, seconds=60)
def mpirun_that_is_killed(world):
    """mpirun is killed on the head."""
    yield on_host(world, 0, "pkill -9 -x 'mpirun|prterun'")


@fault("processes", *LONG, code=1, says=(), then=TINY, seconds=60)
def orted_that_is_killed(world):
    """Open MPI's daemon is killed on the second host."""
    yield on_host(world, 1, "pkill -9 -x orted || pkill -9 -x prted")


@fault("processes", *LONG, code=1, says=("case.py was ended", "f1 itself answers"), then=TINY, seconds=90)
def case_program_that_is_killed(world):
    """The program that runs the case is killed on the head."""
    yield on_host(world, 0, "pkill -9 -f [c]ase.py")


@fault("processes", *LONG, "--timeout", "15", code=1, says=("ran over its 15 s",), then=TINY, seconds=90)
def rank_that_is_stopped(world):
    """A rank on the second host is stopped (SIGSTOP), as by a debugger."""
    yield on_host(world, 1, f"kill -STOP $({RANKS} | head -1)")


@fault("processes", *LONG, code=1, says=("what to do",), then=TINY, seconds=90)
def ansible_that_is_killed(world):
    """Ansible is killed under a bench."""

    def act(process):
        world.until(lambda: world.ranks(world.hosts[1]))
        for number, words in below(process.pid).items():
            if b"ansible-playbook" in words:
                os.kill(number, signal.SIGKILL)
                break

    yield act


def below(pid):
    """Return the processes that a process has started, from the first on: number -> command line."""
    started = {}
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                started |= {child: Path(f"/proc/{child}/cmdline").read_bytes(), **below(child)}
    return started


@fault("processes", "verify", code=130, says=("interrupted",), seconds=40, then=LIST)
def verify_and_ctrl_c(world):
    """Ctrl-C in verify."""

    def act(process):
        world.until(lambda: world.on(world.hosts[1], PROBE))
        process.send_signal(signal.SIGINT)

    yield act


@fault("processes", "verify", code=-9, seconds=40, then=LIST)
def verify_and_sigkill(world):
    """SIGKILL to verify."""

    def act(process):
        world.until(lambda: world.on(world.hosts[1], PROBE))
        process.kill()

    yield act
    # A command that needs a folder for a while removes what others left.
    world.hvlab("provision", "-t", "none")
