"""Links, ports and hosts that are gone: before a command, and under it."""

from contextlib import contextmanager

from tests.faults.fault import LIST, fault
from tests.faults.processes import LONG
from tests.faults.provisioning import TRUST
from tests.faults.stores import TINY

CUT = (*LONG, "--timeout", "15")


@fault(
    "network",
    *TINY,
    code=3,
    says=("1 of 2 hosts cannot be used", "does not answer within"),
    seconds=30,
    short=True,
)
def link_that_is_cut_before_a_bench(world):
    """The cable of the second host is out when a bench begins."""
    with world.unplugged(world.hosts[1]):
        yield


@fault("network", *TRUST, code=3, says=("1 of 3 hosts cannot be used", "what to do"), seconds=30)
def link_that_is_cut_before_provisioning(world):
    """The cable of the third host is out when provision begins."""
    with world.unplugged(world.hosts[2]):
        yield


@fault("network", "verify", "-l", "f3", code=3, says=("cannot be used",), seconds=90, then=LIST)
def link_that_is_cut_before_verify(world):
    """The cable of the third host is out when verify begins."""
    with world.unplugged(world.hosts[2]):
        yield


@fault("network", *CUT, code=3, says=("was lost", "what to do"), seconds=120, then=TINY)
def link_of_a_worker_that_is_cut(world):
    """The cable of the second host is taken out under a case."""

    def act(process):
        world.until(lambda: world.ranks(world.hosts[1]))
        world.link(world.hosts[1], "down")

    yield act
    world.link(world.hosts[1], "up")


@fault("network", *CUT, code=3, says=("a host was lost", "what to do"), seconds=120, then=TINY)
def link_of_the_head_that_is_cut(world):
    """The cable of the head is taken out under a case."""

    def act(process):
        world.until(lambda: world.ranks(world.hosts[0]))
        world.link(world.hosts[0], "down")

    yield act
    world.link(world.hosts[0], "up")


@fault("network", *TINY, code=3, says=("refuses the connection", "start sshd there"), seconds=30)
def sshd_that_is_stopped(world):
    """sshd of the second host does not run."""
    host = world.hosts[1]
    world.on(
        host,
        "systemd-run --on-active=25 systemctl start ssh; systemctl stop ssh.socket ssh",
    )
    yield
    world.until(lambda: "up" in world.on(host, "echo up"))


@contextmanager
def _jumbo(world):
    """Have the first two hosts send larger packets than the bridge between them carries."""
    for host in world.hosts[:2]:
        world.on(host, "ip link set host0 mtu 9000")
    yield
    for host in world.hosts[:2]:
        world.on(host, "ip link set host0 mtu 1500")


@fault(
    "network", *TINY, code=1, says=("ssh connects, and then the host sends nothing more", "MTU"), seconds=60
)
def large_packets_that_are_lost_under_a_bench(world):
    """Two hosts send larger packets than the switch between them carries; bench."""
    with _jumbo(world):
        yield


@fault("network", "doctor", code=1, says=("MTU of host0: f1 9000, f2 9000, f3 1500",), seconds=60, then=TINY)
def large_packets_that_are_lost(world):
    """Two hosts send larger packets than the switch between them carries; doctor."""
    with _jumbo(world):
        yield
