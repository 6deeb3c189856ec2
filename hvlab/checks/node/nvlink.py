"""NVLinks: as many as expected, all of them up, none slower than the others.

NVIDIA's own checks call an inactive link critical
(https://docs.nvidia.com/health-validation/reference/checks/nvlink.md), and Azure's fail on it. But GPUs on
PCIe cards show their links as inactive when no bridge is plugged in, and a GPU in MIG mode has none.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from hvlab.checks.node import smi
from hvlab.checks.node.finding import Fault, Finding, judge, passed, skipped

_STATUS = "nvlink status"
QUESTIONS: Dict[str, Dict[str, Any]] = {
    **smi.QUESTION,
    _STATUS: {"run": ["nvidia-smi", "nvlink", "--status"], "timeout": smi.TIMEOUT_S},
}
CHECKS = {"nvlink count": "hard", "nvlink speed": "soft"}
LEARNED: Tuple[str, ...] = ("nvlink_count",)

# There is no such program, or it was given up on.
_NO_ANSWER = (127, 124, 137)
_STATES = ("up", "down", "all_down")
_NO_LINKS: Dict[str, Any] = {"up": 0, "down": [], "speeds": []}
_GPU = re.compile(r"^\s*GPU (\d+): ")
_LINK = re.compile(r"^\s*Link (\d+): (?:(\d+(?:\.\d+)?) GB/s|(<inactive>))\s*$")
_NONE = re.compile(r"as all links are inactive", re.IGNORECASE)
_REMEDY = "look for Xid 74 and 144 to 150 in the kernel log, reset all GPUs or reboot, then have it repaired"


def parse(text: str) -> Dict[int, Dict[str, Any]]:
    """Return for each GPU, by index, how many links are up and down, and the speeds of those up in GB/s."""
    gpus: Dict[int, Dict[str, Any]] = {}
    for line in text.splitlines():
        gpu, link = _GPU.match(line), _LINK.match(line)
        if gpu:
            gpus[int(gpu.group(1))] = {"up": 0, "down": [], "speeds": []}
        elif link and gpus:
            last = gpus[max(gpus)]
            if link.group(3):
                last["down"].append(int(link.group(1)))
            else:
                last["up"] += 1
                last["speeds"].append(float(link.group(2)))
        elif _NONE.search(line) and gpus:
            gpus[max(gpus)]["all_down"] = True
    return gpus


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``gpus``, ``nvlinks`` by index, and the number of links that are up if all GPUs have as many."""
    answer = answers.get(_STATUS)
    values: Dict[str, Any] = {"gpus": smi.gpus(answers)}
    if isinstance(answer, dict) and answer.get("rc") not in _NO_ANSWER:
        links = parse(str(answer.get("out", "")))
        values["nvlinks"] = {str(index): one for index, one in links.items() if any(map(one.get, _STATES))}
        counts = {one["up"] for one in values["nvlinks"].values()}
        if len(counts) == 1 and len(values["nvlinks"]) == len(values["gpus"]):
            values["nvlink_count"] = counts.pop()
    return values


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Return the outcome of the checks of the links; without GPUs there is nothing to say."""
    gpus, links = values.get("gpus", []), values.get("nvlinks")
    if not gpus:
        return []
    if links is None:
        return [skipped("nvlink count", "nvidia-smi nvlink gave no answer")]
    whole = [gpu for gpu in gpus if gpu.get("mig_mode") != "Enabled"]
    if not whole:
        return [skipped("nvlink count", "GPUs in MIG mode have no NVLink")]
    count = expected.get("nvlink_count")
    if not count and not any(one["up"] for one in links.values()):
        return [passed("nvlink count", "no NVLink")]
    given = [
        dict(gpu, links=links.get(str(gpu["index"]), _NO_LINKS))
        for gpu in whole
        if count or str(gpu["index"]) in links
    ]
    # A card without a bridge, beside those that have one, tells nothing about these.
    alike = len({gpu["links"]["up"] for gpu in given if gpu["links"]["up"]}) == 1
    fastest = max((speed for gpu in given for speed in gpu["links"]["speeds"]), default=0.0)
    return [
        *judge("nvlink count", given, lambda gpu: _count(gpu["links"], count, alike)),
        *judge("nvlink speed", given, lambda gpu: _judge_speed(gpu["links"], fastest)),
    ]


def _count(links: Mapping[str, Any], count: Optional[int], alike: bool) -> Optional[Fault]:
    if count and links["up"] < count:
        return Fault("hard", f"{links['up']} NVLinks up instead of {count}{_which(links)}", _REMEDY)
    if not count and (links["down"] or not links["up"]):
        wired_so = alike or not links["up"]
        hint = "; if that is how it is wired, give nvlink_count in the machine type" if wired_so else ""
        severity = "soft" if wired_so else "hard"
        return Fault(severity, f"{links['up']} NVLinks up{_which(links)}", _REMEDY + hint)
    return None


def _which(links: Mapping[str, Any]) -> str:
    return f", down: {', '.join(map(str, links['down']))}" if links["down"] else ""


def _judge_speed(links: Mapping[str, Any], fastest: float) -> Optional[Fault]:
    slow = [speed for speed in links["speeds"] if speed < fastest]
    if not slow:
        return None
    return Fault("soft", f"{len(slow)} NVLinks at {min(slow):g} GB/s, others at {fastest:g} GB/s", _REMEDY)
