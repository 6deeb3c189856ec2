"""Two runs compared: cells side by side, what else differs, and verdicts that know noise. Pure."""

from hvlab.compare.comparison import Comparison, Row, Side, compare
from hvlab.compare.measurements import Measurements, folded, measurements

__all__ = ["Comparison", "Measurements", "Row", "Side", "compare", "folded", "measurements"]
