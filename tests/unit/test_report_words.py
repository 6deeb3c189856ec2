"""The words of a report: the same phrases in both languages, and numbers a person can read."""

import ast
import re
import string
from pathlib import Path

import pytest

from hvlab.base.paths import project_dir
from hvlab.report.blocks import Code, Fact, Number, Range, Say, Several
from hvlab.report.words import LANGUAGES, clock, load

SOURCES = sorted((project_dir() / "hvlab/report").glob("*.py"))


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_both_languages_have_the_same_phrases():
    assert load("en").phrases.keys() == load("zh").phrases.keys()


def test_phrases_have_the_same_gaps_in_both_languages():
    english, chinese = (load(lang).phrases for lang in ("en", "zh"))
    assert {key: fields(text) for key, text in english.items()} == {
        key: fields(text) for key, text in chinese.items()
    }


def test_chinese_phrases_are_chinese():
    english, chinese = (load(lang).phrases for lang in ("en", "zh"))
    spoken = {key for key, text in english.items() if re.search(r"[a-z]{4}", re.sub(r"\{\w+\}", "", text))}
    # What the lab sheet writes in Latin letters.
    same = {"compression.devices", "environment.driver"}
    assert {key for key in spoken if not re.search(r"[\u4e00-\u9fff]", chinese[key])} <= same


def keys(path: Path) -> set[str]:
    """The keys a module says; one that is put together counts as a pattern."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Say"):
            continue
        for part in ast.walk(node.args[0]):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and "." in part.value:
                found.add(part.value if not isinstance(node.args[0], ast.JoinedStr) else f"{part.value}*")
    return found


def test_every_phrase_that_is_said_is_there():
    phrases = load("en").phrases
    said = {key for path in SOURCES for key in keys(path)}
    begun = {key[:-1] for key in said if key.endswith("*")}
    assert {key for key in said if not key.endswith("*")} <= phrases.keys()
    assert {begin for begin in begun if not any(begin in key for key in phrases)} == set()


def test_every_warning_of_the_model_has_its_phrase():
    named = {
        f"why.{node.args[0].value}"
        for path in (project_dir() / "hvlab/analysis/model").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Explanation"
        if isinstance(node.args[0], ast.Constant)
    }
    assert named - load("en").phrases.keys() == {"why.ratio.model"}  # a table of its own


def test_no_phrase_is_left_over():
    root = project_dir()
    text = "".join(path.read_text("utf-8") for path in (root / "templates/report").glob("*.j2"))
    text += "".join(path.read_text("utf-8") for path in (root / "hvlab").rglob("*.py"))
    begun = {key[:-1] for path in SOURCES for key in keys(path) if key.endswith("*")}
    for key in load("en").phrases:
        ends = [key[len(begin) :] for begin in begun if key.startswith(begin)]
        # The model puts its keys together, too: "faster." and "both".
        ends += [end.rpartition(".")[2] for end in ends if key.startswith("why.")]
        assert any(f'"{part}"' in text for part in (key, *ends)), f"nobody says {key}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Number(0.0123, "s"), "12.3 ms"),
        (Number(1.5, "s"), "1.50 s"),
        (Number(999.6e-6, "s"), "1.00 ms"),
        (Number(2e-6, "s"), "2.00 µs"),
        (Number(1234.5, "us"), "1.23 ms"),
        (Number(65536, "B"), "64 KiB"),
        (Number(87720, "B"), "85.7 KiB"),
        (Number(0, "B"), "0 B"),
        (Number(1.9234, "x"), "1.92"),
        (Number(1.9234, "times"), "1.92×"),
        (Number(0.961, "ratio"), "96.1%"),
        (Number(98.294, "%"), "98.29%"),
        (Number(0.0561, "share"), "5.6%"),
        (Number(0.99951, "share"), "100%"),
        (Number(7.9e-18, "share"), "0%"),
        (Number(-3.2, "s"), "−3.20 s"),
        (Number(float("nan"), "s"), "–"),
        (Number(12345.6, "samples/s"), "12346 samples/s"),
        (Number(4.1e9, "FLOP/sample"), "4.10 GFLOP/sample"),
        (Range(0.0121, 0.0126, "s"), "12.1 – 12.6 ms"),
        (Several(("a", Code("b"), Number(1, "s"))), "a, b, 1.00 s"),
        (Fact("none"), "none"),
        ("plain {text}", "plain {text}"),
        (3, "3"),
    ],
)
def test_values_in_english(value, text):
    assert load("en").say(value).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Number(18.7, "samples/s"), "18.7 样本/s"),
        (Several(("a", "b")), "a、b"),
        (Fact("Open MPI 4.1.8, without CUDA"), "Open MPI 4.1.8, 不支持 CUDA"),
        (Fact("1 x veth, no link speed"), "1 x veth, 无链路速率"),
        (Say("environment.of", {"value": Fact("none"), "hosts": "n1"}), "无（n1）"),
    ],
)
def test_values_in_chinese(value, text):
    assert load("zh").say(value).replace("\N{NO-BREAK SPACE}", " ") == text


def test_a_text_with_braces_is_no_phrase():
    assert load("en").say(Say("environment.of", {"value": "{hosts}", "hosts": "{0}"})) == "{hosts} ({0})"


@pytest.mark.parametrize(
    ("seconds", "text"), [(142.338, "2m22.338s"), (0.4, "0m0.400s"), (3600, "60m0.000s")]
)
def test_the_shell_s_clock(seconds, text):
    assert clock(seconds) == text


def test_a_minute_is_never_sixty_seconds():
    assert clock(59.9999) == "1m0.000s"


def test_there_are_two_languages():
    assert LANGUAGES == ("en", "zh")
    assert load("zh").tag == "zh-CN"
