"""Two runs, or the settings of one, compared with verdicts that know noise. Pure.

In: two `Measurements`, made by `measurements` from a run's records or read from a baseline. Out: a
`Comparison`, and its rows as a table, notes or JSON (`rows`). Read `comparison` first; `matching` says which
configurations are the same and what else differs between the runs.
Within one run, `decisions` says which settings can be compared and how they stand, `decision_rows` prints it.
"""

from hvlab.analysis.compare.comparison import Comparison, ComparisonRow, Side, compare
from hvlab.analysis.compare.matching import Measurements, folded, measurements

__all__ = ["Comparison", "ComparisonRow", "Measurements", "Side", "compare", "folded", "measurements"]
