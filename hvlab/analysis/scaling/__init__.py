"""How trainings scale, where they lose time, and which host holds them back. Pure.

In: configurations with their repeats. Out: curves of speed-up and efficiency, and the
slow-down inside and between hosts (`curves`, read it first), stragglers (`hosts`).
"""

from hvlab.analysis.scaling.curves import Curve, CurvePoint, Slowdown, curves, slowdowns
from hvlab.analysis.scaling.hosts import HostCheck, check_hosts

__all__ = [
    "Curve",
    "CurvePoint",
    "HostCheck",
    "Slowdown",
    "check_hosts",
    "curves",
    "slowdowns",
]
