"""What a value read from JSON has to be like. A shape returns what is wrong with a value, or None.

They stand for one another: ``entries({"size": whole(1)}, needed=("size",))`` is what ``sizes`` in
``entries({"sizes": many(...)})`` may hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

# Takes a value and where it stands.
Shape = Callable[[Any, str], str | None]

_SHOWN = 40
# No second, byte or rate that a computer measures comes near it, and sums of them stay finite.
MOST = 1e18


def anything(_value: Any, _where: str) -> str | None:
    """Accept every value."""
    return None


def text(value: Any, where: str) -> str | None:
    """Accept a text."""
    return None if isinstance(value, str) else _is(value, where, "no text")


def flag(value: Any, where: str) -> str | None:
    """Accept true and false."""
    return None if isinstance(value, bool) else _is(value, where, "neither true nor false")


def scalar(value: Any, where: str) -> str | None:
    """Accept a text, a number, true, false or null."""
    return _is(value, where, "no single value") if isinstance(value, dict | list) else None


def number(least: float = -MOST, most: float = MOST, *, above: bool = False) -> Shape:
    """Accept a finite number from ``least`` to ``most``; ``above``: greater than ``least``."""

    def shape(value: Any, where: str) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return _is(value, where, "no number")
        if isinstance(value, float) and not math.isfinite(value):
            return _is(value, where, "no finite number")
        if value < least or (above and value == least):
            return _is(value, where, f"not above {least:g}" if above else f"below {least:g}")
        return _is(value, where, f"above {most:g}") if value > most else None

    return shape


def whole(least: int = 0, most: int = 2**62) -> Shape:
    """Accept a whole number from ``least`` to ``most``."""
    within = number(least, most)

    def shape(value: Any, where: str) -> str | None:
        return within(value, where) if isinstance(value, int) else _is(value, where, "no whole number")

    return shape


def maybe(inner: Shape) -> Shape:
    """Accept null, or what ``inner`` accepts."""
    return lambda value, where: None if value is None else inner(value, where)


def many(inner: Shape, *, least: int = 0) -> Shape:
    """Accept a list of ``least`` or more of what ``inner`` accepts."""

    def shape(value: Any, where: str) -> str | None:
        if not isinstance(value, list):
            return _is(value, where, "no list")
        if len(value) < least:
            return f"{where} has {len(value)} entries, not {least} or more"
        return _first(inner(item, f"{where}[{place}]") for place, item in enumerate(value))

    return shape


def row(*inner: Shape) -> Shape:
    """Accept a list of as many values, each of its own shape."""

    def shape(value: Any, where: str) -> str | None:
        if not isinstance(value, list) or len(value) != len(inner):
            return _is(value, where, f"no list of {len(inner)}")
        return _first(
            one(item, f"{where}[{place}]") for place, (one, item) in enumerate(zip(inner, value, strict=True))
        )

    return shape


def table(inner: Shape) -> Shape:
    """Accept an object whose values ``inner`` accepts, whatever their names."""

    def shape(value: Any, where: str) -> str | None:
        if not isinstance(value, dict):
            return _is(value, where, "no object")
        return _first(inner(item, f"{where}.{name[:_SHOWN]}") for name, item in value.items())

    return shape


def entries(known: Mapping[str, Shape], *, needed: Collection[str] = ()) -> Shape:
    """Accept an object with ``needed`` names, and values of their shape; other names may hold anything."""

    def shape(value: Any, where: str) -> str | None:
        if not isinstance(value, dict):
            return _is(value, where, "no object")
        absent = [name for name in needed if name not in value]
        if absent:
            return f"{where} has no {absent[0]}"
        return _first(inner(value[name], f"{where}.{name}") for name, inner in known.items() if name in value)

    return shape


def _first(wrong: Any) -> str | None:
    return next((each for each in wrong if each), None)


def _is(value: Any, where: str, what: str) -> str:
    shown = repr(value) if not isinstance(value, int) or abs(value) < MOST else "a very long number"
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return f"{where} is {what}: {shown}"
