"""GPUs: recorded reports of nvidia-smi -> findings; a fault is a value changed in a real report."""

from __future__ import annotations

import re

import pytest

from hvlab.checks.node import gpu, smi
from tests.unit.gpu_reports import HEALTHY, devices, faults, judged, report
from tests.unit.health_answers import answers, outcomes

H100 = {
    "gpu_count": 8,
    "gpu_model": "NVIDIA H100 80GB HBM3",
    "gpu_memory_mib": 81559,
    "gpu_power_limit_w": 700,
    "gpu_clock_max_mhz": 1980,
    "gpu_ecc_mode": "Enabled",
    "gpu_mig_mode": "Disabled",
    "gpu_compute_mode": "Default",
}
PERSISTENCE_OFF = {"gpu persistence mode": "soft"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (HEALTHY, {}),
        ("gb200-4-driver-580", {}),
        ("h100-1-driver-580", {}),
        ("a100-driver-570", {}),
        ("t4-driver-595", {}),
        ("l40s-driver-595", {}),
        ("b200-8-driver-580", PERSISTENCE_OFF),
        ("p100-driver-510", PERSISTENCE_OFF),
        ("a100-mig-driver-510", PERSISTENCE_OFF),
        ("a10g-driver-515", PERSISTENCE_OFF),
        ("gtx-1660-ti-driver-418", PERSISTENCE_OFF),
        ("rtx-3090-driver-535", {"gpu power limit": "soft"}),
        ("gb200-2-one-lost", {"gpu ECC errors": "soft", "gpu row remapping": "hard", "gpu recovery": "hard"}),
        ("gb200-2-uncorrected", {"gpu ECC errors": "soft", "gpu row remapping": "hard"}),
    ],
)
def test_recorded_machines(name, expected):
    assert faults(judged(gpu, report(name))) == expected


def test_what_is_read_is_what_a_type_expects():
    values = gpu.readings(answers(gpu.QUESTIONS, outputs={smi.NAME: report()}))
    assert {name: values[name] for name in gpu.LEARNED} == H100
    assert faults(gpu.findings(values, H100)) == {}


# The spelling of values is that of recorded reports: "Yes", "Active" (driver 535 on H100: leptonai/gpud,
# nvidia-smi-query.535.161.08.out.0.valid), and of NVIDIA's documentation of nvidia-smi and of NVML.
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("_hw_power_brake_slowdown>Not Active", "_hw_power_brake_slowdown>Active"),
            ("gpu slowdown", "soft"),
        ),
        (("_hw_thermal_slowdown>Not Active", "_hw_thermal_slowdown>Active"), ("gpu slowdown", "soft")),
        (("_sw_thermal_slowdown>Not Active", "_sw_thermal_slowdown>Active"), ("gpu slowdown", "soft")),
        (("_reason_hw_slowdown>Not Active", "_reason_hw_slowdown>Active"), ("gpu slowdown", "soft")),
        (("sram_uncorrectable_parity>0", "sram_uncorrectable_parity>1"), ("gpu ECC errors", "hard")),
        (("sram_uncorrectable_secded>0", "sram_uncorrectable_secded>2"), ("gpu ECC errors", "hard")),
        (("dram_uncorrectable>0", "dram_uncorrectable>5"), ("gpu ECC errors", "soft")),
        (("threshold_exceeded>No", "threshold_exceeded>Yes"), ("gpu ECC errors", "hard")),
        (("remapped_row_pending>No", "remapped_row_pending>Yes"), ("gpu row remapping", "soft")),
        (("remapped_row_failure>No", "remapped_row_failure>Yes"), ("gpu row remapping", "hard")),
        (("channel_repair_pending>No", "channel_repair_pending>Yes"), ("gpu row remapping", "soft")),
        (("recovery_action>None", "recovery_action>Reset"), ("gpu recovery", "hard")),
        (("recovery_action>None", "recovery_action>Drain and Reset"), ("gpu recovery", "hard")),
        (("<gpu_temp>32 C", "<gpu_temp>Unknown Error"), ("gpu recovery", "soft")),
        (("<gpu_temp>32 C", "<gpu_temp>GPU requires reset"), ("gpu recovery", "hard")),
        (("tlimit>55 C", "tlimit>-2 C"), ("gpu temperature", "soft")),
        (("current_power_limit>700.00 W", "current_power_limit>500.00 W"), ("gpu power limit", "soft")),
        (("<graphics_clock>1980 MHz", "<graphics_clock>1590 MHz"), ("gpu clocks", "soft")),
        (("persistence_mode>Enabled", "persistence_mode>Disabled"), ("gpu persistence mode", "soft")),
        (("compute_mode>Default", "compute_mode>Prohibited"), ("gpu compute mode", "hard")),
        (("pending_ecc>Enabled", "pending_ecc>Disabled"), ("gpu ECC mode", "soft")),
        (("pending_mig>Disabled", "pending_mig>Enabled"), ("gpu MIG mode", "soft")),
    ],
    ids=lambda value: value[1] if "<" not in value[1] else value[1].strip("<"),
)
def test_one_fault_in_one_of_eight(change, expected):
    findings = judged(gpu, report(HEALTHY, change, gpu=3))
    assert faults(findings) == dict([expected])
    (fault,) = [finding for finding in findings if finding.outcome == "failed"]
    assert fault.observed.startswith("GPU 3 (0000:86:00.0, serial 1650000000004): ")
    assert fault.remedy


def test_an_umbrella_reason_gives_way_to_its_cause():
    change = ("_hw_power_brake_slowdown>Not Active", "_hw_power_brake_slowdown>Active")
    umbrella = ("_reason_hw_slowdown>Not Active", "_reason_hw_slowdown>Active")
    (fault,) = [each for each in judged(gpu, report(HEALTHY, change, umbrella)) if each.outcome == "failed"]
    assert "power brake" in fault.observed


@pytest.mark.parametrize(
    "change",
    [
        ("_sw_power_cap>Not Active", "_sw_power_cap>Active"),
        ("sram_correctable>0", "sram_correctable>900"),
        ("dram_correctable>0", "dram_correctable>900"),
        ("remapped_row_unc>0", "remapped_row_unc>3"),
        ("remapped_row_corr>0", "remapped_row_corr>3"),
        ("tlimit>58 C", "tlimit>-1 C"),
        ("<gpu_temp>29 C", "<gpu_temp>84 C"),
        ("fan_speed>N/A", "fan_speed>[N/A]"),
    ],
    ids=lambda value: value[1].strip("<"),
)
def test_near_misses(change):
    # A little less memory is the driver's own.
    assert faults(judged(gpu, report(HEALTHY, change), {"gpu_memory_mib": 81920})) == {}


def test_the_same_fault_of_all_is_one_finding():
    change = ("persistence_mode>Enabled", "persistence_mode>Disabled")
    (fault,) = [each for each in judged(gpu, report(HEALTHY, change, gpu=None)) if each.outcome == "failed"]
    assert fault.observed == "all 8 GPUs: persistence mode is off"


@pytest.mark.parametrize(
    ("name", "value", "check", "severity"),
    [
        ("gpu_count", 9, "gpu count", "hard"),
        ("gpu_count", 7, "gpu count", "soft"),
        ("gpu_model", "NVIDIA H200", "gpu model", "hard"),
        ("gpu_memory_mib", 143771, "gpu memory", "hard"),
        ("gpu_power_limit_w", 750, "gpu power limit", "soft"),
        ("gpu_clock_max_mhz", 2000, "gpu clocks", "soft"),
        ("gpu_ecc_mode", "Disabled", "gpu ECC mode", "hard"),
        ("gpu_mig_mode", "Enabled", "gpu MIG mode", "hard"),
        ("gpu_compute_mode", "Exclusive_Process", "gpu compute mode", "soft"),
    ],
)
def test_another_machine_than_expected(name, value, check, severity):
    assert faults(judged(gpu, report(), {**H100, name: value})) == {check: severity}


# --- older layouts


def test_double_bit_errors_before_ampere_leave_the_page_in_use():
    dram = report(
        "p100-driver-510", *[("<double_bit>\n\t\t\t\t\t<device_memory>0", "<double_bit>\n<device_memory>1")]
    )
    total = dram.replace("<total>0</total>\n\t\t\t\t</double_bit>", "<total>1</total>\n</double_bit>", 1)
    assert faults(judged(gpu, total)) == {**PERSISTENCE_OFF, "gpu ECC errors": "hard"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("<retired_count>0", "<retired_count>61")], {}),
        ([("<retired_count>0", "<retired_count>62")], {"gpu retired pages": "hard"}),
        ([("pending_retirement>No", "pending_retirement>Yes")], {"gpu retired pages": "soft"}),
        ([("pending_blacklist>No", "pending_blacklist>Yes")], {}),
    ],
    ids=["61 pages", "62 pages", "pending", "the old name of pending"],
)
def test_retired_pages(changes, expected):
    assert faults(judged(gpu, report("t4-driver-595", *changes))) == expected


@pytest.mark.parametrize(("degrees", "expected"), [(92, {}), (93, {"gpu temperature": "soft"})])
def test_temperature_against_the_gpus_own_limit(degrees, expected):
    change = ("<gpu_temp>33 C", f"<gpu_temp>{degrees} C")
    assert faults(judged(gpu, report("t4-driver-595", change))) == expected


def test_reset_required_of_driver_535():
    block = "<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>"
    text = report(HEALTHY, ("<gpu_recovery_action>None</gpu_recovery_action>", block))
    assert faults(judged(gpu, text)) == {"gpu recovery": "hard"}


def test_a_gpu_of_which_nothing_can_be_read_is_lost():
    lost = re.sub(r">[^<>\n]+<", ">Unknown Error<", report().split("<gpu id=")[1])
    text = report().replace(report().split("<gpu id=")[1], lost)
    assert faults(judged(gpu, text)) == {"gpu recovery": "hard"}


# --- the driver, and GPUs that it does not show


def failed(rc: int, out: str = "", err: str = "", expected=None, pci: str = ""):
    recorded = answers(gpu.QUESTIONS, files=devices(pci))
    recorded[smi.NAME] = {"rc": rc, "out": out, "err": err}
    (finding,) = gpu.findings(gpu.readings(recorded), expected or {})
    return finding


A10 = "06:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A10] [10de:2236] (rev a1)"


# What nvidia-smi prints: tests/data/nvidia/error-*.txt; a lost GPU: open-gpu-kernel-modules issue 387.
@pytest.mark.parametrize(
    ("rc", "out", "pci", "severity", "remedy"),
    [
        (127, "", "", "skipped", ""),
        (127, "", A10, "soft", "install NVIDIA's driver"),
        # The driver of an image for all nodes, where there is no GPU.
        (6, "No devices were found\n", "", "skipped", ""),
        (
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
            "the latest NVIDIA driver is installed and running.\n",
            "",
            "skipped",
            "",
        ),
        (124, "", A10, "hard", "kernel log"),
        (137, "", A10, "hard", "kernel log"),
        (6, "No devices were found\n", A10, "hard", "kernel log"),
        (
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
            "the latest NVIDIA driver is installed and running.\n",
            A10,
            "hard",
            "modprobe nvidia",
        ),
        (18, "Failed to initialize NVML: Driver/library version mismatch\n", A10, "hard", "reboot"),
        (
            255,
            "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error\n",
            A10,
            "hard",
            "reboot the node",
        ),
        (
            8,
            "Unable to determine the device handle for GPU 0000:0B:00.0: Unable to communicate with GPU "
            "because it is insufficiently powered.\n",
            A10,
            "hard",
            "power cables",
        ),
        (12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", A10, "hard", "install"),
    ],
    ids=[
        "no GPU",
        "no driver",
        "no GPU, driver",
        "no GPU, module",
        "silent",
        "killed",
        "no device",
        "no module",
        "mismatch",
        "lost",
        "no power",
        "no library",
    ],
)
def test_a_driver_that_does_not_answer(rc, out, pci, severity, remedy):
    finding = failed(rc, out, pci=pci)
    assert (finding.severity or finding.outcome) == severity
    assert remedy in finding.remedy


# open-gpu-kernel-modules issue 387; pdbear/syno_nvidia_gpu_driver issue 22; newer drivers, with an index.
@pytest.mark.parametrize(
    "name", ["GPU 0000:07:00.0", "gpu 0000:07:00.0", "GPU0000:07:00.0", "GPU0: 0000:07:00.0"]
)
def test_a_lost_gpu_is_named(name):
    finding = failed(255, f"Unable to determine the device handle for {name}: Unknown Error\n")
    assert finding.observed == "the driver has lost 0000:07:00.0"


def test_a_report_that_was_cut_is_no_message():
    assert "its report is cut off" in failed(139, report()[:20000]).observed


def test_a_lost_gpu_before_a_report_of_the_others():
    """As public notes on nvidia-smi -q -x have it: exit code 0, and the report after the message."""
    line = "Unable to determine the device handle for GPU0: 0000:53:00.0: Unknown Error\n"
    text = report()
    block = text[text.index("\t<gpu id=") : text.index("</gpu>\n") + len("</gpu>\n")]
    findings = judged(gpu, line + text.replace(block, ""), {"gpu_count": 8})
    assert faults(findings) == {"gpu driver": "hard", "gpu count": "hard"}


def test_no_driver_where_gpus_are_expected():
    assert "reseat" in failed(127, expected={"gpu_count": 8}).remedy
    assert failed(127, expected={"gpu_count": 8}, pci=A10).remedy == "install NVIDIA's driver"


def test_an_idle_driver_is_a_fault_where_gpus_are_expected():
    out = "No devices were found\n"
    assert failed(6, out, expected={"gpu_count": 8}).severity == "hard"
    recorded = answers(gpu.QUESTIONS, files={"/.dockerenv": ""})
    recorded[smi.NAME] = {"rc": 6, "out": out, "err": ""}
    # A container has an nvidia-smi because it was given GPUs.
    (finding,) = gpu.findings(gpu.readings(recorded), {})
    assert finding.severity == "hard"


def test_a_program_without_its_libraries_is_broken():
    """The words are those of glibc's loader, which ends with 127, too."""
    library = "cannot open shared object file: No such file or directory"
    words = f"nvidia-smi: error while loading shared libraries: libdl.so.2: {library}\n"
    finding = failed(127, err=words, pci=A10)
    assert (finding.severity, "libdl.so.2" in finding.observed) == ("hard", True)


@pytest.mark.parametrize(
    "mark",
    [
        *("/run/systemd/container", "/.dockerenv", "/run/.containerenv"),
        "/var/run/secrets/kubernetes.io/serviceaccount/namespace",
    ],
)
def test_a_container_has_none_of_its_hosts_gpus(mark):
    """Docker's mark is empty, and Podman's where the container has no privileges."""
    files = {**devices(A10), mark: ""}
    (finding,) = gpu.findings(gpu.readings(answers(gpu.QUESTIONS, files=files)), {})
    assert finding.outcome == "skipped"


def test_a_gpu_on_the_bus_that_the_driver_does_not_show():
    shown = "\n".join(A10.replace("06:", f"{one['address'][5:7]}:") for one in smi.parse(report()))
    assert faults(judged(gpu, report(), files=devices(shown))) == {}
    hidden = judged(gpu, report(), files=devices(shown + "\n" + A10))
    assert faults(hidden) == {"gpu count": "hard"}
    assert any("0000:06:00.0" in finding.observed for finding in hidden)
    for driver in ("vfio-pci", "nouveau", "nvgrace_gpu_vfio_pci"):
        assert faults(judged(gpu, report(), files={**devices(shown), **devices(A10, driver)})) == {}
    link = "/sys/bus/pci/devices/0000:06:00.0/physfn"
    assert faults(judged(gpu, report(), files={**devices(shown), **devices(A10)}, links=(link,))) == {}


# NVIDIA/open-gpu-kernel-modules, issues 696 and 393; the last is of a GPU that failed.
UNSUPPORTED = """[    6.1] NVRM: The NVIDIA GPU 0000:06:00.0 (PCI ID: 10de:1b82)
               NVRM: installed in this system is not supported by open
               NVRM: nvidia.ko because it does not include the required GPU
               NVRM: System Processor (GSP).
"""
OLDER = """[    5.2] NVRM: The NVIDIA GPU 0000:06:00.0 (PCI ID: 10de:1050) installed
[    5.2] NVRM: in this system is not supported by the 280.13 NVIDIA Linux
[    5.2] NVRM: graphics driver release.  Please see 'Appendix A -
"""
FAILED = """[    5.2] NVRM: The NVIDIA GPU 0000:06:00.0
               NVRM: (PCI ID: 10de:20b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
"""


@pytest.mark.parametrize(
    ("log", "expected", "outcome"),
    [
        (UNSUPPORTED, {}, "soft"),
        (OLDER, {}, "soft"),
        (UNSUPPORTED, {"gpu_count": 8}, "soft"),
        (UNSUPPORTED, {"gpu_count": 9}, "hard"),
        (UNSUPPORTED.replace("06:00", "07:00"), {}, "hard"),
        (FAILED, {}, "hard"),
        (FAILED, {"gpu_count": 9}, "hard"),
        ("", {"gpu_count": 8}, "soft"),
        ("", {}, "hard"),
    ],
)
def test_a_card_that_the_driver_does_not_support_beside_those_that_work(log, expected, outcome):
    shown = "\n".join(A10.replace("06:", f"{one['address'][5:7]}:") for one in smi.parse(report()))
    recorded = {"files": devices(f"{shown}\n{A10}"), "outputs": {"xid dmesg": log}}
    assert faults(judged(gpu, report(), expected, **recorded)) == {"gpu count": outcome}


def test_other_devices_of_nvidia_are_no_gpus():
    audio = "06:00.1 Audio device [0403]: NVIDIA Corporation Device [10de:228e] (rev a1)"
    display = "01:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. [1a03:2000] (rev 52)"
    assert gpu.readings(answers(gpu.QUESTIONS, files=devices(f"{audio}\n{display}")))["gpu_bus"] == []


def test_an_infoROM_that_is_corrupted():  # noqa: N802
    # The line after the report, as in Azure/azhpc-diagnostics' tests (check_inforom).
    text = report() + "WARNING: infoROM is corrupted at gpu 0000:64:00.0\n"
    (fault,) = [finding for finding in judged(gpu, text) if finding.outcome == "failed"]
    assert (fault.check, fault.severity) == ("gpu infoROM", "soft")
    assert fault.observed == "corrupted: GPU 1 (0000:64:00.0, serial 1650000000002)"


def test_outcomes_name_every_check_once_where_all_is_well():
    assert set(outcomes(judged(gpu, report())).values()) == {"passed", "skipped"}
