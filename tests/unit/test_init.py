"""``hvlab init``, with programs in place of ssh and ssh-keyscan that answer what the real ones did."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hvlab.cli import init, run
from hvlab.lab import new_inventory
from hvlab.lab.inventory import load
from hvlab.remote import gather, host_keys, ssh_client
from hvlab.remote.playbook import HostFailure
from tests.unit.labs import lab
from tests.unit.test_host_keys import ECDSA, ECDSA_PRINT, ONE, ONE_PRINT, TWO, TWO_PRINT
from tests.unit.test_new_inventory import A100, facts

# The last words of the command line are the host's address and, of a login, the command there.
KEYSCAN = """#!/bin/sh
for address; do :; done
echo "# $address:22 SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u6"
sed "s/^/$address /" "{answers}/$address.keys" 2>/dev/null
"""
SSH = """#!/bin/sh
echo "$@" >> "{answers}/calls"
port=22
for word; do [ "$last" = -p ] && port=$word; before=$last; last=$word; done
case " $* " in
*" -G "*)
  echo "user me"; echo "hostname $last"; echo "port $port"; echo "hashknownhosts no"
  cat "{answers}/$last.settings" 2>/dev/null; exit 0;;
esac
cat > "{answers}/$before.stdin"
cat "{answers}/$before.error" >&2 2>/dev/null && exit 255
sed "s/NOW/$(date +%s)/" "{answers}/$before.login"
"""
LOGIN = """\
hvlab clock NOW
hvlab python /usr/bin/python3.11 3.11.2
hvlab python /usr/bin/python3 3.11.2
hvlab sudo yes
"""
DENIED = "me@10.0.0.2: Permission denied (publickey,password).\n"
HOSTS = "gpu[1:2]=10.0.0.[1:2]"


class Hosts:
    """Hosts that answer as the files of a folder say."""

    def __init__(self, folder):
        self.folder = folder
        self.known = folder / "known_hosts"
        self.facts = {}
        self.failures = []
        for number, key in ((1, ONE), (2, TWO)):
            self.answer(f"10.0.0.{number}.keys", f"{key}\n")
            self.answer(f"10.0.0.{number}.login", LOGIN)
            link = ("eth0", f"10.0.0.{number}/24")
            self.facts[f"gpu{number}"] = facts(link, gpus=[A100] * 8, **self.own(f"gpu{number}"))

    @staticmethod
    def own(name):
        return {"nodename": name, "hostname": name, "distribution_major_version": "12"}

    def answer(self, name, text):
        (self.folder / name).write_text(text)

    def silence(self, name):
        (self.folder / name).unlink()

    def first_facts(self, hosts):
        return {host.name: self.facts[host.name] for host in hosts if host.name in self.facts}, self.failures

    def init(self, *words, hosts=HOSTS):
        return run(["init", "mylab", *([hosts] if hosts else []), "--known-hosts", str(self.known), *words])

    @property
    def logins(self):
        return sorted(path.stem for path in self.folder.glob("*.stdin"))


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    answers = tmp_path / "answers"
    programs = tmp_path / "bin"
    for folder in (answers, programs):
        folder.mkdir()
    for name, text in (("ssh-keyscan", KEYSCAN), ("ssh", SSH)):
        (programs / name).write_text(text.replace("{answers}", str(answers)))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "_is_at_terminal", lambda: False)
    for of_host in (own := Hosts(answers)).facts.values():
        of_host["hvlab"] |= {"tmp": {"writable": True, "noexec": False, "mode": "1777"}, "ssh_host_key": ONE}
    monkeypatch.setattr(gather, "first_facts", own.first_facts)
    # Reading an inventory takes a second; the first test does it, and test_new_inventory.py.
    monkeypatch.setattr(new_inventory.inventory, "load", lambda folder: None)
    return own


def written():
    """Return the variables of each host of the inventory that was written."""
    groups = yaml.safe_load(Path("mylab/hosts.yml").read_text())["all"]["children"]
    common = yaml.safe_load(Path("mylab/group_vars/all.yml").read_text())
    hosts = [host for group in groups.values() if group for host in group["hosts"].items()]
    return {name: common | own for name, own in hosts}


def test_an_inventory_is_written_and_the_keys_are_recorded(hosts, capsys, monkeypatch):
    monkeypatch.setattr(new_inventory.inventory, "load", load)
    assert hosts.init("--accept-new-keys", "--user", "admin") == 0
    shown = capsys.readouterr()
    assert f"gpu1  10.0.0.1  ssh-ed25519  {ONE_PRINT}" in shown.err
    assert "ranks' network: 10.0.0.0/24 on eth0" in shown.out
    assert hosts.known.read_text() == f"10.0.0.1 {ONE}\n10.0.0.2 {TWO}\n"
    lab = load(Path("mylab"))
    told = [(host.name, host.address, host.slots, host.gpu, host.user) for host in lab.hosts]
    assert told == [("gpu1", "10.0.0.1", 8, True, "me"), ("gpu2", "10.0.0.2", 8, True, "me")]
    assert lab.name == "mylab"
    assert lab.vars["ansible_ssh_common_args"] == f"-o UserKnownHostsFile={hosts.known}"


def test_host_keys_are_always_checked(hosts):
    hosts.init("--accept-new-keys", "--key", __file__)
    logins = [line for line in (hosts.folder / "calls").read_text().splitlines() if " -G " not in line]
    assert len(logins) == 2
    for line in logins:
        assert "-o BatchMode=yes -o StrictHostKeyChecking=yes" in line
        assert f"-i {__file__} " in line
        assert "UserKnownHostsFile=" in line


def test_known_keys_need_no_question(hosts, capsys):
    hosts.known.write_text(f"10.0.0.1 {ONE}\n10.0.0.2 {TWO}\n")
    assert hosts.init() == 0
    assert "SHA256" not in capsys.readouterr().err


def test_without_a_terminal_new_keys_are_shown_and_refused(hosts, capsys):
    assert hosts.init() == 2
    shown = capsys.readouterr().err
    assert ONE_PRINT in shown
    assert "--fingerprints" in shown
    assert (hosts.known.exists(), Path("mylab").exists(), hosts.logins) == (False, False, [])


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2), ("\n", 2), ("", 130)])
def test_a_person_is_asked(hosts, monkeypatch, capsys, answer, code):
    monkeypatch.setattr(init, "_is_at_terminal", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", typed(answer))
    assert hosts.init() == code
    assert (hosts.known.exists(), Path("mylab").exists()) == (code == 0, code == 0)


def typed(*lines):
    answers = iter(line.rstrip("\n") for line in lines if line)

    def ask(_prompt=""):
        try:
            return next(answers)
        except StopIteration:
            raise EOFError from None

    return ask


def test_hosts_and_login_are_asked_for(hosts, monkeypatch):
    monkeypatch.setattr(init, "_is_at_terminal", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", typed(HOSTS, "admin", "y"))
    assert run(["init", "mylab", "--known-hosts", str(hosts.known)]) == 0
    assert "-l admin" in (hosts.folder / "calls").read_text()


def test_without_hosts_and_terminal_it_is_said(hosts, capsys):
    assert run(["init", "mylab"]) == 2
    assert "name them after the folder" in capsys.readouterr().err


def test_trusted_keys_alone_are_recorded(hosts):
    hosts.answer("10.0.0.1.keys", f"{ONE}\n{ECDSA}\n")
    Path("prints").write_text(f"gpu1 {ECDSA_PRINT}\n10.0.0.2 {TWO_PRINT}\n")
    assert hosts.init("--fingerprints", "prints") == 0
    assert hosts.known.read_text() == f"10.0.0.1 {ECDSA}\n10.0.0.2 {TWO}\n"


def test_a_key_that_is_not_the_trusted_one_ends_it(hosts, capsys):
    Path("prints").write_text(f"gpu1 {TWO_PRINT}\ngpu2 {TWO_PRINT}\n")
    assert hosts.init("--fingerprints", "prints", "--accept-new-keys") == 3
    shown = capsys.readouterr().err
    assert f"gpu1: it shows ssh-ed25519 {ONE_PRINT}; prints has {TWO_PRINT}" in shown
    assert (hosts.known.exists(), Path("mylab").exists(), hosts.logins) == (False, False, [])


def test_a_changed_key_ends_it_whatever_the_options(hosts, capsys):
    hosts.known.write_text(f"10.0.0.1 {TWO}\n")
    assert hosts.init("--accept-new-keys") == 3
    shown = capsys.readouterr().err
    assert "gpu1: ITS HOST KEY HAS CHANGED" in shown
    assert "ssh-keygen -R 10.0.0.1" in shown
    assert hosts.known.read_text() == f"10.0.0.1 {TWO}\n"
    assert (Path("mylab").exists(), hosts.logins) == (False, [])


def test_names_are_hashed_where_ssh_is_set_so(hosts):
    hosts.answer("10.0.0.1.settings", "hashknownhosts yes\n")
    assert hosts.init("--accept-new-keys") == 0
    assert [line[:3] for line in hosts.known.read_text().splitlines()] == ["|1|", "|1|"]


def test_an_alias_of_ssh_is_written_as_its_address(hosts):
    for number in (1, 2):
        hosts.answer(f"gpu{number}.settings", f"hostname 10.0.0.{number}\nuser admin\n")
    assert hosts.init("--accept-new-keys", hosts="gpu[1:2]") == 0
    assert [(own["ansible_host"], own["ansible_user"]) for own in written().values()] == [
        ("10.0.0.1", "admin"),
        ("10.0.0.2", "admin"),
    ]


@pytest.mark.parametrize("way", ["ProxyJump=me@gate", "ProxyCommand=nc -x gate %h %p"])
def test_a_host_behind_a_jump_host_needs_a_known_key(hosts, capsys, way):
    hosts.answer("10.0.0.2.settings", f"{way.replace('=', ' ')}\n")
    assert hosts.init("--accept-new-keys") == 3
    assert "gpu2: it is behind a jump host" in capsys.readouterr().err
    hosts.known.write_text(f"10.0.0.1 {ONE}\n10.0.0.2 {TWO}\n")
    assert hosts.init("--force") == 0
    assert way in written()["gpu2"]["ansible_ssh_common_args"]


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("10.0.0.2.error", DENIED, "it refuses the login of me: me@10.0.0.2: Permission denied"),
        ("10.0.0.2.error", "Host key verification failed.\n", "ssh does not accept its host key"),
        (
            "10.0.0.2.login",
            'Please login as the user "ubuntu" rather than the user "root".\n',
            "ends without a shell: Please login as",
        ),
        ("10.0.0.2.login", "hvlab clock NOW\nhvlab sudo yes\n", "it has no python3"),
        (
            "10.0.0.2.login",
            "hvlab clock NOW\nhvlab python /usr/bin/python3 3.6.8\nhvlab sudo yes\n",
            "too old for Ansible, which needs 3.8 or later: /usr/bin/python3 (3.6.8)",
        ),
        (
            "10.0.0.2.login",
            LOGIN.replace("/usr/bin/python3.11 3.11.2", "/x").replace(
                "python3 3.11.2", "python3 3.6.9\nhvlab system ubuntu 18.04"
            ),
            "install python3.8 there, and set ansible_python_interpreter: /usr/bin/python3.8",
        ),
        ("10.0.0.2.login", LOGIN.replace("3.11.2", ""), "/usr/bin/python3 (does not run)"),
    ],
)  # fmt: skip
def test_a_host_that_cannot_be_used_is_left_out_and_named(hosts, capsys, file, text, words):
    hosts.answer(file, text)
    assert hosts.init("--accept-new-keys") == 3
    shown = capsys.readouterr().err
    assert "mylab is written without gpu2" in shown
    assert words in shown
    assert "what to do: " in shown
    assert list(written()) == ["gpu1"]
    assert "#   gpu2, 10.0.0.2: " in Path("mylab/hosts.yml").read_text()


def test_a_host_whose_facts_fail_is_left_out(hosts, capsys):
    del hosts.facts["gpu2"]
    hosts.answer("10.0.0.2.login", LOGIN.replace("3.11.2", "", 1))
    hosts.failures = [HostFailure("gpu2", "MODULE FAILURE: No module named 'json'", unreachable=False)]
    assert hosts.init("--accept-new-keys") == 3
    assert "gpu2: its facts could not be gathered: MODULE FAILURE" in capsys.readouterr().err


def test_hosts_that_do_not_answer_are_named_with_why(hosts, capsys):
    for number in (1, 2):
        hosts.silence(f"10.0.0.{number}.keys")
    assert hosts.init("--accept-new-keys", hosts="a=127.0.0.1:1,b=no.such.name.invalid") == 3
    shown = capsys.readouterr().err
    assert "no host can be used; mylab was not written" in shown
    assert "a: 127.0.0.1:1 refuses the connection" in shown
    assert "b: the name no.such.name.invalid does not resolve" in shown
    assert "with `hvlab init`, b=ADDRESS" in shown
    assert not Path("mylab").exists()


@pytest.mark.parametrize(
    ("line", "changed", "words"),
    [
        ("sudo yes", "sudo no sudo: a password is required", "no root rights through sudo: sudo: a password"),
        ("hvlab sudo yes", "hvlab sudo no", "there is no sudo"),
        pytest.param("clock NOW", f"clock {int(time.time()) - 600}.N", "s behind the controller", id="clock"),
    ],
)  # fmt: skip
def test_what_has_to_be_put_right_is_named_and_the_inventory_is_written(hosts, capsys, line, changed, words):
    hosts.answer("10.0.0.2.login", LOGIN.replace(line, changed))
    assert hosts.init("--accept-new-keys") == 1
    shown = capsys.readouterr().err
    assert "mylab is written all the same, but:\n  gpu2: " in shown
    assert words in shown
    assert len(written()) == 2


def test_what_preflight_would_refuse_is_named(hosts, capsys):
    hosts.facts["gpu2"] |= {"distribution": "Arch", "python_version": "3.12.1"}
    hosts.facts["gpu2"]["hvlab"]["ssh_host_key"] = None
    assert hosts.init("--accept-new-keys") == 1
    shown = capsys.readouterr().err
    for words in ("Arch 12.11: unsupported OS", "its Python is 3.12", "no Ed25519 host key"):
        assert f"gpu2: {words}" in shown or words in shown


def test_where_ansible_would_take_a_broken_python_another_is_written_for_the_host(hosts):
    """A shim of pyenv does not run where its version is not chosen."""
    shims = "hvlab python /root/.pyenv/shims/python3.13\nhvlab python /root/.pyenv/shims/python3.9 3.9.1\n"
    answer = LOGIN.replace("hvlab python /usr/bin/python3.11 3.11.2\n", shims)
    hosts.answer("10.0.0.2.login", answer)
    assert hosts.init("--accept-new-keys") == 0
    assert [own.get("ansible_python_interpreter") for own in written().values()] == [
        None,
        "/usr/bin/python3",
    ]


def test_two_hosts_with_one_key_are_named(hosts, capsys):
    hosts.answer("10.0.0.2.keys", f"{ONE}\n")
    assert hosts.init("--accept-new-keys") == 1
    assert f"gpu1, gpu2: they show the same host key {ONE_PRINT}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("a=10.0.0.1,a=10.0.0.2", "it is listed twice"),
        ("a=10.0.0.1,b=10.0.0.1", "share the address"),
        ("a_b=10.0.0.1", "not a valid host name"),
        ("gpu=10.0.0.1", "gpu: a group has this name"),
        ("ALL=10.0.0.1,n=10.0.0.2", "ALL: a group has this name"),
    ],
)
def test_hosts_that_no_inventory_may_hold_are_refused_before_any_is_contacted(hosts, capsys, listed, words):
    assert hosts.init("--accept-new-keys", hosts=listed) == 2
    assert words in capsys.readouterr().err
    assert hosts.logins == []


def test_an_inventory_that_is_there_is_not_touched(hosts, capsys):
    Path("mylab").mkdir()
    Path("mylab/hosts.yml").write_text("mine")
    assert hosts.init("--accept-new-keys") == 2
    assert "--force" in capsys.readouterr().err
    assert not (hosts.folder / "calls").exists()
    assert hosts.init("--accept-new-keys", "--force") == 0
    [kept] = Path().glob("mylab.bak-*")
    assert (kept / "hosts.yml").read_text() == "mine"


@pytest.mark.slow
def test_hosts_are_asked_at_once(hosts, tmp_path):
    """One after the other, forty would take forty seconds."""
    script = tmp_path / "bin/ssh-keyscan"
    script.write_text(script.read_text().replace("for address", "sleep 1; for address", 1))
    for number in range(40):
        hosts.answer(f"10.0.0.{number}.keys", f"{ONE}\n")
    begun = time.monotonic()
    shown = host_keys.ask([replace(lab(1).hosts[0], address=f"10.0.0.{number}") for number in range(40)])
    assert time.monotonic() - begun < 30
    assert [len(one.new) for one in shown] == [1] * 40


@pytest.mark.parametrize(("now", "offset"), [(100.5, 0), (99, 0), (130, 28), (40, -59)])
def test_a_clock_is_off_by_what_is_certain(now, offset):
    """It was read at some moment between our two readings, 99 and 102."""
    login = ssh_client.FirstLogin(lab(1).hosts[0], sent=99, now=now, received=102, pythons=(), sudo=None)
    assert login.offset == offset


def test_what_is_asked_of_a_host_changes_nothing_there(hosts):
    hosts.init("--accept-new-keys")
    script = (hosts.folder / "10.0.0.1.stdin").read_text()
    assert "sudo -n true" in script
    assert not any(word in script for word in (">>", "> /", "rm ", "mkdir", "touch", "tee"))
