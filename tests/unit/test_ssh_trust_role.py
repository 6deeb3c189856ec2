"""Role ssh_trust: the settings of the lab user's ssh."""

import subprocess

from tests.contract.tree import ROOT
from tests.unit.plays import play

BOOK = """
- hosts: localhost
  gather_facts: false
  vars_files: [{role}/defaults/main.yml, {role}/vars/main.yml]
  tasks:
    - ansible.builtin.copy:
        content: "{{{{ __ssh_trust_ssh_config }}}}"
        dest: "{file}"
        mode: "0600"
"""


def test_an_old_ssh_can_read_the_settings_for_many_hosts(tmp_path):
    book, file = tmp_path / "play.yml", tmp_path / "config"
    book.write_text(BOOK.format(role=ROOT / "roles/ssh_trust", file=file))
    hosts = {
        f"gpu-node-{number:03}.cluster.example.com": {
            "address": f"10.1.2.{number}",
            "aliases": [f"gpu-node-{number:03}"],
            "port": 22 if number else 2222,
        }
        for number in range(100)
    }
    play(book, tmp_path, {"ssh_trust_hosts": hosts})
    assert max(len(line) for line in file.read_text().splitlines()) < 1023
    for name, port in (("gpu-node-000", 2222), ("10.1.2.57", 22), ("gpu-node-099.cluster.example.com", 22)):
        shown = subprocess.run(
            ["ssh", "-F", file, "-G", name], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert {f"port {port}", "user hvlab", "stricthostkeychecking true"} <= set(shown)
    assert (
        "user hvlab"
        not in subprocess.run(
            ["ssh", "-F", file, "-G", "elsewhere"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    )
