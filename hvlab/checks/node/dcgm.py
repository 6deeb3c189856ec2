"""DCGM's diagnostics: `dcgmi diag -r LEVEL -j`, where dcgmi is installed.

Level 1 takes seconds and needs no free GPU; :func:`longer` gives the others, which do.
The severities are those of dcgmErrorSeverity_t in NVIDIA/DCGM, dcgmlib/dcgm_errors.h.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from hvlab.checks.node.answers import has_timed_out, is_not_installed
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft

_ASKED = "dcgm level "


def question(level: int, seconds: int) -> Dict[str, Dict[str, Any]]:
    """Return the question for one level; from level 2 on the GPUs are loaded, so nothing runs beside it."""
    argv = ["dcgmi", "diag", "-r", str(level), "-j"]
    return {f"{_ASKED}{level}": {"run": argv, "timeout": seconds, "alone": level > 1}}


QUESTIONS = question(1, 120)
CHECKS = {"dcgm": "hard"}
LEARNED: Tuple[str, ...] = ()

# By DCGM's severity: whether the node is drained, and what to do.
_SEVERITIES = {
    1: (soft, "the GPU still works: watch it, and run `dcgmi diag -r 3` when the node is free"),
    2: (hard, "take the node out of service and have this GPU looked at or replaced"),
    3: (hard, "take the node out of service and run `dcgmi diag -r 3` on it"),
    4: (hard, "take the node out of service, run `dcgmi diag -r 3`, and see NVIDIA's GPU debug guidelines"),
    5: (soft, "change the setting that DCGM names, then check again"),
    6: (hard, "drain the node, then reset the GPU: `nvidia-smi --gpu-reset -i NUMBER`, or reboot"),
}
# DCGM 3 tells no severity of these; what they name is a setting or another program.
_SETTINGS = ("denylist", "persistence mode", "environment", "graphics processes", "permissions")
_CONFIG, _UNKNOWN = 5, 3


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``dcgm_tests``, or ``dcgm_error``.

    A test has ``test``, ``status``, ``gpus``, ``severity`` and ``texts``. Nothing where there is no dcgmi.
    """
    name = next((name for name in answers if name.startswith(_ASKED)), _ASKED)
    answer = answers.get(name)
    if not isinstance(answer, dict) or is_not_installed(answers, name):
        return {}
    if has_timed_out(answers, name):
        return {"dcgm_error": "dcgmi diag did not end in time"}
    printed = str(answer.get("out", ""))
    document = _document(printed)
    body = next(
        (document[name] for name in ("DCGM Diagnostic", "DCGM GPU Diagnostic") if name in document), None
    )
    if not isinstance(body, dict) or not isinstance(body.get("test_categories"), list):
        reason = body.get("runtime_error") if isinstance(body, dict) else None
        lines = [line.strip() for line in (printed + str(answer.get("err", ""))).splitlines() if line.strip()]
        return {"dcgm_error": str(reason or " ".join(lines[:2]) or f"dcgmi ended with {answer.get('rc')}")}
    tests = [
        _test(test) for category in _dicts(body["test_categories"]) for test in _dicts(category.get("tests"))
    ]
    return {"dcgm_tests": [test for test in tests if test["status"]]}


def _document(printed: str) -> Dict[str, Any]:
    try:
        document = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _dicts(value: Any) -> List[Dict[str, Any]]:
    """Return the objects of a list; DCGM 3 puts nulls between them."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _test(test: Mapping[str, Any]) -> Dict[str, Any]:
    """Return one test with its results: the worst status, and the texts of those that did not pass."""
    summary = test.get("test_summary")
    results = _dicts(test.get("results"))
    everything = results + ([summary] if isinstance(summary, dict) else [])
    statuses = [str(result.get("status", "")).lower() for result in everything]
    status = next((word for word in ("fail", "warn", "pass", "skip") if word in statuses), "")
    concerned = [result for result in results if str(result.get("status", "")).lower() == status]
    warnings = [warning for result in everything for warning in _warnings(result)]
    severities = [warning[1] for warning in warnings if warning[1] is not None]
    return {
        "test": str(test.get("name", "")),
        "status": status,
        "gpus": sorted({number for result in concerned for number in _gpus(result)}),
        # The graver of two is the one with "hard", not the one with the larger number.
        "severity": max(
            severities, key=lambda severity: (_SEVERITIES.get(severity, (hard,))[0] is hard, severity)
        )
        if severities
        else None,
        "texts": list(dict.fromkeys(text for text, _ in warnings)),
    }


def _warnings(result: Mapping[str, Any]) -> Iterable[Tuple[str, Optional[int]]]:
    """Yield text and severity of a result's warnings: a text, texts or, since 3.2, objects."""
    listed = result.get("warnings")
    for warning in listed if isinstance(listed, list) else [listed]:
        if isinstance(warning, dict):
            severity = warning.get("error_severity")
            yield str(warning.get("warning", "")), severity if isinstance(severity, int) else None
        elif isinstance(warning, str):
            yield warning, None


def _gpus(result: Mapping[str, Any]) -> List[int]:
    """Return the GPUs of a result: a number, or numbers with commas (DCGM 3), or an entity (DCGM 4)."""
    if result.get("entity_group", "GPU") != "GPU":
        return []
    value = next((result[name] for name in ("entity_id", "gpu_id", "gpu_ids") if name in result), "")
    words = str(value).split(",")
    return [int(word) for word in words if word.strip().isdecimal() and word.isascii()]


def findings(values: Mapping[str, Any], _expected: Mapping[str, Any]) -> List[Finding]:
    """Judge each test of the diagnostics that was run."""
    if "dcgm_error" in values:
        error = values["dcgm_error"]
        start = "start its service, `systemctl enable --now nvidia-dcgm`, and see `journalctl -u nvidia-dcgm`"
        return [soft("dcgm", error, "let it end, then check again" if "already running" in error else start)]
    if "dcgm_tests" not in values:
        return [skipped("dcgm", "dcgmi is not installed: set dcgm_enabled, and run role dcgm")]
    return [_judge(test) for test in values["dcgm_tests"]]


def _judge(test: Mapping[str, Any]) -> Finding:
    name = f"dcgm {test['test'].lower()}"
    where = f"GPU {', '.join(map(str, test['gpus']))}: " if test["gpus"] else ""
    texts = test["texts"]
    more = f" (and {len(texts) - 1} more like it)" if len(texts) > 1 else ""
    observed = where + (texts[0] + more if texts else f"`dcgmi diag` says {test['status']}")
    if test["status"] == "pass":
        return passed(name)
    if test["status"] == "skip":
        return skipped(name, observed if texts else "DCGM skipped it")
    severity = test["severity"]
    if severity is None:
        setting = any(word in name for word in _SETTINGS)
        severity = _CONFIG if setting else 1 if test["status"] == "warn" else _UNKNOWN
    weight, remedy = _SEVERITIES.get(severity, _SEVERITIES[_UNKNOWN])
    return (soft if test["status"] == "warn" else weight)(name, observed, remedy)


def at_level(level: int, seconds: int) -> Any:
    """Return this subject at another level: 2 (PCIe, memory) or 3 (also power and stress), on free GPUs."""
    return SimpleNamespace(
        __name__=__name__,
        QUESTIONS=question(level, seconds),
        LEARNED=LEARNED,
        readings=readings,
        findings=findings,
    )
