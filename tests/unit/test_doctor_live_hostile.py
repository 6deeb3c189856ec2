"""Answers that no healthy node sends: whatever comes, the detectors of doctor name faults or nothing."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.checks import across_hosts as live
from tests.unit.fuzzing import FEW
from tests.unit.test_doctor_live import GPU, GPU_SITE, RECORDED

HEALTHY = {host: {**own, **GPU} for host, own in RECORDED.items()}
KINDS = st.sampled_from(
    [None, 0, -1, 1e308, True, "", "x", "9" * 400, [], ["x"], {}, {"x": 1}, {"x": {"y": []}}]
)
# What a line or path has in place of what it had: hostile, empty, or of another host.
WORDS = st.sampled_from(
    ["", "/", "\x00", "é", "9" * 30, "-1", "nan", "/usr/bin/x", "1.2.3", "2 3", "[", "{", "=> not found"]
)


def damaged_json(draw, value):
    """Drop or replace one thing in what a program printed as JSON."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: damaged_json(draw, value[key])}
    if isinstance(value, dict) and value and draw(st.booleans()):
        gone = draw(st.sampled_from(sorted(value)))
        return {key: own for key, own in value.items() if key != gone}
    return draw(KINDS)


def damaged_lines(draw, text):
    """Drop lines, and put other words after or in place of the first one."""
    lines = []
    for line in text.split("\n"):
        fate = draw(st.sampled_from(["keep", "drop", "value", "key"]))
        key, _, value = line.partition(" ")
        if fate == "keep":
            lines.append(line)
        elif fate == "value":
            lines.append(f"{key} {draw(WORDS)}")
        elif fate == "key":
            lines.append(f"{draw(WORDS)} {value}")
    return "\n".join(lines)


def damaged(draw, answer):
    """One answer with a fault: of the wrong kind, a field or file missing, other words."""
    if not isinstance(answer, dict) or not answer or draw(st.integers(0, 9)) == 0:
        return draw(KINDS)
    key = draw(st.sampled_from([*answer, *(["out"] * 4 if "out" in answer else [])]))
    value = answer[key]
    if draw(st.integers(0, 9)) == 0:
        return {name: own for name, own in answer.items() if name != key}
    if not isinstance(value, str):
        return {**answer, key: draw(KINDS)}
    try:
        printed = json.loads(value)
    except ValueError:
        printed = None
    if isinstance(printed, dict):
        return {**answer, key: json.dumps(damaged_json(draw, printed))}
    return {**answer, key: damaged_lines(draw, value)}


@st.composite
def lab_answers(draw, question):
    """What hosts answer, where one answer has several faults, and some others are gone."""
    hosts = copy.deepcopy(HEALTHY)
    for host in draw(st.sampled_from([["p1"], ["p2"], ["p1", "p2"]])):
        for _ in range(draw(st.integers(1, 2))):
            hosts[host][question] = damaged(draw, hosts[host][question])
        for name in draw(st.sets(st.sampled_from(sorted(set(hosts[host]) - {question})), max_size=2)):
            del hosts[host][name]
    return hosts


@pytest.mark.parametrize("question", sorted(HEALTHY["p1"]))
@FEW
@given(st.data())
def test_damaged_answers_give_faults_or_nothing(question, data):
    hosts = data.draw(lab_answers(question))
    for fault in live.faults(GPU_SITE, hosts):
        assert fault.id in live.ENTRIES
        assert fault.host in hosts


@FEW
@given(
    st.dictionaries(
        st.sampled_from(sorted(HEALTHY)),
        st.dictionaries(
            st.sampled_from(sorted(HEALTHY["p1"])),
            st.recursive(
                KINDS | st.text(max_size=20),
                lambda inner: st.dictionaries(st.sampled_from(["out", "err", "rc", "/a/b/c"]), inner),
            ),
        ),
    )
)
def test_answers_of_any_kind_give_faults_or_nothing(hosts):
    assert all(fault.id in live.ENTRIES for fault in live.faults(GPU_SITE, hosts))


def test_every_question_is_among_the_answers_that_are_damaged():
    assert set(live.questions(GPU_SITE)) <= set(HEALTHY["p1"])
