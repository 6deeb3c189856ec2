"""No second hwloc beside the one inside Open MPI."""

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
        "orted libraries": run(["ldd", f"{folder}/orted"]),
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
    for program in ("mpirun", "orted"):
        output = node.output(f"{program} libraries", "run role openmpi")
        foreign = [line.strip() for line in output.splitlines() if "libhwloc" in line]
        node.expect(
            not foreign or not node.variables["hwloc_purge_enabled"],
            f"{program} uses {'; '.join(foreign)}",
            "remove that hwloc, and build Open MPI again (--with-hwloc=internal)",
        )
