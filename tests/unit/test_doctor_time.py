"""No text holds doctor up, and a search that was stopped is told."""

import pytest

from hvlab.ansible.callback import hvlab_doctor
from hvlab.base.errors import CheckError
from hvlab.doctor import live, reading
from hvlab.remote.playbook import HostFailure, Login, Play
from hvlab.remote.trust import Trust
from hvlab.workloads.outcome import launcher_error
from tests.unit import labs

FAILURE = "something new"


def callback(folder):
    return "\n".join(hvlab_doctor.findings({"n1": FAILURE}))


def failed_case(folder):
    (folder / "stderr").write_text(FAILURE)
    return launcher_error(labs.case(), {"rc": 1}, folder)


def playbook(folder):
    play = Play("x.yml", Login(labs.lab(), Trust("t", folder), "hvlab"), {})
    play.failures = [HostFailure("n1", FAILURE, unreachable=False)]
    with pytest.raises(CheckError) as caught:
        play.check("the playbook failed", remedy="")
    return f"{caught.value} {caught.value.remedy}"


def host(folder):
    fault = live.of_message("n1", FAILURE)
    entry = live.ENTRIES[fault.id] if fault else None
    return f"{entry.title} {entry.remedy}" if entry else ""


@pytest.mark.parametrize("user", [callback, failed_case, playbook, host])
def test_whoever_asks_for_the_root_says_that_the_search_was_stopped(user, monkeypatch, tmp_path):
    assert reading.STOPPED.title not in user(tmp_path)
    monkeypatch.setattr(reading, "_MOST_S", -1.0)
    said = user(tmp_path)
    assert reading.STOPPED.title in said
    assert "hvlab doctor --log" in said


def test_a_root_that_was_found_first_is_told(monkeypatch):
    """The lightest are searched first."""
    found = reading.diagnose([FAILURE])
    symptom = next(entry for entry in reading.knowledge.CAUSES if entry.weight == reading.WEIGHTS["symptom"])
    for first in (reading.STOPPED, symptom):
        known = reading.Recognised(first, ((1, FAILURE),), 1)
        diagnosis = reading.Diagnosis((known,), found.harmless, stopped=3)
        monkeypatch.setattr(reading, "diagnose", lambda raw, diagnosis=diagnosis: diagnosis)
        assert reading.root([FAILURE]) == (None if first is symptom else known)
