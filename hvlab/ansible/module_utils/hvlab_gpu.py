# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The NVIDIA GPUs of a host, their links and driver; its CUDA, cuDNN and NCCL.

``root`` is where the host's files begin, "" on the host itself.
"""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any

from ansible.module_utils import hvlab_kernel
from ansible.module_utils.hvlab_probe import read, run, run_for_status

# Without persistence mode it initialises each GPU first: 25 to 30 s for eight A100.
# Source: https://github.com/Azure/aks-gpu/pull/105
SMI_SECONDS = 45
FIELDS = ("name", "compute_cap", "memory.total", "pci.bus_id", "uuid")
# Capabilities of GPUs that support MIG slices.
# Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html
_MIG_CAPABILITIES = ("8.0", "9.0", "10.0", "10.3", "12.0")
_NOTHING = (
    *("n/a", "not supported", "not available", "unknown error", "err!", "unknown", ""),
    *("gpu requires reset", "gpu is lost", "insufficient permissions"),
)
_BUS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$")
_VERSION = re.compile(r"\b\d{3,}(?:\.\d+){1,2}\b|\b\d{2}\.\d+\b")
_LIBRARY = "libnvidia-ml.so.1"
_FOLDERS = (
    "/usr/lib/*-linux-gnu*",
    "/usr/lib/*-linux-gnu*/nvidia/current",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
)
# Vendor and class of other makers' GPUs for computing; those for a screen are 0300.
_OTHERS = {
    ("1002", "0380"): "AMD",
    ("1002", "1200"): "AMD",
    ("8086", "0380"): "Intel",
    ("1da3", "1200"): "Habana",
}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU\d+$")
_LINK = re.compile(r"NV\d+$")
_LEGEND = re.compile(r"\s*(NIC\d+):\s*(\S+)\s*$")
# From near to far; old drivers write SOC for SYS.
_PCIE = ("PIX", "PXB", "PHB", "NODE")
_SOCKETS = ("SYS", "SOC")
_BETWEEN = (*_PCIE, *_SOCKETS, "X")


def nvidia(root: str = "") -> dict[str, Any]:
    """Return ``{gpus, driver_error, topology}``; without a working driver the GPUs of the bus."""
    cards = [
        row
        for row in hvlab_kernel.devices(root, hvlab_kernel.NVIDIA)
        if row["class"].startswith(hvlab_kernel.DISPLAY) and not _is_passed(row, root)
    ]
    try:
        gpus, error = ask_driver()
    except FileNotFoundError:
        gpus, error = [], None
    ids = {row["address"]: row["device"] for row in cards}
    if gpus:
        cut = in_slices() if any(gpu["compute_capability"] in _MIG_CAPABILITIES for gpu in gpus) else []
        gpus = [dict(gpu, pci_device=ids.get(gpu["pci"]), mig=gpu["pci"] in cut) for gpu in gpus]
        topology = parse_topology(_smi("topo", "-m")[1])
    else:
        known = hvlab_kernel.names([(row["vendor"], row["device"]) for row in cards], root)
        gpus = [on_bus(row, known.get((row["vendor"], row["device"]))) for row in cards]
        topology = None
    gpus = [dict(gpu, pcie=hvlab_kernel.link(gpu["pci"], root)) for gpu in gpus]
    return {"gpus": gpus, "driver_error": error, "topology": topology}


def _is_passed(row: dict[str, str], root: str) -> bool:
    """Whether a GPU is given to virtual machines: NVIDIA's driver does not get it."""
    bound = os.path.realpath("{}/sys/bus/pci/devices/{}/driver".format(root, row["address"]))
    return os.path.basename(bound) == "vfio-pci"


def others(root: str = "") -> list[str]:
    """Return the names of GPUs that NVIDIA's driver does not get: other makers', and virtual machines'."""
    makers = {}
    for row in hvlab_kernel.devices(root):
        passed = row["vendor"] == hvlab_kernel.NVIDIA and row["class"].startswith(hvlab_kernel.DISPLAY)
        maker = _OTHERS.get((row["vendor"], row["class"][:4]))
        if maker or (passed and _is_passed(row, root)):
            makers[row["address"]] = (maker or "NVIDIA", (row["vendor"], row["device"]))
    known = hvlab_kernel.names([pair for _, pair in makers.values()], root)
    return [
        "{} {}{}".format(
            maker,
            known.get(pair, "device {}:{}".format(*pair)),
            " (vfio-pci)" if maker == "NVIDIA" else "",
        )
        for maker, pair in makers.values()
    ]


def in_slices() -> list[str | None]:
    """Return the PCI addresses of the GPUs whose MIG mode is on."""
    text = _smi("--query-gpu=pci.bus_id,mig.mode.current", "--format=csv,noheader")[1]
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [address(row[0]) for row in rows if row[1:] == ["Enabled"]]


def ask_driver() -> tuple[list[dict[str, Any]], str | None]:
    """Return the GPUs that the driver shows, and the complaints of nvidia-smi."""
    rows: list[dict[str, Any]] = []
    error = None
    # Drivers before 510 have no compute_cap.
    for fields in (FIELDS, tuple(field for field in FIELDS if field != "compute_cap")):
        query = "--query-gpu=" + ",".join(fields)
        status, text = _smi(query, "--format=csv,noheader,nounits")
        if status is None:
            return [], "nvidia-smi did not end within {} s".format(SMI_SECONDS)
        rows, error = parse_query(text, fields)
        if "is not a valid field" not in text:
            break
    return rows, error


def _smi(*options: str) -> tuple[int | None, str]:
    answer: tuple[int | None, str] = run_for_status("nvidia-smi", *options, seconds=SMI_SECONDS)
    return answer


def parse_query(text: str, fields: tuple[str, ...] = FIELDS) -> tuple[list[dict[str, Any]], str | None]:
    """Return the GPUs of nvidia-smi's CSV, and all other lines as one text (None without any)."""
    rows, other = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        cells = [cell.strip() for cell in line.split(",")]
        row = dict(zip(fields, map(value, cells)))  # noqa: B905
        bus = address(row.get("pci.bus_id"))
        if len(cells) != len(fields) or bus is None:
            other.append(line)
            continue
        rows.append(
            {
                "name": row["name"],
                "compute_capability": row.get("compute_cap"),
                "memory_mib": int(float(row["memory.total"] or 0)) or None,
                "pci": bus,
                "uuid": row["uuid"],
            }
        )
    return rows, " ".join(other)[:300] or None


def value(cell: str) -> str | None:
    """Return a cell's text; None for nvidia-smi's placeholders."""
    plain = cell.strip("[] ")
    return None if plain.lower() in _NOTHING else plain


def address(bus: str | None) -> str | None:
    """Return a PCI address as the kernel writes it: nvidia-smi's domain has eight digits."""
    match = _BUS.match((bus or "").lower())
    return "{:04x}:{}".format(int(match.group(1), 16), match.group(2)) if match else None


def on_bus(row: dict[str, str], name: str | None) -> dict[str, Any]:
    """Return a GPU that only the PCI bus shows."""
    return {
        "name": name,
        "compute_capability": None,
        "memory_mib": None,
        "pci": row["address"],
        "uuid": None,
        "pci_device": row["device"],
    }


def driver(root: str = "") -> str | None:
    """Return the version of the loaded driver; under WSL, where no module is loaded, that of Windows."""
    if os.path.exists(root + "/dev/dxg"):
        version = _VERSION.search(_smi("--query-gpu=driver_version", "--format=csv,noheader")[1])
        return version.group() if version else None
    return parse_driver(read(root + "/proc/driver/nvidia/version") or "")


def parse_driver(text: str) -> str | None:
    """Return the version in /proc/driver/nvidia/version, of the proprietary or the open modules."""
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    match = _VERSION.search(line)
    return match.group() if match else None


def has_open_modules(root: str = "") -> bool | None:
    """Whether the loaded driver is the open one; None when none is loaded."""
    text = read(root + "/proc/driver/nvidia/version")
    return None if text is None else "Open Kernel Module" in text


def read_driver_version(root: str = "") -> str | None:
    """Return the version of the driver's libraries on disk."""
    for folder in _FOLDERS:
        for path in sorted(glob.glob(os.path.join(root + folder, _LIBRARY))):
            match = _VERSION.search(os.path.basename(os.path.realpath(path)))
            if match:
                return match.group()
    return None


def nvswitches(root: str = "") -> int:
    """Return the number of NVSwitches on the PCI bus."""
    return sum(
        row["class"].startswith(hvlab_kernel.BRIDGE)
        for row in hvlab_kernel.devices(root, hvlab_kernel.NVIDIA)
    )


def parse_topology(text: str) -> dict[str, Any] | None:
    """Return ``{gpus, nics, link}``: for each GPU and NIC the link to every GPU, and their summary in words.

    None when the text holds no matrix, or not all of it: an error, or a line cut short.
    """
    lines = _ESCAPE.sub("", text).splitlines()
    head = next((number for number, line in enumerate(lines) if "GPU0" in line.split()), None)
    if head is None:
        return None
    columns = lines[head].split()
    if "CPU" in columns:
        columns = columns[: columns.index("CPU")]
    rows = {}
    for line in lines[head + 1 :]:
        name, *cells = line.split() or [""]
        if name in columns:
            links = [cell if _LINK.match(cell) or cell in _BETWEEN else None for cell in cells]
            rows[name] = dict(zip(columns, links))  # noqa: B905
    gpus = [name for name in columns if _GPU.match(name)]
    if not set(gpus) <= set(rows):
        return None
    called = {match.group(1): match.group(2) for match in map(_LEGEND.match, lines) if match}
    matrix = {name: {other: rows[name].get(other) for other in gpus if other != name} for name in gpus}
    return {
        "gpus": matrix,
        "nics": {
            called.get(name, name): {gpu: rows[gpu].get(name) for gpu in gpus}
            for name in columns
            if name not in gpus
        },
        "link": _link_words(matrix),
    }


def _link_words(matrix: dict[str, dict[str, str | None]]) -> str | None:
    """Return the links between a host's GPUs in words; None for one GPU, or if a link is unknown."""
    links = {link for row in matrix.values() for link in row.values()}
    if not links or None in links:
        return None
    present = [link for link in links if link is not None]
    parts = (
        ("NVLink", sorted((link for link in present if _LINK.match(link)), key=lambda link: int(link[2:]))),
        ("PCIe", [link for link in _PCIE if link in present]),
        ("PCIe across sockets", [link for link in _SOCKETS if link in present]),
    )
    return " and ".join("{} ({})".format(name, ", ".join(kinds)) for name, kinds in parts if kinds)


_CUDA_LIBRARIES = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


def cuda_home() -> str | None:
    """Return the folder of the CUDA toolkit or of its headers; None without one."""
    candidates = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    candidates += [*sorted(glob.glob("/usr/local/cuda-*"), reverse=True), "/usr/lib/cuda", "/usr"]
    for path in candidates:
        if path and any(os.path.exists(os.path.join(path, sign)) for sign in ("include/cuda.h", "bin/nvcc")):
            return path
    return None


def cuda(home: str | None) -> str | None:
    """Return the toolkit's version: from its own record, else its header, else nvcc."""
    if home is None:
        return None
    record = read(home + "/version.json")
    if record:
        version = json.loads(record).get("cuda", {}).get("version")
        if version:
            return str(version)
    text = re.search(r"CUDA Version (\d+\.\d+(?:\.\d+)?)", read(home + "/version.txt") or "")
    if text:
        return text.group(1)
    number = re.search(r"#define CUDA_VERSION\s+(\d+)", read(home + "/include/cuda.h") or "")
    if number:
        return "{}.{}".format(int(number.group(1)) // 1000, int(number.group(1)) % 1000 // 10)
    release = re.search(r"release (\d+\.\d+)", run(home + "/bin/nvcc", "--version"))
    return release.group(1) if release else None


def cudnn(home: str | None, root: str = "") -> str | None:
    """Return cuDNN's version by its header."""
    for name in ("cudnn_version.h", "cudnn.h"):
        for path in _headers(name, home, root):
            version = read_defines(read(path) or "", "CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL")
            if version:
                return version
    return None


def nccl(home: str | None, root: str = "") -> str | None:
    """Return NCCL's version: by its header, else by the name of the library."""
    for path in _headers("nccl.h", home, root):
        version = read_defines(read(path) or "", "NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")
        if version:
            return version
    for folder in _CUDA_LIBRARIES:
        for path in sorted(glob.glob(os.path.join(root + folder, "libnccl.so.*.*"))):
            return os.path.basename(path).partition(".so.")[2]
    return None


def read_defines(text: str, *names: str) -> str | None:
    """Return the numbers that a header defines for ``names``, joined by dots; None when one is missing."""
    numbers = [re.search(r"^\s*#define\s+{}\s+(\d+)".format(name), text, re.MULTILINE) for name in names]
    return ".".join(match.group(1) for match in numbers if match) if all(numbers) else None


def _headers(name: str, home: str | None, root: str) -> list[str]:
    folders = [root + home + "/include"] if home else []
    folders += [
        root + "/usr/include",
        root + "/usr/local/include",
        *glob.glob(root + "/usr/include/*-linux-gnu"),
    ]
    return [path for path in (os.path.join(folder, name) for folder in folders) if os.path.exists(path)]
