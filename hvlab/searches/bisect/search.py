"""Which of many changes makes the difference: halving, then each side of the proof. Pure.

``judge`` says of a set of changes, applied to the good end, whether that is bad: True or False; None where it
cannot be tried, because it cannot be built or does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Judge = Callable[[tuple[int, ...]], bool | None]
Without = Callable[[Sequence[int]], tuple[int, ...]]


@dataclass(frozen=True)
class Culprit:
    """What makes it bad: the numbers of the changes, which only do it together where they are ``groups``.

    A group has several changes where what lies between them could not be tried. ``sole`` tells that the
    groups alone are bad, ``whole`` that all other changes without them are good; None where that could not be
    tried.
    """

    groups: tuple[tuple[int, ...], ...]
    sole: bool | None
    whole: bool | None

    @property
    def changes(self) -> tuple[int, ...]:
        """Return the changes of all groups, in their order."""
        return tuple(sorted(number for group in self.groups for number in group))


def search(count: int, judge: Judge, without: Without) -> Culprit:
    """Return which of ``count`` changes make it bad, where none of them is good and all are bad.

    ``without`` returns the changes that are left where some are taken back.

    Halving finds the change with which it becomes bad. Where that change alone is good, it needs others
    before it: these are found in the same way, one after the other. It takes about log2(count) + 2
    judgements, and as many again for each further group.
    """
    groups: list[tuple[int, ...]] = []
    sole: bool | None = None
    end = count
    while end:
        held = tuple(sorted(number for group in groups for number in group))
        low, high = _halved(end, held, judge)
        groups.append(tuple(range(low, high)))
        together = tuple(sorted({*held, *range(low, high)}))
        sole = True if not low else judge(together)
        if sole is not False:
            break
        end = low
    others = without([number for group in groups for number in group])
    left = judge(others) if others else False
    whole = None if left is None else not left
    return Culprit(tuple(reversed(groups)), sole, whole)


def _halved(end: int, held: tuple[int, ...], judge: Judge) -> tuple[int, int]:
    """Return the last number of changes that is good, and the first after it that is bad.

    These are the first changes, with those ``held``. What cannot be tried is gone round.
    """
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
    """Yield what lies between two numbers, the nearest to their middle first."""
    inside = [number for number in range(low + 1, high) if number not in without]
    yield from sorted(inside, key=lambda number: (abs(2 * number - low - high), number))
