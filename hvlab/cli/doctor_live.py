"""``hvlab doctor`` without a log: asks the hosts, prints faults, and has roles fix them."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click
from rich.console import Console

from hvlab.base.errors import (
    CheckError,
    HvlabError,
    UnreachableError,
    UsageError,
    advise_unreachable,
    some,
    unusable,
)
from hvlab.base.groups import grouped
from hvlab.checks import across_hosts
from hvlab.checks.ask import ask_hosts
from hvlab.checks.site import HostFault, Member, Site
from hvlab.cli import doctor_prove, provision
from hvlab.lab.inventory import Host, Lab, folders

# Below the ports that systems give to clients, and those of Kubernetes' services.
_PORTS = (20_000, 29_999)
# Observations shown of a cause.
_MOST_ALIKE = 3
# With these, role preflight refuses to change a host.
_REFUSED = (
    "name-wrong-address",
    "gloo-loopback",
    "hostname-invalid",
    "hostname-twice",
    "session-dir",
    "clock",
)


def examine(lab: Lab, *, output_format: str, fix: bool, yes: bool, prove: bool) -> None:
    """Ask the hosts and print their faults. Raises HvlabError for faults and for silent hosts.

    With ``prove``, the first fault that virtual hosts can show is reproduced on some; root causes come first.
    """
    if fix and output_format == "json":
        raise UsageError("--fix prints text", remedy="leave out --format json or --fix")
    if fix and not yes and not sys.stdin.isatty():
        raise UsageError(
            "--fix asks before it changes anything, and there is no terminal", remedy="add --yes"
        )
    if fix and lab.listed:
        raise UsageError("--fix changes hosts as root, by an inventory", remedy="name one with -i")
    faults, silent = _ask(lab)
    failed: HvlabError | None = None
    if output_format == "json":
        click.echo(json.dumps(_document(lab, faults, silent), indent=1))
    else:
        click.echo(_table(lab, faults, silent))
        if prove:
            doctor_prove.prove(list(dict.fromkeys(fault.id for fault in faults)))
            return
        if fix and faults:
            faults, silent, failed = _fix(lab, faults, yes=yes)
    error = _verdict(lab, faults, silent) or failed
    if error:
        raise error


def site(lab: Lab) -> Site:
    """Return the parts of a lab that the detectors need."""
    members = tuple(_member(lab, host) for host in lab.hosts)
    port = random.randint(*_PORTS)  # noqa: S311 - only not the one of another run
    managed = lab.text("common_hosts_managed", "true").lower() in ("true", "yes")
    user = lab.text("lab_user_name", "hvlab")
    return Site(members, user, port, names_managed=managed, horovod=folders(lab).horovod)


def _member(lab: Lab, host: Host) -> Member:
    addresses = tuple(dict.fromkeys([lab.rank_address(host), host.address]))
    interface = host.text("lab_interface") or lab.interface
    without_ssh = host.local or bool(lab.step)
    return Member(host.name, addresses, host.port, host.slots, host.gpu, interface, without_ssh)


def _ask(lab: Lab) -> tuple[list[HostFault], dict[str, str]]:
    asked = site(lab)
    with Console(stderr=True).status(f"asking {some(host.name for host in lab.hosts)}"):
        answered = ask_hosts(lab, across_hosts.questions(asked), at_once=len(lab.hosts))
    silent = {**answered.silent, **answered.broken}
    messages = [fault for host, words in silent.items() if (fault := across_hosts.of_message(host, words))]
    return across_hosts.rank([*messages, *across_hosts.faults(asked, answered.readings)]), silent


def _groups(faults: Sequence[HostFault]) -> list[tuple[HostFault, list[str]]]:
    alike = grouped(((fault.id, fault.observed), fault) for fault in faults).values()
    return [(own[0], [fault.host for fault in own]) for own in alike]


def _document(lab: Lab, faults: Sequence[HostFault], silent: Mapping[str, str]) -> dict[str, Any]:
    findings = []
    for fault, hosts in _groups(faults):
        seen = {"hosts": hosts, "observed": fault.observed, "role": fault.role or None}
        findings.append({**across_hosts.ENTRIES[fault.id].as_json(), **seen})
    return {"lab": lab.name, "findings": findings, "silent": dict(silent), "skipped": _name_skipped(lab)}


def _name_skipped(lab: Lab) -> list[str]:
    """Name the questions that are not put without an inventory, with the reason."""
    if not lab.listed:
        return []
    if lab.step:
        return ["logins between the hosts: steps of a job need none"]
    return ["whether the hosts know these names: they may be your own ssh's"]


def _table(lab: Lab, faults: Sequence[HostFault], silent: Collection[str]) -> str:
    parts = []
    kinds = grouped(((fault.id, fault.role), (fault, hosts)) for fault, hosts in _groups(faults))
    for number, ((id_, role), alike) in enumerate(kinds.items(), 1):
        entry = across_hosts.ENTRIES[id_]
        mends = [f"  --fix runs: role {role}"] if role and not lab.listed else []
        named = dict.fromkeys(host for _, hosts in alike for host in hosts)
        lines = [f"{number}. {', '.join(named)}: {entry.title}"]
        lines += [f"  observed: {fault.observed}" for fault, _ in alike[:_MOST_ALIKE]]
        if len(alike) > _MOST_ALIKE:
            lines.append(f"  observed: {len(alike) - _MOST_ALIKE} more like these; --format json has all")
        lines += [f"  why: {entry.why}", f"  what to do: {entry.remedy}", *mends]
        parts.append("\n".join([*lines, f"  source: {entry.source}"]))
    answered = [host.name for host in lab.hosts if host.name not in silent]
    if answered and not parts:
        parts = [f"nothing known is wrong on {some(answered)}"]
    return "\n\n".join([*parts, *(f"skipped: {text}" for text in _name_skipped(lab))])


def _fix(
    lab: Lab, faults: list[HostFault], *, yes: bool
) -> tuple[list[HostFault], dict[str, str], HvlabError | None]:
    """Show which roles would run where, run them, and ask again; returns the error of a failed role."""
    for fault, hosts in _groups([fault for fault in faults if not fault.role]):
        click.echo(f"\nno role fixes: {', '.join(hosts)}: {across_hosts.ENTRIES[fault.id].title}")
    refused = list(dict.fromkeys(fault.host for fault in faults if fault.id in _REFUSED))
    mended = [fault for fault in faults if fault.role and fault.host not in refused]
    if any(fault.role and fault.host in refused for fault in faults):
        click.echo(
            f"\nnot changed: {', '.join(refused)}: fix by hand what no role fixes, then run this again"
        )
    if not mended:
        return faults, {}, None
    # Roles build on one another, so all of them run on every host that needs any.
    hosts = list(dict.fromkeys(fault.host for fault in mended))
    roles = ",".join(dict.fromkeys(fault.role for fault in mended))
    click.echo(f"\n--fix runs: hvlab provision -l {','.join(hosts)} -t {roles}")
    if not yes and not click.confirm("Change these hosts?"):
        return faults, {}, None
    failed: HvlabError | None = None
    try:
        provision.run_playbook(lab, ["--tags", roles], limit=",".join(hosts))
    except (CheckError, UnreachableError) as error:
        failed = error
        click.echo(f"\n{error}")
    again, silent = _ask(lab)
    click.echo()
    shown = {(each.id, each.host) for each in again}
    for fault in faults:
        if fault.host in silent:
            click.echo(
                f"not known: {fault.host}, which does not answer: {across_hosts.ENTRIES[fault.id].title}"
            )
        elif (fault.id, fault.host) not in shown:
            click.echo(f"gone: {fault.host}: {across_hosts.ENTRIES[fault.id].title}")
    if again:
        click.echo(f"\nleft:\n{_table(lab, again, silent)}")
    elif not silent:
        click.echo("\nnothing is left")
    return again, silent, failed


def _verdict(lab: Lab, faults: Sequence[HostFault], silent: Mapping[str, str]) -> HvlabError | None:
    def advise(host: str) -> str:
        return advise_unreachable(silent[host], virtual=lab.host(host).virtual)

    if silent:
        reasons = "\n".join(f"  {host}: {' '.join(words.split())[:200]}" for host, words in silent.items())
        return UnreachableError(
            f"{unusable(silent, len(lab.hosts))}:\n{reasons}",
            remedy="; ".join(dict.fromkeys(map(advise, silent))),
        )
    hosts = dict.fromkeys(fault.host for fault in faults)
    return CheckError(f"something is wrong on {some(hosts)}", remedy="see above") if faults else None
