"""The words of a report: what a document says, in a language."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from hvlab.base.paths import project_dir
from hvlab.report.blocks import Code, Fact, Number, Range, Say, Several, Value

LANGUAGES = ("en", "zh")
_BYTES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
# For each unit, from the largest down: how it is called and how many of the record's unit it is.
_SCALES: Mapping[str, tuple[tuple[str, float], ...]] = {
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
    "us": (("s", 1e6), ("ms", 1e3), ("µs", 1.0)),
    "FLOP/sample": (
        ("TFLOP/sample", 1e12),
        ("GFLOP/sample", 1e9),
        ("MFLOP/sample", 1e6),
        ("FLOP/sample", 1.0),
    ),
    "count": (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)),
}
# A speed-up is a bare number, a ratio in a sentence is so many times something.
_PLAIN = {"1": "", "x": "", "times": "\N{MULTIPLICATION SIGN}"}
# Units that stand close to their number.
_CLOSE = ("", "%", "\N{MULTIPLICATION SIGN}")
_WHOLE, _SEEN = 9.95, 0.05
_MINUTE = 60.0


@dataclass(frozen=True)
class Words:
    """The phrases of one language."""

    lang: str
    phrases: Mapping[str, str]
    units: Mapping[str, str]
    replaced: Mapping[str, str]

    @property
    def tag(self) -> str:
        """Return the language's tag as browsers want it."""
        return "zh-CN" if self.lang == "zh" else self.lang

    def say(self, value: Value) -> str:
        """Return a value as text of this language."""
        match value:
            case Say():
                values = {name: self.say(inner) for name, inner in value.values.items()}
                text = self.phrases[value.key].format_map(values)
            case Number():
                text = self._number(value)
            case Range():
                text = self._range(value)
            case Several():
                text = self.phrases[value.between].join(map(self.say, value.values))
            case Code():
                text = value.text
            case Fact():
                text = self._fact(value.text)
            case _:
                text = str(value)
        return text

    def _fact(self, text: str) -> str:
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def _number(self, number: Number) -> str:
        if not math.isfinite(number.value):
            return self.phrases["nothing"]
        if number.unit == "share":
            return self._with(share(number.value), "%")
        if number.unit == "%":
            return self._with(f"{number.value:.2f}", "%")
        factor, unit = scaled(number.value, number.unit)
        count = number.value / factor
        return self._with(f"{count:.3g}" if number.unit == "B" else shown(count, number.digits), unit)

    def _range(self, span: Range) -> str:
        factor, unit = scaled(max(abs(span.low), abs(span.high)), span.unit)
        ends = (span.low / factor, span.high / factor)
        low, high = (f"{end:.2f}" if span.unit == "%" else shown(end, span.digits) for end in ends)
        return self._with(f"{low} \N{EN DASH} {high}", unit)

    def _with(self, text: str, unit: str) -> str:
        unit = self.units.get(unit, unit)
        between = "" if unit in _CLOSE else "\N{NO-BREAK SPACE}"
        return f"{text}{between}{unit}"


def scaled(value: float, unit: str) -> tuple[float, str]:
    """Return what to divide by, and the unit then, so that the value is easy to read."""
    size = abs(value)
    if unit == "B":
        return next(((float(factor), name) for name, factor in _BYTES if size >= factor), (1.0, "B"))
    if unit in ("%", "ratio"):
        return (0.01, "%") if unit == "ratio" else (1.0, "%")
    scales = _SCALES.get(unit)
    if scales is None:
        return 1.0, _PLAIN.get(unit, unit)
    # 0.9995 would be shown as 1.00 of the smaller unit's thousand.
    name, factor = next((scale for scale in scales if size >= scale[1] * 0.9995), scales[-1])
    return factor, name


def shown(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, never with an exponent below a million."""
    if value == 0:
        return "0"
    magnitude = int(f"{value:.{digits - 1}e}".partition("e")[2])
    places = max(0, digits - 1 - magnitude)
    text = f"{value:.{places}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def share(value: float) -> str:
    """Return a share of 1 in percent, in no more digits than shares are good for."""
    percent = 100 * value
    return f"{percent:.0f}" if percent >= _WHOLE or percent < _SEEN else f"{percent:.1f}"


def clock(seconds: float) -> str:
    """Return a duration as the shell's ``time`` writes it: 2m22.338s."""
    minutes, rest = divmod(round(seconds, 3), _MINUTE)
    return f"{int(minutes)}m{rest:.3f}s"


@cache
def load(lang: str) -> Words:
    """Return the words of a language, one of LANGUAGES."""
    text = (project_dir() / f"templates/report/words/{lang}.yml").read_text("utf-8")
    content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    return Words(lang, dict(_flat(content["phrases"])), content["units"], content["facts"])


def _flat(tree: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    phrases: list[tuple[str, str]] = []
    for name, inner in tree.items():
        key = f"{before}{name}"
        phrases += _flat(inner, f"{key}.") if isinstance(inner, Mapping) else [(key, str(inner))]
    return phrases
