"""Where sshd's lines go, and which certificates the controller keeps."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from hvlab.ansible import plugin as plugin_base
from hvlab.ansible.action import hvlab_trust as action
from hvlab.ansible.action.hvlab_trust import sshd_config
from hvlab.remote import ssh_keys, trust


@pytest.mark.parametrize(
    ("distribution", "family", "major", "item"),
    [
        ("Debian", "Debian", "12", {"template": action.SSHD_CONFIG}),
        ("Rocky", "RedHat", "9", {"template": action.SSHD_CONFIG}),
        ("Rocky", "RedHat", "8", {"path": "/etc/ssh/sshd_config", "block_template": action.SSHD_CONFIG}),
        ("Amazon", "RedHat", "2", {"path": "/etc/ssh/sshd_config", "block_template": action.SSHD_CONFIG}),
    ],
)
def test_a_file_of_its_own_where_sshd_reads_drop_ins(distribution, family, major, item):
    facts = {"distribution": distribution, "os_family": family, "distribution_major_version": major}
    assert sshd_config(facts).items() >= item.items()


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("Include /etc/ssh/sshd_config.d/*.conf", True),
        ('  include="sshd_config.d/*.conf"', True),
        ("#Include /etc/ssh/sshd_config.d/*.conf", False),
        ("Port 22", False),
        ("match User ann\nInclude /etc/ssh/sshd_config.d/*.conf", False),
        ("#Match User ann\nInclude /etc/ssh/sshd_config.d/*.conf", True),
    ],
)
def test_an_sshd_that_reads_no_drop_ins_is_refused(tmp_path, line, read):
    main = tmp_path / "sshd_config"
    main.write_text(f"# of the site\n{line}\n")
    script = action.TRIED.replace("/usr/sbin/sshd -t -f", "echo tried")
    said = subprocess.run(
        ["sh", "-c", script, "sshd", "drop-in", main], check=False, capture_output=True, text=True
    )
    remedy = "write 'Include /etc/ssh/sshd_config.d/*.conf' at its top"
    refused = f"{main} reads no drop-ins for all logins: {remedy}\n"
    assert (said.returncode == 0, said.stdout) == (read, "tried drop-in\n" if read else refused)


@pytest.mark.parametrize(
    ("check", "answer", "kept"),
    [
        (False, {"changed": True}, {"n1.pub", "n1-cert.pub"}),
        (True, {"changed": True}, set()),
        # It may have been written to before its connection broke: then it can be revoked.
        (False, {"failed": True}, {"n1.pub"}),
    ],
    ids=["written", "check mode", "not written"],
)
def test_a_certificate_is_kept_when_the_host_has_it(tmp_path, monkeypatch, check, answer, kept):
    """What stood in the controller's folder before was reported by `hvlab keys status` as the host's."""
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "data"))
    ssh_keys.make_key(tmp_path / "host_key", "n1")
    lab = trust.ensure_lab_trust("lab", user="ranks")
    args = {
        "lab": "lab", "user": "ranks", "home": "/home/ranks", "user_days": 7, "host_days": 365,
        "hosts": {"n1": {"address": "198.18.0.11", "aliases": [], "port": 22}},
    }  # fmt: skip
    monkeypatch.setattr(plugin_base.ActionBase, "run", lambda *_: {})
    sent = []
    monkeypatch.setattr(action, "bring", lambda plugin, files, variables: sent.extend(files) or answer)
    plugin = object.__new__(action.ActionModule)
    plugin._task = SimpleNamespace(check_mode=check)
    plugin.validate_argument_spec = lambda **_: (None, args)
    key = ssh_keys.public(tmp_path / "host_key")
    system = {"distribution": "Debian", "os_family": "Debian", "distribution_major_version": "12"}
    facts = {"hvlab": {"ssh_host_key": key, "ssh_host_cert": None}, **system}
    assert plugin.run(None, {"inventory_hostname": "n1", "ansible_facts": facts}) == answer
    assert sent[0]["content"].startswith("ssh-ed25519-cert-v01@openssh.com ")
    held = {path.name: path.read_text() for path in lab.signed.glob("*")}
    fact = {"lab": "lab", "user": "ranks", "hosts": ["n1"], "authority": lab.authority}
    assert json.loads(sent[-1]["content"]) == fact
    texts = {"n1.pub": " ".join(key.split()[:2]) + "\n", "n1-cert.pub": sent[0]["content"]}
    assert held == {name: texts[name] for name in kept}


def test_check_mode_lists_the_files_of_a_lab_without_keys(tmp_path, monkeypatch):
    """It ended with a KeyError wherever sshd has a folder for its settings."""
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(plugin_base.ActionBase, "run", lambda *_: {})
    plugin = object.__new__(action.ActionModule)
    plugin._task = SimpleNamespace(check_mode=True)
    args = {"lab": "lab", "user": "ranks", "home": "/home/ranks", "hosts": {"n1": {}}}
    plugin.validate_argument_spec = lambda **_: (None, args)
    system = {"distribution": "Debian", "os_family": "Debian", "distribution_major_version": "12"}
    facts = {"hvlab": {"ssh_host_key": "ssh-ed25519 AAAA", "ssh_host_cert": None}, **system}
    result = plugin.run(None, {"inventory_hostname": "n1", "ansible_facts": facts})
    assert result["changed"]
    assert {"/etc/ssh/sshd_config.d/10-hvlab.conf", "/home/ranks/.ssh"} <= set(result["paths"])
