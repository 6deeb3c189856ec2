"""A pack that hosts forward to one another, and peers whose copies arrive damaged."""

import json
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.vlab.labs import PROJECT, booted

pytestmark = pytest.mark.packs
HOSTS = ("k1", "k2", "k3", "k4")
FOLDER = "/opt/hvlab/random"
PLAYBOOK = f"""
- name: Install random bytes
  hosts: all
  become: true
  gather_facts: false
  roles:
    - role: preflight
  tasks:
    - name: Build once and install everywhere
      ansible.builtin.import_role:
        name: pack
      vars:
        pack_label: random bytes
        pack_name: random
        pack_path: {FOLDER}
        pack_inputs: {{test: packs}}
        pack_version: "1"
        pack_build_dir: /var/cache/hvlab/build
        pack_tasks: {{name: random, tasks_from: build}}
"""
BUILD = f"""
- name: Make the folder
  ansible.builtin.file: {{path: {FOLDER}, state: directory, mode: "0755"}}
- name: Fill it
  ansible.builtin.command:
    argv: [dd, if=/dev/urandom, of={FOLDER}/bytes, bs=1M, count=10]
    creates: {FOLDER}/bytes
"""
# Prints what each host got, and from where; Ansible's own callbacks print no JSON.
CALLBACK = """
import json
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "stdout", "brought"

    def v2_runner_on_ok(self, result):
        if "source" in result._result:
            found = {name: result._result.get(name) for name in ("source", "warnings")}
            print(json.dumps({"host": result._host.get_name(), **found}, default=str))
"""
# The controller's link to the hosts, so slow that all of them wait before the first one has its copy.
UPLINK = f"racks: {{all: {{hosts: [{', '.join(HOSTS)}], uplink: {{rate: 20mbit}}}}}}"
# What leaves a host as the lab user has other bytes than what lies there.
DAMAGE = """Match User hvlab
    ForceCommand eval "$SSH_ORIGINAL_COMMAND" | tr a b
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with booted("packs", tmp_path_factory) as lab:
        lab.playbook("playbooks/base.yml", "--tags", "lab_user,ssh_trust")
        uplink = tmp_path_factory.mktemp("topology") / "uplink.yml"
        uplink.write_text(UPLINK)
        lab.hvlab("lab up", "--topology", str(uplink))
        yield lab


@pytest.fixture
def install(lab, tmp_path_factory, monkeypatch):
    """Install the pack where it is missing; return where each such host got it, and the warnings."""
    folder = tmp_path_factory.getbasetemp() / "random"
    if not folder.exists():
        (folder / "roles/random/tasks").mkdir(parents=True)
        (folder / "site.yml").write_text(PLAYBOOK)
        (folder / "roles/random/tasks/build.yml").write_text(BUILD)
        (folder / "callback").mkdir()
        (folder / "callback/brought.py").write_text(CALLBACK)
        (folder / "group_vars").symlink_to(PROJECT / "group_vars")
    monkeypatch.setenv("HVLAB_CACHE", str(folder / "cache"))
    monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", str(folder / "callback"))
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "brought")

    def run():
        program = str(Path(sys.executable).parent / "ansible-playbook")
        done = lab.run([program, str(folder / "site.yml"), "-i", str(lab.inventory)], 0)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        brought = {row["host"]: row for row in rows}
        sources = {host: row["source"] for host, row in brought.items()}
        return sources, [str(text) for row in brought.values() for text in row["warnings"] or []]

    return run


@contextmanager
def damaging(lab):
    """Hosts that damage what they forward."""
    for host in HOSTS:
        lab.on(
            host, f"printf '%s' '{DAMAGE}' > /etc/ssh/sshd_config.d/05-damage.conf && systemctl reload ssh"
        )
    try:
        yield
    finally:
        for host in HOSTS:
            lab.on(host, "rm /etc/ssh/sshd_config.d/05-damage.conf && systemctl reload ssh")


def sums(lab):
    return {lab.on(host, f"sha256sum {FOLDER}/bytes") for host in HOSTS}


def leftovers(lab):
    """Archives that nobody needs any more."""
    return "".join(lab.on(host, "find /opt/hvlab -name 'pack.tar.gz' -o -name '.*.pack-*'") for host in HOSTS)


def test_the_controller_sends_it_once(lab, install):
    install()
    for host in HOSTS:
        lab.on(host, f"rm -r {FOLDER}")
    sources, warnings = install()
    assert set(sources) == set(HOSTS)
    assert list(sources.values()).count("controller") == 1
    assert set(sources.values()) <= {"controller", *HOSTS}
    assert warnings == []
    assert len(sums(lab)) == 1
    assert leftovers(lab) == ""
    assert install()[0] == {}


def test_a_damaged_copy_is_refused(lab, install):
    install()
    before = sums(lab)
    for host in HOSTS:
        lab.on(host, f"rm -r {FOLDER}")
    with damaging(lab):
        sources, warnings = install()
    assert sources == dict.fromkeys(HOSTS, "controller")
    assert warnings
    refused = re.compile(r"(k\d): the pack random-\w+\.tar\.gz did not come from (?!\1)k\d: its sha256 is ")
    assert all(refused.match(warning) for warning in warnings), warnings
    assert sums(lab) == before
    assert leftovers(lab) == ""
