"""What hosts say comes in by one door: whatever it is, it ends as figures or as an error in words."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab import workloads
from hvlab.base import answers
from hvlab.base.answers import AnswerError, clean, load, mismatch
from hvlab.base.answers.shapes import Count, HostAnswer, NotNegative, Number, Scalar
from hvlab.workloads import answered
from tests.unit.fuzzing import QUICK
from tests.unit.labs import case
from tests.unit.test_workloads import ENDED, RESULT, TRAINED

pytestmark = pytest.mark.fuzz

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1m\x00\u202e\ud800"
# Anything that JSON can hold, and Python's own additions.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([HOSTILE, -1, 0, 10**400, 1e308, "x" * 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("content", "observed"),
    [
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1e999}', "inf, which is no number"),
        (b"\xff\xfe{}", "no UTF-8"),
        (b"", "no JSON"),
        (b"[1, 2", "no JSON"),
        (b"[" * 100_000, "nested deeper"),
        (b"[" * 70 + b"]" * 70, "nested deeper"),
        (b"[" + b"1" * 5000 + b"]", "no JSON"),
        (b" " * answers.LIMIT, "16 MiB or larger"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_what_is_no_answer_is_refused_with_host_and_reason(content, observed):
    with pytest.raises(AnswerError, match=observed) as caught:
        load(content, "n1: its result.json")
    assert str(caught.value).startswith("n1: ")
    assert caught.value.remedy


class Sized(HostAnswer):
    size: Count
    mean_s: list[NotNegative] | None = None


@pytest.mark.parametrize(
    ("shape", "right", "wrong"),
    [
        (str, ["", "a"], [1, None]),
        (Scalar, ["a", 1, None, True], [[], {}]),
        (Count, [0, 5], [-1, 1.5, True, "1", 10**30, 10**400]),
        (Number, [-1, 0.5], [1e300, "1", None, 10**400]),
        (NotNegative, [0, 0.5], [-1e-9, math.nan, math.inf, False]),
        (answered.Taken, [1e-9], [0, 0.0]),
        (dict[answered.CpuNumber, str], [{}, {"0": "a"}], [{"a": "a"}, {"1234567": "a"}]),
        (Sized, [{"size": 1, "more": {}}, {"size": 1, "mean_s": None}], [{}, {"size": "1"}, []]),
    ],
)
def test_shapes(shape, right, wrong):
    assert [mismatch(value, shape) for value in right] == [None] * len(right)
    assert all(mismatch(value, shape) for value in wrong)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "size: field required"),
        ({"size": "1"}, "size: input should be a valid integer, not '1'"),
        ({"size": 1, "mean_s": [0, -1]}, "mean_s[1]: input should be greater than or equal to 0, not -1"),
        ({"size": 10**50}, f"size: input should be less than or equal to {2**62}, not a very long number"),
        ([], "input should be a valid dictionary or instance of Sized, not []"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(value, problem):
    assert mismatch(value, Sized) == problem


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("grün, 日本, 😀", "grün, 日本, 😀"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGk=\x07copied", "copied"),
        ("\x9b2Jcleared", "cleared"),
        ("10 %\r20 %\r\nend", "10 %\n20 %\nend"),
        ("a\x08\x00\x7fb\u202ec\ud800d", "abcd"),
        ("\x1b]never ended\nnext", "\nnext"),
        ("\x1b", ""),
    ],
)
def test_nothing_that_steers_a_terminal_is_left(said, left):
    assert clean(said) == left


@given(st.text(st.characters(), max_size=40))
@QUICK
def test_a_cleaned_text_is_clean(said):
    once = clean(said + "\x1b[1m")
    assert clean(once) == once
    assert all(char in "\n\t" or ord(char) >= 32 for char in once)
    once.encode()


def test_texts_in_json_are_cleaned_names_too():
    assert load(json.dumps({HOSTILE: [HOSTILE]}), "n1") == {"red": ["red"]}


# Results that became figures, or tracebacks, before there was a door.
WRONG_TIMES = [math.nan, math.inf, -0.001, 0, "0.1", None, [0.1], True, 1e300]


@pytest.mark.parametrize("wrong", WRONG_TIMES)
def test_a_time_that_cannot_be_is_never_ok(tmp_path: Path, wrong):
    (tmp_path / "case.json").write_text(json.dumps(ENDED))
    sizes = [{**RESULT["sizes"][0], "mean_s": [0.001, wrong]}, RESULT["sizes"][1]]
    (tmp_path / "result.json").write_text(json.dumps({**RESULT, "sizes": sizes}))
    found = workloads.outcome(case(), tmp_path)
    assert found.error.startswith("n1: its result.json: ")
    assert "retry; " in found.error
    assert not found.figures


@pytest.mark.parametrize("name", ["started_at", "ended_at"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -5, "now", 1e300, [], 10**400])
def test_a_case_that_ran_at_no_time_is_never_ok(tmp_path: Path, name, wrong):
    (tmp_path / "case.json").write_text(json.dumps({**ENDED, name: wrong}))
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    found = workloads.outcome(case(), tmp_path)
    assert found.error.startswith("n1: its case.json: ")


def test_a_result_of_more_than_the_limit_is_told(tmp_path: Path):
    (tmp_path / "case.json").write_text(json.dumps(ENDED))
    (tmp_path / "result.json").write_bytes(b"[" + b"1," * (answers.LIMIT // 2))
    assert "16 MiB or larger" in workloads.outcome(case(), tmp_path).error


def test_a_clock_set_back_makes_no_negative_time(tmp_path: Path):
    (tmp_path / "case.json").write_text(json.dumps({**ENDED, "ended_at": 99.0}))
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    assert "ended before it began" in workloads.outcome(case(), tmp_path).error
    (tmp_path / "case.json").write_text(json.dumps({**ENDED, "started_at": 102.0}))
    (tmp_path / "result.json").write_text(json.dumps(TRAINED))
    assert "its clock was set back" in workloads.outcome(case(workload="mnist"), tmp_path).error


def test_a_launchers_last_words_steer_no_terminal(tmp_path: Path):
    (tmp_path / "case.json").write_text(json.dumps({**ENDED, "rc": 1}))
    (tmp_path / "stderr").write_bytes(b"\x1b[2J\x1b]0;owned\x07RuntimeError: \x1b[31mboom\xc2\x9b1m\n")
    assert workloads.outcome(case(), tmp_path).error.endswith("RuntimeError: boom")


def _replaced(document: object, path: list[int], value: object) -> object:
    """Return a copy where one part is replaced; ``path`` chooses it, one number a level."""
    if not path or not isinstance(document, dict | list) or not document:
        return value
    keys = list(document) if isinstance(document, dict) else range(len(document))
    key = keys[path[0] % len(keys)]
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[key] = _replaced(document[key], path[1:], value)
    return copy


COUNTED = {"machine": "m", "seconds": 2.0, "cpus": {"0": [1.0, 0.0]}, "own_s": 0.5, "throttled_s": 0.0}
FULL = {**RESULT, "stolen": {"n1": COUNTED, "n2": COUNTED}, "wire": {"carriers": ["eth0"]}}
OWN = {**RESULT, "command": {"seconds": 3.0, "removed": ["a"]}}


@pytest.mark.parametrize(
    ("workload", "written"),
    [("allreduce", FULL), ("mnist", {**TRAINED, "stolen": FULL["stolen"]}), ("command", OWN)],
)
@given(path=st.lists(st.integers(0, 20), min_size=1, max_size=6), value=VALUES, of=st.booleans())
@QUICK
def test_a_result_with_anything_in_it_is_figures_or_an_error(tmp_path, workload, written, **drawn):
    """Nothing raises; what counts is finite and not negative, and what is told can be shown and kept."""
    path, value, of = drawn["path"], drawn["value"], drawn["of"]
    measured = case(workload=workload, **({"command": "true"} if workload == "command" else {}))
    (tmp_path / "result.json").write_text(json.dumps(written if of else _replaced(written, path, value)))
    (tmp_path / "case.json").write_text(json.dumps(_replaced(ENDED, path, value) if of else ENDED))
    found = workloads.outcome(measured, tmp_path)
    assert all(math.isfinite(figure.value) for figure in found.figures)
    assert all(figure.value >= 0 for figure in found.figures if figure.metric != "loss")
    assert found.error is None or clean(found.error) == found.error
    json.dumps(dict(found.versions)).encode()
    workloads.samples.read(tmp_path)
