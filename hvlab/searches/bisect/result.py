"""The changes that make the difference, and the result of a bisection: Markdown and JSON. Pure.

The search halves the changes, then tries each side of the proof. Its ``judge`` tells whether a set of
changes, applied to the good end, is bad; None if it cannot be built or does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from hvlab.base.masking import mask
from hvlab.searches.bisect.judge import Effect
from hvlab.searches.bisect.stack import PARAMETERS, StackChange, join, without

Judge = Callable[[tuple[int, ...]], bool | None]
Without = Callable[[Sequence[int]], tuple[int, ...]]


@dataclass(frozen=True)
class Culprit:
    """The changes to blame, by number; several ``groups`` are slow only together.

    A group has several changes if those between them could not be tried. ``sole``: the groups alone are bad;
    ``whole``: all other changes without them are good; None if that could not be tried.
    """

    groups: tuple[tuple[int, ...], ...]
    sole: bool | None
    whole: bool | None

    @property
    def changes(self) -> tuple[int, ...]:
        """Changes of all groups, in their order."""
        return tuple(sorted(number for group in self.groups for number in group))


def search(count: int, judge: Judge, without: Without) -> Culprit:
    """Return the culprit among ``count`` changes: none of them is good, all are bad.

    ``without`` returns the changes that remain when some are reverted. Halving finds the change that turns it
    bad. If that change alone is good, it needs earlier ones, which are found in the same way, one after the
    other. It takes about log2(count) + 2 judgements, and as many again for each further group.
    """
    groups: list[tuple[int, ...]] = []
    sole: bool | None = None
    end = count
    while end:
        held = tuple(sorted(number for group in groups for number in group))
        low, high = _halve(end, held, judge)
        groups.append(tuple(range(low, high)))
        sole = True if not low else judge(tuple(sorted({*held, *range(low, high)})))
        if sole is not False:
            break
        end = low
    others = without([number for group in groups for number in group])
    left = judge(others) if others else False
    whole = None if left is None else not left
    return Culprit(tuple(reversed(groups)), sole, whole)


def _halve(end: int, held: tuple[int, ...], judge: Judge) -> tuple[int, int]:
    low, high = 0, end
    tried: set[int] = set()
    while (middle := next(_middles(low, high, tried), None)) is not None:
        bad = judge(tuple(sorted({*range(middle), *held})))
        if bad is None:
            tried.add(middle)
        elif bad:
            high = middle
        else:
            low = middle
    return low, high


def _middles(low: int, high: int, without: set[int]) -> Iterator[int]:
    inside = [number for number in range(low + 1, high) if number not in without]
    yield from sorted(inside, key=lambda number: (abs(2 * number - low - high), number))


@dataclass(frozen=True)
class TriedStack:
    """A stack that was tried: its changes, and its slowdown, or why it could not be tried."""

    changes: tuple[int, ...]
    effect: Effect | None
    problem: str = ""


@dataclass(frozen=True)
class BisectResult:
    """A bisection: the changes, their total cost, the culprit, and all steps.

    ``culprit`` is None if the bad end is not significantly slower.
    """

    changes: tuple[StackChange, ...]
    whole: Effect
    culprit: Culprit | None
    steps: tuple[TriedStack, ...]
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The answer in a few sentences."""
        if not self.whole.run_id:
            return "Both stacks run in the same way: the settings of one are the defaults of the other."
        if self.culprit is None:
            return (
                f"The bad stack is not significantly slower than the good one: {self.whole.words} "
                f"(run {self.whole.run_id}). There is nothing to look for."
            )
        named = " together with ".join(self._words(group) for group in self.culprit.groups)
        return " ".join([f"Slower because of: {named}.", *self._proof(self.culprit)])

    def _proof(self, culprit: Culprit) -> list[str]:
        said = [f"All changes together cost {self.whole.words}"]
        if (alone := self._of(culprit.changes)) is not None:
            said.append(f"{'these' if len(culprit.groups) > 1 else 'this one'} alone {alone.words}")
        others = without(self.changes, culprit.changes)
        if (left := self._of(others)) is not None and others:
            said.append(f"all others {left.words}")
        sentences = ["; ".join(said) + "."]
        if culprit.sole is None:
            sentences.append("It could not be tried alone, so others may be needed beside it.")
        if culprit.whole is False:
            sentences.append("The others are slow as well: change this one, then bisect the rest.")
        if any(len(group) > 1 for group in culprit.groups):
            sentences.append("The stacks between these could not be tried.")
        clear = all(step.effect is None or self._is_clear(step.effect) for step in self.steps)
        if not (self.whole.slower and clear):
            sentences.append("Not every step was clear of half the difference: see the table.")
        return sentences

    def _is_clear(self, effect: Effect) -> bool:
        return effect.clear_of(self.whole.log.mid / 2)

    @property
    def remedy(self) -> str:
        """Lines of an inventory or a settings file that undo the culprit."""
        if self.culprit is None:
            return ""
        lines: dict[str, Any] = {}
        for change in join([self.changes[number] for number in self.culprit.changes]):
            name, value = change.pin
            lines[name] = {**lines.get(name, {}), **value} if name == PARAMETERS else value
        return yaml.safe_dump(mask(lines), sort_keys=False, width=100).strip()

    def _of(self, numbers: tuple[int, ...]) -> Effect | None:
        return next((step.effect for step in self.steps if step.changes == numbers), None)

    def _words(self, numbers: Sequence[int]) -> str:
        return ", ".join(map(str, join([self.changes[number] for number in numbers])))

    def markdown(self) -> str:
        """Return the answer, its remedy, the changes and the steps."""
        lines = ["# Bisection", "", self.answer, ""]
        for note in self.notes:
            lines += [f"Note: {note}", ""]
        if self.remedy:
            lines += ["To restore the previous state:", "", "```yaml", self.remedy, "```", ""]
        lines += ["| step | changes | time against the good stack | clear | run |", "|--:|---|--:|---|---|"]
        for number, step in enumerate(self.steps, 1):
            shown = ", ".join(str(change + 1) for change in step.changes) or "none"
            if step.effect is None:
                lines.append(f"| {number} | {shown} | {' '.join(step.problem.split())} | | |")
            else:
                clear = "yes" if self._is_clear(step.effect) else "no"
                lines.append(f"| {number} | {shown} | {step.effect.words} | {clear} | {step.effect.run_id} |")
        lines += ["", "The changes, in the order in which they were tried:", ""]
        lines += [f"{number}. {change}" for number, change in enumerate(self.changes, 1)]
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Return the complete result, JSON-ready."""
        return {
            "answer": self.answer,
            "slower": self.culprit is not None,
            "changes": [
                {"item": change.item, **dict(zip(("before", "after"), change.shown, strict=True))}
                for change in self.changes
            ],
            "culprit": [list(group) for group in self.culprit.groups] if self.culprit else [],
            "sole": self.culprit.sole if self.culprit else None,
            "all_of_it": self.culprit.whole if self.culprit else None,
            "remedy": self.remedy,
            "notes": list(self.notes),
            "steps": [
                {
                    "changes": list(step.changes),
                    "log_ratio": [step.effect.log.low, step.effect.log.mid, step.effect.log.high]
                    if step.effect
                    else None,
                    "problem": step.problem,
                    "run": step.effect.run_id if step.effect else None,
                }
                for step in self.steps
            ],
        }
