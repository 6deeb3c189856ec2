"""How a bisection ended, for people (Markdown) and for machines (JSON). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from hvlab.base.masking import masked
from hvlab.searches.bisect.judge import Effect
from hvlab.searches.bisect.search import Culprit
from hvlab.searches.bisect.stack import PARAMETERS, StackChange, joined, without


@dataclass(frozen=True)
class TriedStack:
    """A stack that was tried: its changes, and how much slower it is; or why it could not be tried."""

    changes: tuple[int, ...]
    effect: Effect | None
    problem: str = ""


@dataclass(frozen=True)
class BisectResult:
    """A bisection: the changes, what all of them cost, which of them do, and all steps.

    ``culprit`` is None where the bad end is not significantly slower; ``notes`` are what else there
    is to know.
    """

    changes: tuple[StackChange, ...]
    whole: Effect
    culprit: Culprit | None
    steps: tuple[TriedStack, ...]
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """Return the answer in a few sentences."""
        if not self.whole.run_id:
            return "Both stacks run in the same way: what one sets, the other has anyway."
        if self.culprit is None:
            return (
                f"The bad stack is not significantly slower than the good one: {self.whole.words} "
                f"(run {self.whole.run_id}). There is nothing to look for."
            )
        named = " together with ".join(self._words(group) for group in self.culprit.groups)
        return " ".join([f"Slower because of: {named}.", *self._proof(self.culprit)])

    def _proof(self, culprit: Culprit) -> list[str]:
        """Return what speaks for the culprit, and what remains without it."""
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
            sentences.append("The others are slow as well: change this one, then bisect what is left.")
        if any(len(group) > 1 for group in culprit.groups):
            sentences.append("What lies between these could not be tried.")
        if not self.whole.slower or not all(
            step.effect is None or self._clear(step.effect) for step in self.steps
        ):
            sentences.append("Not every step was clear of half the difference: see the table.")
        return sentences

    def _clear(self, effect: Effect) -> bool:
        return effect.clear_of(self.whole.log.mid / 2)

    @property
    def remedy(self) -> str:
        """Return what undoes the culprit, as lines of an inventory or a settings file."""
        if self.culprit is None:
            return ""
        lines: dict[str, Any] = {}
        for change in joined([self.changes[number] for number in self.culprit.changes]):
            name, value = change.pin
            lines[name] = {**lines.get(name, {}), **value} if name == PARAMETERS else value
        return yaml.safe_dump(masked(lines), sort_keys=False, width=100).strip()

    def _of(self, numbers: tuple[int, ...]) -> Effect | None:
        return next((step.effect for step in self.steps if step.changes == numbers), None)

    def _words(self, numbers: Sequence[int]) -> str:
        return ", ".join(map(str, joined([self.changes[number] for number in numbers])))

    def markdown(self) -> str:
        """Return the answer, how to undo it, the changes and the steps."""
        lines = ["# Bisection", "", self.answer, ""]
        for note in self.notes:
            lines += [f"Note: {note}", ""]
        if self.remedy:
            lines += ["To have it as it was:", "", "```yaml", self.remedy, "```", ""]
        lines += ["| step | changes | time against the good stack | clear | run |", "|--:|---|--:|---|---|"]
        for number, step in enumerate(self.steps, 1):
            shown = ", ".join(str(change + 1) for change in step.changes) or "none"
            if step.effect is None:
                lines.append(f"| {number} | {shown} | {' '.join(step.problem.split())} | | |")
            else:
                clear = "yes" if self._clear(step.effect) else "no"
                lines.append(f"| {number} | {shown} | {step.effect.words} | {clear} | {step.effect.run_id} |")
        lines += ["", "The changes, in the order in which they were tried:", ""]
        lines += [f"{number}. {change}" for number, change in enumerate(self.changes, 1)]
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Return all of it, JSON-ready."""
        return {
            "answer": self.answer,
            "slower": self.culprit is not None,
            "changes": [
                {"item": change.item, "before": before, "after": after}
                for change in self.changes
                for before, after in [change.shown]
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
