"""Every entry of what doctor knows: texts that show it, and one that looks alike and does not."""

from hvlab.doctor import knowledge
from hvlab.doctor.reading import diagnose
from tests.unit.test_doctor_threads import THREADS

ENTRIES = {entry.id: entry for entry in knowledge.CAUSES}
# Others are seen only when hosts are asked: test_doctor_live.
IN_LOGS = [entry for entry in knowledge.CAUSES if entry.signs]


def shown(text):
    found = diagnose(text.splitlines())
    return {each.cause.id for each in (*found.causes, *found.harmless)}


def wrong(entry):
    """Return whether an entry is missed in an example, or seen in its near miss."""
    seen = entry.examples and all(entry.id in shown(text) for text in entry.examples)
    alone = not entry.harmless or not diagnose(entry.examples[0].splitlines()).causes
    return not (seen and alone and entry.near and entry.id not in shown(entry.near))


def test_each_entry_is_seen_in_its_examples_and_not_in_its_near_miss():
    assert [entry.id for entry in IN_LOGS if wrong(entry)] == []


def test_ids_are_unique():
    assert len(ENTRIES) == len(knowledge.CAUSES)


def test_each_entry_says_all():
    for entry in ENTRIES.values():
        assert entry.source.startswith("https://"), entry.id
        assert entry.title, entry.id
        assert entry.why.endswith("."), entry.id
        assert entry.remedy.endswith("."), entry.id


def test_words_that_are_looked_for_first_are_in_all_that_a_pattern_matches():
    text = "\n".join([entry.examples[0] for entry in IN_LOGS] + [case["log"] for case in THREADS.values()])
    for entry in IN_LOGS:
        for sign in (*entry.patterns, *entry.needed, *entry.excluded):
            for match in sign.pattern.finditer(text) if sign.words else ():
                assert any(word in match.group() for word in sign.words), entry.id
