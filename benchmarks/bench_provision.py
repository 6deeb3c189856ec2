"""From nothing to a measured lab, for several numbers of hosts: how long, and what each further host costs.

For each number of nodes, boots a lab of its own, runs site.yml twice and `hvlab verify`, measures a tiny case
of `hvlab bench` on all of them beside the launcher's own command, and takes the lab down again.
``--cold`` gives every lab an empty cache, so that all is compiled; without it the cache of the user is used,
and nothing is compiled if it has the packs. ``--shared`` has the packs unpacked once, in a folder that all
hosts of a lab share. Prints a table as Markdown; --json keeps the figures, --show
prints the table of such a file, --figure draws it. Needs root, and 1 GB of disk for each node.

    python -m benchmarks.bench_provision --nodes 1,3,8,16,32 --json scale.json --figure docs/scale.svg
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from benchmarks import bench_overhead
from benchmarks.usage import measure
from hvlab.base.paths import project_dir

RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
STEPS = ("boot", "first run", "second run", "verify")
LAB = {"lab_name": "bench", "lab_network": "198.18.199.0/24", "lab_interface": "host0", "lab_slots": 1}
Row = dict[str, Any]


def inventory(folder: Path, nodes: int, *, shared: bool) -> Path:
    """Write an inventory of this many nodes, by a range, on a network of its own."""
    target = folder / "inventory"
    (target / "group_vars").mkdir(parents=True)
    hosts = {f"b[01:{nodes:02}]": {"ansible_host": "198.18.199.{{ 10 + inventory_hostname[1:] | int }}"}}
    (target / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"virtual": {"hosts": hosts}}}}))
    variables = LAB | ({"lab_shared_packs": "/srv/hvlab"} if shared else {})
    (target / "group_vars/all.yml").write_text(yaml.safe_dump(variables))
    return target


def measure_lab(nodes: int, *, cold: bool, shared: bool, rounds: int, say: Callable[[str], None]) -> Row:
    """Boot, provision twice, verify, measure a case over each backend, take down."""
    with tempfile.TemporaryDirectory(prefix="hvlab-bench-") as name:
        lab = inventory(Path(name), nodes, shared=shared)
        env = os.environ | (
            {"HVLAB_CACHE": f"{name}/cache", "HVLAB_IMAGES": f"{name}/images"} if cold else {}
        )
        hvlab = [sys.executable, "-m", "hvlab"]
        site = [str(Path(sys.executable).parent / "ansible-playbook"), "site.yml", "-i", str(lab)]
        up = [*hvlab, "lab", "up", "-i", str(lab)]
        commands = dict(zip(STEPS, (up, site, site, [*hvlab, "verify", "-i", str(lab)]), strict=True))
        row: Row = {"nodes": nodes, "cold": cold, "shared": shared}
        try:
            for step, argv in commands.items():
                usage, output = measure(argv, env=env, cwd=project_dir(), adopt=step != "boot")
                row[step] = vars(usage)
                if step == "second run":
                    row["changed"] = sum(int(host[1]) for host in RECAP.findall(output))
                say(f"{nodes} nodes, {step}: {json.dumps(row[step])}")
            for backend in BACKENDS if rounds else ():
                asked = ["-i", str(lab), "--backend", backend, "--hosts", str(nodes), "--slots", "1"]
                row[backend] = bench_overhead.cost(lab, [*asked, *bench_overhead.TINY], rounds=rounds)
                say(f"{nodes} nodes, {backend}: {json.dumps(row[backend])}")
        finally:
            subprocess.run([*hvlab, "lab", "down", "-i", str(lab)], env=env, check=True, capture_output=True)
    return row


def table(rows: Sequence[Row]) -> str:
    """Return the figures as Markdown, a column for each number of nodes."""
    lines: dict[str, list[Any]] = {f"{step}, s": [row[step]["seconds"] for row in rows] for step in STEPS}
    for step in STEPS[1:3]:
        lines[f"{step}, s for each further host"] = [further(rows[0], row, step) for row in rows]
    for step in STEPS[1:]:
        lines[f"{step}, CPU s of the controller"] = [row[step]["cpu_seconds"] for row in rows]
        lines[f"{step}, MB of the controller"] = [row[step]["peak_mb"] for row in rows]
    for backend in BACKENDS:
        for key, label in LABELS.items():
            lines[f"{backend}: {label}, s"] = [row.get(backend, {}).get(key, "") for row in rows]
    cells = [["hosts", *(row["nodes"] for row in rows)], ["---", *("--:" for _ in rows)]]
    cells += [[label, *values] for label, values in lines.items()]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in cells)


BACKENDS = ("mpi", "gloo")
LABELS = {
    "launcher_s": "the launcher alone",
    "bench_of_one_s": "`hvlab bench` of one case",
    "overhead_further_s": "what hvlab adds to a further case",
}


def further(first: Row, row: Row, step: str) -> float | str:
    """Return the seconds of each host beyond the first lab's; empty for that lab itself."""
    more = row["nodes"] - first["nodes"]
    return round((row[step]["seconds"] - first[step]["seconds"]) / more, 2) if more else ""


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the seconds of every step over the number of hosts."""
    import matplotlib as mpl  # noqa: PLC0415 - loads slowly

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "hvlab"
    figure, axes = pyplot.subplots(figsize=(6, 3.6))
    nodes = [row["nodes"] for row in rows]
    for step, colour in zip(STEPS, ("#0b6e99", "#c4561e", "#7a4fa3", "#3c7d3c"), strict=True):
        axes.plot(nodes, [row[step]["seconds"] for row in rows], marker="o", color=colour, label=step)
    axes.set_yscale("log")
    axes.set_xticks(nodes, [str(count) for count in nodes])
    axes.set_xlabel("hosts")
    axes.set_ylabel("seconds")
    axes.legend(fontsize=8)
    axes.grid(visible=True, color="#e6e9ed")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    if path.suffix == ".svg":
        # As every text of the project: no space ends a line.
        path.write_text(
            "".join(f"{text.rstrip()}\n" for text in path.read_text("utf-8").splitlines()), "utf-8"
        )


def _numbers(_: click.Context, __: click.Parameter, text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


@click.command(help=__doc__)
@click.option("--nodes", callback=_numbers, default="1,3", show_default=True, help="Sizes of labs: 1,3,8.")
@click.option("--cold", is_flag=True, help="Give each lab an empty cache: everything is compiled.")
@click.option("--shared", is_flag=True, help="Unpack each pack once, for all hosts of a lab.")
@click.option(
    "--rounds", default=1, show_default=True, help="How often each case is measured; 0: not at all."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Where to keep the figures.")
@click.option("--show", type=click.Path(path_type=Path, exists=True), help="Measure nothing, show this file.")
@click.option("--figure", type=click.Path(path_type=Path), help="Where to draw it: .svg or .png.")
def main(
    *,
    nodes: list[int],
    cold: bool,
    shared: bool,
    rounds: int,
    json_file: Path | None,
    show: Path | None,
    figure: Path | None,
) -> None:
    rows: list[Row] = json.loads(show.read_text()) if show else []
    for count in [] if show else nodes:
        row = measure_lab(
            count, cold=cold, shared=shared, rounds=rounds, say=lambda text: click.echo(text, err=True)
        )
        rows.append(row)
        if json_file:
            json_file.write_text(json.dumps(rows, indent=1) + "\n")
    click.echo(table(rows))
    if figure:
        draw(rows, figure)


if __name__ == "__main__":
    main()
