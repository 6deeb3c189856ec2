"""Provisioning that is cut off, and hosts that somebody changed by hand."""

import signal
from contextlib import contextmanager

from tests.faults.fault import LIST, fault
from tests.faults.processes import below

TRUST = ("provision", "-t", "ssh_trust")
COMMON = ("provision", "-t", "common,ssh_trust,workloads")


def sent(world, number):
    """Return what sends the signal, once Ansible works on hosts."""

    def act(process):
        world.until(lambda: any(b"ssh" in words for words in below(process.pid).values()))
        process.send_signal(number)

    return act


@fault("provisioning", *TRUST, code=130, says=("interrupted", "run this again"), seconds=40)
def provision_and_ctrl_c(world):
    """Ctrl-C in provision."""
    yield sent(world, signal.SIGINT)


@fault("provisioning", *TRUST, code=130, says=("interrupted", "run this again"), seconds=40)
def provision_and_sigterm(world):
    """SIGTERM to provision."""
    yield sent(world, signal.SIGTERM)


@fault("provisioning", *TRUST, code=-9, seconds=40)
def provision_and_sigkill(world):
    """SIGKILL to provision: its Ansible ends with it."""
    yield sent(world, signal.SIGKILL)


@fault(
    "provisioning", "provision", "--", "--no-such-option", code=1, says=("see above",), seconds=30, then=LIST
)
def option_that_ansible_refuses(world):
    """An option that ansible-playbook does not know."""
    yield


@fault("provisioning", "verify", "-l", "f2", code=1, says=("sshd", "what to do"), seconds=90, then=LIST)
def host_without_sshd_settings(world):
    """Somebody removed hvlab's settings of sshd on a host."""
    host = world.hosts[1]
    world.on(host, "mv /etc/ssh/sshd_config.d/*hvlab* /root/")
    yield
    world.on(host, "mv /root/*hvlab* /etc/ssh/sshd_config.d/")


@fault("provisioning", *COMMON, code=0, seconds=120, then=("verify", "-l", "f2"))
def program_that_was_changed(world):
    """Somebody changed a benchmark program on a host: provision puts it right, verify agrees."""
    world.on(world.hosts[1], "echo '#' >> /opt/hvlab/workloads/collective.py")
    yield


@fault(
    "provisioning",
    "verify",
    "-l",
    "f3",
    code=1,
    says=("workloads", "hvlab provision"),
    seconds=90,
    then=COMMON,
)
def program_that_is_gone(world):
    """Somebody removed the benchmark programs of a host."""
    world.on(world.hosts[2], "rm -r /opt/hvlab/workloads")
    yield


@contextmanager
def _without_python(world):
    """Have no python3 on the second host; other names of it stay."""
    world.on(world.hosts[1], "mv /usr/bin/python3 /usr/bin/python3.gone")
    yield
    world.on(world.hosts[1], "mv /usr/bin/python3.gone /usr/bin/python3")


@fault(
    "provisioning", "verify", "-l", "f2", code=3, says=("python3: No such file", "Install python3"), then=LIST
)
def python_that_is_gone_for_verify(world):
    """A host has no python3; verify."""
    with _without_python(world):
        yield


@fault("provisioning", "doctor", "-l", "f2", code=3, says=("has no Python", "Install python3"), then=LIST)
def python_that_is_gone(world):
    """A host has no python3; doctor."""
    with _without_python(world):
        yield
