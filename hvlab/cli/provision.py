"""``hvlab provision``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click

from hvlab.base import cache, process
from hvlab.base.errors import CheckError, InterruptedRunError, UnreachableError, UsageError
from hvlab.base.files import lock
from hvlab.base.paths import project_dir, provisioning_dir
from hvlab.base.temporary import temporary_folder
from hvlab.cli import options
from hvlab.lab.inventory import Lab, load
from hvlab.remote import probe

# ansible-playbook's own exit statuses; 4 also stands for a playbook that does not parse.
# Seconds that Ansible gets to end after Ctrl-C, and after SIGTERM with all workers.
_ENDS_S, _STOPS_S = 5.0, 30.0
_UNREACHABLE, _USAGE, _INTERRUPTED = 4, 5, (99, 130, -2, -15)


@click.command("provision")
@options.of_verb("provision")
@click.argument("further", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF ANSIBLE-PLAYBOOK]")
def command(
    *,
    inventory: Path,
    limit: str | None,
    tags: str | None,
    check: bool,
    dry_run: bool,
    diff: bool,
    write_lock: bool,
    further: tuple[str, ...],
) -> int:
    """\b
    hvlab provision
    hvlab provision --dry-run                   # what would change
    hvlab provision -l n3 -t openmpi,horovod

    Install the stack that the inventory asks for on every host (runs site.yml).

    Options after -- are passed to ansible-playbook unchanged, such as -e NAME=VALUE, -v or --ask-become-pass.
    """
    if further and not further[0].startswith("-"):
        raise UsageError(
            f"unexpected argument {further[0]!r}", remedy="put ansible-playbook's options after --"
        )
    cache.limit()  # An invalid limit would otherwise stop the playbook after minutes of compiling.
    os.environ.update(_vault(further) | ({"ANSIBLE_STDOUT_CALLBACK": "hvlab_changes"} if dry_run else {}))
    lab = load(inventory, limit=limit)
    probe.probe(lab.hosts)
    words = ["--tags", tags] if tags else []
    words += ["--check"] if check or dry_run else []
    words += ["--diff"] if diff else []
    words += ["-e", '{"preflight_lock_write": true}'] if write_lock else []
    run_playbook(lab, [*words, *further], limit=limit)
    return 0


def run_playbook(
    lab: Lab, words: Sequence[str] = (), *, limit: str | None = None, playbook: str = "site.yml"
) -> None:
    """Run a playbook with further options on this terminal, once no other hvlab is changing the lab.

    Raises HvlabError unless it succeeded.
    """
    program = str(Path(sys.executable).parent / "ansible-playbook")
    argv = [program, str(project_dir() / playbook), "-i", str(lab.source)]
    argv += ["--limit", limit] if limit else []
    with _lock_lab(lab.name):
        status = _call([*argv, *words])
    if status == 0:
        return
    if status == _UNREACHABLE:
        raise UnreachableError(
            "a host became unreachable, or the playbook could not be parsed (see above)",
            remedy="bring the host back, then run this again: it continues from there",
        )
    if status == _USAGE:
        raise UsageError("ansible-playbook rejected its options (see above)")
    if status in _INTERRUPTED:
        raise InterruptedRunError("interrupted", remedy="run this again: it continues from there")
    raise CheckError(f"provisioning failed (see above; ansible-playbook exited with {status})")


@contextmanager
def _lock_lab(lab: str) -> Iterator[None]:
    folder = provisioning_dir(lab)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock(folder, waiting=lambda: _say_that_it_waits(lab)))
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be made: {error.strerror or error}",
                remedy="set HVLAB_DATA to a folder that can be written, as the lab's keys need one, too",
            ) from error
        yield


def _say_that_it_waits(lab: str) -> None:
    click.echo(
        f"lab {lab}: another hvlab is changing its hosts; this one starts when that one ends", err=True
    )


def _vault(words: Sequence[str]) -> dict[str, str]:
    """Return environment variables that tell every Ansible program the vault options."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--vault-password-file", "--vault-pass-file", dest="ANSIBLE_VAULT_PASSWORD_FILE")
    parser.add_argument("--vault-id", dest="ANSIBLE_VAULT_IDENTITY_LIST")
    given, _ = parser.parse_known_args(words)
    return {name: value for name, value in vars(given).items() if value}


def _call(argv: list[str]) -> int:
    """Run Ansible on this terminal and return its exit status; if hvlab is ended, so is Ansible."""
    with temporary_folder() as folder:
        return _play(process.bound(argv), _environment(folder))


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of Ansible's processes; their temporary files go into the folder."""
    python_path = os.pathsep.join(filter(None, [str(project_dir()), os.environ.get("PYTHONPATH")]))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {
        "ANSIBLE_CONFIG": str(project_dir() / "ansible.cfg"),
        "PYTHONPATH": python_path,
        "PATH": path,
        "ANSIBLE_LOCAL_TEMP": str(folder),
        "TMPDIR": str(folder),
    }


def _play(argv: list[str], env: Mapping[str, str]) -> int:
    with subprocess.Popen(argv, env=env, text=True) as ansible:
        try:
            return ansible.wait()
        except KeyboardInterrupt:
            # Ctrl-C has reached Ansible; other signals have not.
            with suppress(subprocess.TimeoutExpired):
                ansible.wait(_ENDS_S)
                return _INTERRUPTED[1]
            ansible.terminate()
            with suppress(subprocess.TimeoutExpired):
                ansible.wait(_STOPS_S)
                return _INTERRUPTED[1]
            process.kill(ansible.pid)
            return _INTERRUPTED[1]
