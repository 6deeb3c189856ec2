"""How trainings scale, where they lose, and which host holds them back. Pure, on gathered cells."""

from hvlab.scaling.curves import Curve, Point, Slowdown, curves, slowdowns
from hvlab.scaling.hosts import HostCheck, SlowHost, slow_hosts

__all__ = [
    "Curve",
    "HostCheck",
    "Point",
    "SlowHost",
    "Slowdown",
    "curves",
    "slow_hosts",
    "slowdowns",
]
