"""The words of a report in a language: its phrases, numbers, and names of backends and hosts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hvlab.base.yaml_files import read_shipped
from hvlab.lab.backends import BACKENDS, SERIAL
from hvlab.report.labels import Lines, Value, plane

if TYPE_CHECKING:
    from hvlab.analysis.model import Explanation
    from hvlab.results.configurations import Configuration, Repeats
    from hvlab.statistics.interval import Interval

LANGUAGES = ("en", "zh")
# Maximum number of hosts or cases named.
_NAMED = 12
_BYTES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
# For each unit of records, the units shown, from the largest down, and their factors.
_SCALES: Mapping[str, tuple[tuple[str, float], ...]] = {
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
    "us": (("s", 1e6), ("ms", 1e3), ("µs", 1.0)),
    "FLOP/sample": tuple(
        (f"{unit}FLOP/sample", by) for unit, by in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("", 1.0))
    ),
    "count": (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)),
}
# A speed-up is a bare number; a ratio in a sentence has a sign.
_PLAIN = {"1": "", "x": "", "times": "\N{MULTIPLICATION SIGN}"}
# Units without a space before them.
_CLOSE = ("", "%", "\N{MULTIPLICATION SIGN}")
_WHOLE, _SEEN = 9.95, 0.05
_MINUTE = 60.0


# Numbers of an explanation that are counts or ratios; any other is a share of 1.
_COUNTS = ("failed", "points", "needed", "ranks", "largest", "factor", "batch", "agreeing", "pairs")
_TIMES = ("fixed_ratio", "bandwidth_ratio", "alpha_ratio", "small_ratio", "large_ratio")


@dataclass(frozen=True)
class Words:
    """One language. A figure that is None is a dash."""

    lang: str
    phrases: Mapping[str, str]
    units: Mapping[str, str]
    replaced: Mapping[str, str]
    reasons: Mapping[str, str]

    @property
    def tag(self) -> str:
        """Language tag for browsers."""
        return "zh-CN" if self.lang == "zh" else self.lang

    def say(self, key: str, **values: Value | None) -> str:
        """Return a phrase, its braces filled."""
        return self.phrases[key].format_map({name: self.text(value) for name, value in values.items()})

    def text(self, value: Value | None) -> str:
        """Return a value as plain text."""
        if value is None:
            return self.phrases["nothing"]
        if isinstance(value, tuple):
            return self.join(value, "line" if isinstance(value, Lines) else "comma")
        return str(value)

    def join(self, values: Iterable[Value], between: str = "comma") -> str:
        """Return values one after another; ``between`` is a phrase of lists."""
        return self.phrases[f"list.{between}"].join(map(self.text, values))

    def fact(self, text: str) -> str:
        """Return a fact of a host, its English words translated."""
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def reason(self, text: str) -> str:
        """Return why a case has no figures: hvlab's own sentences translated, those of programs verbatim."""
        for pattern, new in self.reasons.items():
            text = re.sub(pattern, new, text)
        return text

    def number(self, value: float | None, unit: str = "", digits: int = 3) -> str:
        """Return a quantity, given in the unit of records, in the most readable unit."""
        if value is None or not math.isfinite(value):
            return self.phrases["nothing"]
        if unit == "share":
            return self._add_unit(share(value), "%")
        if unit == "%":
            return self._add_unit(f"{value:.2f}", "%")
        factor, called = find_scale(value, unit)
        count = value / factor
        return self._add_unit(f"{count:.3g}" if unit == "B" else format_number(count, digits), called)

    def span(self, low: float, high: float, unit: str = "", digits: int = 3) -> str:
        """Return a range."""
        factor, called = find_scale(max(abs(low), abs(high)), unit)
        ends = (low / factor, high / factor)
        first, last = (f"{end:.2f}" if unit == "%" else format_number(end, digits) for end in ends)
        return self._add_unit(f"{first} \N{EN DASH} {last}", called)

    def middle(self, spread: Interval | None, unit: str) -> str:
        """Return the median."""
        return self.number(spread.mid if spread else None, unit)

    def ends(self, spread: Interval | None, unit: str) -> str:
        """Return the interval; a dash for a single value."""
        if spread is None or spread.low == spread.high:
            return self.phrases["nothing"]
        return self.span(spread.low, spread.high, unit)

    def both(self, spread: Interval | None, unit: str) -> str:
        """Return the median with its interval in brackets."""
        if spread is None or spread.low == spread.high:
            return self.middle(spread, unit)
        return self.say("spread", mid=self.middle(spread, unit), span=self.ends(spread, unit))

    def format_change(self, value: float | None, unit: str = "", digits: int = 3) -> str:
        """Return a change, with its sign."""
        if value is None:
            return self.phrases["nothing"]
        sign = "minus" if value < 0 else "plus"
        return self.say(f"signed.{sign}", value=self.number(abs(value), unit, digits))

    def count(self, repeats: Repeats) -> str:
        """Return the number of successful repeats, and of all."""
        return self.say("scaling.of", ok=len(repeats.ok), all=repeats.tried)

    def backend(self, name: str) -> str:
        """Return a backend as the lab sheet writes it; ``name`` may be a plane."""
        plain, _, launcher = name.partition("/")
        known = BACKENDS[plain].title if plain in BACKENDS else plain
        known = self.phrases["backend.serial"] if plain == SERIAL else known
        return self.join((known, launcher)) if launcher else known

    def backends(self, names: Iterable[str]) -> str:
        """Return several backends."""
        return self.join(map(self.backend, dict.fromkeys(names)))

    def variant(self, configuration: Configuration) -> str:
        """Return a backend, with an unusual launcher, and the compression of gradients."""
        compression = str(configuration.get("compression") or "none")
        name = self.backend(plane(configuration))
        return name if compression == "none" else self.join((name, compression))

    def join_names(self, names: Sequence[str]) -> tuple[Value, ...]:
        """Return names of hosts or cases; of many, only the first."""
        more = len(names) - _NAMED
        return (*names[:_NAMED], *([self.say("failures.more", count=more)] if more > 0 else []))

    def layout(self, hosts: int, slots: int) -> str:
        """Return a number of servers and of ranks on each in words."""
        kind = ("one" if slots == 1 else "inside") if hosts == 1 else "across" if slots == 1 else "both"
        return self.say(f"layout.{kind}" if slots else "layout.unknown", hosts=hosts, slots=slots)

    def short(self, hosts: int, slots: int) -> str:
        """Return a number of servers and of ranks on each in figures."""
        return self.say("layout.short" if slots else "layout.unknown", hosts=hosts, slots=slots)

    def shape(self, configuration: Configuration) -> str:
        """Return the layout of a configuration in figures."""
        return self.short(len(configuration.hosts), configuration.slots)

    def place(self, topology: str, scaling: str = "weak", slots: int = 1) -> str:
        """Return inside one server or across servers, and whether scaling is strong."""
        where = self.say("topology.slots" if slots > 1 else f"topology.{topology}", slots=slots)
        return self.join((where, self.phrases["scaling.strong"])) if scaling == "strong" else where

    def study(self, name: Value, scaling: str) -> Value:
        """Return a training's name with weak or strong, if known."""
        kind = self.phrases.get(f"scaling.{scaling}")
        return self.say("scaling.study", name=name, scaling=kind) if kind else name

    def explain(self, explanation: Explanation) -> str:
        """Return an explanation of the model as a phrase."""
        numbers = {name: self._explain(name, value) for name, value in explanation.numbers.items()}
        names = {name: self._name_value(name, value) for name, value in explanation.names.items()}
        return self.say(f"why.{explanation.key}", **numbers, **names)

    def claim(self, explanation: Explanation) -> str:
        """Return it as a sentence with its subject: a backend, and where."""
        names = explanation.names
        about = [self.backend(names["backend"])] if "backend" in names else []
        about.append(self.place(names["topology"], names.get("scaling", "weak")))
        compression = names.get("compression", "none")
        about += [f"compression={compression}"] if compression != "none" else []
        return self.say("comparison.line", about=tuple(about), reason=self.explain(explanation))

    def _explain(self, name: str, value: float) -> str:
        if name in _COUNTS:
            return self.number(value, "", len(str(round(value))))
        if name in _TIMES or name.endswith(("_low", "_high")):
            return self.number(value, "times")
        if name.endswith("_ms"):
            return self.number(value / 1e3, "s")
        units = {"s": "s", "bytes": "B", "byte": ""}
        return self.number(value, units.get(name.rpartition("_")[2] if "_" in name else "", "share"))

    def _name_value(self, name: str, value: str) -> str:
        if name in ("algorithm", "scaling"):
            return self.phrases.get(f"{name}.{value}", value)
        return self.backend(value) if name in ("backend", "faster", "slower") else value

    def _add_unit(self, text: str, unit: str) -> str:
        unit = self.units.get(unit, unit)
        between = "" if unit in _CLOSE else "\N{NO-BREAK SPACE}"
        return f"{text}{between}{unit}"


def find_scale(value: float, unit: str) -> tuple[float, str]:
    """Return the divisor for a readable value, and its unit."""
    size = abs(value)
    if unit == "B":
        return next(((float(factor), name) for name, factor in _BYTES if size >= factor), (1.0, "B"))
    if unit in ("%", "ratio"):
        return (0.01, "%") if unit == "ratio" else (1.0, "%")
    scales = _SCALES.get(unit)
    if scales is None:
        return 1.0, _PLAIN.get(unit, unit)
    # 999.5 would be rounded to 1000 of the smaller unit.
    name, factor = next((scale for scale in scales if size >= scale[1] * 0.9995), scales[-1])
    return factor, name


def format_number(value: float, digits: int = 3) -> str:
    """Return a number with this many significant digits and no exponent."""
    if value == 0:
        return "0"
    magnitude = int(f"{value:.{digits - 1}e}".partition("e")[2])
    places = max(0, digits - 1 - magnitude)
    text = f"{value:.{places}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def share(value: float) -> str:
    """Return a share of 1 in percent, with one decimal place below 10."""
    percent = 100 * value
    return f"{percent:.0f}" if percent >= _WHOLE or percent < _SEEN else f"{percent:.1f}"


def clock(seconds: float) -> str:
    """Return a duration as the shell's ``time`` writes it: 2m22.338s."""
    minutes, rest = divmod(round(seconds, 3), _MINUTE)
    return f"{int(minutes)}m{rest:.3f}s"


@cache
def load(lang: str) -> Words:
    """Return the words of a language, one of LANGUAGES."""
    content = read_shipped(Path(__file__).parent / f"phrases/{lang}.yml")
    return Words(
        lang, dict(_flat(content["phrases"])), content["units"], content["facts"], content["reasons"]
    )


def _flat(tree: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    phrases: list[tuple[str, str]] = []
    for name, inner in tree.items():
        key = f"{before}{name}"
        phrases += _flat(inner, f"{key}.") if isinstance(inner, Mapping) else [(key, str(inner))]
    return phrases
