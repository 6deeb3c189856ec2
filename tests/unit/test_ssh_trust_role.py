"""Role ssh_trust: the settings of the lab user's ssh."""

import subprocess

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.contract.tree import ROOT, defaults
from tests.unit.test_container_runtime import trusted


def test_an_old_ssh_can_read_the_settings_for_many_hosts(tmp_path):
    file = tmp_path / "config"
    hosts = {
        f"gpu-node-{number:03}.cluster.example.com": {
            "address": f"10.1.2.{number}",
            "aliases": [f"gpu-node-{number:03}"],
            "port": 22 if number else 2222,
        }
        for number in range(100)
    }
    variables = {**trusted(defaults("ssh_trust")), "ssh_trust_hosts": hosts, "groups": {}}
    template = (ROOT / "roles/ssh_trust/templates/home/hvlab/.ssh/config.j2").read_text()
    file.write_text(Templar(DataLoader(), variables).template(trust_as_template(template)))
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
