"""``hvlab provision``: what Ansible is called with, and what its status means."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hvlab.base.errors import UnreachableError
from hvlab.cli import provision, run

ROOT = Path(__file__).parents[2]
LAB = ROOT / "inventory/lab"


@pytest.fixture
def calls(monkeypatch):
    """Replace the probe and Ansible; return what would have been called."""
    made: list[list[str]] = []
    monkeypatch.setattr(provision.probe, "probe", lambda hosts: None)
    monkeypatch.setattr(provision, "_call", lambda argv: made.append(argv) or 0)
    return made


def test_options_are_handed_on(calls):
    assert run(["provision", "-i", str(LAB), "-l", "n1", "-t", "openmpi", "-C", "-D"]) == 0
    program = str(Path(sys.executable).parent / "ansible-playbook")
    options = ["--limit", "n1", "--tags", "openmpi", "--check", "--diff"]
    assert calls == [[program, str(ROOT / "site.yml"), "-i", str(LAB), *options]]


def test_a_dry_run_checks_and_prints_changes_alone(calls, monkeypatch):
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "default")
    assert run(["provision", "-i", str(LAB), "--dry-run"]) == 0
    assert calls[0][-1] == "--check"
    assert os.environ["ANSIBLE_STDOUT_CALLBACK"] == "hvlab_changes"


def test_two_calls_do_not_change_the_hosts_of_a_lab_at_once(calls, monkeypatch, tmp_path, capfd):
    """The first one, in another process, holds the lab until the second has said that it waits."""
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path))
    hold = (
        "import sys; from hvlab.base.files import lock; from hvlab.base.paths import provisioning_dir\n"
        "with lock(provisioning_dir('lab')): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout.readline() == "held\n"
        ended = []
        said = provision._say_that_it_waits

        def waits(lab):
            ended.append(list(calls))
            said(lab)
            first.stdin.close()

        monkeypatch.setattr(provision, "_say_that_it_waits", waits)
        assert run(["provision", "-i", str(LAB)]) == 0
    assert ended == [[]]
    assert len(calls) == 1
    assert "lab lab: another hvlab is changing its hosts" in capfd.readouterr().err
    assert not (tmp_path / "provisioning/lab").exists()


def test_a_data_folder_that_is_none_is_named(calls, monkeypatch, tmp_path, capsys):
    (tmp_path / "provisioning").touch()
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path))
    assert run(["provision", "-i", str(LAB)]) == 2
    assert f"{tmp_path}/provisioning/lab cannot be made: " in capsys.readouterr().err
    assert not calls


def test_a_wrong_limit_of_the_cache_is_refused_before_anything_is_installed(calls, monkeypatch, capsys):
    monkeypatch.setenv("HVLAB_CACHE_LIMIT", "much")
    assert run(["provision"]) == 2
    assert "HVLAB_CACHE_LIMIT: 'much' is no size" in capsys.readouterr().err
    assert not calls


def test_a_lock_is_asked_of_the_role(calls):
    assert run(["provision", "-i", str(LAB), "--write-lock"]) == 0
    assert calls[0][-2:] == ["-e", '{"preflight_lock_write": true}']


def test_what_stands_after_two_hyphens_goes_to_ansible_as_it_is(calls):
    further = ["--step", "-e", "openmpi_build_jobs=1", "-e", '{"a": "b c"}', "-vv"]
    assert run(["provision", "-i", str(LAB), "-C", "--", *further]) == 0
    assert calls[0][-len(further) - 1 :] == ["--check", *further]
    assert run(["provision", "-i", str(LAB), "n1"]) == 2


@pytest.mark.slow
def test_a_vault_is_opened_and_files_are_those_of_the_current_folder(calls, monkeypatch, tmp_path, capfd):
    """For reading the inventory and for the playbook, which only lists its tasks here."""
    monkeypatch.undo()
    monkeypatch.setattr(provision.probe, "probe", lambda hosts: None)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", "")
    monkeypatch.chdir(tmp_path)
    Path("password").write_text("secret\n")
    Path("lab/group_vars/all").mkdir(parents=True)
    Path("lab/hosts.yml").write_text("all: {hosts: {n1: {ansible_host: 10.0.0.1}}}\n")
    Path("lab/group_vars/all/lab.yml").write_text("lab_network: 10.0.0.0/24\nlab_interface: eth0\n")
    for name in ("lab/group_vars/all/secret.yml", "extra.yml"):
        Path(name).write_text("my_secret: hidden\n")
        argv = [
            Path(sys.executable).parent / "ansible-vault",
            "encrypt",
            "--vault-password-file",
            "password",
            name,
        ]
        subprocess.run(argv, check=True, capture_output=True)
    options = ["--vault-password-file", "password", "-e", "@extra.yml", "--list-tasks"]
    assert run(["provision", "-i", "lab", "--", *options]) == 0
    assert "openmpi : " in capfd.readouterr().out


@pytest.mark.parametrize(
    ("status", "code"), [(0, 0), (1, 1), (2, 1), (4, 3), (5, 2), (99, 130), (130, 130), (-2, 130), (250, 1)]
)
def test_exit_codes(calls, monkeypatch, status, code):
    monkeypatch.setattr(provision, "_call", lambda argv: status)
    assert run(["provision", "-i", str(LAB)]) == code


def test_a_host_that_does_not_answer(calls, monkeypatch, capsys):
    def fail(hosts):
        raise UnreachableError("n2: no answer")

    monkeypatch.setattr(provision.probe, "probe", fail)
    assert run(["provision", "-i", str(LAB)]) == 3
    assert "n2: no answer" in capsys.readouterr().err
    assert calls == []


def test_a_wrong_inventory(calls, tmp_path):
    assert run(["provision", "-i", str(tmp_path / "none")]) == 2
    assert calls == []


def test_an_ansible_that_does_not_end_is_killed(monkeypatch):
    """Further Ctrl-C change nothing by then."""
    interrupts = iter([KeyboardInterrupt])

    def wait(process, timeout=None):
        for interrupt in interrupts:
            time.sleep(0.5)
            raise interrupt
        return real(process, 20 if timeout is None else timeout)

    real = subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    monkeypatch.setattr(provision, "_ENDS_S", 0.2)
    monkeypatch.setattr(provision, "_STOPS_S", 0.2)
    argv = ["sh", "-c", "trap '' TERM INT; sleep 60 & wait; wait; wait"]
    begun = time.monotonic()
    assert provision._play(argv, os.environ) == 130
    assert time.monotonic() - begun < 10
