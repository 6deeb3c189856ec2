"""No second hwloc replaces the one that Open MPI was built with."""

from __future__ import annotations

import re

from hvlab.checks.provisioned import Question, Role, RoleHost, run

PACKAGES = ["hwloc", "hwloc-nox", "libhwloc-dev", "libhwloc-plugins", "libhwloc5", "libhwloc15"]
RPMS = ["hwloc", "hwloc-devel", "hwloc-gui", "hwloc-libs", "hwloc-plugins"]


def asks(node: RoleHost) -> dict[str, Question]:
    folder = f"{node.variables['openmpi_prefix']}/current/bin"
    show = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Abbrev}\\n"]
    return {
        "hwloc packages": run([*show, *PACKAGES]),
        "hwloc rpms": run(["rpm", "-q", "--qf", "%{NAME} rpm\\n", *RPMS]),
        "mpirun libraries": run(["ldd", f"{folder}/mpirun"]),
        # prted in Open MPI 5.
        "orted libraries": run(["sh", "-c", f"ldd {folder}/[op]rted"]),
    }


ROLE = Role("hwloc_purge", asks)


@ROLE.check
def no_package_conflicts(node: RoleHost) -> None:
    installed = re.findall(r"^(\S+) .i ", node["hwloc packages"]["out"], re.MULTILINE)
    installed += re.findall(r"^(\S+) rpm$", node["hwloc rpms"]["out"], re.MULTILINE)
    kept = node.fact("hwloc_purge").get("keep", [])
    installed = [name for name in installed if name not in kept]
    node.expect(
        not installed or not node.variables["hwloc_purge_enabled"],
        f"the distribution's hwloc is installed: {', '.join(installed)}",
        "run role hwloc_purge; it says what depends on them",
    )


@ROLE.check
def programs_use_their_own_hwloc(node: RoleHost) -> None:
    flags = [flag for flag in node.variables["openmpi_configure_flags"] if flag.startswith("--with-hwloc=")]
    folder = flags[-1].partition("=")[2] if flags else "internal"
    for program in ("mpirun", "orted"):
        output = node.output(f"{program} libraries", "run role openmpi")
        libraries = [line.strip() for line in output.splitlines() if "libhwloc" in line]
        foreign = [line for line in libraries if f"=> {folder}/" not in line]
        node.expect(
            not foreign or folder in ("external", "yes") or node.variables["openmpi_method"] != "source",
            f"{program} uses {'; '.join(foreign)}",
            "set hwloc_purge_enabled: true, or build Open MPI with its own (--with-hwloc=internal)",
        )
