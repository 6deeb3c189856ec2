"""Settings of the hosts themselves: the data, and the part that a lab's hosts support."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from hvlab.base import answers
from hvlab.base.answers.shapes import Count, HostAnswer
from hvlab.base.errors import CheckError, UnreachableError, some
from hvlab.base.yaml_files import read_yaml
from hvlab.checks.ask import ask_hosts
from hvlab.lab.inventory import Lab
from hvlab.searches.tune.host_state import KernelValue, State
from hvlab.searches.tune.space_file import SpaceParameter

_MTU, _GOVERNOR = "/mtu", "/scaling_governor"
_FILE = Path(__file__).with_name("host.yml")
_INTERFACE = "{interface}"
_LINKS, _PING, _GOVERNORS = "links", "ping", "governors"
_READ, _STAT = "read ", "stat "
_OWNER_WRITES = 0o200
# The value of a parameter for the hosts' former state.
AS_BEFORE = ""


class HostSetting(BaseModel):
    """A setting of hosts, with the values that each level writes to files of the kernel.

    Paths are patterns; ``{interface}`` stands for that of the ranks' network.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    about: str
    levels: Annotated[dict[str, dict[str, KernelValue]], Field(min_length=1)]
    source: str

    @property
    def patterns(self) -> tuple[str, ...]:
        """Paths that its levels write to."""
        return tuple(dict.fromkeys(path for level in self.levels.values() for path in level))

    @property
    def parameter(self) -> SpaceParameter:
        """The setting as a parameter of a search."""
        values: list[str | int | float] = [AS_BEFORE, *self.levels]
        return SpaceParameter(name=self.name, about=self.about, to="host", values=values, default=AS_BEFORE)


class _Mode(HostAnswer):
    mode: Annotated[str, StringConstraints(pattern=r"^[0-7]{4}$")]


class _Link(HostAnswer):
    ifname: str = ""
    min_mtu: Count = 0
    max_mtu: Count = 0


class _HostFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    settings: list[HostSetting]


def load() -> tuple[HostSetting, ...]:
    """Return all host settings that hvlab knows."""
    return tuple(_HostFile.model_validate(read_yaml(_FILE)).settings)


@dataclass(frozen=True)
class HostSurvey:
    """The hosts' state (``before``), the ``settings`` that all can change, and why others cannot."""

    before: Mapping[str, State]
    settings: tuple[HostSetting, ...]
    left_out: tuple[str, ...]
    interfaces: Mapping[str, str]

    def changes(self, levels: Mapping[str, str]) -> dict[str, State]:
        """Return the writes on each host for the levels of these settings, by name."""
        chosen = [setting.levels[level] for setting in self.settings if (level := levels.get(setting.name))]
        return {
            host: {
                path: value
                for level in chosen
                for pattern, value in level.items()
                for path in _paths(state, pattern, self.interfaces[host])
            }
            for host, state in self.before.items()
        }


@dataclass(frozen=True)
class HostReading:
    """A host's values, which of them are writable, and the limits of its interface and CPUs."""

    interface: str
    values: State
    writable: frozenset[str] = frozenset()
    mtu: tuple[int, int] = (0, 0)
    governors: frozenset[str] = frozenset()
    pings: bool = False

    def paths(self, pattern: str) -> list[str]:
        """Return the files that match a pattern."""
        return _paths(self.values, pattern, self.interface)

    def can(self, pattern: str) -> bool:
        """Whether such files exist, and all are writable."""
        return bool(self.paths(pattern)) and self.writable.issuperset(self.paths(pattern))

    def has(self, pattern: str, value: str) -> bool:
        """Whether all such files hold a value."""
        return all(self.values[path] == value for path in self.paths(pattern))


def survey(lab: Lab, settings: Sequence[HostSetting]) -> HostSurvey:
    """Ask the hosts of a lab for their state. Raises UnreachableError, CheckError."""
    patterns = [path for setting in settings for path in setting.patterns]
    questions: dict[str, dict[str, Any]] = {
        **{f"{_READ}{_everywhere(path)}": {"read": _everywhere(path)} for path in patterns},
        **{f"{_STAT}{_everywhere(path)}": {"stat": _everywhere(path)} for path in patterns},
        _GOVERNORS: {"read": "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_available_governors"},
        _LINKS: {"run": ["ip", "-d", "-j", "link", "show"]},
        _PING: {"run": ["ping", "-V"]},
    }
    answered = ask_hosts(lab, questions)
    for host, why in answered.silent.items():
        raise UnreachableError(f"{host}: {why}", remedy="bring it back, or leave it out with --limit")
    for host, why in answered.broken.items():
        raise CheckError(
            f"{host} cannot be asked for its settings: {why}",
            remedy="--host-settings needs the rights that `hvlab provision` has: root, or sudo",
        )
    interfaces = {host.name: host.text("lab_interface") or lab.interface for host in lab.hosts}
    return select_supported(
        settings,
        {host: _reading(host, interfaces[host], patterns, answered.readings[host]) for host in interfaces},
    )


def select_supported(settings: Sequence[HostSetting], readings: Mapping[str, HostReading]) -> HostSurvey:
    """Return the settings that the hosts support. Pure."""
    left_out: list[str] = []
    possible = [
        setting.model_copy(update={"levels": levels})
        for setting in settings
        if (levels := _levels(setting, readings, left_out))
    ]
    patterns = [path for setting in possible for path in setting.patterns]
    before = {
        host: {path: each.values[path] for pattern in patterns for path in each.paths(pattern)}
        for host, each in readings.items()
    }
    interfaces = {host: each.interface for host, each in readings.items()}
    return HostSurvey(before, tuple(possible), tuple(left_out), interfaces)


def _levels(
    setting: HostSetting, readings: Mapping[str, HostReading], left_out: list[str]
) -> dict[str, dict[str, str]]:
    """Return the levels of a setting that the hosts support, without files that some cannot change."""
    if problem := _problem(setting, readings):
        left_out.append(f"{setting.name} is left out: {problem}")
        return {}
    fixed = {
        path: hosts
        for path in setting.patterns
        if (hosts := [host for host, each in readings.items() if not each.can(path)])
    }
    without = "is left out:" if fixed.keys() == set(setting.patterns) else "goes without"
    left_out += [
        f"{setting.name} {without} {path}, missing or read-only on {some(hosts)}"
        for path, hosts in fixed.items()
    ]
    levels = {}
    for name, level in setting.levels.items():
        rest = {path: value for path, value in level.items() if path not in fixed}
        limits = list(_limits(rest, readings))
        left_out += [f"{setting.name}={name} is left out: {limit}" for limit in limits]
        alike = all(each.has(path, value) for each in readings.values() for path, value in rest.items())
        if not limits and not alike:
            levels[name] = rest
    return levels


def _problem(setting: HostSetting, readings: Mapping[str, HostReading]) -> str:
    if not any(path.endswith(_MTU) for path in setting.patterns):
        return ""
    if len(readings) == 1:
        return "there is no network between the ranks of one host"
    if blind := [host for host, each in readings.items() if not each.pings]:
        return f"{some(blind)}: no ping to show that packets pass (install iputils-ping or iputils)"
    return ""


def _limits(level: Mapping[str, str], readings: Mapping[str, HostReading]) -> Iterator[str]:
    for path, value in level.items():
        for host, each in readings.items():
            low, high = each.mtu
            if path.endswith(_MTU) and high and not low <= int(value) <= high:
                yield f"{each.interface} of {host} takes {low} to {high} bytes"
            if path.endswith(_GOVERNOR) and value not in each.governors:
                yield f"{host} has {', '.join(sorted(each.governors)) or 'none'}"


def _reading(host: str, interface: str, patterns: Iterable[str], replies: Mapping[str, Any]) -> HostReading:
    values: dict[str, str] = {}
    writable: set[str] = set()
    for pattern in patterns:
        everywhere = _everywhere(pattern)
        texts = answers.check(replies.get(f"{_READ}{everywhere}", {}), host, dict[str, str])
        modes = answers.check(replies.get(f"{_STAT}{everywhere}", {}), host, dict[str, _Mode])
        own = {path: " ".join(texts[path].split()) for path in _paths(texts, pattern, interface)}
        values |= {path: value for path, value in own.items() if value}
        writable |= {path for path in own if path in modes and int(modes[path]["mode"], 8) & _OWNER_WRITES}
    cpus = answers.check(replies.get(_GOVERNORS, {}), host, dict[str, str])
    governors = [frozenset(text.split()) for text in cpus.values()]
    return HostReading(
        interface,
        answers.check(values, f"{host}: its kernel settings", State),
        frozenset(writable),
        _mtu(host, interface, replies.get(_LINKS, {})),
        frozenset.intersection(*governors) if governors else frozenset(),
        replies.get(_PING, {}).get("rc") == 0,
    )


def _mtu(host: str, interface: str, reply: Mapping[str, Any]) -> tuple[int, int]:
    """Return the smallest and largest MTU of an interface; 0 if unknown."""
    links = answers.load(reply.get("out") or "[]", f"{host}: ip link", list[_Link])
    own: dict[str, int] = next((link for link in links if link.get("ifname") == interface), {})
    return own.get("min_mtu", 0), own.get("max_mtu", 0)


def _everywhere(pattern: str) -> str:
    return pattern.replace(_INTERFACE, "*")


def _paths(values: Iterable[str], pattern: str, interface: str) -> list[str]:
    own = pattern.replace(_INTERFACE, glob.escape(interface))
    return [path for path in values if fnmatch.fnmatchcase(path, own)]
