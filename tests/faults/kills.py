"""SIGKILL at random points of a provisioning, a small build and a bench: the next call completes each."""

import random
import signal
import time
from contextlib import nullcontext

from tests.faults.fault import fault

PROVISION = ("provision",)
# The same words resume it.
SIX = ("bench", "--backend", "mpi,gloo", "--hosts", "2", "--slots", "1", "--sizes", "1K", "--repeats", "3")
WHAT = {
    "provision": "SIGKILL to a provision that has much to do",
    "build": "SIGKILL to a provision whose first host makes a pack",
    "bench": "SIGKILL to a bench of six cases",
}
ROUNDS = {"provision": 7, "build": 6, "bench": 7}


def undo(world):
    """Take away from the hosts what a provision has to bring back."""
    first, second, third = world.hosts
    world.on(first, "rm -rf /opt/hvlab/workloads")
    world.on(second, "rm -rf /opt/hvlab/openmpi /etc/security/limits.d/*hvlab*")
    world.on(third, "rm -rf /opt/hvlab/horovod /opt/hvlab/workloads")


def undo_pack(world):
    """Take a pack away, from the hosts and from the cache."""
    for path in world.cache.glob("packs/oneccl-*"):
        path.unlink()
    for host in world.hosts:
        world.on(host, "rm -rf /opt/hvlab/oneccl*")


def killed(kind, number):
    command, prepare, then = {
        "provision": (PROVISION, undo, ("verify",)),
        "build": (PROVISION, undo_pack, ("verify",)),
        "bench": ((*SIX, "--iterations", str(20 + number)), lambda _: None, None),
    }[kind]

    def put_in(world):
        with world.own_cache() if kind == "build" else nullcontext():
            if kind != "bench" and kind not in world.durations:
                prepare(world)
                begun = time.monotonic()
                done = world.hvlab(*command)
                assert done.returncode == 0, done.stderr[-2000:]
                world.durations[kind] = time.monotonic() - begun
            prepare(world)
            share = random.Random(f"{kind}{number}").uniform(0.05, 0.6)  # noqa: S311 - the same points each time
            records = len(world.records())

            def act(process):
                if kind == "bench":
                    # Its time is mostly start-up, which varies: killed within one of its first five cases.
                    world.until(lambda: len(world.records()) - records >= number % 5)
                    time.sleep(share)
                else:
                    time.sleep(share * world.durations[kind])
                process.send_signal(signal.SIGKILL)

            yield act
            if kind != "bench":
                again = world.hvlab(*PROVISION)
                assert again.returncode == 0, again.stderr[-2000:]

    put_in.__name__, put_in.__doc__ = f"{kind}_killed_{number}", f"{WHAT[kind]}, {number}."
    fault("kills", *command, code=-9, seconds=180, then=then)(put_in)


for _kind, _rounds in ROUNDS.items():
    for _number in range(1, _rounds + 1):
        killed(_kind, _number)
