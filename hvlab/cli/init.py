"""``hvlab init``: inspect machines, and write an inventory of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from hvlab.base.errors import CheckError, Problem, UnreachableError, UsageError, report
from hvlab.base.paths import project_dir
from hvlab.cli import options
from hvlab.lab import environment, host_patterns, inventory_rules, new_inventory
from hvlab.lab.inventory import Host, Lab
from hvlab.lab.new_inventory import RankNetwork
from hvlab.remote import host_keys, known_hosts, ssh_client
from hvlab.remote.host_keys import ShownKeys, TrustedFingerprints
from hvlab.remote.ssh_client import FirstLogin

_say = partial(click.echo, err=True)
_ON_THE_HOST = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
# Group names taken by Ansible or by the new inventory.
_GROUPS = ("all", "ungrouped", "gpu", "cpu", "virtual")
# Enough of an inventory to check names and addresses before contact with hosts.
_PLACEHOLDERS = {"lab_network": "192.0.2.0/24", "lab_interface": "eth0"}


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("listed", metavar="[HOST]...", nargs=-1)
@options.of_verb("init")
def command(
    *,
    folder: Path,
    listed: tuple[str, ...],
    named: tuple[str, ...],
    user: str | None,
    key: Path | None,
    fingerprints: Path | None,
    accept_new_keys: bool,
    file: Path | None,
    force: bool,
) -> None:
    """\b
    hvlab init inventory/mylab 10.0.0.11 10.0.0.12 --user admin
    hvlab init inventory/mylab 'gpu[01:16]=10.0.0.[11:26]'
    hvlab init inventory/mylab                  # asks for the hosts

    Inspect hosts, and write an inventory of them to FOLDER.

    HOST is NAME, NAME=ADDRESS or ADDRESS, each with :PORT if not 22, or a range as Ansible writes it, such as
    'gpu[01:16]=10.0.0.[11:26]'. Without any, it asks for the hosts. It shows the fingerprints of their SSH
    keys, and records the keys only after a yes; without a terminal it needs --fingerprints or
    --accept-new-keys. Then it logs in to every host, changes nothing there, and chooses the ranks' network
    and slots and the members of group gpu.

    An unusable host is left out, and the exit code is 3. It is 1 if something else has to be corrected
    before the hosts can be provisioned.
    """
    new_inventory.check_free(folder, force=force)
    trusted = host_keys.read_fingerprints(fingerprints) if fingerprints else None
    listed += named
    if not listed:
        listed, user = _ask_for_hosts(user)
    hosts = ssh_client.resolve(
        host_patterns.expand(",".join(listed)),
        user=user,
        key=str(key.absolute()) if key else None,
        known_hosts=str(file.absolute()) if file else None,
    )
    _check_hosts(hosts)
    shown = _ask_for_keys(hosts, trusted)
    left_out = [(one.host, one.problem) for one in shown if one.problem]
    # A person compares one key of each host; a file of fingerprints can hold several.
    new = [one if trusted else replace(one, new=one.new[:1]) for one in shown if one.new]
    target = (file or known_hosts.USER_FILE).expanduser().absolute()
    _record(new, target, sure=bool(trusted) or accept_new_keys, silent=[problem for _, problem in left_out])
    logins, refused = _log_in([one.host for one in shown if not one.problem])
    facts, silent = _gather([login.host for login in logins])
    order = [host.name for host in hosts]
    left_out = sorted([*left_out, *refused, *silent], key=lambda one: order.index(one[0].name))
    logins = [login for login in logins if login.host.name in facts]
    problems = [*host_keys.find_shared_keys(shown), *_problems(logins, facts)]
    network = new_inventory.choose(facts, {login.host.name: login.host.address for login in logins})
    if not logins:
        raise UnreachableError(f"no host can be used; {folder} was not written:\n{_text(left_out, problems)}")
    if network is None:
        raise CheckError(
            f"no host has an IPv4 address on an interface that is up; {folder} was not written",
            remedy="install iproute2 on the hosts, and look at `ip addr` there",
        )
    lab = _lab(folder, logins, facts, network)
    files = new_inventory.texts(lab, facts, others=network.others, left_out=left_out)
    kept = new_inventory.write(folder, files)
    _print(lab, logins, facts)
    click.echo(f"\n{folder} is written: {len(lab.hosts)} of {_number(hosts)}.")
    if kept:
        click.echo(f"The old one is kept as {kept}.")
    click.echo(f"Look through it, then: hvlab plan -i {folder}")
    _end(folder, left_out, [*problems, *network.problems, *network.routed])


def _ask_for_hosts(user: str | None) -> tuple[tuple[str, ...], str | None]:
    if not _is_at_terminal():
        raise UsageError(
            "no hosts are given, and there is no terminal to ask at",
            remedy=f"name them after the folder: {host_patterns.EXAMPLE}",
        )
    text = click.prompt(f"Hosts ({host_patterns.EXAMPLE})", err=True)
    if user is None:
        question = "User to log in as (empty: as ssh decides)"
        user = click.prompt(question, default="", show_default=False, err=True) or None
    return (text,), user


def _check_hosts(hosts: Sequence[Host]) -> None:
    twice = sorted({host.name for host in hosts if [other.name for other in hosts].count(host.name) > 1})
    problems = [Problem(name, "it is listed twice", "list it once") for name in twice]
    problems += [
        Problem(host.name, "a group has this name", "give it another: NAME=ADDRESS")
        for host in hosts
        if host.name.lower() in _GROUPS
    ]
    variables = {
        host.name: {"ansible_host": host.address, "ansible_port": host.port, **_PLACEHOLDERS}
        for host in hosts
    }
    problems += inventory_rules.problems(variables, {}, project_dir() / "roles")
    if problems:
        raise UsageError(f"these hosts do not fit into an inventory:\n{report(problems, indent='  ')}")


def _ask_for_keys(hosts: Sequence[Host], trusted: TrustedFingerprints | None) -> list[ShownKeys]:
    _say(f"asking {_number(hosts)} for SSH host keys")
    shown = host_keys.ask(hosts)
    if trusted:
        shown = [host_keys.select_trusted(one, trusted) for one in shown]
    refused = [one.problem for one in shown if one.refused and one.problem]
    if refused:
        raise UnreachableError(
            "these host keys are not what they should be. Nothing was recorded, no inventory was written:\n"
            + report(refused, indent="  ")
        )
    return shown


def _record(new: Sequence[ShownKeys], target: Path, *, sure: bool, silent: Sequence[Problem]) -> None:
    if not new:
        return
    if silent:
        _say(f"these hosts would be left out:\n{report(silent, indent='  ')}")
    rows = [("host", "address", "key", "fingerprint")]
    rows += [
        (one.host.name, known_hosts.entry_name(one.host), key.get_name(), key.fingerprint)
        for one in new
        for key in one.new
    ]
    _say(_columns(rows))
    if not sure:
        _confirm(target)
    hashed = ssh_client.hashes_names(new[0].host)
    count = known_hosts.record(target, [(one.host, one.new) for one in new], hashed=hashed)
    _say(f"host keys recorded in {target}: {count}")


def _confirm(target: Path) -> None:
    if not _is_at_terminal():
        raise UsageError(
            "these host keys are new, and there is no terminal to ask at; nothing was recorded or written",
            remedy=f"compare each with `{_ON_THE_HOST}` on the host's console, and give them in a file with "
            "--fingerprints, as HOST SHA256:...; on a network you trust, add --accept-new-keys",
        )
    _say(f"Compare each with what its own console shows: {_ON_THE_HOST}")
    if not click.confirm(f"Record these keys in {target}?", err=True):
        raise UsageError(
            "the host keys were not accepted; nothing was recorded or written",
            remedy=f"find out who answers where a fingerprint is not the host's own ({_ON_THE_HOST})",
        )


def _log_in(hosts: Sequence[Host]) -> tuple[list[FirstLogin], list[tuple[Host, Problem]]]:
    from hvlab.checks.preflight import without_python  # noqa: PLC0415 - it loads slowly

    if hosts:
        _say(f"logging in to {_number(hosts)}")
    logins, refused = [], []
    for host, answer in zip(hosts, ssh_client.log_in(hosts), strict=True):
        problem = answer if isinstance(answer, Problem) else without_python(answer)
        if problem:
            refused.append((host, problem))
        elif isinstance(answer, FirstLogin):
            chosen = {"ansible_python_interpreter": answer.chosen} if answer.chosen else {}
            logins.append(replace(answer, host=replace(host, vars={**host.vars, **chosen})))
    return logins, refused


def _gather(hosts: Sequence[Host]) -> tuple[dict[str, dict[str, Any]], list[tuple[Host, Problem]]]:
    from hvlab.remote import gather  # noqa: PLC0415 - it loads slowly

    if not hosts:
        return {}, []
    _say(f"gathering the facts of {_number(hosts)}")
    facts, failures = gather.first_facts(hosts)
    messages = {failure.host: failure.message.strip() for failure in failures}
    remedy = "try it by hand: `ansible -m setup`, with the same user and key"
    silent = []
    for host in hosts:
        if host.name not in facts:
            why = messages.get(host.name, "Ansible said nothing")
            problem = Problem(host.name, f"its facts could not be gathered: {why}", remedy)
            silent.append((host, problem))
    return facts, silent


def _problems(logins: Sequence[FirstLogin], facts: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    from hvlab.checks import preflight  # noqa: PLC0415 - it loads slowly

    return preflight.problems(logins, facts)


def _lab(
    folder: Path, logins: Sequence[FirstLogin], facts: Mapping[str, Mapping[str, Any]], network: RankNetwork
) -> Lab:
    hosts = []
    for login in logins:
        of_host = facts[login.host.name]
        group = "gpu" if (of_host.get("hvlab") or {}).get("gpus") else "cpu"
        groups = login.host.groups | {group}
        hosts.append(replace(login.host, slots=new_inventory.slots(of_host), groups=groups))
    name = new_inventory.lab_name(folder)
    return Lab(name, folder, str(network.network), network.interface, tuple(hosts), {})


def _print(lab: Lab, logins: Sequence[FirstLogin], facts: Mapping[str, Mapping[str, Any]]) -> None:
    rows = [("host", "address", "slots", "GPUs", "driver", "system", "Python", "clock")]
    for host, login in zip(lab.hosts, logins, strict=True):
        of_host = facts[host.name]
        rows.append(
            (
                host.name,
                host.address,
                str(host.slots),
                environment.gpus(of_host) or "none",
                environment.driver(of_host) or "none",
                f"{of_host.get('distribution')} {of_host.get('distribution_version')}",
                str(of_host.get("python_version")),
                f"{round(login.offset):+d} s",
            )
        )
    click.echo(_columns(rows))
    click.echo(f"\nranks' network: {lab.network} on {lab.interface}")


def _end(folder: Path, left_out: Sequence[tuple[Host, Problem]], problems: Sequence[Problem]) -> None:
    if left_out:
        names = ", ".join(host.name for host, _ in left_out)
        raise UnreachableError(
            f"{folder} is written without {names}:\n{_text(left_out, problems)}",
            remedy="when they are in order, run this again with --force, or add them to hosts.yml",
        )
    if problems:
        raise CheckError(f"{folder} is written all the same, but:\n{report(problems, indent='  ')}")


def _text(left_out: Sequence[tuple[Host, Problem]], problems: Sequence[Problem]) -> str:
    return report([*(problem for _, problem in left_out), *problems], indent="  ")


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _number(hosts: Sequence[Host]) -> str:
    return "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"


def _is_at_terminal() -> bool:
    return sys.stdin.isatty()
