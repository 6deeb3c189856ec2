"""Writes the pages of docs/ that say what the code says: ``python -m tests.contract.generate``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

from hvlab.cli import cli
from hvlab.doctor import knowledge
from hvlab.doctor.proofs import PROOFS
from hvlab.health.node import xids
from tests.contract import tree
from tests.faults import page as reliability

WIDTH = 100


def commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command of a command line, parents first."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent, **settings)
    yield name, command, context
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            if found:
                yield from commands(found, f"{name} {sub}", context)


def cli_page() -> str:
    """docs/cli.md: the help of every command."""
    parts = ["# The command line\n\nWritten by `make docs` from the commands themselves.\n"]
    for name, command, context in commands(cli, "hvlab"):
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _text(value: str | list[str]) -> str:
    lines = value if isinstance(value, list) else [value]
    text = " ".join(" ".join(lines).split()).replace("|", "\\|").replace("<", "&lt;")
    return re.sub(r"\b[CV]\(([^)]*)\)", r"`\1`", text)


def _default(value: object) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value)
    return "`" + " ".join(text.split()).replace("|", "\\|") + "`"


def roles_page() -> str:
    """docs/roles.md: every role and every variable of it."""
    parts = [
        "# The roles and their variables",
        "Written by `make docs` from `roles/*/meta/argument_specs.yml`. An inventory can set each variable, "
        "for all hosts, a group or one host; versions and methods that have pins by these alone (`lab_cuda` "
        "for `cuda_version`). *wired*: `group_vars/all.yml` sets it, from the versions chosen for the host "
        "or from another role.",
    ]
    wired = tree.load(tree.ROOT / "group_vars/all.yml")
    for role in tree.ROLES:
        specs = tree.specs(role)
        parts.append(f"## {role}\n\n{_text(specs.get('short_description', ''))}")
        if specs.get("description"):
            parts[-1] += f"\n\n{_text(specs['description'])}"
        rows = []
        for name, option in tree.options(role).items():
            kind = option.get("type", "str")
            if option.get("choices"):
                kind = " ".join(str(choice) for choice in option["choices"])
            default = "required" if option.get("required") else _default(tree.defaults(role).get(name))
            default = "*wired*" if name in wired else default
            rows.append(f"| `{name}` | {kind} | {default} | {_text(option.get('description', ''))} |")
        if rows:
            parts.append("\n".join(["| variable | type | default | what |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


SEVERITIES = {"none": "no fault", "soft": "soft", "hard": "hard", "line": "as the message says"}


def xids_page() -> str:
    """docs/xids.md: how every Xid is judged."""
    rows = [
        f"| {code} | {xid.meaning} | {SEVERITIES[xid.severity]} | {xids.ACTIONS[xid.action]} |"
        for code, xid in sorted(xids.XIDS.items())
    ]
    about = (
        "Written by `make docs` from `hvlab/health/node/xids.py`. How `hvlab health` judges the errors that "
        "NVIDIA's driver writes to the kernel log, after "
        "[NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html); "
        "[health-gpu.md](health-gpu.md) says when they count. Any other code is soft."
    )
    table = "\n".join(["| Xid | meaning | severity | what to do |", "|---|---|---|---|", *rows])
    return f"# Xids\n\n{about}\n\n{table}\n"


ENTRIES = {cause.id: cause for cause in knowledge.CAUSES}
DOCTOR = """\
# What hvlab doctor knows

Written by `make docs` from `hvlab/doctor/knowledge`.

## Hosts

    hvlab doctor
    hvlab doctor --fix
    hvlab doctor --log job.log --prove

It asks every host once, all at the same time, and lets them reach one another as ranks do: each logs in
to the three that follow it as the lab user, and sends each of them 256 KiB over one TCP port between
20000 and 29999. It looks at

- names: what they resolve to on each host, each host's own, two hosts with one name;
- logins: the host key, the user's key and its mode, sshd, routes;
- the network: the interface of `lab_interface`, its MTU on all hosts, ports that a firewall closes (which
  way), large packets that are lost;
- Open MPI: its release and hwloc on all hosts, the `mpirun` of a login shell, its daemon, its libraries,
  releases with known faults;
- /tmp, TMPDIR, / and /dev/shm, clocks, compilers of hosts with the same system, NCCL's wheels;
- the user's number on hosts that share its home, locked memory on hosts with RDMA, whether ranks of one
  host may read one another's memory;
- every Python environment that the roles installed: whether Horovod's extensions can be imported, with which
  MPI they are linked, whether torch has the CUDA that was asked for;
- hosts of the group `gpu`: driver and library, headers for DKMS, compute mode, libcuda, GPUs for all
  slots, NCCL's package, headers and strays of conda, the architectures of nvcc, and, while ranks run,
  whether two of one run use one GPU.

The imports come last, one after another on a host. Each takes one to two seconds of a core with torch,
more with TensorFlow and where its files come from a cold disk, and is given up after 60 s; one that is
given up is no finding. Many virtual hosts on few cores take that much longer: 32 of them on two cores
about half a minute.

Each finding says on which hosts, what was seen, why it breaks, what to do, and where that is from; what
is nearest to the root comes first. What a host does not answer is no finding. Nothing is changed, unless
with `--fix`: it shows which roles it would run on which hosts, asks (or `--yes`), runs them as `hvlab
provision` does, asks the hosts again and says what is gone and what is left. It names the findings that
no role mends. The exit code is 0 if nothing is found, 1 if something is, 2 for wrong options, 3 if a host
does not answer.

## Logs

    hvlab doctor --log job.log
    kubectl logs my-job-launcher | hvlab doctor --log - --format json

It reads logs of mpirun, horovodrun, srun, NCCL, Gloo, torch, builds, Ansible, package managers, Slurm's
daemons, pods and kernels as they come: colours, times and prefixes such as `[1,0]<stderr>:` are taken
away, the lines of each rank are read one after another, and what a terminal wrapped is put together
again, at whatever width. What the C library, bash, make, gcc and ld print in ten other languages is read,
and shown, as their English messages. A log may be packed with gzip, bzip2 or xz. For each cause it shows the
lines it rests on, why it breaks, what to do, and where that is from. The cause nearest to the root comes
first: a line that names the very thing that is wrong, then what has to be set differently, then what
broke, then what others noticed of it. Noise is listed as harmless.
What it does not know it does not mention: it then says `nothing known`. Of a very large log, lines that
differ in numbers only count twelve times, and of what is left the first MiB and the last two are
searched; of more than 16 MiB only the first 4 and the last 12 are read, which it says on standard
error.
What it is worth: of 4,016 excerpts of public threads that it had not been tried on, drawn by topic in 155
batches, the right cause stood first in 2,768 (69 %). Of the last ones, it was in 153 of 193 (79 %) that were
found by the messages that users ask about, and in 121 of 176 (69 %) that were found by their situation. Many
threads came to no end: the cause is then our reading of the log.
Where a log shows two causes that mend the same fault, either was right.
Of rare faults it named 83 of 161 (52 %). In five of 213 harmless ones a cause was named.
Threads it had been tried on were left out, so each batch has fewer common messages than the one before.
What is right was judged by its makers, before they saw the answer. After each batch its entries were
extended by what was missed: these logs say nothing of it any more.
The exit code is 0 if nothing or only noise is recognised, 1 if a cause is, 2 if there is no such file.

## Proofs

    hvlab doctor --prove
    hvlab doctor --log job.log --prove

It boots two fresh virtual hosts (this needs root), provisions them, lets a command of hvlab succeed there,
puts the cause in, lets the same command show it, applies the remedy and lets the command succeed again; then
the hosts are removed. The exit code is 0 if all that was so. It takes a minute or two where the packs are in
the cache. Virtual hosts have no GPU and share the machine's clock and kernel. What they can show is
{proofs}.
"""


def doctor_page() -> str:
    """docs/doctor.md: how it is used, and every entry."""
    parts = [DOCTOR.format(proofs=", ".join(f"`{proof.cause}`" for proof in PROOFS))]
    for family, causes in knowledge.FAMILIES.items():
        rows = [
            f"| {' | '.join(map(_text, (cause.title, cause.why, cause.remedy)))} | [source]({cause.source}) |"
            for cause in causes
        ]
        head = ["| what | why | what to do | |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {family}\n", *head, *rows]) + "\n")
    return "\n".join([*parts[:1], _catalogue(), *parts[1:]])


def _catalogue() -> str:
    """The failures that are asked about often: which hosts show, which only logs, and why."""
    rows, live = [], 0
    for number, row in enumerate(tree.load(tree.ROOT / "tests/data/doctor/catalogue.yml"), 1):
        entry = ENTRIES[row["entry"]]
        asked, in_logs = row.get("live", True) is not False, bool(entry.signs)
        live += asked
        marks = ["yes" if each else "no" for each in (asked, in_logs)]
        rows.append(f"| {number} | {_text(entry.title)} | {' | '.join(marks)} | {_text(row['how'])} |")
    about = (
        f"Of {len(rows)} failures that are asked about often, hosts show {live} when they are asked; the "
        "others are no state of a host, or hvlab does not need what is missing there. The last column says "
        "what shows it, or why nothing can."
    )
    head = ["| | what | hosts | logs | how |", "|---|---|---|---|---|"]
    return "\n".join(["## What hosts can be asked\n", about, "", *head, *rows]) + "\n"


PAGES = {
    "docs/cli.md": cli_page,
    "docs/doctor.md": doctor_page,
    "docs/reliability.md": reliability.text,
    "docs/roles.md": roles_page,
    "docs/xids.md": xids_page,
}


def main() -> None:
    """Write every page."""
    for page, write in PAGES.items():
        Path(tree.ROOT / page).write_text(write(), encoding="utf-8")
        click.echo(page)


if __name__ == "__main__":
    main()
