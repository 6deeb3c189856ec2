"""What a report is made of, in no language yet: values, tables, plots, sections. Renderers say them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

Line: TypeAlias = Literal["solid", "dash", "dot", "dashdot", "none"]


@dataclass(frozen=True)
class Say:
    """A phrase of the words file; ``values`` fill its braces."""

    key: str
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Number:
    """A quantity with its unit, as records have it; ``digits`` significant ones are shown."""

    value: float
    unit: str = ""
    digits: int = 3


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``, both in ``unit``."""

    low: float
    high: float
    unit: str = ""
    digits: int = 3


@dataclass(frozen=True)
class Code:
    """What a machine reads: a command, a name of a variable."""

    text: str


@dataclass(frozen=True)
class Fact:
    """What a host says of itself; some words in it are of a language."""

    text: str


@dataclass(frozen=True)
class Several:
    """Values one after another, kept apart by a phrase of the words file."""

    values: tuple[Value, ...]
    between: str = "list.comma"


# A bare text is data (a host's name, an error): it is shown as it is, in every language.
Value: TypeAlias = str | int | Say | Number | Range | Code | Fact | Several
NOTHING = Say("nothing")


@dataclass(frozen=True)
class Column:
    """A column's head; numbers stand at the right, and ``text`` may run over several lines."""

    head: Value
    numeric: bool = False
    text: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under heads. In the first ``merged`` columns a value that repeats is shown once.

    ``key`` names the table for whoever looks for it; ``heads`` tells whether the heads are shown,
    ``faint`` holds the rows that have no figures, and ``folded`` is what a page folds the table up under.
    ``heat`` shades a number by how far it is above 1.
    """

    form: ClassVar = "table"
    key: str
    caption: Value
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    merged: int = 0
    heads: bool = True
    note: Value | None = None
    faint: frozenset[int] = frozenset()
    folded: Value | None = None
    heat: bool = False


@dataclass(frozen=True)
class Axis:
    """An axis; ``ticks`` are the only places with a label, where given. ``zero`` makes it begin there.

    ``lines`` cross the plot at these places, such as the ratio of 1.
    """

    title: Value
    log: bool = False
    ticks: tuple[tuple[float, Value], ...] = ()
    zero: bool = False
    lines: tuple[float, ...] = ()


@dataclass(frozen=True)
class Series:
    """A line with its spread. ``tone`` names its colour and mark, the same for a backend in every plot.

    ``low`` and ``high`` are of ``y``; in a plot of ``categories`` they are of ``x``, and ``y`` numbers the
    categories. A ``folded`` line shows in the legend only, until it is asked for; in a picture it is not
    there. A line that was ``predicted`` has a band in place of marks.
    """

    name: Value
    tone: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    line: Line = "solid"
    marks: bool = True
    folded: bool = False
    predicted: bool = False


@dataclass(frozen=True)
class Bars:
    """A part of every bar: its length for each category. The parts of a bar follow one another."""

    name: Value
    tone: str
    lengths: tuple[float, ...]


@dataclass(frozen=True)
class Plot:
    """A drawing: lines over ``x``, or lying bars or marks, one for each of ``categories``, along ``x``.

    ``predicted`` marks a drawing with something that was not measured.
    """

    form: ClassVar = "plot"
    key: str
    title: Value
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    bars: tuple[Bars, ...] = ()
    categories: tuple[Value, ...] = ()
    predicted: bool = False
    note: Value | None = None


@dataclass(frozen=True)
class Paragraph:
    """A text; ``style`` says how it is set."""

    form: ClassVar = "paragraph"
    text: Value
    style: Literal["plain", "note", "warning"] = "plain"


@dataclass(frozen=True)
class Points:
    """A list of texts."""

    form: ClassVar = "points"
    items: tuple[Value, ...]


@dataclass(frozen=True)
class Terms:
    """Words with what they mean; ``folded`` is what a page folds them up under."""

    form: ClassVar = "terms"
    items: tuple[tuple[Value, Value], ...]
    folded: Value | None = None


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    form: ClassVar = "heading"
    text: Value


@dataclass(frozen=True)
class ShownCommand:
    """A command that was run: the cases it was run for, its environment and argv in one line."""

    cases: tuple[str, ...]
    line: str


@dataclass(frozen=True)
class Commands:
    """Commands, folded up where the page can."""

    form: ClassVar = "commands"
    summary: Value
    items: tuple[ShownCommand, ...]


Block: TypeAlias = Table | Plot | Paragraph | Points | Terms | Heading | Commands


@dataclass(frozen=True)
class Section:
    """A part of the report; ``key`` is its anchor."""

    key: str
    title: Value
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report.

    ``head`` are the lines under the title, ``cards`` the figures that sum it up: a name, the figure, and
    where that is from. ``warnings`` say what to bear in mind of all figures.
    """

    title: Value
    head: tuple[tuple[Value, Value], ...]
    cards: tuple[tuple[Value, Value, Value], ...]
    findings: tuple[Value, ...]
    sections: tuple[Section, ...]
    warnings: tuple[Value, ...] = ()
