"""The short form, which runs on a node alone: before every job, as a prolog of Slurm, or by hand.

Its exit code is HARD only for hard faults. Anything else that is not 0 means that it could not judge; the
program that calls it (roles/node_health) leaves the node in service then.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import syslog
import time
from typing import Any, Dict, List, Sequence

from hvlab.checks.node import machine, probe, subjects
from hvlab.checks.node.finding import Finding, soft

HARD = 10


def main(argv: Sequence[str]) -> int:
    """Judge this node and return the exit code."""
    parser = argparse.ArgumentParser(prog="hvlab-node-health", description="Is this node fit for work?")
    parser.add_argument("--types", required=True, help=argparse.SUPPRESS)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--prolog", action="store_true", help="Print hard faults alone, also to the system log."
    )
    form.add_argument("--json", action="store_true", help="Print every check as JSON.")
    parser.add_argument("--metrics", metavar="FOLDER", help="Also write gauges for node_exporter there.")
    options = parser.parse_args(argv)
    with open(options.types, encoding="utf-8") as file:
        findings = judge(json.load(file))
    if options.metrics:
        write_gauges(options.metrics, findings)
    if options.json:
        json.dump([finding._asdict() for finding in findings], sys.stdout, indent=1)
        print()
        return _code(findings)
    for line in lines(findings, hard_only=options.prolog):
        print(line)
        if options.prolog:
            syslog.syslog(syslog.LOG_ERR, line)
    return _code(findings)


def _code(findings: Sequence[Finding]) -> int:
    return HARD if any(finding.severity == "hard" for finding in findings) else 0


def write_gauges(folder: str, findings: Sequence[Finding]) -> None:
    """Write the gauges of ``hvlab health --metrics`` into a file for node_exporter's textfile collector."""
    host = json.dumps(socket.gethostname())
    lines = []
    for severity in ("hard", "soft"):
        lines.append("# TYPE hvlab_{}_fault gauge".format(severity))
        for each in findings:
            if each.outcome in ("passed", "failed"):
                labels = "host={},check={}".format(host, json.dumps(each.check))
                lines.append("hvlab_{}_fault{{{}}} {:d}".format(severity, labels, each.severity == severity))
    lines += ["# TYPE hvlab_ended_seconds gauge"]
    lines += ['hvlab_ended_seconds{{verb="node-health",host={}}} {:.0f}'.format(host, time.time()), ""]
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "hvlab_node_health.prom")
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    os.replace(path + ".new", path)


def judge(given: Dict[str, Any]) -> List[Finding]:
    """Return every check of this node.

    ``given`` has the machine types as files by name (``own``, ``known``), the name of this node's ``type``,
    which may be empty, and values that are expected whatever the type (``expect``).
    """
    answers = probe.answers(subjects.questions(subjects.QUICK))
    values = subjects.readings(subjects.QUICK, answers)
    try:
        types = machine.types(given["own"], given["known"])
        expected = {**given["expect"], **machine.find_expected(types, values, given["type"])}
        return subjects.findings(subjects.QUICK, values, expected)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fault = _unusable(given["type"], error)
    return [fault, *subjects.findings(subjects.QUICK, values, given["expect"])]


def _unusable(name: str, error: Exception) -> Finding:
    """Return the fault of unusable machine types; the node is then judged by the rules for any machine."""
    unknown = isinstance(error, KeyError) and error.args == (name,)
    observed = f"there is no type {name!r}" if unknown else f"a file of a machine type is wrong: {error!r}"
    remedy = (
        "correct lab_machine_type, or the file that `hvlab health` names; then run role node_health again"
    )
    return soft("machine type", observed, remedy)


def lines(findings: Sequence[Finding], *, hard_only: bool) -> List[str]:
    """Return a line for each hard fault; or all faults, each with what to do."""
    if hard_only:
        return [f"hvlab: {each.check}: {each.observed}" for each in findings if each.severity == "hard"]
    return [
        f"{each.check} ({each.severity}): {each.observed}\n  what to do: {each.remedy}"
        for each in findings
        if each.outcome == "failed"
    ]
