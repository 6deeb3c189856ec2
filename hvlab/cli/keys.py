"""``hvlab keys``: the keys by which the hosts of a lab trust one another."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import click

from hvlab.base.errors import CheckError, UnreachableError, UsageError, report, some
from hvlab.base.files import write_file
from hvlab.cli import candidates, options, provision
from hvlab.lab.inventory import Lab, load
from hvlab.remote import probe
from hvlab.remote import trust as rotation
from hvlab.remote.ssh_keys import fingerprint, public, read_certificate
from hvlab.remote.trust import (
    Trust,
    check_keys,
    ensure_lab_trust,
    find_damaged,
    lab_trust,
    replacing_keys,
    revoke,
    take_over,
)

_say = partial(click.echo, err=True)
SOON = timedelta(weeks=1)
_PLAYBOOK = "playbooks/trust.yml"
_STEPS = {
    rotation.STABLE: "none under way",
    rotation.ANNOUNCED: "begun: hosts are learning the next authorities; resume with `hvlab keys rotate`",
    rotation.REPLACED: "begun: the former authorities are still trusted; resume with `hvlab keys rotate`",
    rotation.RETIRED: "begun: hosts may still trust the former authorities; resume with `hvlab keys rotate`",
}


@click.group("keys", cls=options.SubVerbs)
def command() -> None:
    """\b
    hvlab keys status
    hvlab keys rotate                           # new keys on every host
    hvlab keys revoke n3                        # n3 was lost

    Issue, replace and revoke the keys by which hosts trust one another.

    Two certificate authorities of the lab, one for hosts and one for its user, are kept on this
    machine. `hvlab provision` makes them and signs every host; these commands are for everything after that.
    """


@command.command("init", short_help="Make the lab's authorities and its user's key.")
@options.of_verb("keys-init")
def init(inventory: Path, authority: str | None) -> None:
    """Make the lab's authorities and its user's key, where they are missing or damaged."""
    lab = load(inventory)
    before = lab_trust(lab.name)
    kept = before is not None and not find_damaged(before)
    trust = ensure_lab_trust(lab.name, user=_user(lab), fresh=True)
    if authority:
        take_over(trust, authority)
    click.echo(f"{'kept' if kept else 'made'} in {trust.folder}; next: `hvlab keys issue`")


@command.command("issue", short_help="Sign every host, and give it the lab user's key.")
@options.of_verb("keys-issue")
def issue(inventory: Path, limit: str | None) -> None:
    """Sign every host, and install the lab user's key and the keys it must trust (role ssh_trust)."""
    lab = load(inventory, limit=limit)
    _issue(lab, limit)


@command.command("rotate", short_help="Replace the authorities and the lab user's key.")
@options.of_verb("keys-rotate")
def rotate(inventory: Path) -> None:
    """Replace the authorities and the lab user's key, on all hosts.

    Hosts continue to accept one another; only a login that begins at the moment when its host's key is
    replaced may fail. If it is interrupted, or a host cannot be reached, the same command continues from
    there. Run no benchmark meanwhile.
    """
    lab = load(inventory)
    trust = _trust(lab)
    with replacing_keys(trust):
        _rotate(lab, trust)


def _rotate(lab: Lab, trust: Trust) -> None:
    probe.probe(lab.hosts)
    _check(lab)
    if rotation.step(trust) in (rotation.STABLE, rotation.ANNOUNCED):
        rotation.announce(trust)
        _say("1 of 3: hosts learn the next authorities")
        _issue(lab)
        rotation.replace(trust)
    if rotation.step(trust) == rotation.REPLACED:
        _say("2 of 3: the next authorities sign every host")
        _issue(lab)
        rotation.retire(trust)
    _say("3 of 3: hosts forget the former authorities")
    _issue(lab)
    # Before the last step: a rotation killed here resumes from here.
    _renew_munge_key(trust)
    rotation.finish(trust)
    _say("replaced: both authorities, each host's certificate, the lab user's key")


def _renew_munge_key(trust: Trust) -> None:
    """Replace Slurm's munge key: a host that has it can act as any user on all other hosts."""
    key = trust.folder / "munge.key"
    if key.is_file():
        write_file(key, secrets.token_hex(64) + "\n", mode=0o600)
        _say(
            "replaced here: Slurm's munge key. Run `hvlab provision`; until then hosts accept the former one"
        )


@command.command("revoke", short_help="Revoke the keys of hosts that were lost or taken over.")
@options.of_verb("keys-revoke")
@click.argument("hosts", nargs=-1, required=True, shell_complete=candidates.hosts)
def revoke_hosts(inventory: Path, hosts: tuple[str, ...]) -> None:
    """Revoke the host keys of HOSTS, and the lab user's key, which they hold; the other hosts get a new one.

    The user's former keys are revoked, too: after an interrupted rotation, hosts may hold one of those.

    Use it for a machine that was lost or taken over, whether it still answers or not.
    """
    lab = load(inventory)
    trust = _trust(lab)
    missing = [host for host in hosts if not trust.host_keys(host)]
    if missing:
        known = sorted(path.stem for path in trust.signed.glob("*.pub") if not path.stem.endswith("-cert"))
        raise UsageError(
            f"{some(missing)}: no host of lab {lab.name} by that name was signed",
            remedy=f"choose from {some(known)}" if known else "run `hvlab keys issue` first",
        )
    with replacing_keys(trust):
        _revoke(lab, trust, hosts)


def _revoke(lab: Lab, trust: Trust, hosts: Sequence[str]) -> None:
    others = [host for host in lab.hosts if host.name not in hosts]
    silent = probe.problems(others) if others else []
    reached = [host.name for host in others if host.name not in {problem.host for problem in silent}]
    if reached:
        # Losing a host meanwhile must not keep the revoked ones trusted.
        with suppress(UnreachableError):
            _check(lab, ",".join(reached))
    revoke(trust, [key for host in hosts for key in trust.host_keys(host)] + trust.user_keys)
    rotation.replace_identity(trust)
    # First, since a failing host could stop what follows, and the revoked hosts hold this key.
    _renew_munge_key(trust)
    if reached:
        provision.run_playbook(lab, limit=",".join(reached), playbook=_PLAYBOOK)
    _say(f"revoked: {', '.join(hosts)}, and the lab user's former keys; take the hosts out of the inventory")
    if silent:
        names = some(problem.host for problem in silent)
        accept = "accepts" if len(silent) == 1 else "accept"
        raise UnreachableError(
            f"{names} still {accept} what was revoked:\n{report(silent, indent='  ')}",
            remedy="`hvlab keys issue` as soon as they can be reached; until then keep them off the network",
        )


@command.command("status", short_help="Show authorities, expiry dates and revoked keys.")
@options.of_verb("keys-status")
def status(inventory: Path) -> None:
    """Show the authorities, when certificates expire, and what was revoked.

    The exit code is 1 if a host's certificate has expired or expires within a week, or if a host has none.
    """
    lab = load(inventory)
    trust = _trust(lab)
    click.echo(f"folder            {trust.folder}")
    for name, key in (("hosts' authority", trust.host_ca), ("users' authority", trust.user_ca)):
        click.echo(f"{name:<18}{fingerprint(public(key))}")
    click.echo(f"rotation          {_STEPS[rotation.step(trust)]}")
    click.echo(f"revoked keys      {len(trust.revoked_text.splitlines())}")
    click.echo(f"user {_user(lab):<13}{_until(_end(trust.certificate))}; renewed by each run of hvlab")
    ends = {host.name: _end(trust.signed / f"{host.name}-cert.pub") for host in lab.hosts}
    revoked = set(trust.revoked_text.splitlines())
    lost = [host.name for host in lab.hosts if (held := trust.host_keys(host.name)) and revoked >= set(held)]
    for host, end in ends.items():
        click.echo(f"host {host:<13}{_until(end)}{', and its key is revoked' if host in lost else ''}")
    unsigned = [host for host, end in ends.items() if end is None]
    ending = [host for host, end in ends.items() if end and end < datetime.now(UTC) + SOON]
    wrong = [f"hosts without a certificate: {some(unsigned)}"] if unsigned else []
    wrong += [f"certificates end within a week, or have ended: {some(ending)}"] if ending else []
    remedy = "run `hvlab keys issue`"
    if lost:
        wrong.append(f"revoked hosts: {some(lost)}")
        remedy = "take them out of the inventory, or give them new host keys and run `hvlab keys issue`"
    if " ".join(public(trust.identity).split()[:2]) in trust.revoked_text.splitlines():
        wrong.append("the lab user's present key is revoked: `hvlab keys revoke` was interrupted")
        remedy = "run `hvlab keys revoke` for the same hosts again"
    if wrong:
        raise CheckError("; ".join(wrong), remedy=remedy)


def _user(lab: Lab) -> str:
    return str(lab.vars.get("lab_user_name", "hvlab"))


def _trust(lab: Lab) -> Trust:
    trust = lab_trust(lab.name)
    if trust is None:
        raise CheckError(f"lab {lab.name} has no keys on this machine", remedy="run `hvlab keys init`")
    check_keys(trust)
    return trust


def _check(lab: Lab, limit: str | None = None) -> None:
    try:
        provision.run_playbook(lab, ["--tags", "preflight"], limit=limit, playbook=_PLAYBOOK)
    except CheckError as error:
        raise CheckError(
            f"{error}; no key was changed", remedy="correct that, or take these hosts out of the inventory"
        ) from error


def _issue(lab: Lab, limit: str | None = None) -> None:
    chosen = [host for host in lab.hosts if limit is None or host.name in limit.split(",")]
    probe.probe(chosen or lab.hosts)
    provision.run_playbook(lab, limit=limit, playbook=_PLAYBOOK)


def _end(file: Path) -> datetime | None:
    held = read_certificate(file.read_text("utf-8")) if file.is_file() else None
    return held.ends if held else None


def _until(end: datetime | None) -> str:
    if end is None:
        return "no certificate yet"
    days = (end - datetime.now(UTC)).total_seconds() / 86400
    return f"until {end:%Y-%m-%d %H:%M} UTC, {f'for {days:.0f} days' if days >= 0 else 'which is over'}"
