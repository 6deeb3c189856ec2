"""`hvlab doctor` about hosts: what is printed, exit codes, and what --fix runs."""

import copy
import json
from pathlib import Path

import pytest

from hvlab.base.errors import CheckError, UnreachableError
from hvlab.checks.ask import Answered
from hvlab.cli import doctor_live, run
from hvlab.doctor import knowledge

ROOT = Path(__file__).parents[2]
LAB = str(ROOT / "tests/vlab/doctor")
RECORDED = json.loads((ROOT / "tests/data/doctor/hosts.json").read_text("utf-8"))
FULL = "space/dev/shm 32768 32768"


@pytest.fixture
def rounds(monkeypatch):
    """What the hosts answer, one round trip after another; the last one stays."""
    given = []

    def put(lab, questions, *, at_once=0):
        return given.pop(0) if len(given) > 1 else given[0]

    monkeypatch.setattr(doctor_live, "ask_hosts", put)
    return given


def answered(hosts=RECORDED, silent=(), broken=()):
    return Answered(hosts, dict(silent), dict(broken), (0.0, 1.0))


def sick():
    """A key that others may read, which a role fixes, and a small /dev/shm, which none does."""
    hosts = copy.deepcopy(RECORDED)
    said = "Permissions 0644 for '/home/hvlab/.ssh/id_ed25519' are too open."
    hosts["p1"]["logins"]["out"] = json.dumps({"p2": {"rc": 255, "out": "", "err": said}})
    rows = hosts["p2"]["folders"]["out"].splitlines()
    shm = [FULL if row.startswith("space/dev/shm") else row for row in rows]
    hosts["p2"]["folders"]["out"] = "\n".join(shm)
    return hosts


def test_healthy_hosts(rounds, capsys):
    rounds.append(answered())
    assert run(["doctor", "-i", LAB]) == 0
    assert capsys.readouterr().out == "nothing known is wrong on p1, p2\n"


def test_faults_as_table_and_json(rounds, capsys):
    rounds.append(answered(sick()))
    assert run(["doctor", "-i", LAB]) == 1
    out = capsys.readouterr().out
    assert out.startswith("1. p1: ssh ignores a key")
    assert "\n2. p2: /dev/shm is too small\n  observed: /dev/shm has 32 MiB in all\n  why: " in out
    assert out.count("  --fix runs: role ssh_trust\n") == 1
    assert run(["doctor", "-i", LAB, "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(each["id"], each["hosts"], each["role"]) for each in told["findings"]] == [
        ("ssh-key-modes", ["p1"], "ssh_trust"),
        ("shm-too-small", ["p2"], None),
    ]


def test_a_silent_host_is_exit_code_3_and_its_cause_is_named(rounds, capsys):
    said = "ssh: connect to host 198.18.61.12 port 22: Connection refused"
    rounds.append(answered({"p1": RECORDED["p1"]}, silent={"p2": said}))
    assert run(["doctor", "-i", LAB]) == 3
    out, err = capsys.readouterr()
    assert "1. p2: no sshd answers on that port" in out
    assert f"1 of 2 hosts cannot be used:\n  p2: {said}\n" in err


@pytest.mark.parametrize(
    "words", [["--fix"], ["--fix", "--yes", "--format", "json"], ["--fix", "--log", "x"], ["--fix", "x"]]
)
def test_fix_is_refused_before_any_host_is_asked(monkeypatch, words):
    monkeypatch.setattr(doctor_live, "ask_hosts", lambda *_, **__: pytest.fail("a host was asked"))
    assert run(["doctor", "-i", LAB, *words]) == 2


@pytest.mark.parametrize("fails", [False, True])
def test_fix_runs_roles_asks_again_and_says_what_is_left(rounds, capsys, monkeypatch, fails):
    calls = []

    def site(lab, words, *, limit):
        calls.append((words, limit))
        if fails:
            raise CheckError("provisioning failed")

    monkeypatch.setattr(doctor_live.provision, "run_playbook", site)
    again = copy.deepcopy(RECORDED)
    again["p2"]["folders"] = sick()["p2"]["folders"]
    rounds += [answered(sick()), answered(again)]
    assert run(["doctor", "-i", LAB, "--fix", "--yes"]) == 1
    assert calls == [(["--tags", "ssh_trust"], "p1")]
    out = capsys.readouterr().out
    assert "no role fixes: p2: /dev/shm is too small" in out
    assert "gone: p1: ssh ignores a key" in out
    assert "\nleft:\n1. p2: /dev/shm is too small" in out
    assert ("provisioning failed" in out) is fails


def test_of_a_host_that_is_silent_after_fix_nothing_is_said_to_be_gone(rounds, capsys, monkeypatch):
    monkeypatch.setattr(doctor_live.provision, "run_playbook", lambda *_, **__: None)
    rounds += [answered(sick()), answered({"p2": RECORDED["p2"]}, silent={"p1": "no route"})]
    assert run(["doctor", "-i", LAB, "--fix", "--yes"]) == 3
    out = capsys.readouterr().out
    assert "not known: p1, which does not answer: ssh ignores a key" in out
    assert "gone: p1" not in out
    assert "nothing is left" not in out


def test_a_role_that_failed_is_the_error_even_if_nothing_is_left(rounds, capsys, monkeypatch):
    def site(*_, **__):
        raise CheckError("provisioning failed")

    monkeypatch.setattr(doctor_live.provision, "run_playbook", site)
    rounds += [answered(sick()), answered()]
    assert run(["doctor", "-i", LAB, "--fix", "--yes"]) == 1
    assert "provisioning failed" in capsys.readouterr().err


def test_a_host_that_is_lost_while_roles_run_is_still_looked_at_again(rounds, capsys, monkeypatch):
    def site(*_, **__):
        raise UnreachableError("p2 does not answer")

    monkeypatch.setattr(doctor_live.provision, "run_playbook", site)
    rounds += [answered(sick()), answered()]
    assert run(["doctor", "-i", LAB, "--fix", "--yes"]) == 3
    out, err = capsys.readouterr()
    assert "gone: p1: ssh ignores a key" in out
    assert "p2 does not answer" in err


def test_fix_provisions_both_ends_of_a_login_that_is_refused(rounds, capsys, monkeypatch):
    """The client's key may be gone, or the other host's knowledge of the users' CA."""
    hosts = copy.deepcopy(RECORDED)
    said = "hvlab@198.18.61.12: Permission denied (publickey)."
    hosts["p1"]["logins"]["out"] = json.dumps({"p2": {"rc": 255, "out": "", "err": said}})
    limits = []
    monkeypatch.setattr(doctor_live.provision, "run_playbook", lambda *_, limit: limits.append(limit))
    rounds += [answered(hosts), answered()]
    assert run(["doctor", "-i", LAB, "--fix", "--yes"]) == 0
    assert limits == ["p1,p2"]
    assert capsys.readouterr().out.startswith(
        "1. p1, p2: the host refuses the login\n  observed: hvlab cannot log in from p1 to p2:"
    )


def test_what_has_one_cause_is_one_finding(rounds, capsys):
    hosts = copy.deepcopy(RECORDED)
    said = "Permission denied (publickey)."
    for one, others in (("p1", ("p2", "p3", "p4")), ("p2", ("p1",))):
        logins = {other: {"rc": 255, "out": "", "err": said} for other in others}
        hosts[one]["logins"]["out"] = json.dumps(logins)
    rounds.append(answered(hosts))
    assert run(["doctor", "-i", LAB]) == 1
    out = capsys.readouterr().out
    assert out.startswith("1. p1, p2: the host refuses the login\n")
    assert (out.count("cannot log in"), out.count("  observed: 1 more"), out.count("  why:")) == (3, 1, 1)


def test_fix_leaves_a_host_that_preflight_would_refuse(rounds, capsys, monkeypatch):
    monkeypatch.setattr(
        doctor_live.provision, "run_playbook", lambda *_, **__: pytest.fail("a host was changed")
    )
    hosts = sick()
    hosts["p1"]["folders"]["out"] = hosts["p1"]["folders"]["out"].replace(
        "mode 1777\nwritable yes", "mode 755"
    )
    rounds.append(answered(hosts))
    assert run(["doctor", "-i", LAB, "--fix", "--yes"]) == 1
    assert "not changed: p1: fix by hand" in capsys.readouterr().out


def test_nothing_is_changed_where_a_person_says_no(rounds, monkeypatch):
    monkeypatch.setattr(
        doctor_live.provision, "run_playbook", lambda *_, **__: pytest.fail("a host was changed")
    )
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(doctor_live.click, "confirm", lambda *_: False)
    rounds.append(answered(sick()))
    assert run(["doctor", "-i", LAB, "--fix"]) == 1


def test_a_cause_is_explained(capsys):
    assert run(["doctor", "--explain", "shm-too-small"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("shm-too-small: /dev/shm is too small\n  why: ")
    assert "\n  what to do: docker --shm-size" in out
    assert "\n  a log that shows it:\n    " in out
    assert run(["doctor", "--explain", "shm-too-small", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["id"], told["family"]) == ("shm-too-small", "NCCL")
    assert told["examples"]


def test_every_cause_is_explained_and_listed(capsys):
    assert run(["doctor", "--list"]) == 0
    ids = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert ids == [cause.id for cause in knowledge.CAUSES]
    for id_ in ids:
        assert run(["doctor", "--explain", id_]) == 0
        assert capsys.readouterr().out.startswith(f"{id_}: ")


def test_causes_are_found_by_a_word_of_their_text(capsys):
    assert run(["doctor", "--list", "FALLOCATE"]) == 0
    assert "shm-too-small  /dev/shm is too small\n" in capsys.readouterr().out
    assert run(["doctor", "--list", "munge-down", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["causes"]
    assert row == {
        "id": "munge-down",
        "title": "munged is not running",
        "family": "Slurm's daemons and nodes",
    }
    assert run(["doctor", "--list", "xyzzy"]) == 0
    assert capsys.readouterr().out == "no known cause contains 'xyzzy'\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--explain", "shm-to-small"], "did you mean shm-too-small"),
        (["--explain", "a", "--list"], "use one of them alone"),
        (["--list", "a", "--log", "job.log"], "use one of them alone"),
    ],
)
def test_what_cannot_be_explained(capsys, words, said):
    assert run(["doctor", *words]) == 2
    assert said in capsys.readouterr().err
