"""Open MPI: as the inventory asks for, its libraries, and whether it is the same on all hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.checks import environments, ssh
from hvlab.checks.programs import source
from hvlab.checks.provisioned import (
    Question,
    Role,
    RoleHost,
    expect_request,
    read,
    run,
    stat,
    unfound,
    without_mpi,
)
from hvlab.checks.site import HostFault, HostReplies, Site
from hvlab.stack.provision.openmpi import read_refused

_MPI = "open mpi"
_RECORD = "open mpi record"
# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {
    "mpirun-not-found": "openmpi",
    "different-mpi": "openmpi",
    "libmpi-missing": "openmpi",
    "unknown-mpi": "openmpi",
    "old-mpi-const": "openmpi",
    "open-mpi-avoid": "",
    "mixed-open-mpi": "openmpi",
    "orted-not-found": "openmpi",
}


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask for the mpirun of a login shell, and for the role's record."""
    return {
        _MPI: {"run": ["bash", "-lc", source("open_mpi.sh")], "user": site.user},
        _RECORD: {"read": "/etc/ansible/facts.d/hvlab_openmpi.fact"},
    }


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Judge each host's Open MPI, then all together."""
    tables = {name: replies.table(_MPI) for name, replies in every.items()}
    some_have_it = any("path" in table for table in tables.values())
    for name, replies in every.items():
        yield from _judge_path(name, tables[name], _prefix(replies), others=some_have_it)
        yield from _check_linked(name, tables[name], replies)
    yield from _versions(tables)
    yield from _daemons(tables, every)


def _prefix(replies: HostReplies) -> str:
    for text in replies.files(_RECORD).values():
        try:
            recorded = json.loads(text)
        except ValueError:
            return ""
        return str(recorded.get("prefix", "")) if isinstance(recorded, dict) else ""
    return ""


def _judge_path(name: str, table: Mapping[str, str], prefix: str, *, others: bool) -> Iterator[HostFault]:
    role = "openmpi" if prefix else ""
    if "asked" not in table:
        return
    if "path" not in table:
        if prefix:
            yield HostFault("mpirun-not-found", name, f"no mpirun in PATH; {prefix} was installed", role)
        elif others:
            yield HostFault("mpirun-not-found", name, "no mpirun in PATH; other hosts have one")
        return
    version = _version(table)
    # A distribution's packages are reached by links from there.
    home = prefix.rpartition("/")[0]
    real = table.get("real", table["path"])
    if prefix and not any(path.startswith(f"{home}/") for path in (table["path"], real)):
        observed = f"mpirun in PATH is {table['path']} ({version or real}), not that of {prefix}"
        yield HostFault("different-mpi", name, observed, role)
    if "missing" in table:
        yield HostFault("libmpi-missing", name, f"{table['path']}: {table['missing']}", role)
    elif not version:
        observed = f"mpirun --version prints {table.get('version', '')[:120]!r}"
        yield HostFault("unknown-mpi", name, observed, role)
    if version.startswith("1."):
        yield HostFault("old-mpi-const", name, f"{table['path']} is Open MPI {version}", role)
    avoid = read_refused()
    if version in avoid:
        yield HostFault("open-mpi-avoid", name, f"{table['path']} is Open MPI {version}: {avoid[version]}")


def _check_linked(name: str, table: Mapping[str, str], replies: HostReplies) -> Iterator[HostFault]:
    """With hvlab's own mpirun, Horovod and the loader have to take the library beside it."""
    prefix, own = _prefix(replies), table.get("libmpi", "")
    if not prefix or not own.startswith(f"{prefix}/"):
        return
    if table.get("loaded", own) != own:
        observed = f"LD_LIBRARY_PATH of a login shell leads to {table['loaded']}, not to that of {prefix}"
        yield HostFault("different-mpi", name, observed)
    for path, environment in environments.environments(replies).items():
        for library in environment.libmpi:
            if library != own:
                observed = f"Horovod in {path} takes {library}, and mpirun is that of {prefix}"
                yield HostFault("different-mpi", name, observed)


def _version(table: Mapping[str, str]) -> str:
    match = re.search(r"\(Open MPI\) (\d+\.\d+\.\d+\w*)", table.get("version", ""))
    return match[1] if match else ""


def _versions(tables: Mapping[str, Mapping[str, str]]) -> Iterator[HostFault]:
    versions = {name: version for name, table in tables.items() if (version := _version(table))}
    if len(set(versions.values())) > 1:
        listing = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield from (HostFault("mixed-open-mpi", name, f"Open MPI: {listing}") for name in versions)
        return
    hwloc = {name: path for name in versions if (path := tables[name].get("hwloc"))}
    if len({path == "its own" for path in hwloc.values()}) > 1:
        listing = ", ".join(f"{name} {path}" for name, path in hwloc.items())
        yield from (
            HostFault("mixed-open-mpi", name, f"hwloc of Open MPI: {listing}", "openmpi")
            for name, path in hwloc.items()
            if path != "its own"
        )


def _daemons(
    tables: Mapping[str, Mapping[str, str]], every: Mapping[str, HostReplies]
) -> Iterator[HostFault]:
    """A launcher starts the daemon beside its own mpirun, or the one in the PATH of ssh."""
    for name, (caller, observed) in ssh.find_reached(every).items():
        mine, own = tables.get(caller, {}), tables.get(name, {})
        if "path" not in mine or "asked" not in own or observed.get("orted"):
            continue
        beside = mine.get("daemon", "")
        # hvlab's own has the same path everywhere, if need be through links.
        recorded = bool(_prefix(every[name]) and _prefix(every[caller]))
        if beside and ("daemon" not in own if recorded else own.get("daemon") != beside):
            role = "openmpi" if _prefix(every[name]) else ""
            what = f"{caller} starts {beside}, which does not exist, and ssh's PATH has none"
            yield HostFault("orted-not-found", name, what, role)


AGAIN = "run role openmpi"
LOOKED_AT = "^mca:pml:[a-z]+:version|mpi_built_with_cuda_support:value|:source:file"
COMPONENTS = f"\"$1\" --parsable --all | grep -E '{LOOKED_AT}'"


def current(node: RoleHost) -> str:
    """The folder of the version in use."""
    return f"{node.variables['openmpi_prefix']}/current"


def is_packaged(node: RoleHost) -> bool:
    """Whether Open MPI is to be the distribution's, with the libraries that it depends on."""
    return bool(node.variables["openmpi_method"] == "distro")


def asks(node: RoleHost) -> dict[str, Question]:
    prefix = current(node)
    return {
        "mpirun version": run([f"{prefix}/bin/mpirun", "--version"], user=node.user),
        # Filtered there: the whole output has half a megabyte.
        "ompi_info": run(["sh", "-c", COMPONENTS, "sh", f"{prefix}/bin/ompi_info"], user=node.user),
        "ldd mpirun": run(["ldd", f"{prefix}/bin/mpirun"]),
        # Linked with it; the name libmpi.so comes only with headers.
        "ldd libmpi": run(["ldd", f"{prefix}/bin/ompi_info"]),
        "openmpi link": stat(prefix),
        "openmpi parameters": read(f"{prefix}/etc/openmpi-mca-params.conf"),
    }


ROLE = Role("openmpi", asks, skip=without_mpi)


@ROLE.check
def version_matches_the_inventory(node: RoleHost) -> None:
    output = node.output("mpirun version")
    match = re.search(r"\(Open MPI\) (\S+)", output)
    version, requested = match[1] if match else output, node.variables["openmpi_version"]
    recorded = node.fact("openmpi")
    expect_request(node, recorded)
    if recorded["method"] == "distro":
        return
    node.expect(version == recorded["version"], f"mpirun is {version}, recorded {recorded['version']}")
    allowed = recorded["source"] == "distro" and "distro" in node.variables["openmpi_sources"]
    node.expect(
        version == requested or allowed,
        f"mpirun is {version} from {recorded['source']}, the inventory asks for {requested}",
        f"{AGAIN} with openmpi_refresh set, or allow `distro` in openmpi_sources",
    )


@ROLE.check
def parameters_match_the_inventory(node: RoleHost) -> None:
    given = node.variables["openmpi_parameters"] or {}
    requested = {
        name: str(int(value) if isinstance(value, bool) else value)
        for name, value in given.items()
        if value is not None
    }
    for path, text in node["openmpi parameters"].items():
        lines = [line for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#")]
        pairs = (line.partition("=") for line in lines)
        present = {name.strip(): value.strip() for name, _, value in pairs}
        node.expect(
            present == requested,
            f"{path} has {present or 'no parameters'}, openmpi_parameters has {requested or 'none'}",
        )
    output = node.output("ompi_info")
    unknown = sorted(name for name in requested if f":param:{name}:source:file" not in output)
    node.expect(
        not unknown,
        f"Open MPI does not know the parameters {', '.join(unknown)} in openmpi_parameters",
        "take the names from `ompi_info --all`",
    )


@ROLE.check
def link_points_to_the_version(node: RoleHost) -> None:
    prefix = current(node)
    target = node["openmpi link"].get(prefix, {}).get("link")
    recorded = node.fact("openmpi")["prefix"].rpartition("/")[2]
    node.expect(target == recorded, f"{prefix} points to {target}, recorded is {recorded}")


@ROLE.check
def libraries_are_found_and_its_own(node: RoleHost) -> None:
    for part in ("mpirun", "libmpi"):
        output = node.output(f"ldd {part}")
        missing = unfound(output)
        node.expect(not missing, f"{part}: {'; '.join(missing)}", f"`ldconfig`, or {AGAIN}")
        own = re.findall(r"lib(?:mpi|open-rte|open-pal|pmix|prrte|event|hwloc)\S* => (\S+)", output)
        foreign = [path for path in own if not (is_packaged(node) or node.is_packed(path))]
        node.expect(not foreign, f"{part} loads {', '.join(foreign)}", f"remove those packages, or {AGAIN}")


@ROLE.check
def cuda_support_matches_the_inventory(node: RoleHost) -> None:
    output = node.output("ompi_info")
    built = "mpi_built_with_cuda_support:value:true" in output
    requested, recorded = node.variables["openmpi_cuda"], node.fact("openmpi")["cuda"]
    if requested != "auto":
        recorded = bool(requested)
    node.expect(
        built == recorded,
        f"Open MPI was built {'with' if built else 'without'} CUDA (openmpi_cuda: {requested})",
        f"check that openmpi_cuda_home has cuda.h, remove the folder behind {current(node)}, and {AGAIN}",
    )


@ROLE.check
def ucx_is_there_as_recorded(node: RoleHost) -> None:
    recorded = node.fact("openmpi").get("ucx")
    usable = "mca:pml:ucx:" in node.output("ompi_info")
    node.expect(
        usable or not recorded,
        f"Open MPI was built with UCX {recorded}, but cannot load it",
        f"install UCX's libraries again ({AGAIN} does), or set openmpi_ucx to false",
    )
