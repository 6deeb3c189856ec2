"""The inventory as frozen objects. Raises one error with all problems."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hvlab.base import process
from hvlab.base.errors import InventoryError, NoInventoryError, Problem, report
from hvlab.base.paths import project_dir
from hvlab.lab.inventory_files import file_problems
from hvlab.lab.inventory_rules import LAB_VARIABLES, check_evaluated, problems
from hvlab.lab.pin_variables import is_true

__all__ = ["LAB_VARIABLES", "Host", "Lab", "load", "problems"]

# Plugins that ask a cloud take a minute.
_SECONDS = 180.0
_UNWRITABLE = re.compile(r"Unable to create local directories ([^\n]+)")
# Maximum characters of an inventory shown in a message.
_LONGEST = 300
# Readers that `begun` started.
_begun: dict[tuple[Path, str | None], subprocess.Popen[str]] = {}


@dataclass(frozen=True)
class Host:
    """One machine of the lab; ``slots`` is how many ranks it can run at once."""

    name: str
    address: str
    port: int
    user: str | None
    slots: int
    groups: frozenset[str]
    vars: Mapping[str, Any]

    @property
    def virtual(self) -> bool:
        """Whether ``hvlab lab up`` boots it."""
        return "virtual" in self.groups

    @property
    def local(self) -> bool:
        """Whether it is the machine hvlab runs on, reached without ssh."""
        return self.vars.get("ansible_connection") in ("local", "ansible.builtin.local")

    @property
    def prepared(self) -> bool:
        """Whether hvlab's roles install what the ranks need, rather than the user."""
        return "hvlab_rank_python" not in self.vars

    @property
    def gpu(self) -> bool:
        """Whether the inventory says it has NVIDIA GPUs."""
        return "gpu" in self.groups

    def text(self, name: str) -> str | None:
        """Return a variable as text; None if unset."""
        value = self.vars.get(name)
        return None if value is None else str(value)


@dataclass(frozen=True)
class Lab:
    """All machines, in the inventory's order; ``vars`` holds what is the same on every host."""

    name: str
    source: Path
    network: str
    interface: str
    hosts: tuple[Host, ...]
    vars: Mapping[str, Any]

    def text(self, name: str, default: str) -> str:
        """Return a variable of the whole lab as text."""
        return str(self.vars.get(name, default))

    @property
    def local(self) -> bool:
        """Whether it is this machine alone: then nothing goes over ssh."""
        return all(host.local for host in self.hosts)

    @property
    def listed(self) -> bool:
        """Whether it has no inventory: hosts of a Slurm job or of a list, asked without root and Ansible."""
        return self.source == Path()

    @property
    def step(self) -> tuple[str, ...]:
        """Return the words before a host's name that run a command there, as a step of hvlab's own Slurm job.

        They are empty where hosts are reached in another way.
        """
        return tuple(map(str, self.vars.get("hvlab_step") or ()))

    @property
    def prepared(self) -> bool:
        """Whether hvlab's roles install what the ranks need on all hosts."""
        return all(host.prepared for host in self.hosts)

    @property
    def python(self) -> str:
        """The Python of hvlab's programs on the hosts: Ansible's, if the inventory names one for all."""
        named = self.text("ansible_python_interpreter", "")
        return named if named.startswith("/") else "python3"

    @property
    def slurm(self) -> bool:
        """Whether Slurm has its hosts, and starts ranks there."""
        return is_true(self.vars.get("lab_slurm"))

    @property
    def shared_home(self) -> bool:
        """Whether virtual hosts have one /home, as those of clusters do."""
        return is_true(self.vars.get("lab_shared_home"))

    @property
    def shared_packs(self) -> str:
        """The folder of packs shared by all hosts; empty without one."""
        return str(self.vars.get("lab_shared_packs") or "")

    def host(self, name: str) -> Host:
        """Return the host of that name. Raises KeyError if unknown."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(name)

    def rank_address(self, host: Host) -> str:
        """Return its address if on the ranks' network, else its name."""
        address = host.text("hvlab_rank_address") or host.address
        try:
            inside = ipaddress.ip_address(address) in ipaddress.ip_network(self.network, strict=False)
        except ValueError:
            return host.name
        return address if inside else host.name


def load(path: Path, *, limit: str | None = None) -> Lab:
    """Read the inventory at ``path`` and return its hosts that match ``limit`` (an Ansible pattern).

    Raises one InventoryError that lists every problem.
    """
    if not path.exists():
        raise NoInventoryError(
            f"there is no inventory at {path}",
            remedy=f"give yours with -i, or write one with `hvlab init {path}`; "
            f"examples to copy are in {project_dir() / 'inventory'}",
        )
    source = path.absolute()
    all_problems = file_problems(source)
    try:
        listing = _listing(source, limit)
    except InventoryError:
        if all_problems:
            raise _unusable(source, all_problems) from None
        raise
    groups = _groups(listing)
    meta = listing["_meta"]
    hostvars: dict[str, dict[str, Any]] = {name: meta["hostvars"].get(name, {}) for name in groups["all"]}
    for host, failures in meta["failures"].items():
        all_problems += check_evaluated(host, failures)
    all_problems += problems(hostvars, groups, project_dir() / "roles")
    if all_problems:
        raise _unusable(source, all_problems)
    names = [name for name in groups["all"] if name in meta["chosen"]]
    if not names:
        raise InventoryError(
            f"no host of {path} matches --limit {limit}", remedy=f"the hosts are {', '.join(groups['all'])}"
        )
    return _lab(source, [_host(name, hostvars[name], groups) for name in names])


def _unusable(source: Path, reasons: Iterable[Problem]) -> InventoryError:
    short = (
        replace(reason, host=_shorten(reason.host), observed=_shorten(reason.observed)) for reason in reasons
    )
    return InventoryError(f"the inventory {source} cannot be used:\n{report(short, indent='  ')}")


@contextmanager
def start_loading(path: Path, *, limit: str | None = None) -> Iterator[None]:
    """Have Ansible start for a ``load`` of this in the block, while slow modules are imported."""
    key = (path.absolute(), limit)
    if path.exists():
        _begun[key] = _reader(*key)
    try:
        yield
    finally:
        if unused := _begun.pop(key, None):
            process.abandon(unused)


def _reader(source: Path, limit: str | None) -> subprocess.Popen[str]:
    """Have Ansible read the inventory, in a process of its own: its settings are per process."""
    command = [sys.executable, "-m", "hvlab.lab.inventory_reader", "-i", str(source), "--list"]
    command += [f"--playbook-dir={project_dir()}", *([f"--limit={limit}"] if limit else [])]
    python_path = os.pathsep.join(filter(None, [str(project_dir()), os.environ.get("PYTHONPATH")]))
    environment = kept_variables(os.environ) | {
        "ANSIBLE_CONFIG": str(project_dir() / "ansible.cfg"),
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
        "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONPATH": python_path,
    }
    return process.begin(process.bound(command), env=environment)


def _listing(source: Path, limit: str | None) -> dict[str, Any]:
    # If it is missing, this says so.
    import ansible  # noqa: F401, PLC0415

    try:
        reader = _begun.pop((source, limit), None) or _reader(source, limit)
        done = process.finish(reader, seconds=_SECONDS)
    except process.TimeLimitError:
        raise InventoryError(
            f"Ansible did not read the inventory {source} within {_SECONDS:g} s",
            remedy="look at its scripts, plugins, lookups and vault script: `ansible-inventory --list -vvv`",
        ) from None
    if unwritable := _UNWRITABLE.search(done.stderr):
        raise InventoryError(
            f"Ansible cannot write its folder: {unwritable[1]}",
            remedy="run `sudo chown -R $(id -un) ~/.ansible`, if root made it, as `sudo ansible` does",
        )
    if done.returncode:
        raise InventoryError(
            f"Ansible cannot read the inventory {source}:\n{_ansible_message(done.stderr)}",
            remedy="name the file with the vault's password in ANSIBLE_VAULT_PASSWORD_FILE"
            if "vault secrets" in done.stderr
            else "correct it, or write one with `hvlab init`; `ansible-inventory --list -vvv` shows more",
        )
    listing: dict[str, Any] = json.loads(done.stdout, object_hook=_to_plain)
    return listing


def _to_plain(read: dict[str, Any]) -> Any:
    return read["__ansible_unsafe"] if read.keys() == {"__ansible_unsafe"} else read


def _ansible_message(stderr: str) -> str:
    lines = [re.sub(r"^\[(WARNING|ERROR)\]: ", "", line).strip() for line in stderr.splitlines()]
    distinct = [line for line in dict.fromkeys(lines) if line and not line.startswith("<<<")]
    return "\n".join(f"  {_shorten(line)}" for line in distinct[:12])


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... ({len(text)} characters)"


def _groups(listing: Mapping[str, Any]) -> dict[str, list[str]]:
    def members(name: str) -> list[str]:
        group = listing.get(name, {})
        children = [host for child in group.get("children", []) for host in members(child)]
        return list(dict.fromkeys([*group.get("hosts", []), *children]))

    groups = {name: members(name) for name in listing if name != "_meta"}
    hostvars = listing.get("_meta", {}).get("hostvars", {})
    groups["all"] = list(dict.fromkeys([*groups.get("all", []), *hostvars]))
    return groups


def _host(name: str, variables: Mapping[str, Any], groups: Mapping[str, Iterable[str]]) -> Host:
    user = variables.get("ansible_user")
    return Host(
        name=name,
        address=str(variables.get("ansible_host", name)),
        port=int(variables.get("ansible_port", 22)),
        user=None if user is None else str(user),
        slots=int(variables.get("lab_slots", 1)),
        groups=frozenset(group for group, hosts in groups.items() if name in hosts),
        vars=variables,
    )


def _lab(source: Path, hosts: list[Host]) -> Lab:
    first = hosts[0].vars
    common = {
        name: value
        for name, value in first.items()
        if all(name in host.vars and host.vars[name] == value for host in hosts)
    }
    return Lab(
        name=str(first.get("lab_name", "lab")),
        source=source,
        network=str(first["lab_network"]),
        interface=str(first["lab_interface"]),
        hosts=tuple(hosts),
        vars=common,
    )


# The user's ANSIBLE_* variables that apply where hvlab itself runs Ansible and reads its output: how hosts
# are reached, where secrets and plugins are, how much is done at a time. The rest is for a person at a
# terminal: it would stop Ansible at a question, choose other tasks, or change its answers. `hvlab provision`,
# which runs on the user's terminal, keeps all of them.
_KEPT = re.compile(
    r"ANSIBLE_(?:HOME|VAULT_\w+|REMOTE_\w+|PRIVATE_KEY_FILE|SSH_\w+|SCP_\w+|SFTP_\w+|PARAMIKO_\w+|TRANSPORT"
    r"|PIPELINING|PYTHON_INTERPRETER|INTERPRETER_PYTHON\w*|BECOME_(?:EXE|FLAGS|METHOD|USER|PASSWORD_FILE)"
    r"|(?:(?:BECOME|SUDO|CONNECTION)_)?PASS(?:WORD)?"
    r"|CONNECTION_PASSWORD_FILE|TIMEOUT|FORKS|LOCAL_TEMP|INVENTORY|ROLES_PATH|COLLECTIONS_PATHS?"
    r"|(?:CONNECTION|LOOKUP|INVENTORY|FILTER|BECOME|VARS)_PLUGINS)"
)


def dropped_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the ANSIBLE_* variables that do not hold where hvlab itself runs Ansible."""
    return [name for name in environment if name.startswith("ANSIBLE_") and not _KEPT.fullmatch(name)]


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without those of `dropped_variables`."""
    names = set(dropped_variables(environment))
    return {name: value for name, value in environment.items() if name not in names}


# Where the roles put things on the hosts.
ROOT = "/opt/hvlab"
STACKS = f"{ROOT}/stacks"
# Where packs are built.
BUILDS = "/var/cache/hvlab/build"


@dataclass(frozen=True)
class Folders:
    """Open MPI, the folder of Horovod's variants, and that of the benchmark programs."""

    openmpi: str
    horovod: str
    workloads: str


def parameters_file(stack: str) -> str:
    """Return the file of Open MPI's parameters of a stack beside the lab's own."""
    return f"{STACKS}/{stack}/openmpi-mca-params.conf"


def folders(lab: Lab, stack: str = "") -> Folders:
    """Return the folders, the inventory's own where it names some; those of ``stack``, if it is named."""
    own = (lab.text("openmpi_prefix", "/opt/hvlab/openmpi"), lab.text("horovod_prefix", "/opt/hvlab/horovod"))
    openmpi, horovod = (f"{STACKS}/{stack}/openmpi", f"{STACKS}/{stack}/horovod") if stack else own
    return Folders(f"{openmpi}/current", horovod, lab.text("workloads_dir", "/opt/hvlab/workloads"))
