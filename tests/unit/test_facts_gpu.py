"""What is read of GPUs, drivers, cards and libraries, on recorded output."""

import time
from pathlib import Path

import pytest
from ansible.module_utils import (
    hvlab_gpu,
    hvlab_kernel,
    hvlab_network,
    hvlab_probe,
    hvlab_rdma,
)

DATA = Path(__file__).parents[1] / "data/nvidia"
PCI_IDS = """# a comment
10de  NVIDIA Corporation
\t1eb8  TU104GL [Tesla T4]
\t20b2  GA100 [A100 SXM4 80GB]
\t\t10de 1463  not this
15b3  Mellanox Technologies
\t101b  MT28908 Family [ConnectX-6]
C 03  Display controller
\t02  3D controller
"""


# Eight A100 without persistence mode: https://github.com/Azure/aks-gpu/pull/105
INITIALISATION_S = 30
LINKS = {
    "topo-dgx-a100.txt": "NVLink (NV12)",
    "topo-8x-v100.txt": "NVLink (NV1, NV2) and PCIe across sockets (SYS)",
    "topo-8x-nv18-12-nics.txt": "NVLink (NV18)",
    "topo-4x-titan-two-sockets.txt": "PCIe (PHB) and PCIe across sockets (SYS)",
    "topo-7x-geforce.txt": "PCIe (PIX, PHB)",
    "topo-4x-k80-old-driver.txt": "PCIe (PIX) and PCIe across sockets (SOC)",
    "topo-2x-v100-pcie.txt": "PCIe across sockets (SYS)",
    "topo-6x-underlined.txt": "PCIe (PIX, NODE) and PCIe across sockets (SYS)",
    "topo-3x-a6000.txt": "NVLink (NV4) and PCIe (NODE)",
    "topo-1x-one-nic.txt": None,
    "topo-8x-a100-garbled.txt": "NVLink (NV12)",
}


def text(name: str) -> str:
    return (DATA / name).read_text()


def put(root: Path, files: dict[str, str | bytes]) -> str:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(root)


def card(address: str, vendor: str, device: str, kind: str) -> dict[str, str | bytes]:
    folder = f"sys/bus/pci/devices/{address}"
    values = {"vendor": vendor, "device": device, "class": kind}
    return {f"{folder}/{name}": f"0x{value}\n" for name, value in values.items()}


def smi(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int | None, str] | Exception) -> list[str]:
    left, asked = list(answers), []

    def said(*argv: str, seconds: float) -> tuple[int | None, str]:
        assert seconds > INITIALISATION_S
        asked.append(argv[1])
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(hvlab_gpu, "run_for_status", said)
    return asked


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("topo-*")))
def test_the_link_of_gpus_in_words(name):
    assert hvlab_gpu.parse_topology(text(name))["link"] == LINKS[name]


@pytest.mark.parametrize("path", sorted(DATA.glob("topo-*")), ids=lambda path: path.stem)
def test_a_matrix_is_symmetric(path):
    gpus = hvlab_gpu.parse_topology(path.read_text())["gpus"]
    assert all(gpus[b][a] == link for a, row in gpus.items() for b, link in row.items())
    assert all(len(row) == len(gpus) - 1 for row in gpus.values())


def test_cards_are_called_by_their_device():
    nics = hvlab_gpu.parse_topology(text("topo-8x-nv18-12-nics.txt"))["nics"]
    assert len(nics) == 12
    assert (nics["mlx5_0"]["GPU0"], nics["mlx5_10"]["GPU6"], nics["mlx5_11"]["GPU0"]) == ("PIX", "PIX", "SYS")
    assert hvlab_gpu.parse_topology(text("topo-8x-v100.txt"))["nics"]["mlx5_0"]["GPU2"] == "PIX"


def test_a_line_that_lost_a_piece_is_unknown_there_only():
    nics = hvlab_gpu.parse_topology(text("topo-8x-a100-garbled.txt"))["nics"]
    assert nics["NIC0"]["GPU0"] == "PHB"
    assert nics["NIC7"]["GPU0"] is None


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("error-*")))
def test_an_error_is_no_matrix(name):
    assert hvlab_gpu.parse_topology(text(name)) is None


def test_a_matrix_cut_short_is_none():
    cut = "\n".join(text("topo-dgx-a100.txt").splitlines()[:5])
    assert hvlab_gpu.parse_topology(cut) is None
    assert hvlab_gpu._link_words({"GPU0": {"GPU1": None}, "GPU1": {"GPU0": "NV2"}}) is None


def test_gpus_of_a_working_driver():
    rows, error = hvlab_gpu.parse_query(text("query-4x-a100.csv"))
    assert error is None
    assert len(rows) == 4
    assert rows[1] == {
        "name": "NVIDIA A100-SXM4-80GB",
        "compute_capability": "8.0",
        "memory_mib": 81920,
        "pci": "0000:0b:00.0",
        "uuid": "GPU-5baec991-de63-c196-1766-04c38407e133",
    }


def test_memory_that_belongs_to_the_host_is_none():
    (row,), error = hvlab_gpu.parse_query(text("query-gb10.csv"))
    assert (row["memory_mib"], row["pci"], row["compute_capability"], error) == (
        None,
        "000f:01:00.0",
        "12.1",
        None,
    )


@pytest.mark.parametrize(
    "nothing",
    [
        *("[N/A]", "[Not Supported]", "N/A", "ERR!", "[Unknown Error]", "[Not Available]"),
        *("[GPU requires reset]", "[GPU is lost]", "[Insufficient Permissions]"),
    ],
)
def test_what_stands_in_place_of_a_value_is_none(nothing):
    line = f"{nothing}, {nothing}, {nothing}, 00000000:01:00.0, {nothing}"
    (row,), _ = hvlab_gpu.parse_query(line)
    assert row == dict.fromkeys(["name", "compute_capability", "memory_mib", "uuid"]) | {
        "pci": "0000:01:00.0"
    }


def test_a_gpu_that_was_lost_leaves_the_others():
    rows, error = hvlab_gpu.parse_query(text("query-lost-gpu.txt"))
    assert [row["pci"] for row in rows] == ["0000:c1:00.0"]
    assert error == "Unable to determine the device handle for GPU0000:08:00.0: Unknown Error"


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("error-*")))
def test_an_error_is_no_gpu(name):
    rows, error = hvlab_gpu.parse_query(text(name))
    assert rows == []
    assert error == " ".join(text(name).split("\n")).strip()


def test_an_old_driver_is_asked_again(monkeypatch):
    asked = smi(monkeypatch, (2, text("query-old-driver.txt")), (0, text("query-old-driver.csv")))
    (row,), error = hvlab_gpu.ask_driver()
    assert (row["name"], row["compute_capability"], row["memory_mib"], error) == (
        "Tesla K80",
        None,
        11441,
        None,
    )
    assert ["compute_cap" in query for query in asked] == [True, False]


def test_mig_is_asked_of_gpus_that_can_have_it_alone(monkeypatch, tmp_path):
    smi(monkeypatch, (0, text("query-gb10.csv")), (0, ""))
    (gpu,) = hvlab_gpu.nvidia(str(tmp_path))["gpus"]
    assert gpu["mig"] is False
    smi(monkeypatch, (2, 'Field "mig.mode.current" is not a valid field to query.\n'))
    assert hvlab_gpu.in_slices() == []


def test_a_driver_that_hangs_is_asked_once(monkeypatch, tmp_path):
    root = put(
        tmp_path, {**card("0000:3b:00.0", "10de", "1eb8", "030200"), "usr/share/misc/pci.ids": PCI_IDS}
    )
    asked = smi(monkeypatch, (None, ""))
    found = hvlab_gpu.nvidia(root)
    assert found["driver_error"] == "nvidia-smi did not end within 45 s"
    assert (found["topology"], len(asked)) == (None, 1)
    assert found["gpus"] == [
        {
            "name": "TU104GL [Tesla T4]",
            "compute_capability": None,
            "memory_mib": None,
            "pci": "0000:3b:00.0",
            "uuid": None,
            "pci_device": "1eb8",
            "pcie": None,
        }
    ]


def test_without_nvidia_smi_the_bus_tells(monkeypatch, tmp_path):
    files = {
        **card("0000:07:00.0", "10de", "20b2", "030200"),
        **card("0000:08:00.0", "10de", "1af1", "068000"),
        **card("0000:09:00.0", "10de", "10f9", "040300"),
        **card("0000:0a:00.0", "8086", "1234", "030000"),
    }
    root = put(tmp_path, files)
    smi(monkeypatch, FileNotFoundError("nvidia-smi"))
    found = hvlab_gpu.nvidia(root)
    assert [(gpu["pci"], gpu["name"]) for gpu in found["gpus"]] == [("0000:07:00.0", None)]
    assert found["driver_error"] is None
    assert hvlab_gpu.nvswitches(root) == 1


def test_gpus_that_nvidias_driver_does_not_get(monkeypatch, tmp_path):
    files = {
        **card("0000:01:00.0", "10de", "20b2", "030200"),
        **card("0000:02:00.0", "10de", "1eb8", "030200"),
        **card("0000:03:00.0", "1002", "74a1", "120000"),
        **card("0000:04:00.0", "1002", "164e", "030000"),
        **card("0000:05:00.0", "8086", "7d1d", "120000"),
        "usr/share/misc/pci.ids": PCI_IDS,
    }
    root = put(tmp_path, files)
    driver = tmp_path / "sys/bus/pci/drivers/vfio-pci"
    driver.mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:01:00.0/driver").symlink_to(driver)
    smi(monkeypatch, FileNotFoundError("nvidia-smi"))
    assert [gpu["pci"] for gpu in hvlab_gpu.nvidia(root)["gpus"]] == ["0000:02:00.0"]
    assert hvlab_gpu.others(root) == ["NVIDIA GA100 [A100 SXM4 80GB] (vfio-pci)", "AMD device 1002:74a1"]


def test_gpus_keep_the_device_id_of_the_bus(monkeypatch, tmp_path):
    root = put(tmp_path, card("0000:07:00.0", "10de", "20b2", "030200"))
    # Values as https://docs.nvidia.com/datacenter/tesla/mig-user-guide shows them.
    modes = "00000000:07:00.0, Disabled\n00000000:0B:00.0, Enabled\n00000000:48:00.0, [N/A]\n"
    smi(monkeypatch, (0, text("query-4x-a100.csv")), (0, modes), (0, text("topo-dgx-a100.txt")))
    found = hvlab_gpu.nvidia(root)
    assert [gpu["mig"] for gpu in found["gpus"]] == [False, True, False, False]
    assert [gpu["pci_device"] for gpu in found["gpus"]] == ["20b2", None, None, None]
    assert found["topology"]["link"] == "NVLink (NV12)"


@pytest.mark.parametrize(
    ("name", "version", "is_open"),
    [
        ("driver-proprietary.txt", "515.76", False),
        ("driver-open.txt", "555.58.02", True),
        ("driver-open-arm.txt", "580.65.06", True),
        ("driver-no-number.txt", None, True),
    ],
)
def test_the_loaded_driver(tmp_path, name, version, is_open):
    root = put(tmp_path, {"proc/driver/nvidia/version": text(name)})
    assert (hvlab_gpu.driver(root), hvlab_gpu.has_open_modules(root)) == (version, is_open)


def test_no_driver_at_all(tmp_path):
    root = str(tmp_path)
    assert (
        hvlab_gpu.driver(root),
        hvlab_gpu.has_open_modules(root),
        hvlab_gpu.read_driver_version(root),
    ) == (None,) * 3


def test_the_driver_on_disk(tmp_path):
    put(tmp_path, {"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05": ""})
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.95.05")
    assert hvlab_gpu.read_driver_version(str(tmp_path)) == "580.95.05"


def test_names_of_devices():
    wanted = {("10de", "20b2"), ("15b3", "101b"), ("10de", "ffff")}
    assert hvlab_kernel.parse_names(PCI_IDS, wanted) == {
        ("10de", "20b2"): "GA100 [A100 SXM4 80GB]",
        ("15b3", "101b"): "MT28908 Family [ConnectX-6]",
    }


def config(*capabilities: tuple[int, int]) -> bytes:
    """Return a configuration space with extended capabilities: number and control register."""
    space = bytearray(4096)
    for index, (number, control) in enumerate(capabilities):
        place = 0x100 + 0x40 * index
        following = place + 0x40 if index + 1 < len(capabilities) else 0
        space[place : place + 4] = (number | 1 << 16 | following << 20).to_bytes(4, "little")
        space[place + 6 : place + 8] = control.to_bytes(2, "little")
    return bytes(space)


@pytest.mark.parametrize(
    ("space", "answer"),
    [
        (config((0x01, 0), (0x0D, 0x1D)), True),
        (config((0x01, 0), (0x0D, 0x01)), False),
        (config((0x01, 0xFFFF)), False),
        (config(), False),
        (b"\0" * 64, None),
    ],
)
def test_acs_that_redirects(space, answer):
    assert hvlab_kernel.redirects(space) is answer


def test_bridges_above_a_gpu(tmp_path):
    real = tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    real.mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    for path in (real, real.parent):
        (tmp_path / "sys/bus/pci/devices" / path.name).symlink_to(path)
    (real.parent / "config").write_bytes(config((0x0D, 0x1D)))
    assert hvlab_kernel.redirecting(["0000:01:00.0"], str(tmp_path)) == ["0000:00:01.0"]


def test_network_cards(tmp_path):
    root = put(
        tmp_path, {**card("0000:41:00.0", "15b3", "101b", "020000"), "usr/share/misc/pci.ids": PCI_IDS}
    )
    put(tmp_path, {"sys/module/mlx5_core/version": "24.10-1.1.4\n", "sys/class/net/ens1/speed": "200000\n"})
    put(tmp_path, {"sys/class/net/docker0/speed": "-1\n", "sys/class/net/eth1/speed": "-1\n"})
    (tmp_path / "sys/class/net/ens1/device").symlink_to(tmp_path / "sys/bus/pci/devices/0000:41:00.0")
    (tmp_path / "sys/bus/pci/devices/0000:41:00.0/driver").symlink_to(tmp_path / "sys/module/mlx5_core")
    (tmp_path / "sys/devices/virtio0").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth1/device").symlink_to(tmp_path / "sys/devices/virtio0")
    assert hvlab_network.nics(root) == [
        {
            "name": "ens1",
            "driver": "mlx5_core",
            "driver_version": "24.10-1.1.4",
            "speed_mbit": 200000,
            "pci": "0000:41:00.0",
            "model": "MT28908 Family [ConnectX-6]",
        },
        {
            "name": "eth1",
            "driver": None,
            "driver_version": None,
            "speed_mbit": None,
            "pci": None,
            "model": None,
        },
    ]


CARD = {
    "name": "mlx5_0",
    "netdev": None,
    "link_layer": "InfiniBand",
    "state": "ACTIVE",
    "rate": "400 Gb/sec",
    "pci": "x",
}
OBSERVED = {"peer_memory": "available", "dma_buf": False, "peer_api": True, "iommu": None, "acs": []}


@pytest.mark.parametrize(
    ("gpus", "cards", "driver", "changes", "told"),
    [
        ([], [CARD], "550.54.14", {}, "no NVIDIA GPU"),
        ([{}], [], "550.54.14", {}, "no RDMA NIC"),
        ([{}], [{**CARD, "state": "DOWN"}], "550.54.14", {}, "no port of an RDMA NIC is active"),
        ([{}], [CARD], None, {}, "the NVIDIA driver is not loaded"),
        ([{}], [CARD], "460.32.03", {"peer_memory": None}, "driver 460.32.03 has no nvidia_peermem"),
        ([{}], [CARD], "550.54.14", {"peer_api": False}, "no ib_register_peer_memory_client"),
        ([{}], [CARD], "550.54.14", {"iommu": "DMA-FQ"}, "the IOMMU translates addresses (DMA-FQ)"),
        ([{}], [CARD], "550.54.14", {"acs": ["0000:00:01.0"]}, "ACS redirects peer traffic at 0000:00:01.0"),
    ],
)
def test_why_gpudirect_is_not_available(gpus, cards, driver, changes, told):
    assert told in hvlab_rdma.reason(gpus, cards, driver, {**OBSERVED, **changes})


@pytest.mark.parametrize(
    ("changes", "way"),
    [
        ({}, "peer_memory"),
        ({"peer_memory": "loaded", "peer_api": False}, "peer_memory"),
        ({"dma_buf": True, "peer_memory": None}, "dma_buf"),
    ],
)
def test_ways_of_gpudirect(changes, way):
    assert hvlab_rdma.way({**OBSERVED, **changes}) == way
    assert hvlab_rdma.reason([{}], [CARD], "580.95.05", {**OBSERVED, **changes}) is None


def test_gpudirect_of_a_host(tmp_path, monkeypatch):
    monkeypatch.setattr(hvlab_rdma.platform, "release", lambda: "5.4.0-150-generic")
    put(
        tmp_path,
        {
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_0/ports/1/rate": "100 Gb/sec (4X EDR)\n",
            "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            "sys/devices/0000:41:00.0/net/ib0/mtu": "",
            "proc/driver/nvidia/version": text("driver-proprietary.txt"),
            "proc/modules": "nvidia 1 0 - Live 0\nib_core 1 0 - Live 0\n",
            "proc/kallsyms": "0 T ib_register_peer_memory_client\t[ib_core]\n",
            "lib/modules/5.4.0-150-generic/modules.dep": "updates/nvidia-peermem.ko.zst: updates/nvidia.ko\n",
            "sys/bus/pci/devices/0000:3b:00.0/iommu_group/type": "identity\n",
        },
    )
    (tmp_path / "sys/class/infiniband/mlx5_0/device").symlink_to(tmp_path / "sys/devices/0000:41:00.0")
    found = hvlab_rdma.rdma([{"pci": "0000:3b:00.0"}], str(tmp_path))
    assert found["devices"] == [
        {
            "name": "mlx5_0",
            "netdev": "ib0",
            "link_layer": "InfiniBand",
            "state": "ACTIVE",
            "rate": "100 Gb/sec (4X EDR)",
            "pci": "0000:41:00.0",
        }
    ]
    assert (found["peer_memory"], found["way"], found["gdr_reason"]) == ("available", "peer_memory", None)


@pytest.mark.parametrize(
    ("device", "reason"),
    [("1021", "the IOMMU translates addresses (DMA-FQ): boot with iommu.passthrough=1"), ("2100", None)],
)
def test_gpudirect_through_data_direct(tmp_path, monkeypatch, device, reason):
    """GPU and adapter share a group of translated addresses there, and bridges redirect on purpose."""
    monkeypatch.setattr(hvlab_rdma.platform, "release", lambda: "6.14.0-1015-nvidia-64k")
    monkeypatch.setattr(hvlab_rdma.platform, "machine", lambda: "aarch64")
    put(tmp_path, card("0009:03:00.0", "15b3", device, "020700"))
    put(
        tmp_path,
        {
            "sys/class/infiniband/ibp3s0/ports/1/state": "4: ACTIVE\n",
            "proc/driver/nvidia/version": text("driver-open-arm.txt"),
            "sys/bus/pci/devices/0009:06:00.0/iommu_group/type": "DMA-FQ\n",
        },
    )
    assert hvlab_rdma.rdma([{"pci": "0009:06:00.0"}], str(tmp_path))["gdr_reason"] == reason


def test_adapters_that_manage_nvswitches_carry_no_data(tmp_path):
    put(
        tmp_path,
        {
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_0/device/vpd": b"\x82\x08\x00ConnectX V3\x10mlx0",
            "sys/class/infiniband/mlx5_8/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_8/device/vpd": b"\x90\x20\x00VA\x0eSMDL=SW_MNG",
        },
    )
    assert [device["name"] for device in hvlab_rdma.devices(str(tmp_path))] == ["mlx5_0"]


def test_a_host_without_rdma(tmp_path):
    found = hvlab_rdma.rdma([], str(tmp_path))
    assert found == {
        "devices": [],
        "peer_memory": None,
        "dma_buf": False,
        "way": None,
        "gdr_reason": "no NVIDIA GPU",
    }


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}'}, "12.4.1"),
        ({"version.txt": "CUDA Version 10.0.130\n"}, "10.0.130"),
        ({"include/cuda.h": "#define CUDA_VERSION 11080\n"}, "11.8"),
        ({"include/cuda.h": "#define CUDA_VERSION                           13000\n"}, "13.0"),
    ],
)
def test_the_version_of_cuda(tmp_path, files, version):
    assert hvlab_gpu.cuda(put(tmp_path, files)) == version


def test_no_cuda():
    assert hvlab_gpu.cuda(None) is None


def test_libraries_by_their_headers(tmp_path):
    cudnn = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 1\n#define CUDNN_PATCHLEVEL 0\n"
    nccl = '#define NCCL_MAJOR 2\n#define NCCL_MINOR 21\n#define NCCL_PATCH 5\n#define NCCL_SUFFIX ""\n'
    root = put(tmp_path, {"usr/include/x86_64-linux-gnu/cudnn_version.h": cudnn, "usr/include/nccl.h": nccl})
    assert (hvlab_gpu.cudnn(None, root), hvlab_gpu.nccl(None, root)) == ("9.1.0", "2.21.5")


def test_nccl_by_its_library(tmp_path):
    assert hvlab_gpu.nccl(None, put(tmp_path, {"usr/lib64/libnccl.so.2.28.3": ""})) == "2.28.3"
    assert hvlab_gpu.nccl(None, str(tmp_path / "nothing")) is None


@pytest.mark.parametrize(
    ("value", "answer"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False), (None, None)]
)
def test_secure_boot(tmp_path, value, answer):
    name = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    assert hvlab_kernel.has_secure_boot(put(tmp_path, {name: value} if value else {})) is answer


@pytest.mark.parametrize(
    ("files", "answer"),
    [
        ({"proc/1/environ": "PATH=/bin\0container=lxc\0"}, True),
        ({"proc/1/environ": "mycontainer=no\0"}, False),
        ({"proc/1/cgroup": "12:devices:/kubepods/burstable/pod1\n"}, True),
        ({"run/systemd/container": "systemd-nspawn"}, True),
        ({"proc/1/cgroup": "0::/init.scope\n"}, False),
    ],
)
def test_containers(tmp_path, files, answer):
    assert hvlab_kernel.is_container(put(tmp_path, files)) is answer


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0::/init.scope\n", 2),
        ("12:cpuset:/\n5:cpu,cpuacct:/\n1:name=systemd:/init.scope\n0::/init.scope\n", 1),
        ("1:name=systemd:/\n0::/\n", 2),
        ("", None),
    ],
    ids=["unified", "version 1 and an empty version 2", "hybrid without controllers", "none"],
)
def test_control_groups_are_those_that_have_the_controllers(tmp_path, text, version):
    assert hvlab_kernel.cgroup(put(tmp_path, {"proc/1/cgroup": text})) == version


@pytest.mark.parametrize(
    ("vendor", "driver", "rivals"),
    [
        ("10de", "NovaCore", ["NovaCore"]),
        ("10de", "nova_core", ["nova_core"]),
        ("10de", "nvidia", []),
        ("8086", "nova_core", []),
    ],
)
def test_a_driver_of_the_kernel_that_has_the_gpu_is_in_the_way(tmp_path, vendor, driver, rivals):
    device = "sys/bus/pci/devices/0000:01:00.0"
    root = put(tmp_path, {"proc/modules": "nova_core 1 - Live 0x0\n", f"{device}/vendor": f"0x{vendor}\n"})
    (tmp_path / "drivers" / driver).mkdir(parents=True)
    (tmp_path / device / "driver").symlink_to(tmp_path / "drivers" / driver)
    assert hvlab_kernel.rivals(root) == rivals
    assert hvlab_kernel.has_nouveau(root) is bool(rivals)


def test_nouveau_is_in_the_way(tmp_path):
    assert hvlab_kernel.has_nouveau(put(tmp_path, {"proc/modules": "nouveau 2400256 1 - Live 0x0\n"}))
    assert not hvlab_kernel.has_nouveau(put(tmp_path, {"proc/modules": "i915 2400256 1 - Live 0x0\n"}))


def test_headers_of_the_running_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(hvlab_kernel.platform, "release", lambda: "6.1.0-40-amd64")
    assert not hvlab_kernel.has_kernel_headers(
        put(tmp_path, {"lib/modules/6.1.0-39-amd64/build/Makefile": ""})
    )
    assert hvlab_kernel.has_kernel_headers(put(tmp_path, {"lib/modules/6.1.0-40-amd64/build/Makefile": ""}))


def test_a_command_that_hangs_is_left(tmp_path):
    started = time.monotonic()
    assert hvlab_probe.run_for_status("sleep", "30", seconds=0.2) == (None, "")
    assert time.monotonic() - started < 20


def test_under_wsl_the_driver_is_that_of_windows(monkeypatch, tmp_path):
    """No module is loaded: https://github.com/NVIDIA/nvidia-container-toolkit/pull/1782."""
    root = put(tmp_path, {"dev/dxg": ""})
    smi(monkeypatch, (0, "581.29\n"), (9, "NVIDIA-SMI has failed because it couldn't communicate\n"))
    assert hvlab_gpu.driver(root) == "581.29"
    assert hvlab_gpu.driver(root) is None


def test_programs_of_wsl_are_found():
    assert hvlab_probe.run_for_status("printenv", "PATH")[1].strip().endswith(":/usr/lib/wsl/lib")


def test_what_a_command_said_with_its_status():
    assert hvlab_probe.run_for_status("sh", "-c", "echo out; echo err >&2; exit 9") == (9, "out\nerr\n")


@pytest.mark.parametrize("folder", ["usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib"])
def test_ucx_of_a_host(tmp_path, folder):
    assert hvlab_rdma.ucx(str(tmp_path)) is None
    put(tmp_path, {f"{folder}/libucp.so.0": "", f"{folder}/ucx/libuct_ib.so.0": ""})
    assert hvlab_rdma.ucx(str(tmp_path)) == {"headers": False, "cuda": False}
    put(tmp_path, {"usr/include/ucp/api/ucp_version.h": "", f"{folder}/ucx/libuct_cuda.so.0": ""})
    assert hvlab_rdma.ucx(str(tmp_path)) == {"headers": True, "cuda": True}
