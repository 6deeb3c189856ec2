"""Two runs, or the settings of one, compared with verdicts that know noise. Pure.

In: two `Measurements`, made from a run's records or read from a baseline. Out: a `Comparison`, and its `rows`
as a table, notes or JSON. Read `comparison` first. Within one run, `decisions` compares settings,
`decision_rows` prints them.
"""

from hvlab.analysis.compare.comparison import (
    Comparison,
    ComparisonRow,
    Measurements,
    Side,
    add_failures,
    compare,
    measurements,
)

__all__ = ["Comparison", "ComparisonRow", "Measurements", "Side", "add_failures", "compare", "measurements"]
