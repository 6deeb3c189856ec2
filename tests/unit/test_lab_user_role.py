"""Role lab_user: a user that a site made, locally or in a directory, stays as it is."""

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from tests.contract.tree import ROOT
from tests.unit.plays import play, program
from tests.unit.test_container_runtime import trusted

THEIRS = {"uid": 4711, "home": "/data/hvlab", "shell": "/bin/zsh", "groups": [], "locked": False}
AS_THEY_ARE = {"lab_user_home": "/data/hvlab", "lab_user_shell": "/bin/zsh"}
PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  roles: [lab_user]
"""


@pytest.fixture
def changed(tmp_path):
    """Return what a dry run of the role says, given the host's users and getent's answer."""

    def run(users, entry="", made=None, expect=0, **variables):
        (tmp_path / "play.yml").write_text(PLAYBOOK)
        program(tmp_path / "bin", "getent", f"#!/bin/sh\n[ '{entry}' ] && echo '{entry}' || exit 2\n")
        local = {} if made is None else {"hvlab_lab_user": {"made": made}}
        facts = {"hvlab": {"users": users}, "ansible_local": local}
        variables = {"ansible_facts": facts, "lab_user_name": "hvlab-of-a-test", **variables}
        return play(tmp_path / "play.yml", tmp_path / "bin", variables, "--check", "--diff", expect=expect)

    return run


def test_a_user_of_the_site_is_refused_or_used_as_it_is(changed):
    told = changed({"hvlab-of-a-test": THEIRS}, expect=2)
    assert "localhost: user hvlab-of-a-test, whom hvlab did not make, has home /data/hvlab" in told
    assert "set lab_user_home" in told
    assert "skipped=3" in changed({"hvlab-of-a-test": THEIRS}, **AS_THEY_ARE)
    assert "changed=2" in changed({"hvlab-of-a-test": THEIRS}, made=True)
    assert '"made": true' in changed({})


def test_a_user_of_a_directory_is_not_made_again(changed):
    entry = "hvlab-of-a-test:*:4711:100:Lab:/data/hvlab:/bin/zsh"
    assert "UID 4711" in changed({}, entry, expect=2)
    told = changed({}, entry, **AS_THEY_ARE, lab_user_uid=4711)
    # Neither user nor sudo, only the record.
    assert "changed=1" in told
    assert '"made": false' in told


@pytest.mark.parametrize(
    ("sudo", "paths", "state"),
    [
        ("none", [], ""),
        ("none", ["/etc/sudoers.d/hvlab"], "absent"),
        ("passwordless", [], "file"),
    ],
    ids=["the site's", "hvlab's", "asked for"],
)
def test_sudo_rules_go_only_where_hvlab_wrote_them(sudo, paths, state):
    tasks = yaml.safe_load((ROOT / "roles/lab_user/tasks/main.yml").read_text())
    [task] = (task for task in tasks if "Write" in task["name"])
    variables = trusted(task["vars"]) | {"lab_user_sudo": sudo, "omit": {"state": ""}}
    variables["ansible_facts"] = {"hvlab_managed": {"paths": paths}}
    item = trusted(task["hvlab_files"]["files"][0])
    assert Templar(loader=DataLoader(), variables=variables).template(item)["state"] == state
