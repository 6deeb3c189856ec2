"""New authorities, step by step, interrupted anywhere; and keys that are accepted no more."""

import subprocess

import pytest
from click.testing import CliRunner

from hvlab.base.errors import CheckError, HvlabError, Problem, UnreachableError, UsageError
from hvlab.cli import cli, keys
from hvlab.remote import ssh_keys, trust
from hvlab.remote import trust as rotation
from tests.unit.fuzzing import MANY

HOSTS = """
all:
  hosts: {n1: {ansible_host: 192.0.2.1}, n2: {ansible_host: 192.0.2.2}}
  vars: {lab_name: lab1, lab_network: 192.0.2.0/24, lab_interface: eth0, lab_slots: 1}
"""


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "data"))


@pytest.fixture
def lab(data):
    return trust.ensure_lab_trust("lab1")


def test_a_lab_is_taken_over_by_the_fingerprint_of_its_authority(tmp_path):
    (tmp_path / "hosts.yml").write_text(HOSTS)
    call = ["keys", "init", "-i", str(tmp_path / "hosts.yml"), "--take-over"]
    result = CliRunner().invoke(cli, [*call, "SHA256:short"])
    assert isinstance(result.exception, UsageError)
    theirs = f"SHA256:{'x' * 43}"
    assert CliRunner().invoke(cli, [*call, theirs]).exit_code == 0
    lab = trust.lab_trust("lab1")
    assert lab.authorities == [lab.authority, theirs]


@pytest.fixture
def host_key(tmp_path):
    path = tmp_path / "host"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


def trusted(lab):
    """The authorities that hosts are told to trust, for hosts and for users."""
    known = lab.known_hosts_text({"n1": []}).splitlines()
    return {line.split()[3] for line in known}, {
        line.split()[1] for line in lab.user_authorities_text.splitlines()
    }


def in_use(lab):
    return [ssh_keys.public(key).split()[1] for key in (lab.host_ca, lab.user_ca)]


def test_at_each_step_hosts_trust_who_signs_before_and_after(lab):
    former, identity = in_use(lab), ssh_keys.public(lab.identity)
    rotation.announce(lab)
    assert rotation.step(lab) == rotation.ANNOUNCED
    assert in_use(lab) == former
    assert [len(kind) for kind in trusted(lab)] == [2, 2]
    announced = trusted(lab)
    rotation.replace(lab)
    assert rotation.step(lab) == rotation.REPLACED
    assert trusted(lab) == announced
    assert not set(in_use(lab)) & set(former)
    trust.ensure_lab_trust("lab1")
    assert ssh_keys.public(lab.identity) != identity
    assert lab.user_certificate_good("hvlab")
    rotation.retire(lab)
    assert rotation.step(lab) == rotation.RETIRED
    assert trusted(lab) == ({in_use(lab)[0]}, {in_use(lab)[1]})
    rotation.finish(lab)
    assert rotation.step(lab) == rotation.STABLE
    assert trusted(lab) == ({in_use(lab)[0]}, {in_use(lab)[1]})


# Number of files that a replacement puts in place.
FILES = 13


class CutOffError(Exception):
    """Stands for whatever ends a replacement."""


@pytest.mark.parametrize("after", range(1, FILES + 1) if MANY else (1, 2, 6, FILES - 1, FILES))
def test_a_replacement_that_is_cut_off_anywhere_is_finished(lab, monkeypatch, after):
    rotation.announce(lab)
    announced, count = trusted(lab), 0

    def counted(real):
        def call(*words, **named):
            nonlocal count
            count += 1
            if count > after:
                raise CutOffError
            return real(*words, **named)

        return call

    with monkeypatch.context() as cut:
        cut.setattr(rotation.Path, "replace", counted(rotation.Path.replace))
        with pytest.raises(CutOffError) if after < FILES else pytest.MonkeyPatch.context():
            rotation.replace(lab)
    assert trust.lab_trust("lab1")
    assert rotation.step(lab) == (rotation.ANNOUNCED if after < FILES else rotation.REPLACED)
    # What hosts are given before it goes on.
    trust.ensure_lab_trust("lab1")
    assert trusted(lab) == announced
    rotation.announce(lab)
    rotation.replace(lab)
    assert rotation.step(lab) == rotation.REPLACED
    assert trusted(lab) == announced
    for key in (lab.host_ca, lab.user_ca, lab.identity):
        public = subprocess.run(
            ["ssh-keygen", "-y", "-f", str(key)], capture_output=True, text=True, check=True
        )
        assert public.stdout.split()[1] == ssh_keys.public(key).split()[1]


def test_a_revoked_host_key_is_signed_no_more(lab, host_key):
    lab.sign_host(host_key, name="n1", principals=["n1"])
    assert trust.revoke(lab, [host_key]) == [" ".join(host_key.split()[:2])]
    assert trust.revoke(lab, [host_key]) == []
    assert f"RevokedHostKeys={lab.revoked}" in lab.ssh_options
    with pytest.raises(HvlabError, match="its host key was revoked"):
        lab.sign_host(host_key, name="n1", principals=["n1"])


def test_sshd_finds_a_list_of_revoked_keys_even_before_there_are_any(lab):
    assert lab.revoked_text == ""
    assert not any("RevokedHostKeys" in option for option in lab.ssh_options)


def playing(issue, check=lambda limit: None):
    """Return what stands for run_playbook: keys are issued to hosts, or those are only checked."""

    def run_playbook(lab, words=(), limit=None, **_):
        (check if words == ["--tags", "preflight"] else issue)(limit)

    return run_playbook


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Run `hvlab keys`; return its result and the hosts that were provisioned, in order."""
    (tmp_path / "hosts.yml").write_text(HOSTS)
    issued = []
    monkeypatch.setattr(keys.probe, "problems", lambda hosts, **_: [])
    stand_in = playing(issued.append)
    monkeypatch.setattr(keys.provision, "run_playbook", stand_in)

    def run(*words):
        result = CliRunner().invoke(cli, ["keys", *words[:1], "-i", str(tmp_path / "hosts.yml"), *words[1:]])
        return result, issued

    return run


def test_rotate_provisions_after_each_step(command, lab):
    former = in_use(lab)
    result, issued = command("rotate")
    assert result.exit_code == 0, result.output
    assert issued == [None, None, None]
    assert not set(in_use(lab)) & set(former)
    assert rotation.step(lab) == rotation.STABLE


@pytest.mark.parametrize("cut_off", [1, 2, 3])
def test_a_rotation_that_is_cut_off_before_all_hosts_are_reached_goes_on(command, lab, monkeypatch, cut_off):
    former, reached = in_use(lab), []

    def until(limit):
        reached.append(rotation.step(lab))
        if len(reached) == cut_off:
            raise KeyboardInterrupt

    monkeypatch.setattr(keys.provision, "run_playbook", playing(until))
    command("rotate")
    assert "none under way" not in command("status")[0].output
    monkeypatch.setattr(keys.provision, "run_playbook", playing(lambda _: reached.append(rotation.step(lab))))
    command("rotate")
    # The step that was cut off is done again, and no other authorities are made after it.
    steps = [rotation.ANNOUNCED, rotation.REPLACED, rotation.RETIRED]
    assert reached == [*steps[:cut_off], *steps[cut_off - 1 :]]
    assert "none under way" in command("status")[0].output
    assert not set(in_use(lab)) & set(former)


@pytest.mark.parametrize("words", [("rotate",), ("revoke", "n2")])
def test_keys_are_replaced_by_one_command_at_a_time(command, lab, host_key, monkeypatch, words):
    lab.sign_host(host_key, name="n2", principals=["n2"])
    others = []
    monkeypatch.setattr(keys.provision, "run_playbook", playing(lambda _: others.append(command(*words)[0])))
    assert command("rotate")[0].exit_code == 0
    assert [type(other.exception) for other in others] == [UsageError] * 3
    assert "another command replaces the keys of lab lab1" in str(others[0].exception)
    assert lab.revoked_text == ""


def test_a_rotation_goes_on_where_it_was(command, lab):
    rotation.announce(lab)
    rotation.replace(lab)
    trust.ensure_lab_trust("lab1")
    new = in_use(lab)
    _, issued = command("rotate")
    assert issued == [None, None]
    assert in_use(lab) == new


def test_revoke_gives_the_other_hosts_a_new_key_of_the_user(command, lab, host_key):
    identity = ssh_keys.public(lab.identity)
    result, issued = command("revoke", "n2")
    assert isinstance(result.exception, HvlabError)
    assert "no host of lab lab1 by that name was signed" in str(result.exception)
    lab.sign_host(host_key, name="n2", principals=["n2"])
    result, issued = command("revoke", "n2")
    assert result.exit_code == 0, result.output
    assert issued == ["n1"]
    revoked = lab.revoked_text.splitlines()
    assert revoked == [" ".join(key.split()[:2]) for key in (host_key, identity)]
    assert ssh_keys.public(lab.identity) != identity
    assert not lab.certificate.exists()


@pytest.mark.parametrize("cut_off", [1, 2, 3])
def test_revoke_counts_for_the_key_of_a_host_that_stopped_a_rotation(
    command, lab, host_key, monkeypatch, cut_off
):
    """It has the key of before still, with a certificate that other hosts accept."""
    lab.sign_host(host_key, name="n2", principals=["n2"])
    held, issues = ssh_keys.public(lab.identity), []

    def until(limit):
        issues.append(None)
        if len(issues) == cut_off:
            raise UnreachableError("n2 does not answer")

    with monkeypatch.context() as cut:
        cut.setattr(keys.provision, "run_playbook", playing(until))
        command("rotate")
    result, _ = command("revoke", "n2")
    assert result.exit_code == 0, result.output
    assert " ".join(held.split()[:2]) in lab.revoked_text.splitlines()
    assert " ".join(ssh_keys.public(lab.identity).split()[:2]) not in lab.revoked_text.splitlines()


def test_revoke_counts_for_a_key_that_was_damaged_here_and_is_whole_on_a_host(command, lab, host_key):
    lab.sign_host(host_key, name="n2", principals=["n2"])
    held = ssh_keys.public(lab.identity)
    lab.identity.write_text("")
    command("init")
    command("revoke", "n2")
    assert " ".join(held.split()[:2]) in lab.revoked_text.splitlines()


@pytest.mark.parametrize("words", [("rotate",), ("revoke", "n2")])
def test_hosts_that_preflight_refuses_stop_it_before_a_key_is_changed(
    command, lab, host_key, monkeypatch, words
):
    """The hosts of another owner were refused when the keys here had been replaced."""
    lab.sign_host(host_key, name="n2", principals=["n2"])
    (lab.folder / "munge.key").write_text("former")

    def refuse(limit):
        raise CheckError("provisioning failed (see above)")

    def held():
        return {path: path.read_bytes() for path in lab.folder.rglob("*") if path.is_file()}

    before, issued = held(), []
    monkeypatch.setattr(keys.provision, "run_playbook", playing(issued.append, check=refuse))
    result, _ = command(*words)
    assert str(result.exception) == "provisioning failed (see above); no key was changed"
    assert issued == []
    assert {path: text for path, text in held().items() if path.name != "replacing"} == before


def test_revoke_reaches_the_hosts_that_answer_and_names_the_others(command, lab, host_key, monkeypatch):
    lab.sign_host(host_key, name="n9", principals=["n9"])
    down = Problem("n1", "192.0.2.1:22 does not answer within 8 s", "look at its power")
    monkeypatch.setattr(keys.probe, "problems", lambda hosts, **_: [down])
    result, issued = command("revoke", "n9")
    assert issued == ["n2"]
    assert isinstance(result.exception, UnreachableError)
    assert "n1 still accepts what was revoked" in str(result.exception)
    assert "does not answer within 8 s" in str(result.exception)
    assert "`hvlab keys issue`" in result.exception.remedy


def test_status_warns_a_week_before_a_certificate_ends(command, lab, host_key):
    for name in ("n1", "n2"):
        lab.sign_host(host_key, name=name, principals=[name])
    result, _ = command("status")
    assert result.exit_code == 0, result.output
    lab.sign_host(host_key, name="n1", principals=["n1", "other"], life=trust.timedelta(days=6))
    result, _ = command("status")
    assert "certificates end within a week, or have ended: n1" in str(result.exception)


def test_status_fails_for_a_certificate_that_is_over(command, lab, host_key):
    lab.sign_host(host_key, name="n1", principals=["n1"])
    lab.sign_host(host_key, name="n2", principals=["n2"], life=trust.timedelta(0))
    result, _ = command("status")
    assert "which is over" in result.output
    assert str(result.exception) == "certificates end within a week, or have ended: n2"
    assert result.exception.exit_code == 1


def test_status_fails_for_a_host_without_a_certificate(command, lab, host_key):
    lab.sign_host(host_key, name="n1", principals=["n1"])
    result, _ = command("status")
    assert "host n2           no certificate yet" in result.output
    assert str(result.exception) == "hosts without a certificate: n2"
    assert result.exception.exit_code == 1
    assert result.exception.remedy == "run `hvlab keys issue`"


def test_without_keys_the_way_on_is_named(command):
    result, _ = command("status")
    assert result.exception.remedy == "run `hvlab keys init`"
    assert command("init")[0].output.startswith("made in ")
    assert command("init")[0].output.startswith("kept in ")


def test_revoke_makes_a_new_munge_key_also_where_a_host_stops_it(command, lab, host_key, monkeypatch):
    lab.sign_host(host_key, name="n2", principals=["n2"])
    munge = lab.folder / "munge.key"
    munge.write_text("former")

    def stop(*_, **__):
        raise UnreachableError("n1 does not answer")

    monkeypatch.setattr(keys.provision, "run_playbook", stop)
    command("revoke", "n2")
    assert munge.read_text() != "former"
    assert munge.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_rotate_makes_a_new_munge_key_where_there_is_one(command, lab, there):
    munge = lab.folder / "munge.key"
    if there:
        munge.write_text("former")
    assert command("rotate")[0].exit_code == 0
    assert munge.is_file() is there
    assert not there or munge.read_text() != "former"


def test_status_says_that_a_revocation_was_cut_off(command, lab):
    trust.revoke(lab, lab.user_keys)
    result, _ = command("status")
    assert "the lab user's present key is revoked" in str(result.exception)
    assert "hvlab keys revoke" in result.exception.remedy
