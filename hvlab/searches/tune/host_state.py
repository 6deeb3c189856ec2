"""Kernel settings of hosts: changed at run time, and restored.

A state is the content of kernel files, by path. Each host's state before the first change stays in a file of
the search's folder until it is restored, so that a killed command can be undone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.errors import CheckError, HvlabError, some
from hvlab.base.files import write_file
from hvlab.checks.ask import ask_hosts
from hvlab.lab.inventory import Lab
from hvlab.remote.playbook import Owner, Play, login_of

BEFORE = "before.json"
_MTU = "/mtu"
# ICMP and IP headers of a ping.
_HEADERS, _HEADERS_V6 = 28, 48
_FILE_MODE = 0o600
# Paths and values go into a playbook, where braces would be templates.
KernelFile = Annotated[
    str,
    StringConstraints(
        pattern=r"^/(proc/sys/net/(core|ipv4)/[a-z0-9_]+|sys/class/net/[A-Za-z0-9_][A-Za-z0-9_.-]*/mtu"
        r"|sys/devices/system/cpu/cpu[0-9]+/cpufreq/scaling_governor)$"
    ),
]
KernelValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+( [A-Za-z0-9_-]+)*$", max_length=200)]
State = dict[KernelFile, KernelValue]


class RefusedError(CheckError):
    """Hosts, or the network between them, refuse a setting."""


class HostsBefore(BaseModel):
    """The state of a lab's hosts before the first change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lab: str
    hosts: dict[str, State]


@dataclass
class HostStates:
    """The hosts of a search: each one's state ``before`` and ``now`` (None: unknown)."""

    lab: Lab
    before: Mapping[str, State]
    now: Mapping[str, State] | None = field(init=False)

    def __post_init__(self) -> None:
        self.now = self.before

    def apply(self, changes: Mapping[str, State]) -> None:
        """Give each host its former state with its ``changes``.

        Raises RefusedError if a host, or the network between two, refuses it; UnreachableError.
        """
        asked = {host: {**state, **changes.get(host, {})} for host, state in self.before.items()}
        if asked == self.now:
            return
        now, self.now = self.now, None
        due = {
            host: {path: value for path, value in state.items() if not now or now[host][path] != value}
            for host, state in asked.items()
        }
        lower = any(
            not now or int(value) < int(now[host][path])
            for host, state in due.items()
            for path, value in state.items()
            if path.endswith(_MTU)
        )
        try:
            write(self.lab, due, reset=lower)
        except CheckError as error:
            if not any(changes.values()):
                raise
            raise RefusedError(str(error), remedy=error.remedy) from error
        written = (item for state in changes.values() for item in state.items())
        for size in {int(value) for path, value in written if path.endswith(_MTU)}:
            _check_way(self.lab, size)
        self.now = asked

    @contextmanager
    def preserve(self, folder: Path, note: Callable[[str], None]) -> Iterator[None]:
        """Save the hosts' state in a file of the folder, and restore it at the end in any case.

        Raises CheckError if an earlier search left such a file there.
        """
        file = folder / BEFORE
        if file.exists():
            raise CheckError(
                f"the settings in {file} are not restored yet", remedy="run `hvlab tune --restore` first"
            )
        content = HostsBefore(lab=self.lab.name, hosts=dict(self.before)).model_dump()
        write_file(file, json.dumps(content, indent=1), mode=_FILE_MODE)
        note(f"the hosts' settings are saved in {file}; after a kill, `hvlab tune --restore` puts them back")
        ended_well = False
        try:
            yield
            ended_well = True
        finally:
            note("putting the hosts' settings back")
            try:
                restore(self.lab, file)
            except HvlabError as error:
                if ended_well:
                    raise
                note(f"{error}\n  what to do: {error.remedy}")


def find_leftovers(results: Path, lab: str) -> list[Path]:
    """Return the files of killed searches whose hosts of this lab were not restored."""
    return [file for file in sorted((results / "tune").glob(f"*/{BEFORE}")) if _read(file).lab == lab]


def restore(lab: Lab, file: Path) -> list[str]:
    """Restore the state in a file on every host it names, and remove it; return their names.

    Raises CheckError if a host refuses, or is not in the inventory; UnreachableError. The file stays then.
    """
    states = _read(file).hosts
    if missing := sorted(states.keys() - {host.name for host in lab.hosts}):
        raise CheckError(
            f"{some(missing)}: settings were changed there ({file}), and the inventory no longer has it",
            remedy="use the inventory that has it, or restore the settings in the file by hand and remove it",
        )
    try:
        write(lab, states, reset=any(path.endswith(_MTU) for state in states.values() for path in state))
    except HvlabError as error:
        error.remedy = f"`hvlab tune --restore` tries again; {file} has each host's former settings"
        raise
    file.unlink()
    return sorted(states)


def write(lab: Lab, states: Mapping[str, State], *, reset: bool = False) -> None:
    """Write values to kernel files of the hosts. Raises CheckError with the refusal.

    A connection keeps the packet size of its start, and stalls if one end later takes less: with ``reset``,
    the connections to the hosts are closed, and the next command opens new ones.
    """
    writes = {host: _commands(state) for host, state in states.items() if state}
    if not writes:
        return
    variables = {"hvlab_hosts": ",".join(writes), "hvlab_writes": writes}
    with Play("host-settings.yml", Owner(lab), variables) as play:
        play.finish()
        play.check(
            "a host does not take a setting",
            remedy="the host says why; without --host-settings, `hvlab tune` changes no host",
        )
    for login in (Owner(lab), login_of(lab)) if reset else ():
        with Play("reset-connections.yml", login, {"hvlab_hosts": variables["hvlab_hosts"]}) as play:
            play.finish()
            play.check("the connections to the hosts could not be closed", remedy="run it again")


def _commands(state: State) -> list[dict[str, Any]]:
    """Return the commands that write a state: one for each value, MTUs last."""
    paths: dict[str, list[str]] = {}
    links: list[dict[str, Any]] = []
    for path, value in state.items():
        if path.endswith(_MTU):
            # In a container, the file itself is often read-only.
            argv = ["ip", "link", "set", "dev", Path(path).parent.name, "mtu", value]
            links.append({"argv": argv, "value": ""})
        else:
            paths.setdefault(value, []).append(path)
    return [{"argv": ["tee", *files], "value": value} for value, files in paths.items()] + links


def _check_way(lab: Lab, size: int) -> None:
    """Raise RefusedError unless packets of this size pass whole between all hosts."""
    questions: dict[str, dict[str, Any]] = {}
    for host in lab.hosts:
        address = lab.rank_address(host)
        payload = size - (_HEADERS_V6 if ":" in address else _HEADERS)
        argv = ["ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", "-M", "do", "-s", str(payload), address]
        questions[host.name] = {"run": argv}
    answered = ask_hosts(lab, questions)
    for name, why in {**answered.silent, **answered.broken}.items():
        raise RefusedError(f"{name}: no answer with an MTU of {size}: {why}", remedy="look at its network")
    ways = [
        f"{name} to {other}"
        for name, replies in answered.readings.items()
        for other, reply in replies.items()
        if other != name and reply.get("rc") != 0
    ]
    if ways:
        raise RefusedError(
            f"packets of {size} bytes do not pass whole from {some(ways)} (ping -M do)",
            remedy="raise the MTU of every switch between the hosts",
        )


def _read(file: Path) -> HostsBefore:
    try:
        return HostsBefore.model_validate(answers.read(file, str(file), HostsBefore))
    except AnswerError as error:
        remedy = "a search left it: compare its settings with the hosts, then remove it"
        raise CheckError(str(error), remedy=remedy) from error
