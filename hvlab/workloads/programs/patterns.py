"""The elements of a collective, and its expected result. Pure; needs no package.

Every rank's tensor repeats a short table of small whole numbers, so that every type holds it and its sums
exactly. The tables of two labels (a rank, or one tensor or block of a rank) differ, so that a rank left out,
counted twice or misplaced is noticed, and a shifted piece too.
"""

from __future__ import annotations

from typing import Sequence

BASES = (7, 5, 3, 2)
# The largest number up to which a type holds every whole number; others hold more than is ever summed up.
LARGEST = {"int8": 127, "uint8": 255, "float16": 2**11, "bfloat16": 2**8}
# How far a float may be off, as a part of the value or of 1: of averages some roundings, of Adasum more.
AVERAGE_ERROR = {"float16": 2**-9, "bfloat16": 2**-6, "float32": 2**-22, "float64": 2**-51}
ADASUM_ERROR = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-5, "float64": 1e-12}


def base_for(ranks: int, dtype: str) -> int:
    """Return the largest value range whose sum over all ranks still fits ``dtype``."""
    largest = LARGEST.get(dtype, 2**24)
    return next((base for base in BASES if ranks * (base - 1) <= largest), BASES[-1])


def table(label: int, labels: int, base: int) -> list[int]:
    """Return the table of one of ``labels`` labels, counted from 0: its digits to ``base``, rotated."""
    digits = 1
    while base**digits < labels:
        digits += 1
    return [(label // base ** (i % digits) + i // digits) % base for i in range(digits * base)]


def sum_tables(tables: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*tables)]


def average_tables(tables: Sequence[Sequence[float]]) -> list[float]:
    return [value / len(tables) for value in sum_tables(tables)]


def adasum(tables: Sequence[Sequence[float]], count: int) -> list[float]:
    """Return Adasum of tensors of ``count`` elements that repeat the tables of a power of two of ranks.

    Two gradients a and b make (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b; neighbours are joined first
    (Maleki et al. 2020, arXiv:2006.02924).
    """
    length = len(tables[0])
    times = [count // length + (i < count % length) for i in range(length)]

    def dot(a: Sequence[float], b: Sequence[float]) -> float:
        return sum(x * y * n for x, y, n in zip(a, b, times))

    def joined(a: Sequence[float], b: Sequence[float]) -> list[float]:
        common, norms = dot(a, b), (dot(a, a), dot(b, b))
        left, right = (1 - common / norm / 2 if norm else 1.0 for norm in norms)
        return [left * x + right * y for x, y in zip(a, b)]

    level = [list(map(float, found)) for found in tables]
    while len(level) > 1:
        level = [joined(a, b) for a, b in zip(level[::2], level[1::2])]
    return level[0]
