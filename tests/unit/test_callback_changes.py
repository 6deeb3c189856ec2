"""What a playbook in check mode would change, host by host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvlab.ansible.callback.hvlab_changes import changes, format_table
from tests.contract.tree import ROOT

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Write
      ansible.builtin.copy: {content: x, dest: "{{ playbook_dir }}/new"}
    - name: Start
      ansible.builtin.systemd_service: {name: slurmd, state: restarted}
      when: not ansible_check_mode
    - name: Start another
      ansible.builtin.systemd_service: {name: slurmdbd, state: started}
      when: [inventory_hostname == "n3", not ansible_check_mode]
    - name: Drain the node
      ansible.builtin.include_tasks: nowhere.yml
      when: [inventory_hostname == "n3", not ansible_check_mode]
    - name: Refuse
      ansible.builtin.fail: {msg: "n2: python[7] uses the GPU"}
      when: inventory_hostname == "n2"
"""


@pytest.mark.parametrize(
    ("action", "result", "rows"),
    [
        (
            "hvlab_packages",
            {"changed": True, "packages": ["gcc", "make"], "comes": {"gcc": "12.2"}, "removed": ["old"]},
            [("package", "gcc", "12.2"), ("package", "old", "removed"), ("package", "make", "held")],
        ),
        ("hvlab_files", {"changed": True, "paths": ["/etc/x"]}, [("file", "/etc/x", "written")]),
        (
            "hvlab_files",
            {"changed": True, "paths": ["/opt/hvlab/workloads/case.py"]},
            [("file", "/opt/hvlab/workloads", "written")],
        ),
        (
            "hvlab_files",
            {
                "changed": True,
                "paths": ["/etc/x", "/etc/y"],
                "diff": [{"prepared": "/etc/x: file -> absent 0644\n"}, {"before": "a", "after": "b"}],
            },
            [("file", "/etc/x", "removed"), ("file", "/etc/y", "written")],
        ),
        ("ansible.builtin.user", {"changed": True, "name": "hvlab"}, [("user", "hvlab", "made")]),
        (
            "ansible.builtin.file",
            {"changed": True, "path": "/x", "state": "absent"},
            [("file", "/x", "removed")],
        ),
        ("hvlab_driver", {"changed": False, "reboots": True}, [("reboot", "for the NVIDIA driver", "")]),
        (
            "hvlab_driver",
            {"changed": False, "waits": ["job 4242 of Slurm"]},
            [("drain", "job 4242 of Slurm", "ends first")],
        ),
        ("hvlab_pack", {"changed": True}, [("step", "Do it", "")]),
        ("hvlab_packages", {"changed": False, "packages": []}, []),
    ],
)
def test_a_change_is_named_with_its_kind(action, result, rows):
    assert list(changes(action, result, {}, "Do it")) == rows


def test_hosts_that_are_alike_share_a_table():
    row = ("file", "/etc/x", "written")
    text = "".join(format_table({"n1": [row], "n2": [row], "n3": []}))
    assert "n1, n2\n" in text
    assert "n3\nnothing would change" in text


@pytest.mark.slow
def test_a_playbook_in_check_mode_prints_these_tables_alone(tmp_path):
    (tmp_path / "play.yml").write_text(PLAY)
    interpreter = f"ansible_python_interpreter={sys.executable}"
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "--check", "-i", "n1,n2,n3,", "-c", "local", "-e", interpreter, tmp_path / "play.yml"],
        env=os.environ
        | {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "hvlab_changes",
            "COLUMNS": "200",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    tables = {text.strip().split("\n")[0].strip(): text for text in done.stdout.split("\n\n")}
    assert "n2: python[7] uses the GPU" in tables["n2"]
    assert all("slurmd" in tables[host] and f"{tmp_path}/new" in tables[host] for host in ("n1", "n2", "n3"))
    assert ["slurmdbd" in tables[host] for host in ("n1", "n3")] == [False, True]
    assert ["Drain the node" in tables[host] for host in ("n1", "n3")] == [False, True]
    assert "TASK" not in done.stdout
    assert not (tmp_path / "new").exists()
