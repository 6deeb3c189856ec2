"""What ansible-runner is given, and what is made of its events."""

import configparser
import json
import shlex
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ansible_runner
import pytest

from hvlab.base.errors import CheckError, HvlabError, UnreachableError
from hvlab.base.paths import project_dir
from hvlab.remote import gather
from hvlab.remote.playbook import HostFailure, Login, Owner, Play
from hvlab.remote.shell import Shell
from hvlab.remote.trust import Trust
from tests.unit.labs import lab

pytestmark = pytest.mark.slow

LOGIN = Login(lab(), Trust("t", Path("/trust")), "hvlab")


@pytest.fixture
def play(tmp_path):
    made = Play("x.yml", LOGIN, {"hvlab_plan": "/plan.json"})
    made._folder = tmp_path
    made._write_settings()
    return made


def test_settings_are_private_and_strict(play, tmp_path):
    for path in (tmp_path / "env").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    variables = json.loads((tmp_path / "env/extravars").read_text())
    assert variables["ansible_user"] == "hvlab"
    assert variables["ansible_become"] is False
    assert "StrictHostKeyChecking=yes" in variables["ansible_ssh_args"]
    assert "UserKnownHostsFile=/trust/known_hosts" in variables["ansible_ssh_args"]
    assert json.loads((tmp_path / "env/envvars").read_text())["ANSIBLE_HOST_KEY_CHECKING"] == "True"


def test_the_keys_may_lie_in_a_folder_with_a_space_in_its_name(tmp_path):
    trust = Trust("t", tmp_path / "my keys")
    trust.folder.mkdir()
    trust.revoked.touch()
    login = Login(lab(), trust, "hvlab")
    for options in (
        shlex.split(login.variables()["ansible_ssh_args"]),
        Shell(login, lab().hosts[0]).argv(["true"])[1:-3],
    ):
        settings = subprocess.run(
            ["ssh", "-F", "none", "-G", *options, "h"], capture_output=True, text=True, check=True
        ).stdout
        assert f"revokedhostkeys {trust.revoked}\n" in settings
        # ssh shows no quotes: one file of this name, or two.
        assert any(f'UserKnownHostsFile="{trust.known_hosts}"' in option for option in options)


def _ansible_cfg(_):
    config = configparser.ConfigParser(interpolation=None)
    config.read(project_dir() / "ansible.cfg")
    return config["ssh_connection"]["ssh_args"]


@pytest.mark.parametrize(
    "options",
    [
        _ansible_cfg,
        lambda login: login.variables()["ansible_ssh_args"],
        lambda login: shlex.join(Shell(login, lab().hosts[0]).argv(["true"])[1:-3]),
    ],
    ids=["ansible.cfg", "playbook", "shell"],
)
def test_the_users_ssh_gives_no_login_a_terminal_or_another_command(tmp_path, options):
    file = tmp_path / "config"
    file.write_text("Host *\n  RequestTTY force\n  RemoteCommand top\n")
    argv = ["ssh", "-F", str(file), "-G", *shlex.split(options(LOGIN)), "n1"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "requesttty false" in shown
    assert not [line for line in shown if line.startswith("remotecommand")]


@pytest.mark.parametrize(
    "options",
    [
        lambda login: login.variables()["ansible_ssh_args"],
        lambda login: shlex.join(Shell(login, lab().hosts[0]).argv(["true"])[1:-3]),
    ],
    ids=["playbook", "shell"],
)
def test_the_users_ssh_gives_the_labs_hosts_no_agent_and_prints_nothing(tmp_path, options):
    """Root of a host could log in elsewhere by the agent; LocalCommand prints into what is read as JSON."""
    file = tmp_path / "config"
    file.write_text("Host *\n  ForwardAgent yes\n  PermitLocalCommand yes\n  LocalCommand echo %n\n")
    argv = ["ssh", "-F", str(file), "-G", *shlex.split(options(LOGIN)), "n1"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"forwardagent no", "permitlocalcommand no"} <= set(shown)


def test_nothing_but_names_of_files_stands_in_argv(play, tmp_path):
    command = play._command()
    assert command[-5:] == ["-i", "/nowhere", "-e", f"@{tmp_path}/env/extravars", "playbooks/x.yml"]


def test_the_runner_keeps_no_file_of_facts_for_each_host(play, monkeypatch):
    given = {}
    monkeypatch.setattr(
        ansible_runner, "run_command", lambda *_, **options: given.update(options) or ("", "", 0)
    )
    play._work()
    assert given["fact_cache_type"] == "memory"


@pytest.mark.parametrize(("at_once", "forks"), [(0, []), (32, []), (64, ["--forks", "64"])])
def test_hosts_that_wait_for_one_another_run_at_once(tmp_path, at_once, forks):
    many = Play("x.yml", Login(lab(), None, "hvlab"), {}, at_once=at_once)
    many._folder = tmp_path
    command = many._command()
    assert command[command.index("/nowhere") + 1 : -3] == forks


@pytest.mark.parametrize("callback", ["ansible.builtin.minimal", "nonexistent"])
def test_what_a_user_set_for_other_uses_of_ansible_changes_nothing(tmp_path, monkeypatch, callback):
    """Each of these ended Ansible at a question, ran no task, or hid its failures."""
    inventory = tmp_path / "hosts"
    inventory.write_text(f"n1 ansible_connection=local ansible_python_interpreter={sys.executable}\n")
    for name in ("BECOME_ASK_PASS", "ASK_PASS", "ENABLE_TASK_DEBUGGER", "CHECK_MODE_MARKERS"):
        monkeypatch.setenv(f"ANSIBLE_{name}", "1")
    monkeypatch.setenv("ANSIBLE_RUN_TAGS", "none")
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", callback)
    owner = Owner(replace(lab(1), source=inventory))
    variables = {"hvlab_hosts": "n1", "hvlab_reap": "/nowhere/reap.py", "hvlab_run": "r"}
    variables["hvlab_seconds"] = 60
    with Play("reap-cases.yml", owner, variables) as play:
        assert play.wait(60)
    assert play.rc == 2
    assert [failure.host for failure in play.failures] == ["n1"]


def test_a_host_that_does_not_go_on_holds_up_no_end(tmp_path):
    inventory = tmp_path / "hosts"
    inventory.write_text(f"n1 ansible_connection=local ansible_python_interpreter={sys.executable}\n")
    owner = Owner(replace(lab(1), source=inventory))
    variables = {"hvlab_hosts": "n1", "hvlab_reap": ["sleep"], "hvlab_run": "90", "hvlab_seconds": 1}
    with Play("reap-cases.yml", owner, variables) as play:
        assert play.wait(60)
    (failure,) = play.failures
    assert failure.message.endswith("Timed out after 1 second(s).")


def test_a_host_that_gives_no_facts_holds_up_no_plan(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 90\n")
    python.chmod(0o755)
    inventory = tmp_path / "hosts"
    inventory.write_text(
        f"n1 ansible_connection=local ansible_become=false ansible_python_interpreter={python}\n"
    )
    monkeypatch.setattr(gather, "_SECONDS", 1)
    with pytest.raises(CheckError, match=r"n1: [\s\S]*Timed out after 1 second"):
        gather.facts(replace(lab(1), source=inventory))


def event(kind: str, pid: int = 1, **result: object) -> dict:
    return {"event": kind, "pid": pid, "event_data": {"host": "n1", "res": result}}


def test_an_ansible_that_could_not_be_run_or_was_killed_is_no_success(play, monkeypatch):
    """The disk of the private folder is full, or the kernel ended Ansible for want of memory."""

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ansible_runner, "run_command", fail)
    play._work()
    with pytest.raises(HvlabError, match="Ansible could not be run: OSError: ") as caught:
        play.check("cannot look", remedy="")
    assert "disks" in caught.value.remedy
    for code in (None, -9):
        killed = Play("x.yml", LOGIN, {})
        killed._folder, killed.rc = play._folder, code
        with pytest.raises(HvlabError, match="cannot look: Ansible was killed"):
            killed.check("cannot look", remedy="")


def test_faults_come_from_events(play):
    for one in (
        {"event": "playbook_on_start", "pid": 7},
        event("runner_on_ok", pid=8),
        event("runner_item_on_failed", msg="broken", lost=True),
        event("runner_on_failed", msg="One or more items failed", results=[{}]),
        event("runner_on_unreachable", msg="no route"),
    ):
        assert play._enqueue(one) is False
    play._drain()
    assert play.failures == [
        HostFailure("n1", "broken", unreachable=True),
        HostFailure("n1", "no route", unreachable=True),
    ]
    assert play._pid == 7


def test_a_module_without_an_answer_says_what_was_printed(play):
    """As Ansible 2.19 puts it where ~/.bashrc has an exit, and where a module crashed."""
    silent = {
        "module_stderr": "",
        "module_stdout": "",
        "msg": "Module result deserialization failed: No start of json char found",
        "rc": 0,
    }
    crashed = silent | {"module_stderr": "Traceback\nMemoryError\n", "rc": 1}
    facts = {"failed_modules": {"hvlab_facts": silent}, "msg": "The following modules failed to execute: x."}
    for each in (event("runner_on_failed", **facts), event("runner_on_failed", **crashed)):
        play._enqueue(each)
    play._drain()
    first, second = (failure.message for failure in play.failures)
    assert first.startswith(
        "hvlab_facts: Module result deserialization failed: No start of json char found; "
    )
    assert first.endswith("it ended with 0 and printed nothing")
    assert second.endswith("it ended with 1 and printed MemoryError")
    play.failures = play.failures[:1]
    with pytest.raises(CheckError, match="a login on the host ends before it runs the command") as caught:
        play.check("the playbook failed", remedy="")
    assert "~/.bashrc" in caught.value.remedy


def test_a_message_that_begins_with_its_host_names_it_once(play):
    play._enqueue(event("runner_on_failed", msg="n1: it is held by root@vm", holder={"owner": "root@vm"}))
    play._drain()
    assert play.failures == [HostFailure("n1", "it is held by root@vm", unreachable=False, held=True)]


def test_an_ignored_failure_is_none(play):
    play._enqueue({"event": "runner_on_failed", "event_data": {"res": {"msg": "x"}, "ignore_errors": True}})
    play._drain()
    assert play.failures == []


CHANGED = """\
Failed to connect to the host via ssh: @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Host key for 198.18.62.11 has changed and you have requested strict checking.
Host key verification failed."""
DENIED = "Failed to connect to the host via ssh: hvlab@198.18.62.11: Permission denied (publickey)."
EXPIRED = "Failed to connect to the host via ssh: Your password has expired.\nPassword change required"
CLOSED = (
    "Failed to connect to the host via ssh: maintenance until 8\nConnection closed by 198.18.62.11 port 22"
)
GONE = "Failed to connect to the host via ssh: ssh: connect to host 198.18.62.11 port 22: No route to host"


@pytest.mark.parametrize(
    ("observed", "first"),
    [
        (CHANGED, "the host key differs from the known one:"),
        (DENIED, "the host refuses the login:"),
        (GONE, "a host was lost:"),
        (EXPIRED, "the host knows the user, but refuses the account:"),
        (CLOSED, "the host closes incoming ssh connections:"),
    ],
    ids=["key", "login", "gone", "expired", "nologin"],
)
def test_a_host_that_refuses_is_not_called_lost(observed, first):
    play = object.__new__(Play)
    play.failures = [HostFailure("f1", observed, unreachable=True)]
    with pytest.raises(UnreachableError) as raised:
        play.check("the playbook failed", remedy="")
    assert str(raised.value).splitlines()[0] == first
    assert "f1: Failed to connect" in str(raised.value)
    # Its shared connection would say the same after the remedy.
    assert ("wait a minute" in raised.value.remedy) == (observed == EXPIRED)
    assert raised.value.remedy


def test_a_login_that_ends_without_a_word_is_looked_at_by_doctor():
    """As where the user's limits let no shell start: the host itself is up."""
    play = object.__new__(Play)
    said = (
        'Task failed: Data could not be sent to remote host "x". Make sure this host can be reached over ssh:'
    )
    play.failures = [HostFailure("f2", said, unreachable=True), HostFailure("f3", GONE, unreachable=True)]
    with pytest.raises(UnreachableError) as raised:
        play.check("the playbook failed", remedy="")
    assert "if it is up, `hvlab doctor -l f2` shows" in raised.value.remedy


def test_a_module_that_gives_no_answer_is_explained_by_the_telling_line(play):
    """As where ~/.bashrc sets PYTHONHOME for another Python: the last line is none."""
    printed = (
        "Python path configuration:\nModuleNotFoundError: No module named 'encodings'\n\n  <no Python frame>"
    )
    play._enqueue(event("runner_on_failed", msg="No JSON.", module_stdout="", module_stderr=printed, rc=1))
    play._drain()
    with pytest.raises(CheckError, match="Python does not find its own library"):
        play.check("the playbook failed", remedy="")
