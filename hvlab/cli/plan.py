"""``hvlab plan``: the versions for every host, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hvlab.base.errors import InventoryError, Problem, UnreachableError, UsageError, report, some
from hvlab.base.files import writing
from hvlab.cli import options
from hvlab.lab import inventory as inventories
from hvlab.lab.inventory import Host, Lab
from hvlab.stack.provision.packs import find_missing
from hvlab.stack.resolver import HostRequest, Infeasible, Resolution, lock, plan
from hvlab.stack.resolver import facts as resolver_facts
from hvlab.stack.resolver.facts import HostFacts
from hvlab.stack.resolver.lab import request
from hvlab.stack.resolver.lock import Lock
from hvlab.stack.resolver.pins import parse, replace_pins


@click.command("plan")
@options.of_verb("plan")
@click.pass_context
def command(
    context: click.Context,
    *,
    inventory: Path,
    limit: str | None,
    recorded: Path | None,
    pins: tuple[str, ...],
    instead: tuple[str, ...],
    explain: bool,
    output_format: str,
    written: Path | None,
    write_lock: bool,
) -> int:
    """\b
    hvlab plan                                  # ask the hosts of inventory/lab
    hvlab plan --explain
    hvlab plan --what-if torch=2.4.1
    hvlab plan --facts facts.json               # contact no host

    Choose one version of every component for every host: driver, CUDA, cuDNN, NCCL, Open MPI, torch, ...

    The choice follows from the inventory's pins and the hosts' facts. Nothing is changed. If no versions
    fit together, it names the conflicting pins and facts and ways to resolve the conflict, and the
    exit code is 1, as it is if `hvlab provision` would refuse a host.

    With --limit, the versions of the lock are pins for these hosts. What differs from the lock is noted.
    """
    added, other = [parse(text) for text in pins], [parse(text) for text in instead]
    named = context.get_parameter_source("inventory") == ParameterSource.COMMANDLINE
    if write_lock and (other or (recorded and not named)):
        raise UsageError(
            "--write-lock keeps what an inventory gets",
            remedy="leave out --what-if, and name the inventory with -i",
        )
    kept = lock.read(lock.path_of(inventory)) if named or not recorded else None
    refused: list[Problem] = []
    if recorded:
        lab = _read_recorded(recorded, inventory if named else None, inventory, limit)
    else:
        lab, refused = _live(inventory, limit)
    if written:
        _write(written, lab)
    if kept and limit:
        lab = kept.pin(lab, added)
    result = plan(lab, added)
    if isinstance(result, Resolution):
        result = replace(result, refused=[*refused, *result.refused])
    if not recorded and isinstance(result, Resolution) and (absent := find_missing(result.hosts.values())):
        text = f"not on this machine yet: {', '.join(absent)}; `hvlab fetch` gets it, or says why it cannot"
        result = replace(result, notes=[*result.notes, text])
    if kept:
        result = _against(kept, result, used=bool(limit))
    if write_lock and isinstance(result, Resolution):
        lock.write(lock.path_of(inventory), result.hosts, lab)
    if not other:
        return _print(result, explain=explain, output_format=output_format)
    names = {pin.name for pin in other}
    changed = [replace(host, pins=tuple(pin for pin in host.pins if pin.name not in names)) for host in lab]
    after = plan(changed, replace_pins(added, other))
    return _print_change(result, after, explain=explain, output_format=output_format)


def _against(kept: Lock, result: Resolution | Infeasible, *, used: bool) -> Resolution | Infeasible:
    source = [f"the versions in {kept.path} are pins here"] if used else []
    if isinstance(result, Infeasible):
        return replace(result, also=[*result.also, *source])
    return replace(result, notes=[*result.notes, *source, *kept.differences(result.hosts)])


def _live(inventory: Path, limit: str | None) -> tuple[list[HostRequest], list[Problem]]:
    """Return the lab, and why provisioning will refuse hosts before their versions matter."""
    # These load slowly, and a plan from recorded facts needs none of them.
    from rich.console import Console  # noqa: PLC0415

    from hvlab.checks.preflight import foresee  # noqa: PLC0415
    from hvlab.remote import gather  # noqa: PLC0415

    lab = inventories.load(inventory, limit=limit)
    try:
        with Console(stderr=True).status(f"asking {some(host.name for host in lab.hosts)}"):
            gathered = gather.facts(lab)
    except UnreachableError as error:
        error.remedy = (
            "correct that, leave hosts out with -l, or plan from recorded facts: --facts FILE, "
            "as --write-facts or a run wrote it (results/runs/*/facts.json)"
        )
        raise
    requests = [
        _request(lab, host, resolver_facts.from_ansible(host.name, gathered[host.name]))
        for host in lab.hosts
        if host.name in gathered
    ]
    return requests, foresee(lab, gathered)


def _read_recorded(file: Path, named: Path | None, default: Path, limit: str | None) -> list[HostRequest]:
    hosts = _read(file)
    if named:
        lab = inventories.load(named, limit=limit)
        missing = [host.name for host in lab.hosts if host.name not in hosts]
        if missing:
            raise UsageError(
                f"{file} has no facts about {', '.join(missing)}",
                remedy="record them, or leave these hosts out with -l",
            )
        if limit:
            hosts = {host.name: hosts[host.name] for host in lab.hosts}
        known = {host.name: host for host in lab.hosts}
        return [
            _request(lab, known[name], host) if name in known else HostRequest(host)
            for name, host in hosts.items()
        ]
    # No inventory was named. The default one may describe another lab, so only its pins count.
    usual = None
    with suppress(InventoryError):
        usual = inventories.load(default)
    chosen = _apply_limit(hosts, limit)
    return [request(host, _variables(usual, name), only_pins=True) for name, host in chosen.items()]


def _request(lab: Lab, host: Host, facts: HostFacts) -> HostRequest:
    chosen = any("slurm" in each.groups for each in lab.hosts)
    return request(facts, host.vars, gpu=host.gpu, slurm=not chosen or "slurm" in host.groups)


def _variables(lab: Lab | None, name: str) -> Mapping[str, Any]:
    return next((host.vars for host in lab.hosts if host.name == name), {}) if lab else {}


def _apply_limit(hosts: dict[str, HostFacts], limit: str | None) -> dict[str, HostFacts]:
    if not limit:
        return hosts
    from hvlab.lab.host_patterns import matching  # noqa: PLC0415 - it loads Ansible

    chosen = {name: hosts[name] for name in matching(hosts, limit) if name in hosts}
    if not chosen:
        raise UsageError(
            f"no host in the facts matches --limit {limit}", remedy=f"its hosts are {', '.join(hosts)}"
        )
    return chosen


def _read(file: Path) -> dict[str, HostFacts]:
    try:
        data = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_refuse_doubles)
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}", remedy="--facts reads a file that --write-facts wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not JSON: {error}", remedy='write {"n1": {"distribution": ...}, ...}'
        ) from error
    if isinstance(data, dict):
        # A run's facts.json has all that Ansible says.
        runs = {name: facts for name, facts in data.items() if isinstance(facts, dict) and "hvlab" in facts}
        data |= {name: resolver_facts.as_recorded(facts) for name, facts in runs.items()}
    return resolver_facts.from_file(data)


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, value in pairs:
        if name in facts:
            raise UsageError(f"the facts contain {name!r} twice", remedy="keep one of them")
        facts[name] = value
    return facts


def _write(file: Path, lab: list[HostRequest]) -> None:
    text = json.dumps({one.host.name: one.host.as_json() for one in lab}, indent=1)
    with writing(file, remedy="choose another --write-facts"):
        file.write_text(text + "\n", encoding="utf-8")


def _print(result: Resolution | Infeasible, *, explain: bool, output_format: str) -> int:
    if output_format == "json":
        click.echo(json.dumps(result.as_json(), indent=1))
    elif isinstance(result, Resolution):
        click.echo(lock.resolution(result, explain=explain))
    else:
        click.echo(f"hvlab: {lock.explain_infeasible(result)}", err=True)
    return _code(result)


def _code(result: Resolution | Infeasible) -> int:
    if isinstance(result, Infeasible):
        return 1
    if result.refused:
        click.echo(f"hvlab: `hvlab provision` will refuse:\n{report(result.refused, indent='  ')}", err=True)
    return 1 if result.refused else 0


def _print_change(
    before: Resolution | Infeasible, after: Resolution | Infeasible, *, explain: bool, output_format: str
) -> int:
    if output_format == "json":
        click.echo(json.dumps({**after.as_json(), "now": before.as_json()}, indent=1))
        return _code(after)
    if isinstance(after, Resolution):
        click.echo(lock.changes(before, after) + "\n")
    return _print(after, explain=explain, output_format=output_format)
