"""Errors that NVIDIA's driver wrote to the kernel log (Xid, and SXid of NVSwitches) since it was loaded.

An Xid counts until the driver is loaded again, by a reboot or by hand, or until the driver itself says that
the GPU needs no action any more (Xid 154 of newer drivers). A reset without either does not change that.

In ``xids.json``, meaning and action come from NVIDIA's catalogue as of October 2025
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) and, for what it calls unused today,
from its table for older GPUs. The severity follows from the action: reset or reboot is hard, support is soft,
an error of the application is none. Kept apart from that:

- 48 is hard: NVIDIA's node checks call it critical
  (https://docs.nvidia.com/health-validation/reference/checks/xid.md).
- 63 and 156 ask for a reset some day; until then work goes on. What is pending shows in
  ``gpu row remapping``.
- 57 and 58, of older GPUs, and 74 are hard because Azure's node health check fails on them
  (https://github.com/Azure/azurehpc-health-checks, customTests/azure_gpu_xid.nhc).
- 144 to 150 say themselves whether they are fatal; 154 names the action that the driver asks for.
"""

from __future__ import annotations

import json
import pkgutil
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from hvlab.checks.node import pci, smi
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft


class Xid(NamedTuple):
    """``none``, ``soft``, ``hard`` or ``line`` (the message decides); the meaning; a key of ``ACTIONS``."""

    severity: str
    meaning: str
    action: str


_DATA = json.loads(pkgutil.get_data(__package__ or "", "xids.json") or b"")
# What to do, by name. The kernel log keeps a fault after a reset: it counts until the driver is loaded again.
ACTIONS: Dict[str, str] = _DATA["actions"]
# What Xid 154 asks for, as the driver words it.
RECOVERY: Dict[str, str] = _DATA["recovery"]
XIDS: Dict[int, Xid] = {
    code: Xid(group["severity"], meaning, group["action"])
    for group in _DATA["xids"]
    for meaning, codes in group["meanings"].items()
    for code in codes
}

UNKNOWN = Xid("soft", "not in the table", "support")


_JOURNAL, _RING, _READER = "xid journal", "xid dmesg", "xid reader"
_GREP = r"NVRM: (Xid|GPU|loading|The NVIDIA GPU)|: SXid \("
LOG: Dict[str, Dict[str, Any]] = {
    _JOURNAL: {
        "run": [
            "journalctl",
            "--dmesg",
            "--boot",
            "--quiet",
            "--no-pager",
            "--output=short-iso",
            f"--grep={_GREP}",
        ]
    },
    # Where the journal cannot search. The driver writes at the default level, which is warn.
    _RING: {"run": ["dmesg", "--level=emerg,alert,crit,err,warn"]},
    # Its owner is who asks.
    _READER: {"stat": "/proc/self/fd"},
}
QUESTIONS: Dict[str, Dict[str, Any]] = {**smi.QUESTION, **pci.QUESTION, **LOG}
CHECKS = {"xid": "hard"}
LEARNED: Tuple[str, ...] = ()

_ADDRESS = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
_XID = re.compile(rf"NVRM: Xid \({_ADDRESS}[^)]*\): (\d{{1,4}})(?:, *|$)(.*)")
_LOST = re.compile(rf"NVRM: GPU (?:at )?{_ADDRESS}\.\d:? ((?:GPU )?has fallen off the bus)")
_UUID = re.compile(rf"NVRM: GPU at {_ADDRESS}: (GPU-[0-9a-fA-F-]+)")
_SXID = re.compile(rf"SXid \({_ADDRESS}[^)]*\): (\d{{1,6}}), (Fatal|Non-fatal), (.*)")
# Its line breaks have moved: https://github.com/NVIDIA/open-gpu-kernel-modules/issues/696 and 393.
_UNSUPPORTED = re.compile(
    rf"The NVIDIA GPU {_ADDRESS}\.\d \(PCI ID: [^)]*\) installed in this system is not supported"
)
_BREAK = re.compile(r"\n[^\n]{0,120}?NVRM: *")
_LOADED = re.compile(r"NVRM: loading NVIDIA")
_ACTION = re.compile(r"to 0x[0-9a-fA-F]+ \(([^)]*)\)")
_FATAL = re.compile(r"\bFatal\b")
_OFF_THE_BUS, _CHANGED_ACTION = 79, 154
_TEXT_MAX = 120


def parse(text: str) -> Dict[str, Dict[str, Any]]:
    """Return the events that count, by address, kind (Xid or SXid) and code; each with its worst text."""
    events: Dict[str, Dict[str, Any]] = {}
    for line in text.splitlines():
        if _LOADED.search(line):
            events.clear()
            continue
        event = _event(line)
        if event is None:
            continue
        if event["code"] == _CHANGED_ACTION and event["action"] == "None":
            events = {key: one for key, one in events.items() if one["address"] != event["address"]}
            continue
        key = f"{event['address']} {event['kind']} {event['code']}"
        earlier = events.get(key, {"count": 0, "fatal": False})
        event["count"] = earlier["count"] + 1
        if earlier["fatal"] and not event["fatal"]:
            event.update(fatal=True, text=earlier["text"])
        events[key] = event
    return events


def _event(line: str) -> Optional[Dict[str, Any]]:
    match, lost, switch = _XID.search(line), _LOST.search(line), _SXID.search(line)
    if switch:
        return _of(switch.group(1), "SXid", int(switch.group(2)), switch.group(4), switch.group(3) == "Fatal")
    if match:
        text = match.group(3)
        event = _of(match.group(1), "Xid", int(match.group(2)), text, bool(_FATAL.search(text)))
        action = _ACTION.search(text)
        event["action"] = action.group(1) if action else ""
        return event
    if lost:
        return _of(lost.group(1), "Xid", _OFF_THE_BUS, lost.group(2), False)
    return None


def _of(address: str, kind: str, code: int, text: str, fatal: bool) -> Dict[str, Any]:
    return {
        "address": f"{smi.address(address)}.0",
        "kind": kind,
        "code": code,
        "text": text.strip()[:_TEXT_MAX],
        "fatal": fatal,
    }


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``gpus``, ``gpu_bus``, ``xids`` and the UUIDs that the log names; no ``xids`` without a log."""
    texts = logs(answers)
    values: Dict[str, Any] = {"gpus": smi.gpus(answers), "gpu_bus": pci.addresses(answers, pci.GPU)}
    values["xid_root"] = _is_by_root(answers)
    if texts:
        # One of the two may hold less: a journal without the kernel's messages, a ring that has turned over.
        text = max(texts, key=lambda text: (len(_XID.findall(text)), len(text)))
        values["xids"] = list(parse(text).values())
        values["xid_uuids"] = {f"{smi.address(address)}.0": uuid for address, uuid in _UUID.findall(text)}
    return values


def logs(answers: Mapping[str, Any]) -> List[str]:
    """Return the driver's lines of the journal, and the kernel's ring, each where it can be read."""
    # A plain user's journal may lack the kernel's messages, and journalctl says nothing about that.
    fine = (0, 1) if _is_by_root(answers) else (0,)
    texts = (_text(answers.get(_JOURNAL), fine), _text(answers.get(_RING), (0,)))
    return [text for text in texts if text is not None]


def _is_by_root(answers: Mapping[str, Any]) -> bool:
    answer = answers.get(_READER)
    own = answer.get("/proc/self/fd") if isinstance(answer, dict) else None
    return not isinstance(own, dict) or bool(own.get("owner", "root") == "root")


def find_unsupported(answers: Mapping[str, Any]) -> List[str]:
    """Return the addresses of the GPUs that the driver's release says it does not support."""
    texts = [_BREAK.sub(" ", text) for text in logs(answers)]
    return sorted({f"{smi.address(one)}.0" for text in texts for one in _UNSUPPORTED.findall(text)})


def _text(answer: Any, fine: Tuple[int, ...]) -> Optional[str]:
    """Return the text. journalctl ends with 1 if nothing matches; if it cannot search, it also prints so."""
    if not isinstance(answer, dict) or answer.get("rc") not in fine:
        return None
    if answer.get("rc") and str(answer.get("err", "")).strip():
        return None
    return str(answer.get("out", ""))


def findings(values: Mapping[str, Any], _expected: Mapping[str, Any]) -> List[Finding]:
    """Return a finding for each Xid of each GPU that is a fault; nothing if there are no GPUs.

    A container without GPUs of its own may well see the kernel log of its host.
    """
    events = values.get("xids")
    if not values.get("gpus") and not values.get("gpu_bus"):
        return []
    if events is None and not values.get("xid_root", True):
        return [skipped("xid", "needs root, or group adm or systemd-journal, to read the kernel log")]
    if events is None:
        return [skipped("xid", "the kernel log cannot be read (neither journalctl nor dmesg)")]
    faults = [finding for event in events for finding in _fault(event, values)]
    if faults:
        return faults
    harmless = ", ".join(f"{event['kind']} {event['code']} ({event['count']})" for event in events)
    observed = f"application errors only: {harmless}" if harmless else "none since the driver was loaded"
    return [passed("xid", observed)]


def _fault(event: Mapping[str, Any], values: Mapping[str, Any]) -> List[Finding]:
    severity, meaning, remedy = _judge(event)
    if severity == "none":
        return []
    times = f", {event['count']} times" if event["count"] > 1 else ""
    title = f"{event['kind']} {event['code']} ({meaning}){times}"
    return [
        (hard if severity == "hard" else soft)(
            "xid", f"{_owner(event, values)}: {title}: {event['text']}", remedy
        )
    ]


def _judge(event: Mapping[str, Any]) -> Tuple[str, str, str]:
    if event["kind"] == "SXid":
        return ("hard" if event["fatal"] else "none"), "NVSwitch error", ACTIONS["nvlink"]
    xid: Xid = XIDS.get(event["code"], UNKNOWN)
    if event["code"] == _CHANGED_ACTION:
        return "hard", xid.meaning, RECOVERY.get(event["action"], ACTIONS[xid.action])
    severity = ("hard" if event["fatal"] else "soft") if xid.severity == "line" else xid.severity
    return severity, xid.meaning, ACTIONS[xid.action]


def _owner(event: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Name the GPU as nvidia-smi knows it, else as the log does."""
    if event["kind"] == "SXid":
        return f"NVSwitch {event['address']}"
    for gpu in values.get("gpus", []):
        if gpu["address"] == event["address"]:
            return smi.name(gpu)
    uuid = values.get("xid_uuids", {}).get(event["address"])
    return f"GPU {event['address']}" + (f" ({uuid})" if uuid else "")
