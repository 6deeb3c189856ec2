"""Runs as a lab would have made them, for the tests of what reads them: plausible figures with noise."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hvlab.results.store import Record, Store
from hvlab.workloads import parameters
from hvlab.workloads.metrics import METRICS

HOSTS = ("n1", "n2", "n3")
SLOW = "n3"
SIZES = tuple(2**power for power in range(10, 27, 2))
LAB7, LAB4 = "20261120T155301Z-ab12", "20261121T090000Z-cd34"
STACK = {
    "os": "Debian 12.11", "kernel": "6.1.0-37-amd64", "architecture": "x86_64", "cpus": 2, "gcc": "12.2.0",
    "openmpi": "4.1.8", "horovod": "0.28.1", "torch": "2.12.0", "nics": "1 x veth, 10 Gbit/s",
    "nic_driver": "veth", "mpi_cuda": "no",
}  # fmt: skip
# Seconds to begin, and seconds per byte, of a ring step over the network and inside a host.
ALPHA = {"mpi": 9e-5, "gloo": 2.1e-4}
BETA = {"mpi": 1 / 1.1e9, "gloo": 1 / 0.72e9}
NEAR = 0.35
CYCLE_S = 1e-3
SMALLER = {"none": 1, "fp16": 0.5, "bf16": 0.5, "8bit": 0.26, "naive8": 0.25}
STEPS = 60
# Parameters that are in the name of a case where they are given.
_MARKS = ("model", "compression", "scaling", "fusion_threshold")
UNPROVED = "asked for ccl, but mpi carried it (Horovod's timeline shows MPI_ALLREDUCE)"
LATE = "ran over its 900 s and was ended"


@dataclass(frozen=True)
class Model:
    """A model to train: seconds of computing a step, bytes of its gradient, floating-point work a sample."""

    workload: str
    compute: float
    gradient: int
    flops: float
    batch: int


MODELS = {
    "mnist": Model("mnist", 0.031, 87_720, 2.4e6, 64),
    "resnet50": Model("synthetic", 0.42, 102_228_128, 4.1e9, 8),
    "vgg16": Model("synthetic", 0.95, 553_430_176, 15.5e9, 8),
    "rnn": Model("rnn", 0.16, 10_600_000, 0.3e9, 32),
}


@dataclass(frozen=True)
class Place:
    """Where a case runs, and the how manieth time."""

    backend: str
    hosts: tuple[str, ...]
    slots: int = 1
    repeat: int = 1

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.hosts) * self.slots

    @property
    def launcher(self) -> str:
        """Who starts the ranks."""
        return {"serial": "local", "gloo": "horovodrun"}.get(self.backend, "mpirun")


@dataclass(frozen=True)
class Made:
    """A case's records, and the command that started it."""

    records: tuple[Record, ...]
    argv: tuple[str, ...]
    env: Mapping[str, str]


class Maker:
    """Makes the records of one run, one case after another."""

    def __init__(self, run_id: str, *, seed: int = 1, noise: float = 0.02) -> None:
        self.run_id = run_id
        self.random = random.Random(seed)  # noqa: S311 - figures, no secrets
        self.noise = noise
        self.cases: dict[str, Made] = {}

    @property
    def records(self) -> list[Record]:
        """Every record, in the order of the cases."""
        return [record for made in self.cases.values() for record in made.records]

    def near(self, value: float, share: float | None = None) -> float:
        """A value as a measurement would have found it: now and then disturbed, never too quick."""
        share = self.noise if share is None else share
        disturbed = 1 + (self.random.random() < 0.05) * self.random.uniform(0, 4 * share)
        return value * disturbed * (1 + abs(self.random.gauss(0, share)))

    def case(
        self, workload: str, place: Place, params: Mapping[str, Any],
        figures: Iterable[tuple[Mapping[str, Any], str, float]] = (), *,
        status: str = "ok", error: str | None = None,
    ) -> None:  # fmt: skip
        """Add a case with its figures, or one that has none."""
        given = {item.name: item.default for item in parameters(workload)} | dict(params, device="cpu")
        given.pop("sizes", None)
        marks = [str(given[name]) for name in _MARKS if name in params]
        shape = f"{len(place.hosts)}x{place.slots}"
        own = [place.hosts[0]] if place.hosts[:1] != HOSTS[:1] else []
        case_id = "-".join([workload, place.backend, shape, *marks, *own, f"r{place.repeat}"])
        first = Record(
            run_id=self.run_id, case_id=case_id, started_at="2026-11-20T15:53:01.000Z", workload=workload,
            launcher=place.launcher, backend=place.backend,
            proved_backend=place.backend if status == "ok" else None, hosts=place.hosts,
            slots_per_host=place.slots, world_size=place.ranks if status == "ok" else None, params=given,
            repeat=place.repeat, metric=None, value=None, unit=None, status=status, error=error, stack=STACK,
            raw_path=f"runs/{self.run_id}/{case_id}",
        )  # fmt: skip
        rows = tuple(
            replace(first, params={**given, **more}, metric=metric, value=value, unit=METRICS[metric].unit)
            for more, metric, value in figures
        )
        folder = f"~/.hvlab/runs/{self.run_id}/{case_id}"
        env = {"HVLAB_CASE": f"{self.run_id}/{case_id}", "HOROVOD_CPU_OPERATIONS": place.backend.upper()}
        self.cases[case_id] = Made(rows or (first,), command(workload, place, folder), env)

    def train(self, name: str, place: Place, **params: Any) -> None:
        """Add a training case."""
        model = MODELS[name]
        given = {"batch": model.batch} | ({"model": name} if model.workload == "synthetic" else {}) | params
        self.case(model.workload, place, given, self._training(model, place, given))

    def _training(
        self, model: Model, place: Place, params: Mapping[str, Any]
    ) -> Iterator[tuple[Mapping[str, Any], str, float]]:
        compression = params.get("compression", "none")
        batch = model.batch if params.get("scaling", "weak") == "weak" else model.batch // place.ranks
        # Ranks that share a host's memory slow each other down.
        compute = model.compute * batch / model.batch * (1 + 0.09 * (place.slots - 1))
        sent = model.gradient * SMALLER[compression]
        step = self.near(compute + 0.8 * allreduce(place, sent) + (compression != "none") * 2e-4)
        real = step * STEPS + 2.1
        values = {
            "step_time": step, "step_time_median": step * 0.995, "step_time_low": step * 0.985,
            "step_time_high": step * 1.012, "step_time_min": step * 0.93, "step_time_max": step * 1.31,
            "step_time_sd": compute * 0.01,
            "throughput": batch * place.ranks / step, "training_time": step * STEPS,
            "startup": self.near(1.4), "compute_time": self.near(compute),
            "gradient_bytes": float(model.gradient), "sent_bytes": sent, "flops": model.flops,
            "warmup": float(self.random.randint(2, 6)), "real": real, "user": real * place.ranks * 0.97,
            "sys": real * place.ranks * 0.06,
        }  # fmt: skip
        if model.workload == "mnist":
            right = 9.58 if compression == "naive8" else 98.3 + self.random.uniform(-0.15, 0.15)
            values |= {"accuracy": right, "loss": 2.3 if compression == "naive8" else self.near(0.061)}
        yield from (({}, metric, value) for metric, value in values.items())
        for host in place.hosts:
            slower = 1.28 if host == SLOW else 1.0
            yield {"host": host}, "host_compute_time", self.near(compute * slower, 0.01)

    def sweep(self, place: Place, workload: str = "allreduce", **params: Any) -> None:
        """Add a sweep of a collective over all sizes."""
        self.case(workload, place, params, self._collective(place))

    def _collective(self, place: Place) -> Iterator[tuple[Mapping[str, Any], str, float]]:
        for size in SIZES:
            time = self.near(allreduce(place, size) + CYCLE_S)
            algbw = size / time / 1e9
            values = {
                "time": time * 1e6, "time_median": time * 0.99e6, "time_low": time * 0.97e6,
                "time_high": time * 1.02e6, "time_min": time * 0.9e6, "time_max": time * 1.4e6,
                "algbw": algbw, "busbw": algbw * 2 * (place.ranks - 1) / place.ranks, "warmup": 3.0,
            }  # fmt: skip
            yield from (({"size_bytes": size}, metric, value) for metric, value in values.items())

    def failed(self, workload: str, place: Place, error: str, *, status: str = "failed") -> None:
        """Add a case that has no figures."""
        self.case(workload, place, {}, status=status, error=error)


def allreduce(place: Place, size: float) -> float:
    """Seconds of a ring allreduce of ``size`` bytes; inside a host it is quicker."""
    if place.backend == "serial":
        return 0.0
    share = 1.0 if len(place.hosts) > 1 else NEAR
    begin, each = ALPHA[place.backend] * share, BETA[place.backend] * share
    return 2 * (place.ranks - 1) * (begin + size / place.ranks * each)


def command(workload: str, place: Place, folder: str) -> tuple[str, ...]:
    """A command line like those the launchers make."""
    program = ("/opt/hvlab/horovod/cpu/bin/python", "/opt/hvlab/workloads/train.py", "--workload", workload)
    program += ("--output", f"{folder}/result.json")
    at, ranks = ",".join(f"{host}:{place.slots}" for host in place.hosts), str(place.ranks)
    starters = {
        "local": (),
        "horovodrun": ("/opt/hvlab/horovod/cpu/bin/horovodrun", "--gloo", "-np", ranks, "-H", at),
        "mpirun": ("/opt/hvlab/openmpi/current/bin/mpirun", "-np", ranks, "--host", at),
    }
    return (*starters[place.launcher], *program)


def lab7(*, repeats: int = 5) -> Maker:
    """The lab of several backends, inside one host and across hosts, with a sweep and what goes wrong."""
    made = Maker(LAB7)
    shapes = [(HOSTS[:count], slots) for count in (1, 2, 3) for slots in (1, 2)]
    for repeat in range(1, repeats + 1):
        for backend in ("mpi", "gloo"):
            for hosts, slots in shapes:
                place = Place(backend, hosts, slots, repeat)
                late = (backend, place.ranks, repeat) == ("gloo", 6, 2)
                if late:
                    made.failed("mnist", place, LATE)
                for name in ("resnet50", "rnn") if late else ("mnist", "resnet50", "rnn"):
                    made.train(name, place)
                if place.ranks > 1:
                    made.sweep(place)
            for host in HOSTS[1:]:
                made.train("mnist", Place(backend, (host,), 1, repeat))
        for count in (1, 2, 3):
            made.train("mnist", Place("mpi", HOSTS[:count], 1, repeat), scaling="strong")
            made.failed("mnist", Place("ccl", HOSTS[:count], 1, repeat), UNPROVED)
    return made


def lab4(*, repeats: int = 3) -> Maker:
    """The lab of compression: serial, Horovod, and Horovod with compressed gradients."""
    made = Maker(LAB4, seed=4)
    for repeat in range(1, repeats + 1):
        made.train("mnist", Place("serial", HOSTS[:1], 1, repeat), epochs=10)
        for compression in ("none", "naive8", "8bit", "fp16", "bf16"):
            for hosts in (HOSTS[:1], HOSTS[:2]):
                made.train("mnist", Place("mpi", hosts, 2, repeat), compression=compression, epochs=10)
    return made


def wide(*, repeats: int = 5) -> Maker:
    """A lab of eight hosts, enough for predictions."""
    made = Maker("20261122T090000Z-ef56", seed=8)
    hosts = tuple(f"n{number}" for number in range(1, 9))
    for repeat in range(1, repeats + 1):
        for backend in ("mpi", "gloo"):
            for count in (1, 2, 4, 8):
                place = Place(backend, hosts[:count], 1, repeat)
                made.train("mnist", place)
                made.train("rnn", place)
                if count > 1:
                    made.sweep(place)
    return made


def facts(host: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What Ansible would have gathered of a virtual host; ``host`` goes into its part ``hvlab``."""
    observed = {
        "container": True,
        "nics": [{"name": "host0", "model": None, "driver": "veth", "speed_mbit": 10000}],
        "gpus": [],
        "nccl": None,
        "rdma": {"way": None, "gdr_reason": "no RDMA NIC"},
    }
    variants = {"cpu": {"operations": ["MPI", "Gloo", "CCL"], "version": "0.28.1"}}
    torch = {"framework": "torch", "version": "2.12.0", "build": "cpu"}
    return {
        "distribution": "Debian", "distribution_version": "12.11", "kernel": "6.1.0-37-amd64",
        "architecture": "x86_64", "processor_model": "AMD EPYC 7763", "processor_vcpus": 2,
        "memtotal_mb": 23950,
        "hvlab": {**observed, **(host or {})},
        "ansible_local": {
            "hvlab_openmpi": {"version": "4.1.8", "cuda": False},
            "hvlab_horovod": {"version": "0.28.1", "variants": variants},
            "hvlab_python_env": {"python": "3.11.2", "environments": {"python": torch}},
        },
    }  # fmt: skip


FACTS = {name: facts() for name in HOSTS}
LEFT_OUT = [{"case": "mnist-mpi-4x1-r1", "reason": "4 hosts asked for, the lab has 3"}]


def store(
    folder: Path, *makers: Maker, facts: Mapping[str, Any] = FACTS, state: str = "finished",
    pending: Sequence[str] = (),
) -> Store:  # fmt: skip
    """A store under ``folder`` with these runs and their raw files; ``pending`` cases were planned too."""
    made = Store(folder)
    for maker in makers:
        made.create(maker.run_id, lab="lab", spec_key="k", spec={}, cases=[*maker.cases, *pending])
        made.add(maker.records)
        made.enter(maker.run_id, state)
        at = made.run_folder(maker.run_id)
        at.mkdir(parents=True, exist_ok=True)
        (at / "facts.json").write_text(json.dumps(facts), "utf-8")
        (at / "left-out.json").write_text(json.dumps(LEFT_OUT), "utf-8")
        for case_id, case in maker.cases.items():
            (at / case_id).mkdir()
            (at / case_id / "argv.json").write_text(json.dumps(case.argv), "utf-8")
            (at / case_id / "env.json").write_text(json.dumps(case.env), "utf-8")
    return made
