"""The subjects of a host: recorded files and outputs -> readings -> findings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.checks.node import clock, cpu, disk, memory, network, rdma, subjects
from hvlab.checks.node.finding import Finding
from tests.unit.health_answers import DATA, answers, outcomes

HOST = DATA / "host"
CPU = "/sys/devices/system/cpu"


def judge(subject, expected=None, **recorded) -> dict[str, Finding]:
    values = subject.readings(answers(subject.QUESTIONS, **recorded))
    return {finding.check: finding for finding in subject.findings(values, expected or {})}


def severity(subject, expected=None, **recorded) -> dict[str, str]:
    return outcomes(list(judge(subject, expected, **recorded).values()))


def text(name: str) -> str:
    return (HOST / name).read_text("utf-8")


def files(name: str, **changes: str) -> dict[str, str]:
    """Return recorded files; ``changes`` replaces the texts of those whose path ends with a name."""
    recorded = json.loads(text(name))
    return {
        path: next((new for end, new in changes.items() if path.endswith(end)), old)
        for path, old in recorded.items()
    }


# --- cpu


def cpus(online: str, **others: str) -> dict[str, str]:
    return {f"{CPU}/online": online, f"{CPU}/present": "0-7", **others}


@pytest.mark.parametrize(
    ("online", "expected", "outcome"),
    [
        ("0-7\n", {}, "passed"),
        ("0-3,5-7\n", {}, "soft"),
        ("0-3,5-7\n", {"cpu_count": 8}, "hard"),
        ("0-7\n", {"cpu_count": 4}, "soft"),
        ("0-7\n", {"cpu_count": 8}, "passed"),
        ("all of them\n", {}, "skipped"),
    ],
)
def test_cpus_that_are_lost(online, expected, outcome):
    assert severity(cpu, expected, files=cpus(online))["cpu count"] == outcome


def test_cpus_that_smt_hides_are_not_lost():
    smt = {f"{CPU}/smt/control": "off\n"}
    assert severity(cpu, files=cpus("0,2,4,6\n", **smt))["cpu count"] == "passed"


def test_governors_and_turbo_are_judged_only_where_shown():
    governor = {f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave\n"}
    other = {f"{CPU}/cpu1/cpufreq/scaling_governor": "performance\n"}
    assert severity(cpu, files=cpus("0-7"))["cpu governor"] == "skipped"
    judged = judge(cpu, files=cpus("0-7", **governor, **other))["cpu governor"]
    assert (judged.severity, judged.observed) == ("soft", "powersave on 1 CPUs instead of performance")
    assert (
        severity(cpu, {"cpu_governor": "powersave"}, files=cpus("0-7", **governor))["cpu governor"]
        == "passed"
    )
    assert severity(cpu, files=cpus("0-7", **{f"{CPU}/intel_pstate/no_turbo": "1\n"}))["cpu turbo"] == "soft"
    assert severity(cpu, files=cpus("0-7", **{f"{CPU}/cpufreq/boost": "1\n"}))["cpu turbo"] == "passed"


# --- memory


@pytest.mark.parametrize(
    ("type_has", "kib", "outcome"),
    [
        # 14.9 GiB; a GiB less than installed is what small machines lack at boot.
        *((15.0, 15666184, "passed"), (15.6, 15666184, "passed"), (16.0, 15666184, "hard")),
        # 2 TiB, of which the kernel keeps 1.6 %; then one of 32 modules less.
        *((2048, 2048 * 0.984 * 2**20, "passed"), (2048, 1984 * 0.984 * 2**20, "hard")),
    ],
)
def test_memory_that_is_missing(type_has, kib, outcome):
    recorded = {"/proc/meminfo": f"MemTotal:       {int(kib)} kB\n"}
    assert severity(memory, {"memory_gib": type_has}, files=recorded)["memory size"] == outcome


def test_memory_errors():
    recorded = files("edac.json")
    assert severity(memory, files=recorded)["memory uncorrected errors"] == "hard"
    assert severity(memory, files=recorded)["memory corrected errors"] == "passed"
    many = {**files("edac.json", ce_count="31\n", ue_count="0\n"), "/proc/uptime": "259200.00 1.00\n"}
    assert severity(memory, files=many)["memory uncorrected errors"] == "passed"
    assert severity(memory, files=many)["memory corrected errors"] == "soft"
    assert severity(memory)["memory corrected errors"] == "skipped"


def test_huge_pages():
    few = {"/proc/meminfo": text("meminfo.txt")}
    assert severity(memory, {"hugepages_gib": 4}, files=few)["memory huge pages"] == "soft"
    enough = {
        "/proc/meminfo": text("meminfo.txt").replace("HugePages_Total:       0", "HugePages_Total:    2048")
    }
    assert severity(memory, {"hugepages_gib": 4}, files=enough)["memory huge pages"] == "passed"


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        ("tmpfs 24684092 24684024", "passed"),
        ("tmpfs 24684092    65536", "passed"),
        # Full of files, maybe of a job that runs.
        ("tmpfs 24684092    65535", "soft"),
        ("tmpfs    65536    65536", "soft"),
        ("tmpfs    65535    65535", "hard"),
        ("tmpfs   524288   524288", "soft"),
        ("ext4 24684092 24684024", "soft"),
    ],
)
def test_shared_memory(row, outcome):
    table = f"Type  1K-blocks    Avail\n{row}\n"
    assert severity(memory, outputs={"memory shm": table})["memory /dev/shm"] == outcome


# --- disk


def df(row: str) -> str:
    return f"Mounted on Type 1K-blocks    Avail   Inodes    IFree\n{row}\n"


GIB = 2**20
MOUNTS = "/dev/vda1 / ext4 rw,relatime 0 0\n/dev/vdb /scratch\\040disk ext4 ro,relatime 0 0\n"


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (f"/ ext4 {250 * GIB} {64 * GIB} 16777216 15988172", {}),
        (f"/ ext4 {250 * GIB} {12 * GIB} 16777216 15988172", {"disk space /": "soft"}),
        (f"/ ext4 {250 * GIB} {2 * GIB} 16777216 15988172", {"disk space /": "hard"}),
        # One percent of a file server is no emergency.
        (f"/ nfs4 {2**20 * GIB} {60 * GIB} 16777216 15988172", {}),
        (f"/ ext4 {250 * GIB} {64 * GIB} 16777216 999", {"disk inodes /": "soft"}),
        (f"/ ext4 {250 * GIB} {64 * GIB} 16777216 99", {"disk inodes /": "hard"}),
        # A file server that is full is full on every node.
        (f"/ nfs4 {250 * GIB} {2 * GIB} 16777216 99", {"disk space /": "soft", "disk inodes /": "soft"}),
        (f"/ fuse.sshfs {250 * GIB} {2 * GIB} - -", {"disk space /": "soft"}),
        (f"/ btrfs {250 * GIB} {64 * GIB} - -", {}),
        (f"/ btrfs {250 * GIB} {64 * GIB} 0 0", {}),
        (
            f"/scratch disk ext4 {250 * GIB} {64 * GIB} 16777216 15988172",
            {"disk writable /scratch disk": "hard"},
        ),
    ],
)
def test_disks(row, wrong):
    judged = severity(disk, files={"/proc/self/mounts": MOUNTS}, outputs={"disk /": df(row)})
    assert {check: outcome for check, outcome in judged.items() if outcome in ("hard", "soft")} == wrong


def test_an_image_may_be_read_only():
    mounts = "overlay / squashfs ro,relatime 0 0\n"
    judged = severity(
        disk, files={"/proc/self/mounts": mounts}, outputs={"disk /": df(f"/ squashfs {GIB} 0 9 0")}
    )
    assert judged == {"disk writable /": "passed"}


@pytest.mark.parametrize(
    ("kind", "more", "outcome"),
    [
        ("xfs", {}, "hard"),
        ("xfs", {"/etc/fstab": "# /dev/vda1 / xfs ro 0 1\n"}, "hard"),
        ("xfs", {"/etc/fstab": "/dev/vda1 / xfs ro,noatime 0 1\n"}, "passed"),
        ("xfs", {"/run/ostree-booted": ""}, "passed"),
        ("nfs4", {}, "soft"),
        ("overlay", {}, "soft"),
    ],
)
def test_what_is_read_only(kind, more, outcome):
    recorded = {"/proc/self/mounts": f"any / {kind} ro,relatime 0 0\n", **more}
    row = df(f"/ {kind} {250 * GIB} {64 * GIB} 99999 99999")
    assert severity(disk, files=recorded, outputs={"disk /": row})["disk writable /"] == outcome


# As coreutils' df prints the errors of statfs, which glibc words.
@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("Stale file handle", "hard"),
        ("Transport endpoint is not connected", "hard"),
        ("Input/output error", "hard"),
        ("No such file or directory", None),
    ],
)
def test_a_mount_that_is_broken(words, outcome):
    replies = answers(disk.QUESTIONS)
    replies["disk /home"] = {"rc": 1, "out": "", "err": f"df: /home: {words}\n"}
    judged = {finding.check: finding for finding in disk.findings(disk.readings(replies), {})}
    if outcome:
        assert (judged["disk answers /home"].severity, judged["disk answers /home"].observed) == (
            outcome,
            f"df: /home: {words}",
        )
    else:
        assert judged["disk space"].observed == "df failed for every path"


def test_a_file_server_that_does_not_answer():
    replies = answers(disk.QUESTIONS, outputs={"disk /": df(f"/ ext4 {250 * GIB} {64 * GIB} 99999 99999")})
    replies["disk /home"] = {"rc": 124, "out": "", "err": ""}
    judged = {finding.check: finding for finding in disk.findings(disk.readings(replies), {})}
    assert judged["disk answers /home"].severity == "soft"
    assert judged["disk space /"].outcome == "passed"


# --- clock


@pytest.mark.parametrize(
    ("outputs", "synchronised", "offset", "source"),
    [
        ({"clock chrony": text("chrony-slow.txt")}, True, -0.50517, "chrony"),
        ({"clock timesyncd": text("timesyncd.txt")}, True, 0.005224, "systemd-timesyncd"),
        ({"clock ntpd": text("ntpq.txt")}, True, 0.026064, "ntpd"),
        ({"clock ntpd": text("ntpq-unsynchronised.txt")}, False, None, "ntpd"),
        ({"clock kernel": "NTPSynchronized=no\n"}, False, None, None),
        (
            {"clock kernel": "NTPSynchronized=no\n", "clock chrony": text("chrony-slow.txt")},
            True,
            -0.50517,
            "chrony",
        ),
        (
            {"clock chrony": text("chrony-slow.txt").replace(": Normal", ": Not synchronised")},
            False,
            None,
            "chrony",
        ),
    ],
)
def test_who_keeps_the_clock(outputs, synchronised, offset, source):
    values = clock.readings(answers(clock.QUESTIONS, outputs=outputs))
    assert values.get("clock_synchronised") is synchronised
    assert values.get("clock_offset_s") == pytest.approx(offset)
    assert values.get("clock_source") == source


@pytest.mark.parametrize(("seconds", "outcome"), [("0.50517", "passed"), ("1.2", "soft"), ("5.1", "hard")])
def test_the_offset_of_the_clock(seconds, outcome):
    tracking = text("chrony-slow.txt").replace("0.50517", seconds)
    assert severity(clock, outputs={"clock chrony": tracking})["clock offset"] == outcome


@pytest.mark.parametrize(
    ("now", "outcome"), [("1000.5", "passed"), ("998.5", "soft"), ("1003.0", "soft"), ("1302.0", "hard")]
)
def test_a_clock_that_nothing_keeps_is_compared_with_the_controller(now, outcome):
    """Asked between 1000 and 1001 s; not synchronised alone is never hard."""
    outputs = {"clock now": now, "clock kernel": "NTPSynchronized=no\n"}
    judged = severity(clock, {"controller_clock": [1000.0, 1001.0]}, outputs=outputs)
    assert judged == {"clock synchronised": "soft", "clock offset": outcome}


# --- network


def nic(name: str = "ens1", card: bool = True, **attributes: object) -> dict[str, object]:
    """Return the files of an interface, and the link of its card."""
    values = {"carrier": 1, "speed": 100000, "duplex": "full", "carrier_down_count": 1, **attributes}
    counters = {name: values.pop(name, 0) for name in ("rx_errors", "tx_errors", "tx_packets")}
    counters["rx_packets"] = values.pop("rx_packets", 1000)
    folder = f"/sys/class/net/{name}"
    written = {f"{folder}/{key}": f"{value}\n" for key, value in values.items() if value is not None}
    written |= {f"{folder}/statistics/{key}": f"{value}\n" for key, value in counters.items()}
    return {"files": written, "links": (f"{folder}/device",) if card else ()}


@pytest.mark.parametrize(
    ("attributes", "expected", "wrong"),
    [
        ({}, {}, {}),
        ({}, {"nic_rate_gbit": 100, "nic_count": 1, "network_interfaces": ["ens1"]}, {}),
        ({"speed": 25000}, {"nic_rate_gbit": 100}, {"network rate": "hard"}),
        ({}, {"nic_rate_gbit": 100, "nic_count": 2}, {"network rate": "hard"}),
        # As the kernel shows an interface that is switched off: no carrier, no speed.
        ({"carrier": None, "speed": None}, {"network_interfaces": ["ens1"]}, {"network link ens1": "hard"}),
        ({"carrier": 0, "speed": -1}, {}, {}),
        ({}, {"network_interfaces": ["ens2"]}, {"network link ens2": "hard"}),
        ({"carrier_down_count": 11}, {}, {"network flaps": "soft"}),
        ({"carrier_down_count": 10}, {}, {}),
        ({"rx_errors": 11}, {}, {"network errors": "soft"}),
        ({"rx_errors": 9}, {}, {}),
        ({"duplex": "half"}, {}, {"network duplex": "soft"}),
        ({"card": False, "carrier_down_count": 99}, {}, {}),
        (
            {"card": False, "carrier_down_count": 99},
            {"network_interfaces": ["ens1"]},
            {"network flaps": "soft"},
        ),
    ],
)
def test_links(attributes, expected, wrong):
    judged = severity(network, expected, **nic(**attributes))
    assert {check: outcome for check, outcome in judged.items() if outcome in ("hard", "soft")} == wrong


def test_a_lab_of_one_machine_may_use_the_loopback():
    loopback = nic("lo", card=False, speed=None, duplex=None)
    judged = severity(network, {"network_interfaces": ["lo"]}, **loopback)
    assert judged["network link lo"] == "passed"
    assert judged["network rate"] == "skipped"


def test_a_good_host_teaches_its_fastest_links():
    values = network.readings(answers(network.QUESTIONS, **nic()))
    assert {name: values[name] for name in network.LEARNED} == {"nic_rate_gbit": 100.0, "nic_count": 1}


def test_virtual_functions_come_and_go_with_the_jobs_that_have_them():
    """A node whose type was learned with them is fit while containers have them."""
    port, function = nic("ens1"), nic("ens1v0")
    everything = {
        "files": port["files"] | function["files"],
        "links": (*port["links"], *function["links"], "/sys/class/net/ens1v0/device/physfn"),
    }
    values = network.readings(answers(network.QUESTIONS, **everything))
    assert (values["nic_count"], values["interfaces"]["ens1v0"]["card"]) == (1, False)
    assert severity(network, {"network_interfaces": ["ens1v0"]}, **everything)["network link ens1v0"] == (
        "passed"
    )
    own = {**function, "links": (*function["links"], "/sys/class/net/ens1v0/device/physfn")}
    assert network.readings(answers(network.QUESTIONS, **own))["nic_count"] == 1


# --- rdma


def test_unused_virtual_functions_of_rdma_devices_are_no_fault():
    """Their ports are down while the card's link is up: Mellanox/k8s-rdma-sriov-dev-plugin, issue 26."""
    recorded = files("infiniband.json")
    functions = {
        path.replace("mlx5_0", "mlx5_9"): "1: DOWN\n" if path.endswith("/state") else text
        for path, text in recorded.items()
        if "/mlx5_0/" in path
    }
    virtual = ("/sys/class/infiniband/mlx5_9/device/physfn",)
    judged = severity(rdma, files=recorded | functions, links=virtual)
    assert judged == severity(rdma, files=recorded)
    assert severity(rdma, files=functions, links=virtual)["rdma ports"] == "soft"


def test_rdma_readings_of_three_cards():
    values = rdma.readings(answers(rdma.QUESTIONS, files=files("infiniband.json")))
    assert values["rdma_ports"]["mlx4_0/2"] == {
        "state": "ACTIVE",
        "physical": "LinkUp",
        "rate_gbit": 40.0,
        "layer": "InfiniBand",
        "falls": 0,
        "symbol_errors": 0,
    }
    assert (values["rdma_rate_gbit"], values["rdma_device_count"]) == (100.0, 1)


@pytest.mark.parametrize(
    ("changes", "expected", "wrong"),
    [
        ({}, {}, {}),
        ({}, {"rdma_device_count": 1, "rdma_rate_gbit": 100}, {}),
        ({}, {"rdma_device_count": 3}, {}),
        ({}, {"rdma_device_count": 2, "rdma_rate_gbit": 100}, {"rdma devices": "hard"}),
        ({}, {"rdma_device_count": 4}, {"rdma devices": "hard"}),
        (
            {"hfi1_0/ports/1/rate": "25 Gb/sec (1X EDR)\n"},
            {"rdma_device_count": 1, "rdma_rate_gbit": 100},
            {"rdma devices": "hard"},
        ),
        ({"hfi1_0/ports/1/state": "2: INIT\n"}, {}, {"rdma ports": "soft"}),
        ({"mlx4_0/ports/2/state": "1: DOWN\n", "mlx4_0/ports/2/phys_state": "2: Polling\n"}, {}, {}),
        ({"/state": "1: DOWN\n", "/phys_state": "2: Polling\n"}, {}, {"rdma ports": "soft"}),
        ({"mlx5_0/ports/1/counters/link_downed": "11\n"}, {}, {"rdma flaps": "soft"}),
        ({"mlx5_0/ports/1/counters/symbol_error": "3\n"}, {}, {"rdma symbol errors": "soft"}),
        # github.com/prometheus/node_exporter, i40iw0
        ({"mlx5_0/ports/1/counters/link_downed": "N/A (no PMA)\n"}, {}, {}),
    ],
)
def test_rdma_ports(changes, expected, wrong):
    judged = severity(rdma, expected, files=files("infiniband.json", **changes))
    assert {check: outcome for check, outcome in judged.items() if outcome in ("hard", "soft")} == wrong


def test_no_rdma_device_is_a_fault_only_where_there_should_be_one():
    assert severity(rdma) == {"rdma devices": "skipped"}
    assert severity(rdma, {"rdma_device_count": 8})["rdma devices"] == "hard"


# --- all of them

SUBJECTS = (cpu, memory, disk, clock, network, rdma)
ODD = st.one_of(
    st.none(),
    st.text(max_size=40),
    st.fixed_dictionaries({"rc": st.integers(0, 140), "out": st.text(max_size=80), "err": st.just("")}),
    st.dictionaries(
        st.sampled_from(["/sys/class/net/x/speed", "/sys/class/infiniband/a/ports/1/state", "/"]),
        st.text(max_size=20),
    ),
)


@given(st.data())
def test_odd_answers_raise_nothing(data):
    for subject in SUBJECTS:
        replies = {name: data.draw(ODD) for name in subject.QUESTIONS}
        subject.findings(subject.readings(replies), {})


def test_every_question_begins_with_its_subject_and_every_fault_with_a_remedy():
    asked: dict[str, object] = {}
    names = {subject.__name__.rpartition(".")[2] for subject in subjects.list_all()}
    for subject in subjects.list_all():
        for name, question in subject.QUESTIONS.items():
            assert name.partition(" ")[0] in names
            assert asked.setdefault(name, question) == question, f"{name} asks two things"
    for subject in SUBJECTS:
        for finding in subject.findings({}, {}):
            assert (finding.outcome == "failed") == bool(finding.remedy)
