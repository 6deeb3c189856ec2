"""A stack on the hosts, beside the one in use; parts that stacks share exist once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hvlab.base.errors import CheckError, Problem, report
from hvlab.lab.environment import components, of_stack
from hvlab.lab.inventory import STACKS, Lab, parameters_file
from hvlab.lab.pin_variables import BUILD_ROLES, TITLES, VERSION_PINS
from hvlab.remote.gather import facts
from hvlab.remote.playbook import Owner, Play
from hvlab.searches.bisect.stack import Stack
from hvlab.stack.resolver import versions
from hvlab.stack.resolver.pins import Pin

# Prefixes of the stack in use, as in group_vars/all.yml.
_PREFIXES: Mapping[str, str] = {
    "openmpi": "/opt/hvlab/openmpi",
    "python_env": "/opt/hvlab",
    "horovod": "/opt/hvlab/horovod",
}
_FACTS = "/etc/ansible/facts.d"
# How to prevent another source from replacing the requested version.
_NO_OTHER: Mapping[str, str] = {
    "openmpi": "put openmpi-{version}.tar.bz2 into sources/ on the controller; with "
    "`openmpi_sources: [file, url]` in the inventory, another version never stands in",
}


def name_of(stack: Stack, own: Stack) -> str:
    """Return the name of a stack on the hosts; empty if it equals the one in use."""
    return "" if stack.name == own.name else stack.name


def variables(stack: Stack, own: Stack, lab: Lab) -> dict[str, Any]:
    """Return the variables of playbooks/stack.yml: packs to build, and prefixes of those not in use."""
    name = name_of(stack, own)
    folder = f"{STACKS}/{name}"
    prefixes = {}
    for role in BUILD_ROLES:
        key = stack.key(role)
        in_use = lab.text(f"{role}_prefix", _PREFIXES[role])
        prefixes[f"{role}_prefix"] = in_use if key == own.key(role) else f"{STACKS}/{role}-{key}"
    records = {f"{role}_record": f"{_FACTS}/hvlab_{role}@{name}.fact" for role in BUILD_ROLES}
    return {
        **stack.variables,
        **prefixes,
        **records,
        "openmpi_profile": f"{folder}/profile.sh",
        "openmpi_parameters_file": parameters_file(name),
        "hvlab_stack": folder,
        "hvlab_hosts": ",".join(host.name for host in lab.hosts),
    }


def install(stack: Stack, own: Stack, lab: Lab) -> None:
    """Install a stack beside the one in use. Raises CheckError if it cannot be built as requested."""
    with Play("stack.yml", Owner(lab), variables(stack, own, lab)) as play:
        play.finish()
        play.check("it could not be installed", remedy="the build's log on the host says what it lacks")
    name = name_of(stack, own)
    if wrong := others(stack, {host: of_stack(known, name) for host, known in facts(lab).items()}):
        raise CheckError(f"it cannot be built:\n{report(wrong)}")


def others(stack: Stack, recorded: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """List recorded versions that differ from the stack's; ``recorded`` are facts by host."""
    wrong = []
    for host, known in recorded.items():
        present = components(known)
        for name, version in stack.versions.items():
            built = Pin(name, str(present.get(name) or "none")).version
            if not versions.prefix(version, built):
                remedy = _NO_OTHER.get(name, f"name another version, or set {VERSION_PINS[name]}")
                observed = f"{TITLES[name]} {version} was requested, {built} is recorded"
                wrong.append(Problem(host, observed, remedy.format(version=version)))
    return wrong


def remove(lab: Lab) -> None:
    """Remove all stacks beside the one in use from the hosts."""
    given = {"hvlab_hosts": ",".join(host.name for host in lab.hosts), "hvlab_stacks": STACKS}
    with Play("remove-stacks.yml", Owner(lab), given) as play:
        play.finish()
        play.check("the stacks could not be removed", remedy=f"remove {STACKS} on the hosts")
