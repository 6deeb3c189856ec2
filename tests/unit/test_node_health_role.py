"""Machine types that role node_health refuses before it installs anything."""

from __future__ import annotations

import pytest
import yaml

from tests.contract.tree import ROOT
from tests.unit.plays import play

ROLE = ROOT / "roles/node_health"
RIGHT = {"match": {}, "expect": {"cpu_count": 2}}
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Read the role's variables
      ansible.builtin.include_vars: "{{ role }}/vars/main.yml"
    - name: Refuse
      ansible.builtin.include_tasks: "{{ role }}/tasks/preflight.yml"
"""


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (RIGHT, "", ""),
        (RIGHT, "mine", ""),
        (RIGHT, "dgx-h100", ""),
        (RIGHT, "dgx-h10", "node_health_machine_type is dgx-h10, and there is no such type"),
        ([RIGHT], "", "machine type mine has no mappings"),
        ({"match": {}}, "", "machine type mine has no mappings"),
        (None, "", "machine type mine has no mappings"),
    ],
    ids=["right", "own", "known", "no such name", "a list", "no expect", "empty"],
)
def test_types_that_cannot_be_used_are_refused(tmp_path, data, name, said):
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(data), "utf-8")
    (tmp_path / "play.yml").write_text(PLAY, "utf-8")
    variables = {
        "role": str(ROLE),
        "node_health_prefix": "/opt/hvlab",
        "node_health_source_dir": str(ROOT / "hvlab/checks"),
        "node_health_types": [str(tmp_path / "mine.yml")],
        "node_health_machine_type": name,
        "node_health_interfaces": [],
    }
    printed = play(tmp_path / "play.yml", tmp_path / "programs", variables, expect=2 if said else 0)
    assert said in printed
