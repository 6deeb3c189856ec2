"""Two runs, or the settings of one, compared with verdicts that know noise. Pure.

In: two `Measurements`, made from a run's records or read from a baseline. Out: a `Comparison`, and its `rows`
as a table, notes or JSON. Read `comparison` first; `matching` pairs configurations and lists other
differences between runs. Within one run, `decisions` compares settings, `decision_rows` prints them.
"""

from hvlab.analysis.compare.comparison import Comparison, ComparisonRow, Side, compare
from hvlab.analysis.compare.matching import Measurements, folded, measurements

__all__ = ["Comparison", "ComparisonRow", "Measurements", "Side", "compare", "folded", "measurements"]
