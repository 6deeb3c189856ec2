"""hvlab doctor asking hosts: each detector with what it sees, and with what looks alike and is none."""

from __future__ import annotations

import copy
import json
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hvlab.checks import across_hosts as live
from hvlab.checks.programs import source
from hvlab.checks.site import Member, Site
from hvlab.checks.ssh import FAULTS
from hvlab.doctor import knowledge

RECORDED = json.loads((Path(__file__).parents[1] / "data/doctor/hosts.json").read_text("utf-8"))
SITE = Site(
    tuple(
        Member(f"p{n}", (f"198.18.61.1{n}",), port=22, slots=1, gpu=False, interface="host0") for n in (1, 2)
    ),
    user="hvlab",
    port=20500,
)
GPU_SITE = replace(SITE, hosts=tuple(replace(host, gpu=True, slots=2) for host in SITE.hosts))
SMI = "GPU 0: NVIDIA A100 (UUID: GPU-1)\nGPU 1: NVIDIA A100 (UUID: GPU-2)\n"
# What a healthy host with two GPUs answers.
GPU = {
    "gpus": {"rc": 0, "out": SMI, "err": ""},
    "gpu modes": {"rc": 0, "out": "00000000:07:00.0, 0, Exclusive_Process\n", "err": ""},
    "gpu processes": {"rc": 0, "out": "00000000:0B:00.0, 4711\n", "err": ""},
    "loader": {
        "rc": 0,
        "out": "\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n",
        "err": "",
    },
    "kernel": {"rc": 0, "out": "6.1.0-30-amd64\n", "err": ""},
    "kernel headers": {"/lib/modules/6.1.0-30-amd64/build/Makefile": {"mode": "0644"}},
    "dkms": {"/var/lib/dkms/nvidia": {"mode": "0755"}},
    # The head of github.com/NVIDIA/go-nvml issue 75, nvcc of github.com/jytime/Mask_RCNN_Pytorch issue 15.
    "driver's cuda": {
        "rc": 0,
        "out": "| NVIDIA-SMI 535.54.03              Driver Version: 535.54.03    CUDA Version: 12.2     |\n",
        "err": "",
    },
    "cuda compat": {},
    "nccl package": {"rc": 0, "out": "libnccl2 2.18.3-1+cuda12.2\n", "err": ""},
    "nccl files": {
        f"/opt/hvlab/nccl/current/{path}": {"mode": "0644"}
        for path in ("include/nccl.h", "include/nccl_net.h", "lib/libnccl.so", "lib/libnccl.so.2")
    },
    "gpu capabilities": {"rc": 0, "out": "0, 8.0\n1, 8.0\n", "err": ""},
    "nvcc codes": {
        "rc": 0,
        "out": "".join(f"sm_{n}\n" for n in (35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86)),
        "err": "",
    },
    "ranks on gpus": {"rc": 0, "out": "[]", "err": ""},
    "library path": {"rc": 0, "out": "", "err": ""},
}


@pytest.fixture
def hosts():
    return copy.deepcopy(RECORDED)


def shown(hosts, site=SITE):
    return {(fault.id, fault.host) for fault in live.faults(site, hosts)}


def edit(hosts, host, question, change):
    """Change the JSON that a program printed on a host."""
    printed = json.loads(hosts[host][question]["out"])
    change(printed)
    hosts[host][question]["out"] = json.dumps(printed)


def swap(hosts, host, question, old, new):
    assert old in hosts[host][question]["out"]
    hosts[host][question]["out"] = hosts[host][question]["out"].replace(old, new)


def prints(out="", rc=0, err=""):
    return {"rc": rc, "out": out, "err": err}


def test_recorded_healthy_hosts_have_no_fault(hosts):
    assert shown(hosts) == set()
    assert set(hosts["p1"]) == set(live.questions(SITE))


def test_hosts_that_answer_nothing_or_nonsense_have_no_fault():
    assert shown({}) == set()
    assert shown({"p1": {}, "p2": {name: prints("x") for name in live.questions(SITE)}}) == set()
    long = {name: prints("9" * 9999) for name in live.questions(GPU_SITE)}
    assert shown({"p1": long, "p2": {name: {"x": "y"} for name in long}}, GPU_SITE) == set()
    assert shown({"p1": {name: ["x"] for name in live.questions(SITE)}}) == set()


def test_every_fault_that_a_detector_names_is_an_entry():
    text = "\n".join(path.read_text("utf-8") for path in Path(live.__file__).parent.glob("*.py"))
    without_signs = {cause.id for cause in knowledge.CAUSES if not cause.signs}
    assert without_signs == {id_ for id_ in without_signs if f'"{id_}"' in text}


def resolves(name, *addresses, error=""):
    return lambda printed: printed["names"].update({name: {"addresses": list(addresses), "error": error}})


def hostname(name):
    def change(printed):
        printed["hostname"] = name

    return change


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"p1": resolves("p2", error="Name or service not known")}, {("name-not-resolved", "p1")}),
        ({"p1": resolves("p2", "198.18.61.99")}, {("name-wrong-address", "p1")}),
        ({"p1": resolves("p2", "198.18.61.11")}, {("name-wrong-address", "p1")}),
        ({"p1": resolves("p2", "127.0.0.1")}, {("name-wrong-address", "p1")}),
        ({"p1": resolves("p2", "198.18.61.99", "198.18.61.12")}, {("name-wrong-address", "p1")}),
        ({"p1": resolves("p2", "198.18.61.12", "198.18.61.99")}, set()),
        ({"p1": resolves("p1", "127.0.1.1")}, {("gloo-loopback", "p1")}),
        ({"p1": resolves("p1", "198.18.61.11", "127.0.1.1")}, set()),
        ({"p1": hostname("p_1")}, {("hostname-invalid", "p1")}),
        ({"p1": hostname("P1.lab.example")}, set()),
        ({"p2": hostname("p1")}, {("hostname-twice", "p1"), ("hostname-twice", "p2")}),
    ],
)
def test_names(hosts, changes, expected):
    for host, change in changes.items():
        edit(hosts, host, "meeting", change)
    assert shown(hosts) == expected


def test_an_address_that_only_the_inventory_has_is_right(hosts):
    """As with the floating addresses of a cloud."""
    edit(hosts, "p1", "meeting", resolves("p2", "203.0.113.7"))
    member = replace(SITE.hosts[1], addresses=("198.18.61.12", "203.0.113.7"))
    assert shown(hosts, replace(SITE, hosts=(SITE.hosts[0], member))) == set()


def test_names_that_nobody_manages_need_not_resolve(hosts):
    edit(hosts, "p1", "meeting", resolves("p2", error="Name or service not known"))
    assert shown(hosts, replace(SITE, names_managed=False)) == set()


@pytest.mark.parametrize(
    ("said", "id_"),
    [
        ("Host key verification failed.", "host-key"),
        ("Host key for p2 has changed and you have requested strict checking.", "host-key-changed"),
        ("hvlab@198.18.61.12: Permission denied (publickey).", "ssh-denied"),
        ("Your account has expired; please contact your system administrator.", "account-refused"),
        ("Permissions 0644 for '/home/hvlab/.ssh/id_ed25519' are too open.", "ssh-key-modes"),
        ("ssh: connect to host 198.18.61.12 port 22: Connection refused", "ssh-refused"),
        ("ssh: connect to host 198.18.61.12 port 22: Connection timed out", "host-unreachable"),
        ("Connection to 198.18.61.12 port 22 timed out", "ssh-stalled"),
        ("something new", "horovodrun-ssh"),
    ],
)
def test_logins(hosts, said, id_):
    failed = {"p2": {"rc": 255, "out": "", "err": said}}
    hosts["p1"]["logins"]["out"] = json.dumps(failed)
    # Keys of the client, or what the other end knows of them: nobody can say from here which one lacks it.
    ends = ("p1", "p2") if id_ in ("host-key", "host-key-changed", "ssh-denied") else ("p1",)
    # The account is at the other end.
    ends = ("p2",) if id_ == "account-refused" else ends
    assert shown(hosts) == {(id_, end) for end in ends}
    for fault in live.faults(SITE, hosts):
        assert fault.role == ("ssh_trust" if id_ in FAULTS and id_ != "horovodrun-ssh" else "")
        assert "from p1 to p2" in fault.observed
    # A warning of a login that succeeds is none.
    words = "hostname p2\norted /usr/bin/orted\n"
    hosts["p1"]["logins"]["out"] = json.dumps({"p2": {"rc": 0, "out": words, "err": said}})
    assert shown(hosts) == set()


def test_a_login_that_ends_before_its_command_is_none(hosts):
    """As with an exit in ~/.bashrc, after what that prints."""
    for status in (0, 3, 255):
        hosts["p1"]["logins"]["out"] = json.dumps({"p2": {"rc": status, "out": "Welcome\n", "err": ""}})
        assert shown(hosts) == {("silent-login", "p2")}


def test_an_end_that_does_not_answer_is_not_mended(hosts):
    denied = {"p2": {"rc": 255, "out": "", "err": "hvlab@198.18.61.12: Permission denied (publickey)."}}
    hosts["p1"]["logins"]["out"] = json.dumps(denied)
    del hosts["p2"]
    assert shown(hosts) == {("ssh-denied", "p1")}


def test_a_user_who_is_not_there_is_the_only_fault(hosts):
    missing = prints(rc=127, err="there is no user hvlab")
    for question in ("logins", "folders", "open mpi"):
        hosts["p1"][question] = missing
    hosts["p1"]["user"] = prints(rc=1, err="id: 'hvlab': no such user")
    assert shown(hosts) == {("user-missing", "p1")}


def attempt(outcome, seconds=10, error=""):
    def change(printed):
        began = printed["listening"]["began"]
        printed["met"]["p2"] = {"outcome": outcome, "error": error, "began": began, "ended": began + seconds}

    return change


def listens(seconds, error=""):
    def change(printed):
        printed["listening"].update(ended=printed["listening"]["began"] + seconds, error=error)

    return change


@pytest.mark.parametrize(
    ("outcome", "id_"),
    [
        ("timed out", "tcp-firewall"),
        ("rejected", "tcp-firewall"),
        ("refused", "tcp-firewall"),
        ("stalled", "mtu-black-hole"),
    ],
)
def test_ways_between_hosts(hosts, outcome, id_):
    edit(hosts, "p1", "meeting", attempt(outcome))
    edit(hosts, "p2", "meeting", listens(22))
    assert shown(hosts) == {(id_, "p1")}
    (fault,) = live.faults(SITE, hosts)
    assert "from p1 to p2 (198.18.61.12)" in fault.observed
    assert "from p2 to p1 it passes" in fault.observed
    # The other one did not listen at that time, or could not.
    edit(hosts, "p2", "meeting", listens(2))
    assert shown(hosts) == set()
    edit(hosts, "p2", "meeting", listens(22, "Address already in use"))
    assert shown(hosts) == set()


def test_interfaces(hosts):
    mtu = hosts["p2"]["network mtu"]
    mtu["/sys/class/net/host0/mtu"] = "1400\n"
    assert shown(hosts) == {("mtu-differs", "p1"), ("mtu-differs", "p2")}
    mtu["/sys/class/net/host0/mtu"] = "1500\n"
    mtu["/sys/class/net/docker0/mtu"] = "1400\n"
    assert shown(hosts) == set()
    mtu["/sys/class/net/eth0/mtu"] = mtu.pop("/sys/class/net/host0/mtu")
    assert shown(hosts) == {("interface-missing", "p2")}


def test_of_three_hosts_the_one_with_another_mtu_is_named(hosts):
    third = replace(SITE.hosts[1], name="p3")
    hosts["p3"] = {"network mtu": {"/sys/class/net/host0/mtu": "9000\n"}}
    assert shown(hosts, replace(SITE, hosts=(*SITE.hosts, third))) == {("mtu-differs", "p3")}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            "asked yes\npath /usr/bin/mpirun\nreal /usr/bin/orterun\nversion mpirun (Open MPI) 4.1.4\n"
            "daemon /x/orted\n",
            {"different-mpi"},
        ),
        ("asked yes\n", {"mpirun-not-found", "orted-not-found"}),
        ("", set()),
        ("asked yes\npath /usr/bin/mpirun\n", {"different-mpi", "unknown-mpi", "orted-not-found"}),
        (
            "asked yes\npath /opt/hvlab/openmpi/current/bin/mpirun\nreal /usr/lib64/openmpi/bin/orterun\n"
            "version mpirun (Open MPI) 4.1.4\ndaemon /usr/lib64/openmpi/bin/orted\n",
            set(),
        ),
    ],
)
def test_the_open_mpi_in_use(hosts, table, expected):
    hosts["p2"]["open mpi"]["out"] = table
    assert shown(hosts) == {(id_, "p2") for id_ in expected}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "4.1.4\ndaemon",
            "3.1.3\ndaemon",
            {("open-mpi-avoid", "p2"), ("mixed-open-mpi", "p1"), ("mixed-open-mpi", "p2")},
        ),
        ("4.1.4\ndaemon", "4.1.4\ndaemon", set()),
        (
            "(Open MPI) 4.1.4",
            "(Open MPI) 1.10.7",
            {("old-mpi-const", "p2"), ("mixed-open-mpi", "p1"), ("mixed-open-mpi", "p2")},
        ),
        ("version mpirun (Open MPI) 4.1.4", "version ", {("unknown-mpi", "p2")}),
        (
            "version mpirun (Open MPI) 4.1.4",
            "version mpirun: error\nmissing libopen-rte.so.40 => not found",
            {("libmpi-missing", "p2")},
        ),
        ("hwloc its own", "hwloc /lib/libhwloc.so.15", {("mixed-open-mpi", "p2")}),
        ("daemon /opt/hvlab/openmpi/4.1.4/bin/orted\n", "", {("orted-not-found", "p2")}),
    ],
)
def test_open_mpi_of_all_hosts(hosts, old, new, expected):
    swap(hosts, "p2", "open mpi", old, new)
    assert shown(hosts) == expected


def test_one_hwloc_on_all_hosts_is_right(hosts):
    for host in hosts:
        swap(hosts, host, "open mpi", "daemon /opt", "hwloc /lib/libhwloc.so.15\ndaemon /opt")
    assert shown(hosts) == set()


def test_a_daemon_in_the_path_of_ssh_is_found(hosts):
    swap(hosts, "p2", "open mpi", "daemon /opt/hvlab/openmpi/4.1.4/bin/orted\n", "")
    swap(hosts, "p1", "logins", "orted\\n", "orted /usr/bin/orted\\n")
    assert shown(hosts) == set()


def test_hosts_without_open_mpi_lack_nothing(hosts):
    for own in hosts.values():
        own["open mpi"], own["open mpi record"] = prints("asked yes\n"), {}
    assert shown(hosts) == set()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("mode 1777\nwritable yes", "mode 755", {"session-dir"}),
        ("mode 1777", "mode 777", {"tmp-not-sticky"}),
        ("mode 1777", "mode 3777", set()),
        ("options ", "options rw,nosuid,noexec", {"tmp-noexec"}),
        ("options ", "options rw,nosuid,nodev", set()),
        ("space/dev/shm 2468412 2468412", "space/dev/shm 65536 65536", {"shm-too-small"}),
        ("space/dev/shm 2468412 2468412", "space/dev/shm 2468412 4096", {"backing-file"}),
        ("space/dev/shm 2468412 2468412", "space/dev/shm 2468412 999999", set()),
        ("tmpdir /tmp\ntmpdir_writable yes", "tmpdir /scratch/gone", {"session-dir"}),
        ("tmpdir /tmp", f"tmpdir /scratch/{'x' * 60}", {"tmpdir-too-long"}),
        ("tmpdir /tmp", "tmpdir /scratch/me", set()),
    ],
)
def test_folders(hosts, old, new, expected):
    swap(hosts, "p2", "folders", old, new)
    assert shown(hosts) == {(id_, "p2") for id_ in expected}


@pytest.mark.parametrize("folder", ["/", "/tmp", "~/.hvlab"])
def test_full_disks(hosts, folder):
    # A home of its own; recorded where it is part of the root file system.
    hosts["p2"]["folders"]["out"] += "space~/.hvlab 99999999 88888888\ninodes~/.hvlab 7777 6666\n"
    rows = hosts["p2"]["folders"]["out"].splitlines()
    full = [f"space{folder} 264212084 100" if row.startswith(f"space{folder} ") else row for row in rows]
    hosts["p2"]["folders"]["out"] = "\n".join(full)
    assert shown(hosts) == {("disk-full", "p2")}
    none = [f"inodes{folder} 16777216 0" if row.startswith(f"inodes{folder} ") else row for row in rows]
    hosts["p2"]["folders"]["out"] = "\n".join(none)
    assert shown(hosts) == {("disk-full", "p2")}
    # btrfs counts no inodes.
    none = [f"inodes{folder} 0 0" if row.startswith(f"inodes{folder} ") else row for row in rows]
    hosts["p2"]["folders"]["out"] = "\n".join(none)
    assert shown(hosts) == set()


@pytest.mark.parametrize(("seconds", "expected"), [(3600, {("clock", "p2")}), (20, set())])
def test_clocks(hosts, seconds, expected):
    hosts["p2"]["now"]["out"] = f"{int(hosts['p1']['now']['out']) + seconds}\n"
    assert shown(hosts) == expected


@pytest.mark.parametrize("kind", ["nfs4", "ext4"])
def test_numbers_of_the_user_matter_on_a_shared_home(hosts, kind):
    for host, number in {"p1": 1000, "p2": 1001}.items():
        hosts[host]["home"]["out"] = f"id {number}\ntype x\nmount {kind}\n"
    expected = {("user-id-differs", "p1"), ("user-id-differs", "p2")} if kind == "nfs4" else set()
    assert shown(hosts) == expected


def test_locked_memory_matters_with_rdma(hosts):
    assert shown(hosts) == set()
    hosts["p2"]["rdma"] = {"/sys/class/infiniband/mlx5_0": {"mode": "0777"}}
    assert shown(hosts) == {("memlock", "p2")}
    swap(hosts, "p1", "logins", "memlock 8192", "memlock unlimited")
    assert shown(hosts) == set()


@pytest.mark.parametrize(
    ("limit", "low", "enough", "cause"),
    [
        ("nofile", "256", "1024", "open-files"),
        ("nproc", "64", "unlimited", "too-many-processes"),
    ],
)
def test_low_limits_of_a_login(hosts, limit, low, enough, cause):
    swap(hosts, "p1", "logins", "memlock 8192", f"memlock 8192\\n{limit} {low}")
    assert shown(hosts) == {(cause, "p2")}
    [fault] = live.faults(SITE, hosts)
    assert f"is {low} after ssh" in fault.observed
    swap(hosts, "p1", "logins", f"{limit} {low}", f"{limit} {enough}")
    assert shown(hosts) == set()


def test_compilers_of_one_system(hosts):
    hosts["p1"]["gcc"], hosts["p2"]["gcc"] = prints("12.2.0\n"), prints("11.4.0\n")
    assert shown(hosts) == {("gcc-differs", "p1"), ("gcc-differs", "p2")}
    hosts["p2"]["system"] = {"/etc/os-release": "ID=almalinux\nVERSION_ID=9.4\n"}
    assert shown(hosts) == set()


def test_two_nccls_in_one_environment(hosts):
    packages = "/opt/hvlab/{}/lib/python3.11/site-packages/nvidia_nccl_cu{}-2.27.3.dist-info"
    hosts["p2"]["nccl wheels"] = {packages.format("torch", 12): {}, packages.format("tensorflow", 13): {}}
    assert shown(hosts) == set()
    hosts["p2"]["nccl wheels"] = {packages.format("torch", 12): {}, packages.format("torch", 13): {}}
    assert shown(hosts) == {("nccl-mixed", "p2")}


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        (
            "gpus",
            prints(rc=18, out="Failed to initialize NVML: Driver/library version mismatch\n"),
            {"driver-library-mismatch"},
        ),
        ("gpus", prints(rc=127, err="No such file or directory"), set()),
        ("gpus", prints("GPU 0: NVIDIA A100 (UUID: GPU-1)\n"), {"invalid-ordinal"}),
        ("gpus", prints("GPU 0: NVIDIA A100 (UUID: GPU-1)\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\n"), set()),
        ("gpu modes", prints("00000000:0B:00.0, 1, Exclusive_Process\n"), {"gpu-busy"}),
        ("gpu modes", prints("00000000:07:00.0, 0, Prohibited\n"), {"gpu-busy"}),
        ("gpu modes", prints("00000000:0B:00.0, 1, Default\n"), set()),
        ("gpu processes", prints("00000000:07:00.0, 4711\n"), {"gpu-busy"}),
        ("loader", prints("\tlibcuda.so.10 => /x\n"), {"libcuda-missing"}),
        ("loader", prints(rc=1), set()),
        ("kernel", prints("6.1.0-31-amd64\n"), {"kernel-headers"}),
        ("kernel", prints(), set()),
    ],
)
def test_gpus(hosts, question, answer, expected):
    for host in hosts.values():
        host.update(copy.deepcopy(GPU))
    assert shown(hosts, GPU_SITE) == set()
    hosts["p2"][question] = answer
    assert shown(hosts, GPU_SITE) == {(id_, "p2") for id_ in expected}
    assert shown(hosts) == set()


@pytest.mark.parametrize("dkms", [{}, {"/var/lib/dkms/nvidia-fs": {"mode": "0755"}}])
def test_headers_matter_to_dkms_only(hosts, dkms):
    for host in hosts.values():
        host.update(copy.deepcopy(GPU), dkms=dkms)
    hosts["p2"]["kernel"] = prints("6.1.0-31-amd64\n")
    assert shown(hosts, GPU_SITE) == set()


def test_what_ansible_says_of_a_host_that_it_cannot_ask():
    fault = live.of_message("p1", "/bin/sh: 1: /usr/bin/python3: not found")
    assert fault is None or fault.host == "p1"
    fault = live.of_message("p1", "Failed to connect to the host via ssh: Host key verification failed.")
    assert (fault.id, fault.host) == ("host-key", "p1")
    assert live.of_message("p1", "something new") is None


@pytest.mark.slow
def test_strangers_keep_no_host_from_a_meeting():
    with socket.create_server(("127.0.0.1", 0)) as free:
        here = free.getsockname()
    hosts = [{"name": name, "address": "127.0.0.1"} for name in "ab"]
    given = json.dumps({"hosts": hosts, "tried": 1, "port": here[1], "seconds": 20})
    with subprocess.Popen(
        [sys.executable, "-c", source("meet"), "a", given], stdout=subprocess.PIPE, text=True
    ) as process:
        reached = None
        while process.poll() is None and reached is None:
            with suppress(OSError):
                reached = socket.create_connection(here)
        for _ in range(80):
            with suppress(OSError):
                socket.create_connection(here, timeout=5).close()
        reached.close()
        with socket.create_connection(here, timeout=15) as host:
            host.sendall(b"b".ljust(256) + b"x" * 256 * 1024)
            assert host.recv(1) == b"k"
        assert json.loads(process.communicate(timeout=60)[0])["met"]["b"]["outcome"] == "met"


def test_an_address_that_two_hosts_have(hosts):
    own = hosts["p1"]["addresses"]["out"]
    hosts["p1"]["addresses"]["out"] = own + "2: host0 inet 198.18.61.12/24 scope global secondary host0\n"
    assert ("address-twice", "p1") in shown(hosts)
    # Its owner is not at fault.
    assert ("address-twice", "p2") not in shown(hosts)


@pytest.mark.parametrize(
    ("line", "cause"),
    [("python_home /opt/conda", "python-home"), ("ports 50000\t50001", "few-ports")],
)
def test_what_a_login_shows_of_a_host(hosts, line, cause):
    words = f"hostname p2\n{line}\norted /usr/bin/orted\n"
    hosts["p1"]["logins"]["out"] = json.dumps({"p2": {"rc": 0, "out": words, "err": ""}})
    assert shown(hosts) == {(cause, "p2")}


def test_a_loopback_interface_that_is_down_and_a_home_that_is_not_there(hosts):
    hosts["p2"]["network loopback"] = {"/sys/class/net/lo/operstate": "down\n"}
    hosts["p2"]["home"]["out"] += "missing /home/hvlab\n"
    assert shown(hosts) == {("loopback-down", "p2"), ("home-missing", "p2")}


def test_a_host_whose_ldd_does_not_work_differs_from_none(hosts):
    """As where /dev/null is no longer a device."""
    rows = hosts["p1"]["open mpi"]["out"].splitlines()
    hosts["p1"]["open mpi"]["out"] = "".join(f"{row}\n" for row in rows if not row.startswith("hwloc"))
    hosts["p2"]["open mpi"]["out"] += "hwloc /usr/lib/libhwloc.so.15\n"
    assert shown(hosts) == set()
