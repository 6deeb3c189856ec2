"""Every entry of what doctor knows: a log that shows it, and one that looks alike and does not."""

from pathlib import Path

import pytest
import yaml

from hvlab.doctor import known
from hvlab.doctor.reading import diagnose
from tests.unit.test_doctor_threads import THREADS

FOLDER = Path(__file__).parent.parent / "data/doctor/entries"
CASES = {
    id_: case
    for path in sorted(FOLDER.glob("*.yml"))
    for id_, case in yaml.safe_load(path.read_text("utf-8")).items()
}
ENTRIES = {entry.id: entry for entry in known.CAUSES}
# Others are seen only when hosts are asked: test_doctor_live.
IN_LOGS = {id_: entry for id_, entry in ENTRIES.items() if entry.signs}


def shown(text):
    found = diagnose(text.splitlines())
    return {each.cause.id for each in (*found.causes, *found.harmless)}


@pytest.mark.parametrize("entry", IN_LOGS.values(), ids=lambda entry: entry.id)
def test_entry_is_seen_in_its_log_and_not_in_its_near_miss(entry):
    case = CASES[entry.id]
    assert entry.id in shown(case["log"])
    assert entry.id not in shown(case["near"])
    assert case["from"]


@pytest.mark.parametrize(
    ("id_", "text"), [(id_, text) for id_, case in CASES.items() for text in case.get("also", ())]
)
def test_entry_is_seen_in_other_words_of_the_same_program(id_, text):
    assert id_ in shown(text)


def test_cases_and_entries_are_the_same():
    assert set(CASES) == set(IN_LOGS)
    assert len(ENTRIES) == len(known.CAUSES), "two entries have one id"


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_entry_says_all(entry):
    assert entry.source.startswith("https://")
    assert entry.title
    assert entry.why.endswith(".")
    assert entry.remedy.endswith(".")


def test_harmless_logs_give_no_cause():
    for id_, case in CASES.items():
        if ENTRIES[id_].harmless:
            assert not diagnose(case["log"].splitlines()).causes, id_


def test_words_that_are_looked_for_first_are_in_all_that_a_pattern_matches():
    text = "\n".join([case["log"] for case in (*CASES.values(), *THREADS.values())])
    for entry in IN_LOGS.values():
        for sign in (*entry.patterns, *entry.needed, *entry.excluded):
            for match in sign.pattern.finditer(text) if sign.words else ():
                assert any(word in match.group() for word in sign.words), entry.id
