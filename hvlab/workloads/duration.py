"""Roughly how long a case takes, from its work alone. Pure.

Right within a factor of about three, since processors and networks differ. A training step is computing (the
model's multiply-adds, three times those of the forward pass) and sending (its gradients); a collective is its
bytes. The rates of CPUs are those of docs/example/lab7.html; those of GPUs are a guess, not measured.
"""

from __future__ import annotations

from hvlab.workloads import WORKLOADS
from hvlab.workloads.case import Case

# The launch, the imports, and the check at the end.
_START_S = 4.0
# Of a step or a call, beside its work.
_STEP_S, _CALL_S = 0.01, 0.001
# Multiply-adds a second of one thread of a CPU, and of a GPU; bytes a second from rank to rank.
_RATE = {"cpu": 2e10, "cuda": 5e12}
_BYTES_PER_S = {"cpu": 3e8, "cuda": 1e10}
_PASSES = 3
# Steps of computing alone, which follow a training.
_ALONE = 6
# Of a user's own training nothing is known; a minute is a guess.
_COMMAND_S = 60.0
# Training samples; other data sets are taken for MNIST.
_SAMPLES = {"digits": 1297}
_MNIST_SAMPLES = 60_000


def rough(case: Case) -> float:
    """Return the seconds that a case may take, at most its time limit."""
    if case.command:
        return min(float(case.timeout), _COMMAND_S)
    work = _collective(case) if "sizes" in case.params else _training(case)
    return min(float(case.timeout), _START_S + work)


def _collective(case: Case) -> float:
    sizes, device = case.params["sizes"], case.params["device"]
    rounds = case.params["iterations"]
    return float(rounds * (len(sizes) * _CALL_S + 2 * sum(sizes) / _BYTES_PER_S[device]))


def _training(case: Case) -> float:
    params, device = case.params, case.params["device"]
    work, parameters = WORKLOADS[case.workload].model(params)
    batch = params["batch"] / (case.world_size if params["scaling"] == "strong" else 1)
    if "steps" in params:
        steps = params["steps"]
    else:
        samples = _SAMPLES.get(params["data"], _MNIST_SAMPLES)
        steps = params["epochs"] * samples / (batch * case.world_size)
    rate = _RATE[device] * (params["threads"] if device == "cpu" else 1)
    computing = _STEP_S + _PASSES * work * batch / rate
    sending = 2 * 4 * parameters / _BYTES_PER_S[device] if case.world_size > 1 else 0.0
    return float(steps * (computing + sending) + _ALONE * computing)
