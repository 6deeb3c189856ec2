"""The metrics: each one's unit, and which way is better. Read by parsers and reports alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hvlab.base.yaml_files import read_shipped


@dataclass(frozen=True)
class Metric:
    """A measured quantity. ``unit`` is that of records; ``better`` is None if neither way is."""

    name: str
    unit: str
    better: Literal["low", "high"] | None = None


# Data of the workloads.
TABLES: Mapping[str, Any] = read_shipped(Path(__file__).with_name("tables.yml"))
METRICS: Mapping[str, Metric] = {name: Metric(name, **row) for name, row in TABLES["metrics"].items()}
