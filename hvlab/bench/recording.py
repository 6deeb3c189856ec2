"""How a case ended, as records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hvlab.bench import containers
from hvlab.lab import environment
from hvlab.results.store import Record, utc
from hvlab.workloads import Outcome
from hvlab.workloads.case import Case


def records(run_id: str, folder: Path, case: Case, outcome: Outcome) -> Iterator[Record]:
    """Yield a record for each figure of a case, or one without a metric; ``folder`` is the run's."""
    facts = json.loads((folder / "facts.json").read_text("utf-8"))
    used = {host: facts[host] for host in case.hosts}
    stack = environment.stack(used, case.variant)
    versions = {**stack, **outcome.versions}
    # Which files a command had is part of the stack: their key.
    params = {name: value for name, value in case.params.items() if name not in ("sizes", "copy")}
    if case.container:
        params["container"] = case.container
        versions["image"] = containers.images(folder)[case.hosts[0]]
    rows: list[tuple[Any, ...]] = [(row.params, row.metric, row.value, row.unit) for row in outcome.figures]
    for more, metric, value, unit in rows or [({}, None, None, None)]:
        yield Record(
            run_id=run_id,
            case_id=case.id,
            started_at=utc(outcome.started_at),
            workload=case.workload,
            launcher=case.launcher,
            backend=case.backend,
            proved_backend=outcome.proved_backend,
            hosts=case.hosts,
            slots_per_host=case.slots,
            world_size=outcome.world_size,
            params={**params, **more},
            repeat=case.repeat,
            metric=metric,
            value=value,
            unit=unit,
            status=status(outcome),
            error=outcome.error,
            stack=versions,
            raw_path=f"runs/{run_id}/{case.id}",
        )


def status(outcome: Outcome) -> str:
    """Return ok, failed or skipped."""
    if outcome.error is None:
        return "ok"
    return "skipped" if outcome.skipped else "failed"
