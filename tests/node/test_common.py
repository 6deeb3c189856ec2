"""Names resolve to the lab's addresses, and local facts can be read."""

from __future__ import annotations

import json
import re

from tests.node.lab import FACTS, Node, Question, applied_roles, run

# All names in one question: with one for each, the argument of many hosts is longer than Linux takes.
RESOLVE = """\
import json, socket, sys

def addresses(name):
    try:
        return sorted({info[4][0] for info in socket.getaddrinfo(name, None, socket.AF_INET)})
    except OSError:
        return []

print(json.dumps({name: addresses(name) for name in sys.argv[1:]}))
"""


def asks(node: Node) -> dict[str, Question]:
    return {"names": run(["python3", "-c", RESOLVE, *node.peers])}


def test_every_name_resolves_to_the_lab_address(node: Node) -> None:
    resolved = json.loads(node.output("names", "run role common, which writes /etc/hosts"))
    wrong = [
        f"{peer} resolves to {', '.join(resolved[peer]) or 'nothing'}, not {address}"
        for peer, address in node.peers.items()
        if resolved[peer] != [address]
    ]
    node.expect(not wrong, "; ".join(wrong), "run role common, which writes /etc/hosts")


def test_facts_are_json(node: Node) -> None:
    for path, text in node["facts"].items():
        try:
            json.loads(text)
        except ValueError as error:
            node.expect(
                False, f"{path} is not JSON: {error}", "remove it, and run the role it is named after"
            )


def test_facts_belong_to_roles(node: Node) -> None:
    known = {f"{FACTS}/hvlab_{role}.fact" for role in applied_roles()}
    # hvlab_ROLE@NAME.fact is of a stack beside the one in use.
    written = {path: re.sub(r"@[^/]+(?=\.fact$)", "", path) for path in node["facts"]}
    unknown = sorted(path for path, own in written.items() if "/hvlab_" in path and own not in known)
    node.expect(not unknown, f"unknown fact files, which no role writes: {', '.join(unknown)}", "remove them")
