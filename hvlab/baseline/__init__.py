"""Baselines: a run kept as a measure for later ones."""

from hvlab.baseline.check import Check, Result, check
from hvlab.baseline.keeping import DEFAULT, keep, kept

__all__ = ["DEFAULT", "Check", "Result", "check", "keep", "kept"]
