"""Open MPI is the one asked for, and finds its own libraries."""

from __future__ import annotations

import re

from tests.node.lab import Node, Question, run, stat

AGAIN = "run role openmpi"


def current(node: Node) -> str:
    """The folder of the version in use."""
    return f"{node.wanted['openmpi_prefix']}/current"


def asks(node: Node) -> dict[str, Question]:
    prefix = current(node)
    return {
        "mpirun version": run([f"{prefix}/bin/mpirun", "--version"], user=node.user),
        "ompi_info": run([f"{prefix}/bin/ompi_info", "--parsable", "--all"], user=node.user),
        "ldd mpirun": run(["ldd", f"{prefix}/bin/mpirun"]),
        "ldd libmpi": run(["ldd", f"{prefix}/lib/libmpi.so"]),
        "openmpi link": stat(prefix),
    }


def test_version_is_what_was_asked(node: Node) -> None:
    said = node.output("mpirun version", AGAIN)
    found = re.search(r"\(Open MPI\) (\S+)", said)
    version, asked, recorded = (
        (found[1] if found else said),
        node.wanted["openmpi_version"],
        node.fact("openmpi"),
    )
    node.expect(
        recorded["wanted"] == asked and recorded["method"] == node.wanted["openmpi_method"],
        f"installed for openmpi_version {recorded['wanted']} ({recorded['method']}), which now is {asked}",
        AGAIN,
    )
    if recorded["method"] == "distro":
        return
    node.expect(version == recorded["version"], f"mpirun is {version}, recorded {recorded['version']}", AGAIN)
    allowed = recorded["source"] == "distro" and "distro" in node.wanted["openmpi_sources"]
    node.expect(
        version == asked or allowed,
        f"mpirun is {version} from {recorded['source']}, asked for {asked}",
        f"{AGAIN} with openmpi_refresh set, or allow the way `distro` in openmpi_sources",
    )


def test_link_leads_to_the_version(node: Node) -> None:
    prefix = current(node)
    leads = node["openmpi link"].get(prefix, {}).get("link")
    recorded = node.fact("openmpi")["prefix"].rpartition("/")[2]
    node.expect(leads == recorded, f"{prefix} leads to {leads}, recorded {recorded}", AGAIN)


def test_libraries_are_found_and_ours(node: Node) -> None:
    for part in ("mpirun", "libmpi"):
        said = node.output(f"ldd {part}", AGAIN)
        missing = [line.strip() for line in said.splitlines() if "not found" in line]
        node.expect(not missing, f"{part}: {'; '.join(missing)}", f"`ldconfig`, or {AGAIN}")
        foreign = re.findall(
            r"lib(?:mpi|open-rte|open-pal|pmix|event|hwloc)\S* => (?!/opt/hvlab/)(\S+)", said
        )
        node.expect(not foreign, f"{part} loads {', '.join(foreign)}", f"remove those packages, or {AGAIN}")


def test_cuda_support_is_what_was_asked(node: Node) -> None:
    said = node.output("ompi_info", AGAIN)
    built = "mpi_built_with_cuda_support:value:true" in said
    asked, recorded = node.wanted["openmpi_cuda"], node.fact("openmpi")["cuda"]
    if asked != "auto":
        recorded = bool(asked)
    node.expect(
        built == recorded,
        f"support for CUDA is {built}, should be {recorded} (openmpi_cuda: {asked})",
        f"see that cuda.h is in openmpi_cuda_home, remove what {current(node)} leads to, and {AGAIN}",
    )
