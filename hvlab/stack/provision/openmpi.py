"""How Open MPI is built for a host, and the parameters of its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hvlab.base.yaml_files import read_shipped
from hvlab.lab.pin_variables import is_true

_CATALOGUE = Path(__file__).resolve().parents[1] / "catalogue/openmpi.yml"
# Horovod does not compile against older ones.
_LEAST = 2
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


def read_refused() -> dict[str, str]:
    """Return the releases that must not be used, each with the reason."""
    avoid = read_shipped(_CATALOGUE)["avoid"]
    return {name: item["reason"] for name, item in avoid.items() if item["severity"] == "error"}


def plan(
    *,
    method: str,
    version: str,
    source: Mapping[str, str],
    key: str,
    prefix: str,
    cuda: str,
    cuda_home: str,
    ucx: str,
    ucx_home: str,
    ucx_header: str,
    flags: Sequence[str],
    parameters: Mapping[str, Any],
    parameters_file: str,
    shared: bool,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the plan of role openmpi for a host.

    ``source`` is the archive that hvlab_source found, ``key`` the installed pack, ``ucx_header`` the text of
    UCX's ucp_version.h; each is empty until known. ``cuda`` and ``ucx`` are auto, or a boolean's text.
    """
    built = method == "source"
    release = source.get("version", version) if built else "distro"
    path = f"{prefix}/{release}"
    observed = facts.get("hvlab") or {}
    host_ucx = observed.get("ucx") or {}
    rdma = (observed.get("rdma") or {}).get("devices")
    with_cuda = bool(cuda_home) if cuda == "auto" else is_true(cuda)
    ucx_cuda = bool(ucx_home or host_ucx.get("cuda"))
    with_ucx = bool(rdma) and (ucx_cuda or not with_cuda) if ucx == "auto" else is_true(ucx)
    ucx_home = ucx_home or "/usr"
    ucx_version = ".".join(re.findall(r"#define UCP_API_(?:MAJOR|MINOR)\s+(\d+)", ucx_header))
    five = built and int(release.split(".")[0]) >= 5  # noqa: PLR2004 - the series
    given = {name: value for name, value in parameters.items() if value is not None}
    own = built and not shared
    avoid = read_refused()
    old = "Horovod does not build with it" if int(version.split(".", 1)[0]) < _LEAST else ""
    configure = [
        f"--prefix={path}",
        "--enable-mpirun-prefix-by-default",
        "--with-hwloc=internal",
        "--with-libevent=internal",
        "--with-pmix=internal",
        *(["--with-prrte=internal"] if five else []),
        *([f"--with-cuda={cuda_home}"] if with_cuda else []),
        *([f"--with-cuda-libdir={cuda_home}/lib64/stubs"] if with_cuda and five else []),
        f"--with-ucx={ucx_home}" if with_ucx else "--with-ucx=no",
        *flags,
        # UCX's parts stay files: a host that loses its libraries still has an mpirun, which says so.
        *(["--enable-mca-dso=pml,btl-uct,common-ucx,osc-ucx"] if with_ucx else []),
    ]
    # A program that loads libmpi for itself alone, as mpi4py does, can load ob1 only if it is linked with it.
    # Open MPI 4's own makefile does so for CUDA alone, 5's always.
    make = [] if five or with_cuda else ["mca_pml_ob1_la_LIBADD=$(top_builddir)/ompi/libmpi.la"]
    return {
        "release": release,
        "avoid": avoid,
        "refused": avoid.get(version, old) if built else "",
        "path": path,
        "cuda": with_cuda,
        "ucx": with_ucx,
        "ucx_cuda": ucx_cuda,
        # RDMA cards left unused without anyone asking for it: messages between hosts go over TCP.
        "unused_cards": list(rdma or ()) if built and ucx == "auto" and not with_ucx else [],
        "ucx_home": ucx_home,
        "ucx_there": bool(host_ucx),
        "ucx_headers": bool(host_ucx.get("headers")),
        "configure": configure,
        "make": make,
        "inputs": {
            "version": release,
            "sha256": source.get("sha256", ""),
            "flags": configure,
            "os": f"{facts.get('distribution')} {facts.get('distribution_release')}",
            "architecture": facts.get("architecture"),
            "ucx": ucx_version if with_ucx else "no",
            **({"make": make} if make else {}),
        },
        "parameters": given,
        "misspelt": [
            name
            for name, value in given.items()
            if not _NAME.match(name) or isinstance(value, list | dict) or re.search(r"[\n\r]", str(value))
        ],
        # Also written without parameters: the folder of an earlier version may hold its own.
        "parameters_file": parameters_file or (f"{path}/etc/openmpi-mca-params.conf" if own else ""),
        "record": {
            "version": release,
            "requested": version,
            "method": method,
            "source": source.get("way", "") if built else "packages",
            "prefix": path,
            "key": key if built else "",
            "cuda": with_cuda,
            "ucx": ucx_version if built and with_ucx else "",
            "parameters": given,
        },
        "links": _distribution_links(facts),
    }


def _distribution_links(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return links that gather the distribution's files like a built Open MPI's folder."""
    architecture = facts.get("architecture")
    if facts.get("os_family") == "Debian":
        folder = f"/usr/lib/{architecture}-linux-gnu/openmpi"
        return {"bin": "/usr/bin", "lib": f"{folder}/lib", "include": f"{folder}/include"}
    folder = "/usr/lib64/openmpi"
    return {"bin": f"{folder}/bin", "lib": f"{folder}/lib", "include": f"/usr/include/openmpi-{architecture}"}
