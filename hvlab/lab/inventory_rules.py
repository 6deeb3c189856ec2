"""The rules of an inventory. Pure: variables in, problems out; preflight's plugin calls the same function."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hvlab.base.errors import Problem
from hvlab.base.masking import mask
from hvlab.base.yaml_files import read_shipped
from hvlab.lab.pin_variables import PINS, WIRED

LAB_VARIABLES = PINS | {
    *("lab_name", "lab_network", "lab_interface", "lab_slots", "lab_release", "lab_rate", "lab_gpus"),
    *("lab_rank_env", "lab_driver_serial", "lab_driver_max_fail_percentage", "lab_pack_mirror"),
    *("lab_machine_type", "lab_node_health", "lab_cpus", "lab_memory", "lab_topology"),
    *("lab_shared_home", "lab_shared_packs"),
    *("lab_slurm", "lab_slurm_partition", "lab_slurm_options", "lab_slurm_mpi", "lab_pod_resources"),
}
_SAME_EVERYWHERE = (
    *("lab_name", "lab_network", "lab_interface", "lab_rank_env", "lab_shared_packs"),
    *("lab_slurm", "lab_slurm_partition", "lab_slurm_options", "lab_slurm_mpi", "lab_pod_resources"),
)
_REQUIRED = {
    "lab_network": "set it in group_vars/all to the ranks' network, such as 10.0.0.0/24",
    "lab_interface": "set it in group_vars/all to the ranks' network interface, such as eth0",
}
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
# The names of Slurm's nodes need not be in DNS.
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_ENV = re.compile(r"(?!HVLAB_)[A-Za-z_]\w*")
_INTERFACE = re.compile(r"[^\s/,:-][^\s/,:]{0,14}")
_NUMBERS = (("lab_slots", range(1, 2**16)), ("ansible_port", range(1, 2**16)))
# A text counts as true, whatever it says.
_SWITCHES = {"true", "false", "yes", "no", "on", "off", "0", "1"}
# Variables that are mappings: the rule for each entry, and how to write them.
_MAPPINGS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "lab_rank_env": (
        lambda key, value: bool(_ENV.fullmatch(str(key))) and isinstance(value, str | int),
        "write a mapping such as {UCX_NET_DEVICES: 'mlx5_0:1'}; names that begin with HVLAB_ are taken",
    ),
    "horovod_variants": (
        lambda _, value: (
            isinstance(value, Mapping)
            and not _SWITCHES.intersection(each.lower() for each in value.values() if isinstance(each, str))
        ),
        "write a mapping of builds, each a mapping, as roles/horovod/defaults/main.yml does; "
        "what is built in is true or false, without quotes",
    ),
}
# A folder, or an address without a password: both are printed.
_MIRROR = re.compile(r"/.*|https?://[^/@\s]+(/\S*)?")
_FOLDER = re.compile(r"(/(?!\.{0,2}(/|$))[^/:\s]+)+")
_TEXTS = {
    "lab_name": (_LABEL, "use letters, digits and hyphens"),
    "lab_interface": (_INTERFACE, "write one interface's name, such as eth0"),
    "lab_pack_mirror": (
        _MIRROR,
        "write a folder's absolute path, or a http or https address without user and password",
    ),
    "lab_shared_packs": (_FOLDER, "write the absolute path of a folder that is the same on all hosts"),
}
_MAY_BE_EMPTY = ("lab_pack_mirror", "lab_shared_packs")
_NAME_LENGTH = 253
_IP_VERSION = 4
# A name of the wiring's own, in a template.
_WIRING = re.compile(r"\b__\w")


def problems(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Iterable[str]], roles_dir: Path
) -> list[Problem]:
    """Return everything that is wrong with these hosts, in no particular order."""
    if not hostvars:
        return [Problem("inventory", "it has no hosts", "add a host, as inventory/lab/hosts.yml does")]
    roles = role_options(roles_dir)
    known = {role: frozenset(options) for role, options in roles.items()}
    options = {
        name: option for own in roles.values() for name, option in own.items() if name not in _MAPPINGS
    }
    virtual = set(groups.get("virtual", ()))
    all_problems: list[Problem] = []
    for host, variables in hostvars.items():
        all_problems += _name_problems(host, variables)
        all_problems += _value_problems(host, variables, virtual=host in virtual)
        all_problems += _unknown_variables(host, variables, known)
        all_problems += _check_wired(host, variables)
        all_problems += argument_problems(host, variables, options)
    return all_problems + _address_problems(hostvars) + _differing(hostvars)


def check_evaluated(host: str, failures: Mapping[str, str]) -> list[Problem]:
    """Return the problems of those of a host's variables whose templates Ansible cannot evaluate."""
    remedy = "correct the template; it may use the inventory's variables, but no facts"
    return [Problem(host, f"{name} cannot be evaluated: {why}", remedy) for name, why in failures.items()]


def is_valid_name(name: str) -> bool:
    """Whether RFC 1123 allows ``name`` as a host name (an address is none)."""
    return (
        len(name) <= _NAME_LENGTH
        and all(_LABEL.fullmatch(label) for label in name.split("."))
        and not is_address(name)
    )


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _has_template(value: object) -> bool:
    return isinstance(value, str) and "{{" in value


def _name_problems(host: str, variables: Mapping[str, Any]) -> list[Problem]:
    if "hvlab_prefix" in variables and _NODE.fullmatch(host):
        return []
    problems = []
    if is_address(host):
        remedy = f"give the host a name and write ansible_host: {host} for it"
        problems.append(Problem(host, "the host's name is an address", remedy))
    elif not is_valid_name(host):
        remedy = "use letters, digits and hyphens (no underscore, no hyphen at either end, 63 in a part)"
        problems.append(Problem(host, "not a valid host name (RFC 1123)", remedy))
    address = variables.get("ansible_host", host)
    if not _has_template(address) and not is_address(str(address)) and not is_valid_name(str(address)):
        observed = f"ansible_host is {address!r}, neither an address nor a host name"
        if address != host:
            problems.append(Problem(host, observed, "write the host's IP address or its name"))
    return problems


def _value_problems(host: str, variables: Mapping[str, Any], *, virtual: bool) -> list[Problem]:
    missing = [name for name in _REQUIRED if name not in variables]
    problems = [Problem(host, f"{name} is not set", _REQUIRED[name]) for name in missing]
    for name, allowed in _NUMBERS:
        value = variables.get(name, 1)
        whole = not isinstance(value, bool) and re.fullmatch(r"\d+", str(value))
        if not _has_template(value) and not (whole and int(value) in allowed):
            remedy = f"write a whole number from {allowed[0]} to {allowed[-1]}"
            problems.append(Problem(host, f"{name} is {value!r}", remedy))
    for name, (pattern, remedy) in _TEXTS.items():
        value = variables.get(name)
        unset = name not in variables or (not value and name in _MAY_BE_EMPTY)
        if not unset and not _has_template(value) and not pattern.fullmatch(str(value)):
            problems.append(Problem(host, f"{name} is {value!r}", remedy))
    problems += _mapping_problems(host, variables)
    return problems + _network_problems(host, variables, virtual=virtual)


def _mapping_problems(host: str, variables: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for name, (fits, remedy) in _MAPPINGS.items():
        value = variables.get(name, {})
        right = isinstance(value, Mapping) and all(fits(key, item) for key, item in value.items())
        if not right and not _has_template(value):
            problems.append(Problem(host, f"{name} is {mask(value)!r}", remedy))
    return problems


def _network_problems(host: str, variables: Mapping[str, Any], *, virtual: bool) -> list[Problem]:
    value = variables.get("lab_network")
    if value is None or _has_template(value):
        return []
    remedy = "write it as 198.18.0.0/24"
    try:
        network = ipaddress.ip_network(str(value))
    except ValueError as error:
        return [Problem(host, f"lab_network is {value!r}: {error}", remedy)]
    if "/" not in str(value):
        return [Problem(host, f"lab_network is {value!r}: it has no prefix length", remedy)]
    if network.version != _IP_VERSION:
        return [Problem(host, f"lab_network is {value!r}: ranks talk over IPv4 only", f"{remedy}, IPv4")]
    address = str(variables.get("ansible_host", host))
    if virtual and is_address(address) and ipaddress.ip_address(address) not in network:
        observed = f"its address {address} is not in lab_network {value}"
        return [Problem(host, observed, "change ansible_host or lab_network: virtual hosts are booted on it")]
    return []


def _unknown_variables(
    host: str, variables: Mapping[str, Any], known: Mapping[str, frozenset[str]]
) -> list[Problem]:
    problems = []
    every = LAB_VARIABLES.union(*known.values())
    prefixes = {**{f"{role}_": names for role, names in known.items()}, "lab_": LAB_VARIABLES}
    for name in variables:
        if name in every or name.startswith(("ansible_", "__")):
            continue
        owners = [prefix for prefix in prefixes if name.startswith(prefix)]
        candidates = sorted(prefixes[max(owners, key=len)]) if owners else sorted(every)
        near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6 if owners else 0.9)
        if not near and not owners:
            continue
        remedy = f"it can be {', '.join(candidates) or 'nothing'}"
        if near:
            remedy = f"did you mean {WIRED.get(near[0], near[0])}?"
        problems.append(Problem(host, f"the variable {name} is unknown", remedy))
    return problems


def _check_wired(host: str, variables: Mapping[str, Any]) -> list[Problem]:
    """Return the variables that only hvlab sets: with other values, roles would deviate from the plan."""
    return [
        Problem(host, f"{name} is set, which hvlab does itself", f"write {pin} instead")
        for name, pin in WIRED.items()
        if name in variables and not _WIRING.search(str(variables[name]))
    ]


def _address_problems(hostvars: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    users: dict[tuple[str, str], list[str]] = {}
    for host, variables in hostvars.items():
        address = str(variables.get("ansible_host", host)).lower()
        if not _has_template(address):
            users.setdefault((address, str(variables.get("ansible_port", 22))), []).append(host)
    return [
        Problem(", ".join(hosts), f"they share the address {address}", "give each host its own ansible_host")
        for (address, _), hosts in users.items()
        if len(hosts) > 1
    ]


def _differing(hostvars: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    problems = []
    for name in _SAME_EVERYWHERE:
        values = {str(variables[name]) for variables in hostvars.values() if name in variables}
        if len(values) > 1:
            observed = f"{name} differs between hosts: {', '.join(sorted(values))}"
            problems.append(Problem("inventory", observed, "set it once, in group_vars/all"))
    return problems


# Types for which text is refused, and how to write a value: Ansible splits text at commas, loops at letters.
# Switches and numbers may be texts, as `-e name=false` and INI give them: roles say `| bool`.
_NO_TEXT = {
    "list": """write a list in YAML, ['a', 'b'] in INI, -e '{{"{0}": ["a", "b"]}}' for a command""",
    "dict": """write a mapping in YAML, {{'a': 'b'}} in INI, -e '{{"{0}": {{"a": "b"}}}}' for a command""",
}
Options = Mapping[str, Mapping[str, Any]]


def role_options(roles_dir: Path) -> dict[str, Options]:
    """Return the options of each role by their names; a role without specs has those of its defaults."""
    roles = sorted(roles_dir.iterdir()) if roles_dir.is_dir() else []
    return {role.name: _options(role) for role in roles}


def _options(role: Path) -> Options:
    specs, defaults = role / "meta/argument_specs.yml", role / "defaults/main.yml"
    if specs.is_file():
        entry_points = _mapping(specs).get("argument_specs", {}).values()
        return {
            name: option for entry in entry_points for name, option in (entry.get("options") or {}).items()
        }
    return {name: {"type": "raw"} for name in _mapping(defaults)} if defaults.is_file() else {}


def _mapping(file: Path) -> dict[str, Any]:
    return read_shipped(file) or {}


def argument_problems(host: str, variables: Mapping[str, Any], options: Options) -> Iterator[Problem]:
    """Yield the values of a host's variables that a role would refuse; templates only the role can judge."""
    # Completion, which checks nothing, is not to wait until it is loaded.
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator  # noqa: PLC0415

    for name in sorted(variables.keys() & options.keys()):
        if _is_template(variables[name]):
            continue
        kind = str(options[name].get("type", "str"))
        if kind in _NO_TEXT and isinstance(variables[name], str):
            given = mask(f"{name} is the text {variables[name]!r}")
            yield Problem(host, f"{given}, where a {kind} is needed", _NO_TEXT[kind].format(name))
            continue
        spec = {name: {**options[name], "required": False}}
        for message in ArgumentSpecValidator(spec).validate({name: variables[name]}).error_messages:
            yield Problem(host, mask(message), f"{name}: {_description(options[name])}")


def _description(option: Mapping[str, Any]) -> str:
    text = option["description"]
    return re.sub(r"\b[CV]\(([^)]*)\)", r"`\1`", text if isinstance(text, str) else " ".join(text))


def _is_template(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_template, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_template, value))
    return isinstance(value, str) and ("{{" in value or "{%" in value)
