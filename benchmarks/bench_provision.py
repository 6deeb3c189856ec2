"""From nothing to a working stack: how long, and what more nodes cost.

Boots a lab of its own for each number of nodes, runs site.yml twice, and takes the lab down again.
``--cold`` gives every lab an empty cache, so that all is compiled; without it the cache of the user is
used and nothing is compiled when a lab of the same stack was made before. Needs root.

    python -m benchmarks.bench_provision --nodes 1 --nodes 3 [--cold]
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import yaml

from hvlab.paths import project_dir

PROGRAMS = Path(sys.executable).parent
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Timing:
    """Seconds of each step for a lab of ``nodes`` machines; ``changed`` is the second run's sum."""

    nodes: int
    cold: bool
    lab_up: float
    first_run: float
    second_run: float
    changed: int

    @property
    def total(self) -> float:
        return self.lab_up + self.first_run


def timed(argv: list[str], environment: dict[str, str]) -> tuple[float, str]:
    """Return the seconds and the output of a command that must succeed."""
    start = time.monotonic()
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, check=False, cwd=project_dir()
    )
    if done.returncode:
        raise click.ClickException(
            f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
        )
    return time.monotonic() - start, done.stdout


def inventory(folder: Path, nodes: int) -> Path:
    """Write an inventory like inventory/lab with this many nodes, on a network of its own."""
    target = folder / "inventory"
    source = project_dir() / "inventory/lab"
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    hosts = {f"b{i}": {"ansible_host": f"198.18.{200 + nodes}.{10 + i}"} for i in range(1, nodes + 1)}
    (target / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"virtual": {"hosts": hosts}}}}))
    lab = target / "group_vars/all.yml"
    values = yaml.safe_load(lab.read_text())
    values |= {"lab_name": f"bench{nodes}", "lab_network": f"198.18.{200 + nodes}.0/24"}
    lab.write_text(yaml.safe_dump(values))
    return target


def measure(nodes: int, *, cold: bool) -> Timing:
    """Boot, provision twice, take down."""
    with tempfile.TemporaryDirectory(prefix="hvlab-bench-") as name:
        lab = inventory(Path(name), nodes)
        environment = os.environ | (
            {"HVLAB_CACHE": f"{name}/cache", "HVLAB_IMAGES": f"{name}/images"} if cold else {}
        )
        hvlab = [sys.executable, "-m", "hvlab", "lab"]
        site = [str(PROGRAMS / "ansible-playbook"), "site.yml", "-i", str(lab)]
        try:
            up, _ = timed([*hvlab, "up", "-i", str(lab)], environment)
            first, _ = timed(site, environment)
            second, told = timed(site, environment)
        finally:
            timed([*hvlab, "down", "-i", str(lab)], environment)
    changed = sum(int(row[1]) for row in RECAP.findall(told))
    return Timing(nodes, cold, round(up, 1), round(first, 1), round(second, 1), changed)


@click.command(help=__doc__)
@click.option("--nodes", multiple=True, type=click.IntRange(1, 16), default=(1, 3), show_default=True)
@click.option("--cold", is_flag=True, help="Give each lab an empty cache: everything is compiled.")
def main(nodes: tuple[int, ...], cold: bool) -> None:
    rows = [measure(count, cold=cold) for count in nodes]
    for row in rows:
        ratio = row.total / rows[0].total
        click.echo(json.dumps(asdict(row) | {"total": round(row.total, 1), "ratio": round(ratio, 2)}))


if __name__ == "__main__":
    main()
