"""The virtual lab itself: hosts that are off, commands that are killed."""

import signal
import time

from tests.faults.fault import fault

STATUS = ("lab", "status")


@fault(
    "lab",
    "lab",
    "ssh",
    "nobody",
    "--",
    "true",
    code=2,
    says=("nobody is not a virtual host",),
    seconds=15,
    then=STATUS,
    short=True,
)
def host_that_is_unknown(world):
    """`lab ssh` to a host that is not there."""
    yield


@fault(
    "lab",
    "lab",
    "ssh",
    "f1",
    "--",
    "true",
    code=3,
    says=("is not up", "hvlab lab up"),
    seconds=60,
    then=STATUS,
)
def lab_that_is_not_up(world):
    """`lab ssh` to a host of a lab that was never booted."""
    with world.copied(lambda content: None, lab_name="vnever"):
        yield


@fault("lab", "lab", "up", code=2, says=("is in use on this machine", "what to do"), seconds=60, then=STATUS)
def network_that_another_lab_has(world):
    """`lab up` of a lab whose network another lab has."""
    with world.copied(lambda content: None, lab_name="vnever"):
        yield


@fault("lab", "lab", "up", code=0, seconds=90, then=("lab", "ssh", "f3", "--", "true"))
def host_that_was_switched_off(world):
    """A host was switched off: `lab up` boots it again."""
    world.on("f3", "systemctl poweroff")
    world.until(lambda: "running" not in _row(world, "f3"))
    yield


@fault("lab", "lab", "up", code=-9, seconds=90, then=("lab", "up"))
def lab_up_and_sigkill(world):
    """SIGKILL to `lab up` while it boots a host: the next one completes the lab."""
    world.on("f3", "systemctl poweroff")
    world.until(lambda: "running" not in _row(world, "f3"))

    def act(process):
        time.sleep(1)
        process.send_signal(signal.SIGKILL)

    yield act


def _row(world, host):
    lines = world.hvlab("lab", "status").stdout.splitlines()
    return next((line for line in lines if line.startswith(host)), "")
