"""Mistakes in an inventory's own text that Ansible accepts silently, or explains badly."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml

from hvlab.base.errors import InventoryError, Problem
from hvlab.base.yaml_files import expand

_VARIABLE_FOLDERS = ("group_vars", "host_vars")
_YAML = (".yml", ".yaml", ".json")
_IGNORED = (".orig", ".bak", ".retry", ".pyc", ".cfg", ".md", "~")
_INI_GROUP = re.compile(r"^\s*\[([^\]\n]+)\]", re.MULTILINE)
_RANGE = re.compile(r"\[([0-9]{1,99}):([0-9]{1,99})(?::([0-9]{1,99}))?\]")
# A range of more hosts has some zeros too many, and Ansible would write out each of them.
_MOST = 2**16
_ADDRESS = re.compile(r"\bansible_host\s*=\s*(\S+)")


class _Duplicates(yaml.SafeLoader):
    """A loader that keeps a list of the mapping keys that occur twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.twice: list[tuple[str, int]] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in names:
                self.twice.append((name, key.start_mark.line + 1))
            names.add(name)
        return super().construct_mapping(node, deep=deep)


def _construct_tagged(loader: yaml.SafeLoader, _tag: str, node: yaml.Node) -> object:
    """Stand for ``!vault``, ``!unsafe`` and the like: their values are Ansible's business."""
    return loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else None


_Duplicates.add_multi_constructor("!", _construct_tagged)


def file_problems(source: Path) -> list[Problem]:
    """Return the mistakes in the files of the inventory at ``source`` (a file or a directory).

    Raises InventoryError for input that would keep Ansible busy forever.
    """
    problems: list[Problem] = []
    addresses: dict[str, dict[str, str]] = {}
    for path, hosts_file in _files(source):
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(path.name, f"it cannot be read: {error}", "make it a readable text file"))
            continue
        if path.suffix in _YAML or not hosts_file:
            data, parse_problems = _parse(path, text)
            problems += parse_problems
            pairs = _yaml_addresses(data) if hosts_file else iter(())
            patterns = _list_yaml_hosts(data)[0] if hosts_file else []
        elif text.startswith("#!"):
            continue
        else:
            problems += _ini_duplicates(path, text)
            pairs = _ini_addresses(text)
            patterns = [host for _, _, host, _ in _ini_hosts(text)]
        for pattern in patterns:
            _check_range(path, pattern)
        for host, address in pairs:
            addresses.setdefault(host, {})[address] = path.name
    for host, files in addresses.items():
        if len(files) > 1:
            listing = " and ".join(f"{address} ({name})" for address, name in files.items())
            problems.append(
                Problem(host, f"the name is used twice, at {listing}", "give each host its own name")
            )
    return problems


def _check_range(path: Path, pattern: str) -> None:
    sizes = [
        (int(last) - int(first)) // max(int(step or 1), 1) + 1
        for first, last, step in _RANGE.findall(pattern)
    ]
    hosts = math.prod(sizes)
    if hosts > _MOST:
        raise InventoryError(
            f"the inventory's {path.name}: {pattern} is {hosts} hosts", remedy=f"list {_MOST} at most"
        )


def list_names(source: Path) -> tuple[list[str], list[str]]:
    """Return the hosts and the groups that the files at ``source`` list, without asking Ansible.

    Those of scripts and plugins are left out. Raises OSError, ValueError (no text, no YAML).
    """
    hosts: dict[str, None] = {}
    groups = {"all": None}
    for path, hosts_file in _files(source):
        if not hosts_file:
            continue
        text = path.read_text("utf-8")
        if path.suffix in _YAML:
            patterns, named = _list_yaml_hosts(_parse(path, text)[0])
        elif text.startswith("#!"):
            continue
        else:
            patterns = [host for _, _, host, _ in _ini_hosts(text)]
            named = [group.partition(":")[0] for group in _INI_GROUP.findall(text)]
        hosts |= dict.fromkeys(host for pattern in patterns for host in _expand(pattern))
        groups |= dict.fromkeys(named)
    return list(hosts), list(groups)


def _list_yaml_hosts(data: object) -> tuple[list[str], list[str]]:
    hosts: list[str] = []
    groups: list[str] = []
    for name, group in data.items() if isinstance(data, dict) else ():
        groups.append(str(name))
        if isinstance(group, dict):
            hosts += map(str, group.get("hosts") or ())
            below = _list_yaml_hosts(group.get("children"))
            hosts, groups = hosts + below[0], groups + below[1]
    return hosts, groups


def _expand(host: str) -> list[str]:
    if "[" not in host:
        name, colon, _ = host.rpartition(":")
        return [name if colon and ":" not in name else host]
    from hvlab.lab.host_patterns import expand  # noqa: PLC0415 - it loads Ansible

    return [each.target for each in expand(host)]


def _files(source: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each file and whether it lists hosts (else it holds variables)."""
    listed = sorted(source.iterdir()) if source.is_dir() else [source]
    for path in listed:
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(_IGNORED):
            yield path, True
    folder = source if source.is_dir() else source.parent
    for name in _VARIABLE_FOLDERS:
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and path.suffix in _YAML:
                yield path, False


def _parse(path: Path, text: str) -> tuple[Any, list[Problem]]:
    if text.startswith("$ANSIBLE_VAULT"):
        return None, []
    try:
        loader = _Duplicates(text)
        data = expand(loader.get_single_data)
    except ValueError as error:
        # With some of these, Ansible itself would be busy for ever.
        problem = f"the inventory's {path.name} cannot be read: {error}"
        raise InventoryError(problem, remedy="correct it there, without aliases of aliases") from error
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        return None, [Problem(f"{path.name}{where}", f"not valid YAML: {error.problem}", "correct it")]
    except yaml.YAMLError as error:
        return None, [Problem(path.name, f"not valid YAML: {error}", "correct it")]
    remedy = "keep one of them: only the last one counts"
    return data, [
        Problem(f"{path.name}, line {line}", f"{name!r} occurs twice", remedy)
        for name, line in dict.fromkeys(loader.twice)
    ]


def _yaml_addresses(data: object) -> Iterator[tuple[str, str]]:
    for group in data.values() if isinstance(data, dict) else []:
        if not isinstance(group, dict):
            continue
        hosts = group.get("hosts")
        for host, variables in hosts.items() if isinstance(hosts, dict) else []:
            if isinstance(variables, dict) and "ansible_host" in variables:
                yield str(host), str(variables["ansible_host"])
        yield from _yaml_addresses(group.get("children"))


def _ini_hosts(text: str) -> Iterator[tuple[int, str, str, str]]:
    group = "ungrouped"
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.split(" #")[0].strip()
        if not bare or bare[0] in "#;":
            continue
        if bare.startswith("["):
            group = bare.strip("[]")
        elif not group.endswith((":vars", ":children")):
            host, _, rest = bare.partition(" ")
            yield number, group, host, rest


def _ini_duplicates(path: Path, text: str) -> list[Problem]:
    first: dict[tuple[str, str], int] = {}
    problems = []
    for number, group, host, _ in _ini_hosts(text):
        line = first.setdefault((group, host), number)
        if line != number:
            observed = f"{host!r} occurs twice in [{group}], first on line {line}"
            remedy = "keep one of them: only the last one counts"
            problems.append(Problem(f"{path.name}, line {number}", observed, remedy))
    return problems


def _ini_addresses(text: str) -> Iterator[tuple[str, str]]:
    for _, _, host, rest in _ini_hosts(text):
        match = _ADDRESS.search(rest)
        if match:
            yield host, match.group(1)
