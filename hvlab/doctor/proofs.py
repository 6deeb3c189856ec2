"""How causes are put into a fresh lab of two virtual hosts, p1 and p2, to show the failure and its remedy."""

from __future__ import annotations

from dataclasses import dataclass

_BENCH = (
    *("bench", "--restart", "--backend=mpi", "--hosts", "2", "--slots", "1"),
    *("--sizes", "1K", "--iterations", "6", "--timeout", "60"),
)
_DOCTOR = ("doctor", "--format", "json")
_ISSUE = ("keys", "issue")


@dataclass(frozen=True)
class CauseProof:
    """One cause (its id), and what shows it.

    ``put_in`` is a line for the shell of root on ``host``. ``command``, words of hvlab, meets the cause then,
    and meets nothing without it. ``remedy`` is words of hvlab that mend it; where hvlab does not,
    ``by_hand`` is a line for the shell on that host.
    """

    cause: str
    host: str
    put_in: str
    command: tuple[str, ...]
    remedy: tuple[str, ...] = ()
    by_hand: str = ""


PROOFS = (
    CauseProof("host-key", "p1", ": > /etc/ssh/ssh_known_hosts", _BENCH, _ISSUE),
    CauseProof("ssh-denied", "p1", "rm ~hvlab/.ssh/id_ed25519", _BENCH, _ISSUE),
    CauseProof(
        "libmpi-missing",
        "p2",
        "rm /opt/hvlab/openmpi/current/lib/libopen-pal.so.40*",
        _BENCH,
        ("provision", "--tags", "preflight,openmpi"),
    ),
    CauseProof(
        "disk-full",
        "p1",
        "mount -t tmpfs -o size=4k,mode=0700,uid=$(id -u hvlab) tmpfs ~hvlab/.hvlab "
        "&& head -c 4096 /dev/zero > ~hvlab/.hvlab/full",
        _BENCH,
        by_hand="umount -l ~hvlab/.hvlab",
    ),
    CauseProof(
        "tmp-noexec",
        "p2",
        "mount -t tmpfs -o noexec,mode=1777 tmpfs /tmp",
        _DOCTOR,
        by_hand="mount -o remount,exec /tmp",
    ),
    CauseProof("tmp-not-sticky", "p2", "chmod 0777 /tmp", _DOCTOR, by_hand="chmod 1777 /tmp"),
    CauseProof("session-dir", "p2", "chmod 0755 /tmp", _DOCTOR, by_hand="chmod 1777 /tmp"),
    CauseProof(
        "gloo-loopback",
        "p2",
        "sed -i '1i 127.0.1.1 p2' /etc/hosts",
        _DOCTOR,
        ("provision", "--tags", "preflight,common"),
    ),
    CauseProof(
        "name-wrong-address",
        "p1",
        "sed -i \"1i $(getent hosts p1 | cut -d' ' -f1) p2\" /etc/hosts",
        _DOCTOR,
        by_hand="sed -i 1d /etc/hosts",
    ),
    CauseProof(
        "ssh-key-modes",
        "p1",
        "chmod 0644 ~hvlab/.ssh/id_ed25519",
        _BENCH,
        ("provision", "--tags", "preflight,ssh_trust"),
    ),
    CauseProof(
        "orted-not-found",
        "p2",
        "rm /opt/hvlab/openmpi/current/bin/orted",
        _BENCH,
        ("provision", "--tags", "preflight,openmpi"),
    ),
    CauseProof(
        "horovod-not-built",
        "p2",
        "rm /opt/hvlab/horovod/*/lib/python3*/site-packages/horovod/torch/mpi_lib*.so",
        _DOCTOR,
        ("provision", "--tags", "preflight,horovod"),
    ),
    # What p2 answers from high ports is dropped; 6 is TCP.
    CauseProof(
        "tcp-firewall",
        "p2",
        "ip rule add ipproto 6 sport 20000-29999 blackhole",
        _DOCTOR,
        by_hand="ip rule del ipproto 6 sport 20000-29999 blackhole",
    ),
    CauseProof(
        "mtu-differs", "p2", "ip link set host0 mtu 1400", _DOCTOR, by_hand="ip link set host0 mtu 1500"
    ),
    CauseProof(
        "backing-file",
        "p2",
        "mount -o remount,size=96m /dev/shm && head -c 90M /dev/zero > /dev/shm/full",
        _DOCTOR,
        by_hand="rm /dev/shm/full; mount -o remount,size=50% /dev/shm",
    ),
    CauseProof("hostname-twice", "p2", "hostname p1", _DOCTOR, by_hand="hostname p2"),
)
OF_CAUSE = {proof.cause: proof for proof in PROOFS}
