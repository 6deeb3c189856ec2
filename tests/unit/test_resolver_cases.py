"""Whole labs, as reports tell of them and as they are today: what is chosen, what is refused and why."""

import re
from pathlib import Path
from typing import Any

import pytest

from hvlab.base.yaml_files import read_shipped
from hvlab.stack.resolver import HostRequest, Infeasible, Resolution, plan
from hvlab.stack.resolver.facts import from_file
from hvlab.stack.resolver.pins import parse
from hvlab.stack.resolver.versions import is_prefix

pytestmark = pytest.mark.resolver

CASES = read_shipped(Path(__file__).with_name("resolver_cases.yml"))["cases"]


def resolved(case: dict[str, Any]) -> Resolution | Infeasible:
    methods = case.get("methods", {})
    lab = [
        HostRequest(host, methods={"driver": methods[name]} if name in methods else {})
        for name, host in from_file(case["hosts"]).items()
    ]
    return plan(lab, [parse(pin) for pin in case.get("pins", ())])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    answer = resolved(case)
    if "versions" in case:
        assert isinstance(answer, Resolution), answer.message
        check_versions(case, answer)
    else:
        assert isinstance(answer, Infeasible), answer.hosts
        check_conflict(case, answer)
        check_remedies(case, answer)


def check_versions(case: dict[str, Any], answer: Resolution) -> None:
    same = not set(case["versions"]) & set(case["hosts"])
    for host, stack in answer.hosts.items():
        expected = case["versions"] if same else case["versions"].get(host, {})
        for name, version in expected.items():
            chosen = stack["versions"][name]
            fits = chosen == version or (version and chosen and is_prefix(version, chosen))
            assert fits, (host, name, chosen)
    notes = [*answer.notes, *(note for stack in answer.hosts.values() for note in stack["notes"])]
    lines = "".join(f"{note}\n" for note in notes)
    for text in case.get("notes", ()):
        assert text in lines


def check_conflict(case: dict[str, Any], answer: Infeasible) -> None:
    assert answer.message == case.get("message", answer.message)
    for text in case.get("refused", ()):
        assert text in answer.message
    if "conflict" in case:
        assert [item["text"] for item in answer.conflict] == case["conflict"]
    offered = [remedy.text for remedy in answer.nearest]
    missing = [text for text in case.get("nearest", ()) if not any(one.startswith(text) for one in offered)]
    assert not missing, offered


def check_remedies(case: dict[str, Any], answer: Infeasible) -> None:
    """Whatever is offered resolves."""
    for remedy in answer.nearest:
        dropped = {parse(pin).name for pin in remedy.pins}
        gone = [
            pin
            for pin in case.get("pins", ())
            if f"without {pin}" in remedy.text or f"and {pin}" in remedy.text
        ]
        kept = [pin for pin in case.get("pins", ()) if parse(pin).name not in dropped and pin not in gone]
        hosts = {
            name: facts | {"gpus": [gpu for gpu in facts.get("gpus", ()) if gpu["name"] not in remedy.text]}
            for name, facts in case["hosts"].items()
            if name not in remedy.without
        }
        method = re.search(r"lab_driver_method (\w+)", remedy.text)
        methods = dict.fromkeys(hosts, method[1]) if method else {}
        again = resolved({"hosts": hosts, "pins": [*kept, *remedy.pins], "methods": methods})
        assert isinstance(again, Resolution), (remedy.text, again.message)
