"""Hosts without an inventory, those of a Slurm job or of a list: asked by one step, or by the user's own ssh.

Neither Ansible nor root: a program runs on all of them at the same time, and prints JSON.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible import constants

from hvlab.base import answers, process
from hvlab.base.answers import AnswerError, clean
from hvlab.base.answers.shapes import Cidr, Count, HostAnswer
from hvlab.base.errors import HvlabError, UnreachableError, UsageError, advise_unreachable, unusable
from hvlab.lab import host_patterns, new_inventory, slurm_job
from hvlab.lab.inventory import Host, Lab
from hvlab.remote import here
from hvlab.remote.playbook import HostFailure
from hvlab.remote.ssh_client import SSH_FAILED, login_argv

_PROGRAMS = Path(__file__).parent / "programs"
_INTRODUCE_S = 60
# For the step or the login, beside a program's own limit.
_PATIENCE_S = 60
_AT_ONCE = 32
_NAMED, _LONGEST_NAME = 4, 63
_LOCAL = ("localhost", "127.0.0.1", "::1")
_SILENT, TARGET, PORT = "hvlab_silent", "hvlab_target", "hvlab_port"
# What srun says of a node that it cannot reach, and of one whose task failed.
_LOST = re.compile(r"^srun: error: (.* failed on node (\S+?): .*)$", re.MULTILINE)
_FAILED = re.compile(r"^srun: error: \S+: tasks? ([\d,-]+): (.*)$", re.MULTILINE)


class _Interface(HostAnswer):
    up: bool
    cidrs: list[Cidr]


class _Card(HostAnswer):
    name: str
    speed_mbit: Count


class _Introduction(HostAnswer):
    """The output of programs/introduce.py."""

    user: str
    uid: Count
    processors: Count
    gpus: Count
    interfaces: dict[str, _Interface]
    nics: list[_Card]


def lab_of_job(limit: str | None) -> Lab:
    """Return the hosts of the Slurm job that hvlab runs in. Raises UsageError outside of one."""
    job, nodes, version = here.read_own_job(os.environ)
    words = [*slurm_job.step(job, version, options=(*job.gres, "--label", "--kill-on-bad-exit=0"))]
    chosen = _apply_limit(nodes, limit)
    return _build_lab(
        job.cluster, [_host(node, {}) for node in nodes if node in chosen], {"hvlab_step": words}
    )


def lab_of_list(text: str, limit: str | None) -> Lab:
    """Return the hosts of a list, each reached as the user's ssh is configured, this machine without it.

    Raises UsageError.
    """
    listed = host_patterns.parse_list(text)
    numbers = [host.name for host in listed if host.name.isdigit()]
    if numbers:
        raise UsageError(f"--hosts {text}: {numbers[0]} is a number", remedy="name the hosts: --hosts n1,n2")
    own = [host.name for host in listed if host.port is None and _is_this_machine(host.target)]
    names = [host.name for host in listed]
    twice = own if len(own) > 1 else sorted({name for name in names if names.count(name) > 1})
    if twice:
        what = f"this machine twice: {', '.join(own)}" if twice is own else f"{', '.join(twice)} twice"
        raise UsageError(f"--hosts names {what}", remedy="name each host once")
    chosen = _apply_limit(names, limit)
    hosts = [
        _host(
            host.name,
            {"ansible_connection": "local"} if host.name in own else {TARGET: host.target, PORT: host.port},
        )
        for host in listed
        if host.name in chosen
    ]
    return _build_lab("this-machine" if all(host.local for host in hosts) else _name_lab(hosts), hosts, {})


def _name_lab(hosts: Sequence[Host]) -> str:
    """Return a name for hosts that results keep: different hosts are different labs."""
    more = [f"{len(hosts) - _NAMED}-more"] if len(hosts) > _NAMED else []
    names = re.sub("[^A-Za-z0-9]+", "-", "-".join([*(host.name for host in hosts[:_NAMED]), *more]))
    return names[:_LONGEST_NAME].strip("-")


def _is_this_machine(target: str) -> bool:
    return target in (*_LOCAL, (name := socket.gethostname()), name.partition(".")[0])


def _host(name: str, variables: Mapping[str, Any]) -> Host:
    return Host(name, name, int(variables.get(PORT) or 22), None, 1, frozenset(), variables)


def _apply_limit(names: Sequence[str], limit: str | None) -> Sequence[str]:
    if limit is None:
        return names
    chosen = host_patterns.matching(names, limit)
    if not chosen:
        raise UsageError(f"no host matches --limit {limit}", remedy=f"the hosts are {', '.join(names)}")
    return chosen


def _build_lab(name: str, hosts: Sequence[Host], variables: Mapping[str, Any]) -> Lab:
    """Return the hosts with what each says of itself; a silent one keeps the reason."""
    lab = Lab(name, Path(), "", "", tuple(hosts), variables)
    program = (_PROGRAMS / "introduce.py").read_text("utf-8")
    texts, failures = run(lab, program, seconds=_INTRODUCE_S)
    silent = {failure.host: failure.message for failure in failures if failure.unreachable}
    known: dict[str, dict[str, Any]] = {}
    for host, text in texts.items():
        try:
            known[host] = answers.load(text, host, _Introduction)
        except AnswerError as error:
            silent[host] = f"its answer cannot be read: {error.observed}"
    network = new_inventory.choose({host: {"hvlab": own} for host, own in known.items()}, {})
    users = [own["user"] for own in known.values()]
    interface = network.interface if network else "lo"

    def complete(host: Host) -> Host:
        if host.name not in known:
            return replace(
                host, vars={**host.vars, **({_SILENT: silent[host.name]} if host.name in silent else {})}
            )
        own = known[host.name]
        cidrs = own["interfaces"].get(interface, {}).get("cidrs") or []
        address = cidrs[0].partition("/")[0] if cidrs else host.vars.get(TARGET, host.name)
        groups = frozenset({"gpu"} if own["gpus"] else ())
        return replace(host, address=address, slots=max(1, own["gpus"] or own["processors"]), groups=groups)

    return Lab(
        name,
        Path(),
        str(network.network) if network else "",
        interface,
        tuple(complete(host) for host in hosts),
        {**variables, "lab_user_name": users[0] if users else "", "common_hosts_managed": bool(variables)},
    )


def silent_hosts(lab: Lab) -> dict[str, str]:
    """Return the hosts that did not answer when the lab was made, with the reason."""
    return {host.name: str(host.vars[_SILENT]) for host in lab.hosts if _SILENT in host.vars}


def refuse_silent(lab: Lab) -> None:
    """Raise UnreachableError if a host did not answer when the lab was made."""
    if silent := silent_hosts(lab):
        reasons = "\n".join(f"  {host}: {reason}" for host, reason in silent.items())
        remedies = "; ".join(dict.fromkeys(map(advise_unreachable, silent.values())))
        others = "; or leave them out with -l" if len(silent) < len(lab.hosts) else ""
        raise UnreachableError(f"{unusable(silent, len(lab.hosts))}:\n{reasons}", remedy=remedies + others)


def run(
    lab: Lab,
    program: str,
    *,
    arguments: Callable[[str], Sequence[str]] = lambda _: (),
    environment: Callable[[str], Mapping[str, str]] = lambda _: {},
    given: str = "",
    python: str = "",
    seconds: int,
) -> tuple[dict[str, str], list[HostFailure]]:
    """Run a Python program on all hosts at once; return each one's output, and the reasons of those without.

    ``given`` is its input; arguments and environment may differ between hosts. By default ``python`` is the
    first that is new enough.
    """
    common = {"program": program, "input": given, "python": python, "seconds": seconds}

    def payload(hosts: Sequence[Host]) -> str:
        own = {
            host.name: {"arguments": list(arguments(host.name)), "environment": dict(environment(host.name))}
            for host in hosts
        }
        return json.dumps({**common, "hosts": own})

    if lab.step:
        return _ask_by_step(lab, payload, seconds + _PATIENCE_S)
    with ThreadPoolExecutor(max_workers=max(_AT_ONCE, len(lab.hosts))) as pool:
        outcomes = list(
            pool.map(lambda host: _ask_host(host, payload([host]), seconds + _PATIENCE_S), lab.hosts)
        )
    printed = {
        host.name: text for host, text in zip(lab.hosts, outcomes, strict=True) if isinstance(text, str)
    }
    return printed, [outcome for outcome in outcomes if isinstance(outcome, HostFailure)]


def _words() -> list[str]:
    """Return a command that starts programs/start.py by the first usable Python of a host.

    The line has no single quotes and no line breaks, for the login shell may be any.
    """
    text = base64.b64encode((_PROGRAMS / "start.py").read_bytes()).decode()
    # The system's own first: a shared folder may hang.
    pythons = dict.fromkeys(["python3", *constants.INTERPRETER_PYTHON_FALLBACK, sys.executable])
    line = (
        f"for python in {' '.join(map(shlex.quote, pythons))}; do "
        '"$python" -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null >/dev/null 2>&1 && '
        f'exec "$python" -c "import base64, sys; exec(base64.b64decode(sys.argv[1]))" {text}; '
        "done; echo there is no Python from 3.8 on >&2; exit 127"
    )
    return ["/bin/sh", "-c", line]


def _ask_host(host: Host, payload: str, seconds: float) -> str | HostFailure:
    words = _words()
    if not host.local:
        words = login_argv(host.vars[TARGET], host.vars[PORT], command=shlex.join(words))
    try:
        done = process.run(words, seconds=seconds, given=payload)
    except HvlabError as error:
        return HostFailure(host.name, str(error), True)
    if done.returncode == 0:
        return done.stdout
    return HostFailure(
        host.name,
        _take_last_line(done.stderr, done.returncode),
        not host.local and done.returncode == SSH_FAILED,
    )


def _take_last_line(stderr: str, status: int) -> str:
    lines = [line.strip() for line in clean(stderr).splitlines() if line.strip()]
    return lines[-1] if lines else f"it ended with {status} and printed nothing"


def _ask_by_step(
    lab: Lab, payload: Callable[[Sequence[Host]], str], seconds: float
) -> tuple[dict[str, str], list[HostFailure]]:
    """Run it by one step on all hosts, again without those that Slurm cannot reach."""
    hosts, lost = list(lab.hosts), []
    while hosts:
        number = len(hosts)
        words = [*lab.step[:-1], f"--nodes={number}", f"--ntasks={number}", lab.step[-1]]
        argv = [*words, ",".join(host.name for host in hosts), *_words()]
        try:
            done = process.run(argv, seconds=seconds, given=payload(hosts))
            printed, stderr = done.stdout, done.stderr
        except process.TimeLimitError as late:
            printed, stderr = late.printed, f"no answer within {seconds:g} s"
        gone = {name: text for text, name in _LOST.findall(stderr)}
        lost += [HostFailure(host.name, gone[host.name], True) for host in hosts if host.name in gone]
        if not any(host.name in gone for host in hosts):
            break
        hosts = [host for host in hosts if host.name not in gone]
    else:
        return {}, lost
    outputs, failed = _tasks(printed, stderr, hosts)
    fine = {name: text for name, text in outputs.items() if name not in failed}
    last = next(
        (text for number, text in failed.items() if number not in outputs), _take_last_line(stderr, 1)
    )
    silent = [host.name for host in hosts if host.name not in outputs]
    return fine, [
        *lost,
        *(HostFailure(name, text, False) for name, text in failed.items() if name in outputs),
        *(HostFailure(name, last, "there is no Python" not in last) for name in silent),
    ]


def _tasks(printed: str, stderr: str, hosts: Sequence[Host]) -> tuple[dict[str, str], dict[str, str]]:
    """Return each host's output of a labelled step, and what those that failed said last.

    Srun breaks long lines, so breaks say nothing. A task that did not say its name keeps its number.
    """
    lines: dict[str, list[str]] = {}
    for line in printed.splitlines():
        task, _, text = line.partition(": ")
        lines.setdefault(task.strip(), []).append(text)
    if len(hosts) == 1:
        lines = {"0": [hosts[0].name, *lines.get("0", [])]}
    names = {task: own[0] for task, own in lines.items()}
    words = dict(re.findall(r"^ *(\d+): (.+)$", clean(stderr), re.MULTILINE))
    failed = {
        names.get(str(task), str(task)): words.get(str(task), text)
        for listed, text in _FAILED.findall(stderr)
        for task in _numbers(listed)
    }
    return {own[0]: "".join(own[1:]) for own in lines.values()}, failed


def _numbers(listed: str) -> list[int]:
    ranges = (part.partition("-") for part in listed.split(","))
    return [task for first, _, last in ranges for task in range(int(first), int(last or first) + 1)]
