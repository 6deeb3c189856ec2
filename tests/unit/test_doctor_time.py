"""No text holds doctor up, and a search that was stopped is told."""

import re
import sys
import time
import warnings

import pytest

from hvlab.ansible.callback import hvlab_doctor
from hvlab.base import answers
from hvlab.base.errors import CheckError
from hvlab.checks import across_hosts
from hvlab.doctor import knowledge, reading, text
from hvlab.remote import here, playbook
from hvlab.remote.playbook import HostFailure, Login, Play
from hvlab.remote.trust import Trust
from hvlab.workloads.outcome import launcher_error
from tests.unit import labs
from tests.unit.fuzzing import MANY
from tests.unit.near_matches import near_match

pytestmark = pytest.mark.fuzz
FAILURE = "something new"
SIZE = 8 * 1024
# Texts made of each pattern.
TEXTS = 26 if MANY else 2
SIGNS = [
    (entry.id, sign)
    for entry in knowledge.CAUSES
    for sign in (*entry.patterns, *entry.needed, *entry.excluded)
]
SHARES = 8
# What else reads what hosts print.
READERS = (
    answers,
    text,
    playbook,
    here,
    hvlab_doctor,
    sys.modules[launcher_error.__module__],
    *across_hosts._SUBJECTS,
)


def patterns(value):
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from patterns(each)


OTHERS = [
    (f"{module.__name__}.{name}", pattern)
    for module in READERS
    for name, value in vars(module).items()
    for pattern in patterns(value)
]


def callback(folder):
    return "\n".join(hvlab_doctor.findings({"n1": FAILURE}))


def failed_case(folder):
    (folder / "stderr").write_text(FAILURE)
    return launcher_error(labs.case(), {"rc": 1}, folder)


def failed_play(folder):
    play = Play("x.yml", Login(labs.lab(), Trust("t", folder), "hvlab"), {})
    play.failures = [HostFailure("n1", FAILURE, unreachable=False)]
    with pytest.raises(CheckError) as caught:
        play.check("the playbook failed", remedy="")
    return f"{caught.value} {caught.value.remedy}"


def host(folder):
    fault = across_hosts.of_message("n1", FAILURE)
    entry = across_hosts.ENTRIES[fault.id] if fault else None
    return f"{entry.title} {entry.remedy}" if entry else ""


@pytest.mark.parametrize("user", [callback, failed_case, failed_play, host])
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


def seconds(pattern, near):
    """Return processor time for each MiB; the least of three where it is much: other work may disturb it."""
    took = []
    while len(took) < 3 and min(took, default=99.0) > reading._MOST_S:
        begun = time.thread_time()
        for _ in pattern.finditer(near):
            pass
        took.append((time.thread_time() - begun) * 2**20 / SIZE)
    return min(took)


def slow(patterns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = [
            (round(seconds(pattern, near_match(pattern, seed, SIZE)), 1), name, seed, pattern.pattern)
            for name, pattern in patterns
            for seed in range(TEXTS)
        ]
    return [each for each in every if each[0] > reading._MOST_S]


@pytest.mark.parametrize("share", range(SHARES))
def test_what_nearly_matches_a_sign_is_searched_in_time(share):
    assert not slow((name, sign.pattern) for name, sign in SIGNS[share::SHARES])


def test_what_nearly_matches_another_pattern_for_what_hosts_print_is_searched_in_time():
    assert len(OTHERS) > 20
    assert not slow(OTHERS)
