"""How fast the GPUs reach one another and the host: nccl-tests and nvbandwidth, where they are installed.

Asked for by name only: it takes a minute, loads all GPUs, and needs them free.
"""

from __future__ import annotations

import pkgutil
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from hvlab.checks.node.answers import has_timed_out, is_not_installed, number
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft
from hvlab.checks.node.limits import BANDWIDTH

_PROGRAM = (pkgutil.get_data(__package__ or "", "on_all_gpus.py") or b"").decode()
# DCGM 4.4 and later brings nvbandwidth along.
_NCCL_TESTS = "/opt/hvlab/nccl-tests/bin/all_reduce_perf_mpi:all_reduce_perf_mpi:all_reduce_perf"
_NVBANDWIDTH = "nvbandwidth:/usr/libexec/datacenter-gpu-manager-4/plugins/cuda*/nvbandwidth"
_COPIES = {
    "host to device": "host_to_device_memcpy_ce",
    "device to host": "device_to_host_memcpy_ce",
    "device to device": "device_to_device_memcpy_read_ce",
}

QUESTIONS: Dict[str, Dict[str, Any]] = {
    "bandwidth nccl": {
        "run": ["python3", "-c", _PROGRAM, _NCCL_TESTS, "-b", "SIZE", "-e", "SIZE", "-g", "GPUS"],
        "timeout": 300,
        "alone": True,
    },
    "bandwidth nvbandwidth": {
        "run": ["python3", "-c", _PROGRAM, _NVBANDWIDTH, "-t", *_COPIES.values()],
        "timeout": 300,
        "alone": True,
    },
}
CHECKS = {
    "bandwidth nccl allreduce": "hard",
    "bandwidth nvbandwidth": "hard",
    "bandwidth host to device": "soft",
    "bandwidth device to host": "soft",
    "bandwidth device to device": "soft",
}
SHOWN = tuple(CHECKS)
LEARNED = (
    "nccl_allreduce_busbw_gbyte_s",
    *(f"nvbandwidth_{copy.replace(' ', '_')}_gbyte_s" for copy in _COPIES),
)
MARGIN = dict.fromkeys(LEARNED, BANDWIDTH)

_FREE = "see that no other process uses the GPUs (`nvidia-smi`), then measure again"
_WRONG = (
    "the figure or the facts are wrong: compare what `hvlab health` reads of GPUs and links with `nvidia-smi`"
)
_SLOW = f"{_FREE}; then compare clocks, PCIe width and NVLinks with a good host: `hvlab health` lists them"


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return bandwidths in GB/s, of the slowest GPU or pair, which ``bandwidth_where`` names.

    ``bandwidth_failed`` has a failed program's last words, ``nccl_wrong`` the number of wrong values.
    """
    values: Dict[str, Any] = {}
    failed = {}
    for name, parse in (("nccl", _nccl), ("nvbandwidth", _nvbandwidth)):
        answer = answers.get(f"bandwidth {name}")
        if not isinstance(answer, dict) or is_not_installed(answers, f"bandwidth {name}"):
            continue
        own = parse(str(answer.get("out", "")))
        lines = [
            line for line in f"{answer.get('out', '')}\n{answer.get('err', '')}".splitlines() if line.strip()
        ]
        if has_timed_out(answers, f"bandwidth {name}"):
            failed[name] = "it did not end within 300 s"
        elif answer.get("rc") != 0 and not own.get("nccl_wrong"):
            failed[name] = lines[-1].strip() if lines else f"it ended with {answer.get('rc')}"
        values.update(own)
    return {**values, "bandwidth_failed": failed} if failed else values


def _nccl(printed: str) -> Dict[str, Any]:
    """Read the footer of nccl-tests; its average is that of the one requested size."""
    wrong = re.search(r"^# Out of bounds values : (\d+) ", printed, re.M)
    average = re.search(r"^# Avg bus bandwidth +: ([\d.]+) *$", printed, re.M)
    values: Dict[str, Any] = {"nccl_wrong": int(wrong[1])} if wrong else {}
    speed = number(average[1]) if average else None
    # One GPU has no bus to measure: nccl-tests says 0.
    return {**values, LEARNED[0]: speed} if speed else values


def _nvbandwidth(printed: str) -> Dict[str, Any]:
    """Read the tables of nvbandwidth: for each copy the slowest cell, and which GPUs it is of."""
    values: Dict[str, Any] = {}
    where = {}
    for copy, case in _COPIES.items():
        block = re.search(rf"^Running {case}\.\n(.*?)(?:\n *\n|\nSUM |\Z)", printed, re.M | re.S)
        cells = _cells(block[1].splitlines()) if block else {}
        if cells:
            (row, column), slowest = min(cells.items(), key=lambda cell: cell[1])
            name = f"nvbandwidth_{copy.replace(' ', '_')}_gbyte_s"
            values[name] = slowest
            where[name] = f"GPU {row} and GPU {column}" if copy == "device to device" else f"GPU {column}"
    return {**values, "bandwidth_where": where} if values else {}


def _cells(lines: List[str]) -> Dict[Tuple[int, int], float]:
    """Return GB/s by row and column; a GPU's cell with itself is N/A, or 0.00 in the first versions."""
    rows = [line.split() for line in lines]
    header = next(
        (at for at, words in enumerate(rows) if words and all(map(str.isdecimal, words))), len(rows)
    )
    cells = {}
    for words in rows[header + 1 :]:
        if len(words) != len(rows[header]) + 1 or not words[0].isdecimal():
            continue
        for column, word in zip(rows[header], words[1:]):
            speed = number(word)
            if speed:
                cells[int(words[0]), int(column)] = speed
    return cells


def findings(readings: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Judge the measured bandwidths against those of the machine type, and the values that NCCL computed."""
    failed = readings.get("bandwidth_failed", {})
    nccl = "bandwidth nccl allreduce"
    if "nccl" in failed:
        allreduce = hard(nccl, failed["nccl"], f"{_FREE} with NCCL_DEBUG=INFO")
    elif readings.get("nccl_wrong"):
        observed = f"{readings['nccl_wrong']} values are wrong"
        allreduce = hard(
            nccl, observed, "drain the node and run `dcgmi diag -r 3`: a GPU or a link corrupts data"
        )
    else:
        missing = "no GPU, one GPU, or no nccl-tests: set nccl_tests_enabled, and run role nccl_tests"
        allreduce = _judge(nccl, LEARNED[0], readings, expected, missing)
    if "nvbandwidth" in failed:
        return [allreduce, hard("bandwidth nvbandwidth", failed["nvbandwidth"], _FREE)]
    missing = "no GPU, no nvbandwidth (role dcgm brings it), or the GPUs do not reach one another"
    copies = [
        _judge(f"bandwidth {copy}", name, readings, expected, missing)
        for copy, name in zip(_COPIES, LEARNED[1:])
    ]
    return [allreduce, *copies]


def _judge(
    check: str, name: str, readings: Mapping[str, Any], expected: Mapping[str, Any], missing: str
) -> Finding:
    speed: Optional[float] = readings.get(name)
    if speed is None:
        return skipped(check, missing)
    where = readings.get("bandwidth_where", {}).get(name)
    observed = f"{speed:g} GB/s" + (f" ({where})" if where else "")
    threshold = number(expected.get(name))
    top = expected.get("allreduce_ceiling") if name == LEARNED[0] else None
    if top:
        observed += f", {speed / top['ring']:.0%} of the {top['text']}"
        if speed > top["most"]:
            return soft(check, f"{observed}: more than the links can carry", _WRONG)
        threshold = top["usual"] if threshold is None else threshold
    if threshold is None:
        return skipped(check, f"{observed}; the machine type gives no {name} to compare with")
    if speed < threshold:
        return soft(check, f"{observed}, and {threshold:g} GB/s are expected", _SLOW)
    return passed(check, observed)
