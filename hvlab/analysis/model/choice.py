"""Which sweep tells about a training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hvlab.analysis.model.fit import Fit
from hvlab.analysis.model.training import Training

# The type that the allreduce of each compression sends.
_DTYPES: Mapping[str, str] = {
    "none": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "8bit": "int8",
    "naive8": "int8",
}
# What Horovod's optimiser does, where a sweep has the choice.
_USUAL: Mapping[str, object] = {"op": "average", "form": "single", "tensors": 1, "in_place": True}


def matching(fits: Iterable[Fit], training: Training) -> Fit | None:
    """Return the fit whose sweep is most like what a training does.

    Backend, topology, ranks a host and device must be the same; then launcher, type, container and tuning
    decide, and of equals the one with most points.
    """
    fitting = [
        fit
        for fit in fits
        if fit.sweep.backend == training.backend
        and (fit.sweep.topology, fit.sweep.slots) == (training.topology, training.slots)
        and _device(fit, training)
    ]
    return max(fitting, key=lambda fit: (_likeness(fit, training), len(fit.points)), default=None)


def _device(fit: Fit, training: Training) -> bool:
    ours, theirs = training.get("device"), dict(fit.sweep.params).get("device")
    return ours is None or theirs is None or ours == theirs


def _likeness(fit: Fit, training: Training) -> int:
    theirs = dict(fit.sweep.params)
    dtype = _DTYPES.get(str(training.get("compression") or "none"), "float32")
    given: dict[str, object] = {**dict(training.params), **_USUAL, "dtype": dtype}
    shared = theirs.keys() & given.keys()
    alike = [name for name in shared if theirs[name] == given[name]]
    return len(alike) + (fit.sweep.launcher == training.launcher)
