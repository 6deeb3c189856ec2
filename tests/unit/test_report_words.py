"""The words of a report: the same phrases in both languages, and numbers a person can read."""

import ast
import re
import string
from types import SimpleNamespace

import pytest

from hvlab.base.paths import project_dir
from hvlab.lab.backends import BACKENDS
from hvlab.report import compression
from hvlab.report.labels import Code
from hvlab.report.words import LANGUAGES, clock, load

ENGLISH, CHINESE = load("en"), load("zh")
SOURCES = (*(project_dir() / "hvlab/report").glob("*.py"), *(project_dir() / "templates/report").glob("*.j2"))
# What says a phrase in Python and in templates; one that is put together is cut off.
SAYS = re.compile(r'(?:\bsay\(\s*|phrases\[|phrases\.get\(|\b_\()f?"([\w.]+)')


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


def test_no_blank_follows_a_chinese_mark():
    assert [name for name, text in load("zh").phrases.items() if re.search("[。，；：、] ", text)] == []


def test_every_phrase_that_is_said_is_there():
    said = {key for path in SOURCES for key in SAYS.findall(path.read_text("utf-8"))}
    assert len(said) > 200
    assert {key for key in said if not any(known.startswith(key) for known in ENGLISH.phrases)} == set()


def test_every_warning_of_the_model_has_its_phrase():
    named = {
        f"why.{node.args[0].value}"
        for path in (project_dir() / "hvlab/analysis/model").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Explanation"
        if isinstance(node.args[0], ast.Constant)
    }
    assert named - load("en").phrases.keys() == {"why.ratio.model"}  # a table of its own


def test_a_compression_that_no_workload_has_goes_by_its_own_name():
    """A store of somebody else may have any."""
    configuration = SimpleNamespace(backend="gloo", get={"compression": "1e999"}.get)
    assert compression.algorithm(configuration, ENGLISH) == "1e999"
    assert ENGLISH._name_value("algorithm", "1e999") == "1e999"


def test_no_phrase_is_left_over():
    sources = "".join(path.read_text("utf-8") for path in SOURCES)
    text = sources + "".join(path.read_text("utf-8") for path in (project_dir() / "hvlab").rglob("*.py"))
    text += "".join(f'"{backend}"' for backend in BACKENDS)
    begun = {key for key in SAYS.findall(sources) if key not in ENGLISH.phrases}
    begun |= set(re.findall(r'f"(\w+[._]\w*)\{', sources))
    for key in ENGLISH.phrases:
        ends = [key[len(begin) :] for begin in begun if key.startswith(begin)]
        # The model puts its keys together, too: "faster." and "both".
        ends += [end.rpartition(".")[2] for end in ends if key.startswith("why.")]
        named = any(f'"{part}"' in text for part in (key, *ends))
        assert named or key.endswith(".title"), f"nobody says {key}"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "s", "12.3 ms"),
        (1.5, "s", "1.50 s"),
        (999.6e-6, "s", "1.00 ms"),
        (2e-6, "s", "2.00 µs"),
        (1234.5, "us", "1.23 ms"),
        (65536, "B", "64 KiB"),
        (87720, "B", "85.7 KiB"),
        (0, "B", "0 B"),
        (1.9234, "x", "1.92"),
        (1.9234, "times", "1.92×"),
        (0.961, "ratio", "96.1%"),
        (98.294, "%", "98.29%"),
        (0.0561, "share", "5.6%"),
        (0.99951, "share", "100%"),
        (7.9e-18, "share", "0%"),
        (-3.2, "s", "−3.20 s"),
        (float("nan"), "s", "–"),
        (None, "s", "–"),
        (12345.6, "samples/s", "12346 samples/s"),
        (4.1e9, "FLOP/sample", "4.10 GFLOP/sample"),
    ],
)
def test_numbers_are_easy_to_read(value, unit, text):
    assert ENGLISH.number(value, unit).replace("\N{NO-BREAK SPACE}", " ") == text


def test_chinese_has_its_own_units_lists_and_facts():
    assert CHINESE.number(18.7, "samples/s") == "18.7\N{NO-BREAK SPACE}样本/s"
    assert CHINESE.text(("a", Code("b"), 3)) == "a、b、3"
    assert CHINESE.fact("Open MPI 4.1.8, without CUDA") == "Open MPI 4.1.8, 不支持 CUDA"


def test_both_ends_of_a_range_have_one_unit():
    assert ENGLISH.span(0.0121, 0.0126, "s") == "12.1 – 12.6\N{NO-BREAK SPACE}ms"


def test_a_text_with_braces_is_no_phrase():
    assert ENGLISH.say("environment.of", value="{hosts}", hosts="{0}") == "{hosts} ({0})"


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
