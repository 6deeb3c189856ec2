"""Plans of the roles that decide little, and decisions of group_vars/ between roles."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hvlab.base.yaml_files import read_shipped, read_yaml
from hvlab.stack.provision.names import dcgm_names, family_packages, numbers, nvidia_keys, signers


def plan_dcgm(*, version: str, driver: str) -> dict[str, Any]:
    """Return DCGM's packages, and the ``cuda`` of its diagnostics; empty if the driver is too old.

    ``branches`` are those that have diagnostics, newest first.
    """
    names = dcgm_names()
    branches = names["branches"]
    cuda = next((one["cuda"] for one in branches if numbers(one["driver"]) <= numbers(driver)), "")
    own = [name.format(cuda=cuda) for name in names["4" if numbers(version) >= (4,) else "3"]]
    release = version.partition("-")[0]
    return {
        "cuda": cuda,
        "branches": [one["driver"] for one in branches],
        "release": release,
        "packages": [{"name": name, "version": f"1:{version}"} for name in own],
        "old": names["all"],
        "fact": {"version": release, "requested": version, "cuda": cuda, "packages": own},
    }


def plan_gpudirect(*, enabled: bool, rdma: Mapping[str, Any] | None) -> dict[str, Any]:
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


def plan_nccl_tests(
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


def plan_nvidia_repository(
    *, url: str, folder: str, key_url: str, fingerprint: str, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the address of NVIDIA's repository for a host, and its signer.

    Its ``key`` is empty if none is known for the ``folder``; a user's own key is not NVIDIA's.
    """
    if not folder:
        of_system, distribution = signers("nvidia")["folders"], facts.get("distribution")
        release = facts["distribution_version"].replace(".", "") if distribution == "Ubuntu" else ""
        architecture = "sbsa" if facts["architecture"] == "aarch64" else facts["architecture"]
        name = of_system.get(distribution, of_system["RedHat"])
        folder = f"{name}{release or facts['distribution_major_version']}/{architecture}"
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


# "NVIDIA H100 80GB HBM3" as NVIDIA's library names it, "GH100 [H100 SXM5 80GB]" as the PCI bus does without
# a driver, "NVIDIA GeForce RTX 4090".
_MODEL = re.compile(r"(?:RTX|GTX) \w+|\b[A-Z]{1,2}[0-9]+\w*")


def name_gpu_type(*, gpus: Sequence[Mapping[str, Any]]) -> str:
    """Return the model of a host's GPUs in Slurm's spelling, such as rtx_4090; empty for several."""
    models = {_model(gpu) for gpu in gpus} - {""}
    return models.pop() if len(models) == 1 else ""


def _model(gpu: Mapping[str, Any]) -> str:
    model = _MODEL.search(re.sub(r"^.*\[(.*)\]", r"\1", gpu.get("name") or ""))
    return model[0].lower().replace(" ", "_") if model else ""


def choose_used_gpus(
    *, there: Sequence[Mapping[str, Any]], named: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return a host's GPUs without the models that ``lab_gpus`` leaves out: no driver shows these later."""
    models = {_model(gpu) for gpu in named}
    used = [gpu for gpu in there if _model(gpu) in models] if named and "" not in models else []
    return used or list(there)


def changes_stack(*, versions: Mapping[str, Any], recorded: Mapping[str, Any] | None) -> bool:
    """Whether a library that jobs may have loaded changes from its recorded version."""
    before = {name: (recorded or {}).get(f"hvlab_{name}", {}) for name in versions}
    return any(
        str(version or "") not in ("", str(before[name].get("requested", version)))
        for name, version in versions.items()
    )


def record_stack(*, stack: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a host's stack that its fact records."""
    return {name: value for name, value in stack.items() if name not in ("reasons", "notes", "role_packages")}


def mark_absent(*, paths: Sequence[str]) -> list[dict[str, str]]:
    """Return the ``files`` with which hvlab_files removes paths."""
    return [{"path": path, "state": "absent"} for path in dict.fromkeys(paths)]


def map_by_host(*, hosts: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return each host's value, given in the order of the hosts."""
    return dict(zip(hosts, values, strict=True))


def list_programs(*, folder: str, target: str, alias: str = "") -> dict[str, Any]:
    """Return the ``files`` of a folder of programs for hvlab_files, and ``hashes``: name -> sha256.

    ``alias`` is the folder of hvlab_horovod's modules, if they are needed; theirs is ``hvlab_horovod``.
    """
    own = sorted(file for file in Path(folder).iterdir() if file.suffix in (".py", ".json"))
    texts = {file.name: file.read_text("utf-8") for file in own}
    for file in sorted(Path(alias).rglob("*.py")) if alias else ():
        texts[f"hvlab_horovod/{file.relative_to(alias)}"] = file.read_text("utf-8")
    return {
        "files": [{"path": f"{target}/{name}", "content": text} for name, text in texts.items()],
        "hashes": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
    }


def plan_node_health(
    *, folder: str, target: str, machine_type: str, interfaces: Sequence[str], types: Sequence[str]
) -> Mapping[str, Any]:
    """Return the programs of the node's health check, and the machine ``types`` it chooses from."""
    own = list_programs(folder=f"{folder}/node", target=f"{target}/hvlab/checks/node")
    main = Path(folder, "node/__main__.py").read_text("utf-8")
    return {
        "files": [*own["files"], {"path": f"{target}/__main__.py", "content": main}],
        "hashes": own["hashes"],
        "types": {
            "type": machine_type,
            "expect": {"network_interfaces": interfaces},
            "own": {Path(file).stem: read_yaml(Path(file)) for file in types},
            "known": {
                file.stem: read_shipped(file) for file in sorted(Path(folder, "machines").glob("*.yml"))
            },
        },
    }
