"""Earlier runs: an unfinished one resumed with its own schedule, or one measured again.

Measured again, it is A as it was, beside B with the command's changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hvlab.base.errors import UsageError
from hvlab.base.masking import is_masked
from hvlab.bench.matrix import Spec
from hvlab.bench.schedule import Schedule
from hvlab.bench.sides import A, B, values, with_sides
from hvlab.lab.inventory import Lab
from hvlab.results.store import Run, Store


def load_resumed(store: Store, run_id: str, lab: Lab) -> tuple[Run, Schedule]:
    """Return a run and its schedule, as they were requested.

    Raises UsageError if there is no such run, it is finished, or its schedule cannot be restored.
    """
    run = store.run(run_id)
    if run.state == "finished":
        raise UsageError(
            f"run {run.run_id} is finished: all of its {len(run.planned)} cases are done",
            remedy=f"see it with `hvlab results show {run.run_id}`",
        )
    spec = restore(store, run, lab)
    schedule = Schedule.of(spec, lab)
    from hvlab.bench import looks  # noqa: PLC0415 - it takes long, and `hvlab bench --help` imports this module

    if {case.id for case in looks.first(schedule.cases, spec)} != set(run.planned):
        raise UsageError(
            f"the cases of run {run.run_id} cannot be restored: the hosts, their stack or hvlab has changed",
            remedy="start a new run",
        )
    return run, schedule


def restore(store: Store, run: Run, lab: Lab) -> Spec:
    """Return the request of a run. Raises UsageError if that cannot be measured on ``lab``."""
    key, stored = store.spec(run.run_id)
    try:
        spec = Spec.restore(stored)
    except TypeError as error:
        raise UsageError(
            f"run {run.run_id} was started by another version of hvlab",
            remedy="use that version, or start a new run",
        ) from error
    if is_masked(stored):
        raise UsageError(
            f"run {run.run_id} set a variable whose value is a secret, and that was not stored",
            remedy="an unfinished run is continued by its own command; otherwise put the variable into the "
            "inventory (lab_rank_env) and measure again",
        )
    if spec.key(lab) != key:
        raise UsageError(
            f"run {run.run_id} was measured on other hosts (lab {run.lab})",
            remedy="submit the job on the hosts that it was started on: sbatch --nodelist"
            if lab.step
            else "use the inventory and the limit that it was started with (-i, -l)"
            if lab.prepared
            else "name the hosts that it was started with: --hosts",
        )
    return spec


_ONLY_SETTINGS = (
    "give what B changes, as in --set fusion_threshold=64M, --backend gloo or --set env=NCCL_ALGO=Ring; "
    "what was installed or reconfigured since cannot be switched back for A: `hvlab compare` shows whether "
    "figures of two runs differ, `hvlab baseline check` whether that is more than run-to-run variation"
)


def against(store: Store, run_id: str, changes: Mapping[str, str], lab: Lab) -> Spec:
    """Return a request that measures a run's configurations again (A), and each with ``changes`` in turn (B).

    Raises UsageError if nothing is changed, or where the run cannot be measured again here: it was
    imported, on other hosts, or by an hvlab that described it otherwise.
    """
    run = store.run(run_id)
    run_id = run.run_id
    if not store.spec(run_id)[1].get("blocks"):
        raise UsageError(
            f"run {run_id} was imported: how it was started is not known", remedy="measure a run first"
        )
    spec = restore(store, run, lab)
    if spec.sides:
        raise UsageError(
            f"run {run_id} has two sides itself", remedy="name a run of one setting, or repeat its --ab"
        )
    if not changes:
        raise UsageError(f"nothing differs between run {run_id} and this command", remedy=_ONLY_SETTINGS)
    sides: dict[str, Mapping[str, str]] = {A: {}, B: dict(changes)}
    return dataclasses.replace(
        spec,
        blocks=with_sides(spec.blocks, sides, lab),
        sides=values(sides, spec.blocks),
        against=run_id,
        asked=spec.asked or "backend" in changes,
    )
