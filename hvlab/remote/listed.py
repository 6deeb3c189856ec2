"""The lab of a plain list of hosts, or of this machine: by the user's own ssh, without root or roles."""

from __future__ import annotations

import getpass
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvlab import workloads
from hvlab.base import answers
from hvlab.base.errors import CheckError, UsageError
from hvlab.base.temporary import temporary_folder
from hvlab.lab import inventory, new_inventory, unprepared
from hvlab.lab.inventory import Host, Lab
from hvlab.lab.inventory_rules import is_address, is_valid_name
from hvlab.lab.unprepared import Installed
from hvlab.remote import direct, here
from hvlab.remote.gather import first_facts
from hvlab.remote.here import InstalledAnswer

# Importing TensorFlow alone may take minutes on a cold file system.
_INSTALLED_S = 240
_SHARED = (
    f"{sys.executable}, hvlab's programs in {workloads.PROGRAMS} and the ranks' (--python) must be "
    "on file systems that all hosts share"
)


@contextmanager
def lab(text: str, limit: str | None, python: str | None) -> Iterator[Lab]:
    """Have the hosts of a list as a lab while the block runs; their ranks use the user's own ``python``.

    Several hosts must share the folders of hvlab and of that Python, and let the user log in from one to the
    other. Raises UsageError, UnreachableError, or CheckError where hosts lack what the ranks need.
    """
    given = _named(direct.lab_of_list(text, limit))
    direct.refuse_silent(given)
    python = here.absolute(python)
    installed = _read_installed(given, python)
    facts, failures = first_facts([replace(host, vars=_connection(host)) for host in given.hosts])
    if failures:
        said = "; ".join(f"{failure.host}: {failure.message.strip()}" for failure in failures)
        remedy = "see what Ansible says there" if given.local else _SHARED
        raise CheckError(f"the facts of the hosts could not be gathered: {said}", remedy=remedy)
    listing = unprepared.inventory(
        facts,
        installed,
        hosts={
            host.name: {**_connection(host), "lab_slots": new_inventory.slots(facts[host.name])}
            for host in given.hosts
        },
        variables={
            "lab_name": given.name,
            "lab_user_name": getpass.getuser(),
            "lab_user_home": str(Path.home()),
            "hvlab_rank_python": python,
            "hvlab_rank_mpi": str(Path(shutil.which("mpirun") or "/usr/bin/mpirun").parents[1]),
            "workloads_dir": str(workloads.PROGRAMS),
        },
        remedy="name hosts that have one, each an address of its own there, on interfaces of the same name",
    )
    with temporary_folder() as folder:
        source = folder / "hosts.json"
        source.write_text(json.dumps(listing, indent=1), "utf-8")
        yield inventory.load(source)


def _named(given: Lab) -> Lab:
    """Return hosts by names that ranks can use, this machine first: it is localhost to itself alone."""
    hosts = sorted(given.hosts, key=lambda host: not host.local)
    if odd := [host.name for host in hosts if not (is_address(host.name) or is_valid_name(host.name))]:
        raise UsageError(
            f"{', '.join(odd)}: not a valid host name (RFC 1123)",
            remedy="name it by letters, digits and hyphens in ~/.ssh/config (Host, HostName)",
        )
    if len(hosts) > 1:
        unnamed = [
            host.name
            for host in hosts
            if not host.local
            and (host.vars[direct.TARGET] != host.name or host.vars[direct.PORT] or is_address(host.name))
        ]
        if unnamed:
            raise UsageError(
                f"{', '.join(unnamed)}: the ranks of several hosts start one another by `ssh NAME` alone",
                remedy="describe them in ~/.ssh/config (Host, HostName, Port), and write --hosts n1,n2",
            )
    return replace(
        given,
        hosts=tuple(
            replace(host, name="localhost" if host.local else "node1") if is_address(host.name) else host
            for host in hosts
        ),
    )


def _connection(host: Host) -> dict[str, Any]:
    """Return the variables by which Ansible reaches a host as the user's ssh does."""
    # The host's own may be too old.
    python = {"ansible_python_interpreter": sys.executable}
    if host.local:
        return {**host.vars, **python}
    port = {"ansible_port": host.vars[direct.PORT]} if host.vars[direct.PORT] else {}
    return {"ansible_connection": "ssh", "ansible_host": host.vars[direct.TARGET], **port, **python}


def _read_installed(given: Lab, python: str) -> dict[str, Installed]:
    """Return the frameworks of the ranks' Python on each host, read by the program that all hosts share."""
    program = (
        f"import runpy; runpy.run_path({str(workloads.PROGRAMS / 'installed.py')!r}, run_name='__main__')"
    )
    texts, failures = direct.run(given, program, python=python, seconds=_INSTALLED_S)
    if failures:
        said = "\n".join(f"  {failure.host}: {failure.message}" for failure in failures)
        own = "name a Python that has torch or Horovod: --python ~/env/bin/python"
        raise CheckError(
            f"the ranks' Python, {python}, gave no answer:\n{said}", remedy=own if given.local else _SHARED
        )
    read = {host: answers.load(text, host, InstalledAnswer) for host, text in texts.items()}
    installed = {host: Installed(answer["prefix"], answer["recorded"]) for host, answer in read.items()}
    here.refuse_bare(installed, python)
    return installed
