"""A run that did not come to its end, and the very schedule it had."""

from __future__ import annotations

from hvlab.bench.matrix import Spec
from hvlab.bench.schedule import Schedule
from hvlab.errors import UsageError
from hvlab.lab.inventory import Lab
from hvlab.results.store import Run, Store


def resumed(store: Store, run_id: str, lab: Lab) -> tuple[Run, Schedule]:
    """Return a run and its schedule, both as it was asked for.

    Raises UsageError where there is no such run, it is finished, or it cannot be what it was any more.
    """
    run = store.run(run_id)
    if run.state == "finished":
        raise UsageError(
            f"run {run_id} is finished: all of its {len(run.planned)} cases are done",
            remedy=f"see it with `hvlab results show {run_id}`",
        )
    key, told = store.spec(run_id)
    try:
        spec = Spec.restored(told)
    except TypeError as error:
        raise UsageError(
            f"run {run_id} was asked for by another version of hvlab", remedy="use that, or start anew"
        ) from error
    if spec.key(lab) != key:
        raise UsageError(
            f"run {run_id} was of other hosts: lab {run.lab}, or other members of it",
            remedy="give the inventory and the limit it had (-i, -l)",
        )
    plan = Schedule.made(spec, lab)
    if {case.id for case in plan.cases} != set(run.planned):
        raise UsageError(
            f"the cases of run {run_id} cannot be made again: the inventory or hvlab has changed",
            remedy="start anew",
        )
    return run, plan
