"""CUDA's toolkit, and what depends on the driver: NCCL, nvcc, and the GPUs in use by ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.base.answers.shapes import Count, HostAnswer
from hvlab.checks.programs import source
from hvlab.checks.provisioned import Question, Role, RoleHost, expect_request, run, stat
from hvlab.checks.site import HostFault, HostReplies, Site

_DRIVER = "driver's cuda"
_COMPAT = "cuda compat"
_NCCL = "nccl package"
_NCCL_FILES = "nccl files"
_CAPABILITIES = "gpu capabilities"
_CODES = "nvcc codes"
_RANKS = "ranks on gpus"
_PATH = "library path"
_CONDA = re.compile(r"/[\w.-]*(?:conda|mamba|miniforge)[\w.-]*/")


class GpuRank(HostAnswer):
    """A rank that uses a GPU, see ``programs/gpu_ranks.py``."""

    gpu: str
    pid: Count
    local_rank: str
    job: str


# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {
    "nccl-newer-than-driver": "",
    "nccl-headers": "nccl",
    "nccl-mixed": "",
    "gpu-arch-unsupported": "",
    "nccl-two-ranks-one-gpu": "",
}


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask all hosts if any host of the lab should have GPUs."""
    if not any(host.gpu for host in site.hosts):
        return {}
    capabilities = ["nvidia-smi", "--query-gpu=index,compute_cap", "--format=csv,noheader"]
    return {
        _DRIVER: {"run": ["nvidia-smi"], "timeout": 30, "queue": "nvidia"},
        _COMPAT: {"stat": "/usr/local/cuda*/compat/libcuda.so*"},
        _NCCL: {"run": ["sh", "-c", source("nccl_package.sh")], "timeout": 10},
        _NCCL_FILES: {"stat": "/opt/hvlab/nccl/current/*/*nccl*"},
        _CAPABILITIES: {"run": capabilities, "timeout": 30, "queue": "nvidia"},
        _CODES: {"run": ["sh", "-c", source("nvcc_codes.sh")], "timeout": 20},
        _RANKS: {"run": ["python3", "-c", source("gpu_ranks")], "timeout": 30, "queue": "nvidia"},
        _PATH: {"run": ["bash", "-lc", source("stray_libraries.sh")], "user": site.user, "timeout": 10},
    }


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Judge the hosts that have GPUs according to the inventory."""
    for host in site.hosts:
        if host.gpu and host.name in every:
            replies = every[host.name]
            yield from _driver(host.name, replies)
            yield from _nccl(host.name, replies)
            yield from _compiler(host.name, replies)
            yield from _ranks(host.name, replies)


def _driver(name: str, replies: HostReplies) -> Iterator[HostFault]:
    """NCCL for a newer major release of CUDA than the driver's needs the compatibility package."""
    serves = re.search(r"CUDA(?: UMD)? Version ?: +(\d{1,3})\.(\d{1,3})", replies.output(_DRIVER))
    built = re.search(r"^(libnccl2?) (\S{1,80}\+cuda(\d{1,3})\.\d{1,3})", replies.output(_NCCL), re.MULTILINE)
    if serves and built and int(built[3]) > int(serves[1]) and not replies.paths(_COMPAT):
        observed = f"{built[1]} {built[2]} is installed, and the driver serves CUDA {serves[1]}.{serves[2]}"
        yield HostFault("nccl-newer-than-driver", name, observed)


def _nccl(name: str, replies: HostReplies) -> Iterator[HostFault]:
    names = {path.rpartition("/")[2] for path in replies.paths(_NCCL_FILES)}
    if any(each.startswith("libnccl.so") for each in names) and "nccl.h" not in names:
        yield HostFault("nccl-headers", name, "/opt/hvlab/nccl/current has the library and no nccl.h", "nccl")
    stray = [path for path in replies.output(_PATH).split("\n") if _CONDA.search(path)]
    if stray:
        yield HostFault("nccl-mixed", name, f"LD_LIBRARY_PATH of a login shell leads to {stray[0][:200]}")


def _compiler(name: str, replies: HostReplies) -> Iterator[HostFault]:
    codes = re.findall(r"^sm_\d{2,4}$", replies.output(_CODES), re.MULTILINE)
    for index, major, minor in re.findall(
        r"^(\d{1,3}), (\d{1,2})\.(\d)$", replies.output(_CAPABILITIES), re.MULTILINE
    ):
        if codes and f"sm_{major}{minor}" not in codes:
            observed = f"GPU {index} has compute capability {major}.{minor}; nvcc knows {', '.join(codes)}"
            yield HostFault("gpu-arch-unsupported", name, observed)


def _ranks(name: str, replies: HostReplies) -> Iterator[HostFault]:
    ranks: list[GpuRank] = replies.parse(_RANKS, list[GpuRank]) or []
    gpus = len(re.findall(r"^\d{1,3}, ", replies.output(_CAPABILITIES), re.MULTILINE))
    for job in dict.fromkeys(rank.job for rank in ranks):
        own = [rank for rank in ranks if rank.job == job]
        if len({rank.local_rank for rank in own}) > gpus or any("MIG" in rank.gpu for rank in own):
            continue
        for gpu in dict.fromkeys(rank.gpu for rank in own):
            there = {rank.local_rank: rank.pid for rank in own if rank.gpu == gpu}
            if len(there) > 1:
                listing = ", ".join(f"{local} (pid {pid})" for local, pid in sorted(there.items()))
                observed = f"local ranks {listing} of one run use {gpu}, and the host has {gpus} GPUs"
                yield HostFault("nccl-two-ranks-one-gpu", name, observed)


def asks(node: RoleHost) -> dict[str, Question]:
    prefix = node.variables["cuda_prefix"]
    return {
        "nvcc": run([f"{prefix}/bin/nvcc", "--version"]),
        "cuda link": stat(prefix),
        "cuda libraries": run(["ldconfig", "-p"]),
    }


ROLE = Role("cuda", asks, without="this host gets no CUDA")


@ROLE.check
def release_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    expect_request(node, fact)
    output = node.output("nvcc")
    release = re.search(r"release (\S+),", output)
    node.expect(
        release and release[1] == fact["version"],
        f"nvcc is of release {release[1] if release else output}, not {fact['version']}",
    )


@ROLE.check
def link_points_to_the_release(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if fact["home"] == fact["prefix"]:
        return
    target = node["cuda link"].get(fact["prefix"], {}).get("link")
    node.expect(target == fact["home"], f"{fact['prefix']} points to {target}, not {fact['home']}")


@ROLE.check
def loader_finds_the_runtime(node: RoleHost, fact: Mapping[str, Any]) -> None:
    output = node.output("cuda libraries", "install ldconfig")
    major = fact["version"].partition(".")[0]
    library = f"libcudart.so.{fact['version'] if int(major) < 11 else '11.0' if major == '11' else major}"
    node.expect(
        library in output, f"the dynamic loader does not find {library}", "`ldconfig`, or run role cuda"
    )
