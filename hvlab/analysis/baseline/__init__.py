"""Baselines: runs kept as a measure for later ones.

In: the `Measurements` of runs (`hvlab.analysis.compare`). Out: a file beside the store, and a check of a
later run against it, as a table, JSON or JUnit. Read `check` first;
`keeping` is the file, `output` the formats.
"""

from hvlab.analysis.baseline.check import BaselineCheck, Result, check
from hvlab.analysis.baseline.keeping import DEFAULT, load, names, save

__all__ = ["DEFAULT", "BaselineCheck", "Result", "check", "load", "names", "save"]
