"""An earlier run measured again beside what is changed now: A is as it was, B as the command says."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hvlab.base.errors import UsageError
from hvlab.bench.matrix import Spec
from hvlab.bench.resume import restored
from hvlab.bench.sides import A, B, sided, values
from hvlab.lab.inventory import Lab
from hvlab.results.store import Store

_ONLY_SETTINGS = (
    "give what B changes, as in --set fusion_threshold=64M, --backend gloo or --set env=NCCL_ALGO=Ring; "
    "what was installed or reconfigured since cannot be switched back for A: `hvlab compare` shows whether "
    "figures of two runs differ, `hvlab baseline check` whether that is more than runs differ by themselves"
)


def against(store: Store, run_id: str, changes: Mapping[str, str], lab: Lab) -> Spec:
    """Return what measures a run's configurations again (A), and each with ``changes`` in turn (B).

    Raises UsageError where nothing is changed, or where the run cannot be measured again here: it was
    imported, on other hosts, or by an hvlab that described it otherwise.
    """
    run = store.run(run_id)
    run_id = run.run_id
    if not store.spec(run_id)[1].get("blocks"):
        raise UsageError(
            f"run {run_id} was imported: how it was started is not known", remedy="measure a run first"
        )
    spec = restored(store, run, lab)
    if spec.sides:
        raise UsageError(
            f"run {run_id} has two sides itself", remedy="name a run of one setting, or repeat its --ab"
        )
    if not changes:
        raise UsageError(f"nothing differs between run {run_id} and this command", remedy=_ONLY_SETTINGS)
    sides: dict[str, Mapping[str, str]] = {A: {}, B: dict(changes)}
    return dataclasses.replace(
        spec,
        blocks=sided(spec.blocks, sides, lab),
        sides=values(sides, spec.blocks),
        against=run_id,
        asked=spec.asked or "backend" in changes,
    )
