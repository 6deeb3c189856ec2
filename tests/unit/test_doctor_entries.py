"""Every entry of what doctor knows: texts that show it, and one that looks alike and does not."""

import pytest

from hvlab.doctor import knowledge
from hvlab.doctor.reading import diagnose
from tests.unit.test_doctor_threads import THREADS

ENTRIES = {entry.id: entry for entry in knowledge.CAUSES}
# Others are seen only when hosts are asked: test_doctor_live.
IN_LOGS = [entry for entry in knowledge.CAUSES if entry.signs]


def shown(text):
    found = diagnose(text.splitlines())
    return {each.cause.id for each in (*found.causes, *found.harmless)}


@pytest.mark.parametrize("entry", IN_LOGS, ids=lambda entry: entry.id)
def test_entry_is_seen_in_its_examples_and_not_in_its_near_miss(entry):
    assert entry.examples
    assert entry.near
    assert all(entry.id in shown(text) for text in entry.examples)
    assert entry.id not in shown(entry.near)
    assert not entry.harmless or not diagnose(entry.examples[0].splitlines()).causes


def test_ids_are_unique():
    assert len(ENTRIES) == len(knowledge.CAUSES)


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_entry_says_all(entry):
    assert entry.source.startswith("https://")
    assert entry.title
    assert entry.why.endswith(".")
    assert entry.remedy.endswith(".")


def test_words_that_are_looked_for_first_are_in_all_that_a_pattern_matches():
    text = "\n".join([entry.examples[0] for entry in IN_LOGS] + [case["log"] for case in THREADS.values()])
    for entry in IN_LOGS:
        for sign in (*entry.patterns, *entry.needed, *entry.excluded):
            for match in sign.pattern.finditer(text) if sign.words else ():
                assert any(word in match.group() for word in sign.words), entry.id
