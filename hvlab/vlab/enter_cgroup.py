"""Join a new control group in every hierarchy, then become the command.

``python enter_cgroup.py NAME COMMAND...``. Used where PID 1 of this machine is not systemd: without it all
nodes would share one group, and `systemctl stop` in one node would reach into the others.
Runs as a script, without hvlab's packages.
"""

import os
import sys
from pathlib import Path


def hierarchies() -> list[Path]:
    """Return the mount points of this machine's control group hierarchies."""
    mount_points = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        mounted, _, kind = line.partition(" - ")
        if kind.split()[0] in ("cgroup", "cgroup2"):
            mount_points.append(Path(mounted.split()[4]))
    return mount_points


def inherit(hierarchy: Path, name: str) -> None:
    """Give a new group of cpuset (version 1) the CPUs and memory of the group above: it begins with none."""
    group = hierarchy
    for part in Path(name).parts:
        group /= part
        for file in ("cpuset.cpus", "cpuset.mems"):
            above = group.parent / file
            if above.exists() and not (group / file).read_text(encoding="ascii").strip():
                (group / file).write_text(above.read_text(encoding="ascii"), encoding="ascii")


def main() -> None:
    """Join, then exec. A hierarchy that refuses is left as it is."""
    name, *command = sys.argv[1:]
    for hierarchy in hierarchies():
        group = hierarchy / name
        try:
            group.mkdir(parents=True, exist_ok=True)
            inherit(hierarchy, name)
            (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
        except OSError:
            continue
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
