"""Baselines: runs kept as a measure for later ones.

In: the `Measurements` of runs (`hvlab.analysis.compare`). Out: a file beside the store (`keeping`), and a
check of a later run against it (`check`), as a table, JSON or JUnit (`output`).
"""

from hvlab.analysis.baseline.check import BaselineCheck, Result, check
from hvlab.analysis.baseline.keeping import DEFAULT, load, names, save

__all__ = ["DEFAULT", "BaselineCheck", "Result", "check", "load", "names", "save"]
