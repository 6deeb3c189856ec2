"""What roles dcgm, gpudirect, nccl_tests and nvidia_repository install and record. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hvlab.stack.provision.names import dcgm_names, family_packages, nvidia_keys, signers


def dcgm(*, version: str, driver: str) -> dict[str, Any]:
    """Return DCGM's packages, and the ``cuda`` of its diagnostics; empty if the driver is too old.

    ``branches`` are those that have diagnostics, newest first.
    """
    names = dcgm_names()
    branches = names["branches"]
    cuda = next((one["cuda"] for one in branches if _numbers(one["driver"]) <= _numbers(driver)), "")
    own = [name.format(cuda=cuda) for name in names["4" if _numbers(version) >= (4,) else "3"]]
    release = version.partition("-")[0]
    return {
        "cuda": cuda,
        "branches": [one["driver"] for one in branches],
        "release": release,
        "packages": [{"name": name, "version": f"1:{version}"} for name in own],
        "old": names["all"],
        "fact": {"version": release, "requested": version, "cuda": cuda, "packages": own},
    }


def gpudirect(*, enabled: bool, rdma: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the ``way`` of GPUDirect RDMA, and whether to load its module, now and at boot."""
    state = rdma or {"gdr_reason": "its RDMA devices could not be looked at"}
    way, reason = state.get("way"), state.get("gdr_reason")
    peer = enabled and way == "peer_memory"
    return {
        "way": way,
        "reason": reason,
        "peer": peer,
        "missing": peer and state.get("peer_memory") != "loaded",
        "fact": {"available": way is not None, "enabled": enabled, "way": way, "reason": reason},
    }


def nccl_tests(
    *, capabilities: Sequence[str], mpi_home: str, cuda_home: str, nccl_home: str, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the build settings of NCCL's tests, so that they find libraries without LD_LIBRARY_PATH."""
    codes = [str(capability).replace(".", "") for capability in capabilities]
    libraries = (f"{mpi_home}/lib", f"{nccl_home}/lib", f"{cuda_home}/lib64")
    return {
        "packages": family_packages(facts).get("nccl_tests", []),
        "make": [
            "MPI=1",
            f"MPI_HOME={mpi_home}",
            f"CUDA_HOME={cuda_home}",
            f"NCCL_HOME={nccl_home}",
            f"NVCC_GENCODE={' '.join(f'-gencode=arch=compute_{code},code=sm_{code}' for code in codes)}",
            "NAME_SUFFIX=_mpi",
        ],
        "env": {"NVCC_APPEND_FLAGS": " ".join(f"-Xlinker -rpath={folder}" for folder in libraries)},
        "os": f"{facts.get('distribution')} {facts.get('distribution_release')}",
    }


def nvidia_repository(
    *, url: str, folder: str, key_url: str, fingerprint: str, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the address of NVIDIA's repository for a host, and its signer.

    Its ``key`` is empty if none is known for the ``folder``; a user's own key is not NVIDIA's.
    """
    folder = folder or _folder(facts)
    keys = nvidia_keys()
    key = keys.get(folder.partition("/")[0], "")
    place = f"{url.rstrip('/')}/{folder}"
    known = "" if key_url or not key else signers("nvidia")["keys"][key]
    return {
        "folder": folder,
        "place": place,
        "known": sorted(keys),
        "key": key_url or (f"{place}/{key}" if key else ""),
        "fingerprint": fingerprint or known,
    }


def _folder(facts: Mapping[str, Any]) -> str:
    names, distribution = signers("nvidia")["folders"], facts.get("distribution")
    release = facts["distribution_version"].replace(".", "") if distribution == "Ubuntu" else ""
    architecture = facts["architecture"]
    name = names.get(distribution, names["RedHat"])
    release = release or facts["distribution_major_version"]
    return f"{name}{release}/{'sbsa' if architecture == 'aarch64' else architecture}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
