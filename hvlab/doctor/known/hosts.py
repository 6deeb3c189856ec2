"""What hosts show when they are asked, and no log says in words of its own: entries without signs."""

from hvlab.doctor.cause import BREAKDOWN, FACT, SETTING, Cause

_MTU = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"

CAUSES = (
    Cause(
        id="name-wrong-address",
        title="a host's name resolves to another machine",
        signs=(),
        why="Launchers start ranks by name and ranks look one another up by name: they reach the wrong machine, or none.",
        remedy="getent ahosts NAME on that host; correct /etc/hosts (an old line stands before the right one) or DNS.",
        source="https://man7.org/linux/man-pages/man5/hosts.5.html",
        weight=FACT,
    ),
    Cause(
        id="hostname-twice",
        title="two hosts have the same hostname",
        signs=(),
        why="MPI, NCCL and Horovod take ranks of hosts with one name for ranks of one host: local ranks are counted "
        "twice, and CUDA IPC or shared memory is opened across machines.",
        remedy="hostnamectl set-hostname with a name of its own on each host, and the same in /etc/hosts; log in anew.",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-hostid",
        weight=FACT,
    ),
    Cause(
        id="user-missing",
        title="the user who runs the ranks is not there",
        signs=(),
        why="Ranks are started by ssh as the same user on every host.",
        remedy="Run the role lab_user on that host, or create the user with the same name and number everywhere.",
        source="https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html",
        weight=FACT,
    ),
    Cause(
        id="interface-missing",
        title="the ranks' network interface is not on this host",
        signs=(),
        why="MPI, Gloo and NCCL are told one interface by name, and fail on a host that has it under another name.",
        remedy="Correct lab_interface for that host, or give the interface one name everywhere (a systemd .link file).",
        source="https://github.com/horovod/horovod/issues/2431",
        weight=FACT,
    ),
    Cause(
        id="mtu-differs",
        title="the hosts' interfaces have different MTUs",
        signs=(),
        why="What one host sends in large frames another one drops: small messages pass, large transfers stall or crawl; "
        "RDMA over Ethernet fails outright.",
        remedy="ip link set dev INTERFACE mtu N with the same N on all hosts, as large as every switch between allows; "
        "write it into the network's settings.",
        source=_MTU,
        weight=SETTING,
    ),
    Cause(
        id="mtu-black-hole",
        title="large packets are lost between two hosts",
        signs=(),
        why="A connection opens, and then nothing larger than a small packet arrives: the MTU of a switch, tunnel or "
        "VLAN between is smaller than the hosts', and the message that says so is filtered.",
        remedy="ping -M do -s 1472 (8972 for jumbo frames) between the two; lower the MTU on the hosts or raise it on "
        "the way; let ICMP 'fragmentation needed' pass.",
        source="https://www.rfc-editor.org/rfc/rfc2923",
        weight=SETTING,
    ),
    Cause(
        id="open-mpi-avoid",
        title="this release of Open MPI has a known fault",
        signs=(),
        why="It was found to hang or fail by itself, whatever is run with it.",
        remedy="Install another release on all hosts: 4.1.8, or 5.0.8 and later.",
        source="https://github.com/horovod/horovod/issues/729",
        weight=FACT,
    ),
    Cause(
        id="gcc-differs",
        title="the hosts' compilers differ, though their systems are the same",
        signs=(),
        why="What is built on one host may need a libstdc++ that another one lacks, and packages of hosts were "
        "updated at different times.",
        remedy="Update the packages on all hosts to the same state, or build on one host and copy.",
        source="https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html",
        weight=SETTING,
    ),
    Cause(
        id="user-id-differs",
        title="the user has different numbers on hosts that share its home",
        signs=(),
        why="Files on a shared file system belong to a number: on a host where the user has another, its keys and "
        "results are somebody else's.",
        remedy="Set lab_user_uid to one number that is free on all hosts, and correct the owner of the home.",
        source="https://man7.org/linux/man-pages/man5/nfs.5.html",
        weight=FACT,
    ),
    Cause(
        id="tmp-not-sticky",
        title="/tmp lacks its sticky bit",
        signs=(),
        why="Everybody may remove the session folders and sockets of others, and some programs refuse such a folder.",
        remedy="chmod 1777 /tmp.",
        source="https://man7.org/linux/man-pages/man1/chmod.1.html",
        weight=SETTING,
    ),
    Cause(
        id="tmp-noexec",
        title="/tmp is mounted noexec",
        signs=(),
        why="Programs that are compiled while they run (configure, pip builds, torch.compile and Triton) are put "
        "there and cannot be started or loaded.",
        remedy="mount -o remount,exec /tmp, or TMPDIR in a folder with exec for builds and ranks.",
        source="https://man7.org/linux/man-pages/man8/mount.8.html",
        weight=SETTING,
    ),
    Cause(
        id="environment-broken",
        title="a Python environment of the ranks does not work",
        signs=(),
        why="Ranks start with this interpreter and this import; what it ended with is not among what is known here.",
        remedy="Run the same import by hand on that host as the user of the ranks; provision again brings back what hvlab installed.",
        source="https://docs.python.org/3/library/venv.html",
        weight=BREAKDOWN,
    ),
    Cause(
        id="nccl-newer-than-driver",
        title="NCCL was built for a newer CUDA than the driver serves",
        signs=(),
        why="A driver runs what was built for its own major release of CUDA or an older one; NCCL then ends with "
        "'unhandled cuda error'.",
        remedy="A newer driver, or the package of NCCL whose +cudaX.Y is not above what nvidia-smi shows (nccl_version).",
        source="https://github.com/horovod/horovod/issues/2408",
        weight=FACT,
    ),
)
