"""Whole labs, as reports tell of them and as they are today: what is chosen, what is refused and why."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvlab.resolver import Plan, Refusal, Wanted, plan
from hvlab.resolver.facts import from_file
from hvlab.resolver.pins import parse
from hvlab.resolver.versions import prefix

CASES = yaml.safe_load(Path(__file__).with_name("resolver_cases.yml").read_text(encoding="utf-8"))["cases"]


def resolved(case: dict[str, Any]) -> Plan | Refusal:
    methods = case.get("methods", {})
    lab = [
        Wanted(host, methods={"driver": methods[name]} if name in methods else {})
        for name, host in from_file(case["hosts"]).items()
    ]
    return plan(lab, [parse(pin) for pin in case.get("pins", ())])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    found = resolved(case)
    if "versions" in case:
        assert isinstance(found, Plan), found.message
        same = not set(case["versions"]) & set(case["hosts"])
        for host, stack in found.hosts.items():
            wanted = case["versions"] if same else case["versions"].get(host, {})
            for name, version in wanted.items():
                chosen = stack["versions"][name]
                assert chosen == version or (version and chosen and prefix(version, chosen)), (
                    host,
                    name,
                    chosen,
                )
        told = [*found.notes, *(note for stack in found.hosts.values() for note in stack["notes"])]
        told = "".join(f"{note}\n" for note in told)
        for text in case.get("notes", ()):
            assert text in told
        return
    assert isinstance(found, Refusal), found.hosts
    assert found.message == case.get("message", found.message)
    for text in case.get("refused", ()):
        assert text in found.message
    if "conflict" in case:
        assert [item["text"] for item in found.conflict] == case["conflict"]
    offered = [remedy.text for remedy in found.nearest]
    missing = [text for text in case.get("nearest", ()) if not any(one.startswith(text) for one in offered)]
    assert not missing, offered


@pytest.mark.parametrize(
    "case", [case for case in CASES if "versions" not in case], ids=lambda case: case["name"]
)
def test_what_is_offered_works(case):
    found = resolved(case)
    assert isinstance(found, Refusal)
    for remedy in found.nearest:
        dropped = {parse(pin).name for pin in remedy.pins}
        gone = [
            pin
            for pin in case.get("pins", ())
            if f"without {pin}" in remedy.text or f"and {pin}" in remedy.text
        ]
        kept = [pin for pin in case.get("pins", ()) if parse(pin).name not in dropped and pin not in gone]
        hosts = {name: facts for name, facts in case["hosts"].items() if name not in remedy.without}
        method = re.search(r"lab_driver_method (\w+)", remedy.text)
        methods = dict.fromkeys(hosts, method[1]) if method else {}
        again = resolved({"hosts": hosts, "pins": [*kept, *remedy.pins], "methods": methods})
        assert isinstance(again, Plan), (remedy.text, again.message)
