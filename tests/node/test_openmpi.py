"""Open MPI matches the inventory, and finds its own libraries."""

from __future__ import annotations

import re

from tests.node.lab import Node, Question, read, run, stat

AGAIN = "run role openmpi"
LOOKED_AT = "^mca:pml:[a-z]+:version|mpi_built_with_cuda_support:value|:source:file"
COMPONENTS = f"\"$1\" --parsable --all | grep -E '{LOOKED_AT}'"


def current(node: Node) -> str:
    """The folder of the version in use."""
    return f"{node.variables['openmpi_prefix']}/current"


def asks(node: Node) -> dict[str, Question]:
    prefix = current(node)
    return {
        "mpirun version": run([f"{prefix}/bin/mpirun", "--version"], user=node.user),
        # Of half a megabyte, only what is looked at.
        "ompi_info": run(["sh", "-c", COMPONENTS, "sh", f"{prefix}/bin/ompi_info"], user=node.user),
        "ldd mpirun": run(["ldd", f"{prefix}/bin/mpirun"]),
        "ldd libmpi": run(["ldd", f"{prefix}/lib/libmpi.so"]),
        "openmpi link": stat(prefix),
        "openmpi parameters": read(f"{prefix}/etc/openmpi-mca-params.conf"),
    }


def test_version_matches_the_inventory(node: Node) -> None:
    output = node.output("mpirun version", AGAIN)
    match = re.search(r"\(Open MPI\) (\S+)", output)
    version, requested, recorded = (
        (match[1] if match else output),
        node.variables["openmpi_version"],
        node.fact("openmpi"),
    )
    node.expect(
        recorded.get("requested") == requested and recorded["method"] == node.variables["openmpi_method"],
        f"installed for openmpi_version {recorded.get('requested')} ({recorded['method']}); "
        f"the inventory asks for {requested}",
        AGAIN,
    )
    if recorded["method"] == "distro":
        return
    node.expect(version == recorded["version"], f"mpirun is {version}, recorded {recorded['version']}", AGAIN)
    allowed = recorded["source"] == "distro" and "distro" in node.variables["openmpi_sources"]
    node.expect(
        version == requested or allowed,
        f"mpirun is {version} from {recorded['source']}, the inventory asks for {requested}",
        f"{AGAIN} with openmpi_refresh set, or allow `distro` in openmpi_sources",
    )


def test_parameters_match_the_inventory(node: Node) -> None:
    given = node.variables["openmpi_parameters"] or {}
    requested = {
        name: str(int(value) if isinstance(value, bool) else value)
        for name, value in given.items()
        if value is not None
    }
    for path, text in node["openmpi parameters"].items():
        lines = [line for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#")]
        present = dict(map(str.strip, line.split("=", 1)) for line in lines)
        node.expect(
            present == requested,
            f"{path} has {present or 'no parameters'}, openmpi_parameters has {requested or 'none'}",
            AGAIN,
        )
    output = node.output("ompi_info", AGAIN)
    unknown = sorted(name for name in requested if f":param:{name}:source:file" not in output)
    node.expect(
        not unknown,
        f"Open MPI does not know the parameters {', '.join(unknown)} in openmpi_parameters",
        "take the names from `ompi_info --all`",
    )


def test_link_points_to_the_version(node: Node) -> None:
    prefix = current(node)
    target = node["openmpi link"].get(prefix, {}).get("link")
    recorded = node.fact("openmpi")["prefix"].rpartition("/")[2]
    node.expect(target == recorded, f"{prefix} points to {target}, recorded is {recorded}", AGAIN)


def test_libraries_are_found_and_its_own(node: Node) -> None:
    for part in ("mpirun", "libmpi"):
        output = node.output(f"ldd {part}", AGAIN)
        missing = [line.strip() for line in output.splitlines() if "not found" in line]
        node.expect(not missing, f"{part}: {'; '.join(missing)}", f"`ldconfig`, or {AGAIN}")
        own = re.findall(r"lib(?:mpi|open-rte|open-pal|pmix|event|hwloc)\S* => (\S+)", output)
        foreign = [path for path in own if not node.packed(path)]
        node.expect(not foreign, f"{part} loads {', '.join(foreign)}", f"remove those packages, or {AGAIN}")


def test_cuda_support_matches_the_inventory(node: Node) -> None:
    output = node.output("ompi_info", AGAIN)
    built = "mpi_built_with_cuda_support:value:true" in output
    requested, recorded = node.variables["openmpi_cuda"], node.fact("openmpi")["cuda"]
    if requested != "auto":
        recorded = bool(requested)
    node.expect(
        built == recorded,
        f"Open MPI was built {'with' if built else 'without'} CUDA (openmpi_cuda: {requested})",
        f"check that openmpi_cuda_home has cuda.h, remove the folder behind {current(node)}, and {AGAIN}",
    )


def test_ucx_is_there_as_recorded(node: Node) -> None:
    recorded = node.fact("openmpi").get("ucx")
    usable = "mca:pml:ucx:" in node.output("ompi_info", AGAIN)
    node.expect(
        usable or not recorded,
        f"Open MPI was built with UCX {recorded}, but cannot load it",
        f"install UCX's libraries again ({AGAIN} does), or set openmpi_ucx to false",
    )
