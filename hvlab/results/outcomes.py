"""How a case ended, as records. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.base.masking import mask
from hvlab.results.store import Record, utc
from hvlab.workloads import Outcome
from hvlab.workloads.case import Case


def records(run_id: str, case: Case, outcome: Outcome, stack: Mapping[str, Any]) -> Iterator[Record]:
    """Yield a record for each figure of a case, or one without a metric.

    ``stack`` describes the hosts; versions that the case reports override it.
    """
    # The files of a command are identified in the stack, by their key.
    params = {name: mask(value) for name, value in case.params.items() if name not in ("sizes", "copy")}
    if case.container:
        params["container"] = case.container
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
            error=mask(outcome.error),
            stack={**stack, **outcome.versions},
            raw_path=f"runs/{run_id}/{case.id}",
        )


def status(outcome: Outcome) -> str:
    """State of an outcome: ok, failed or skipped."""
    if outcome.error is None:
        return "ok"
    return "skipped" if outcome.skipped else "failed"
