"""Run by test_2_training as every rank, on the nodes: the programs' own parts, and what they make of faults.

Rank 0 prints what was seen, one line of JSON. Needs Python 3.8+.
"""

from __future__ import annotations

import itertools
import json
import sys

sys.path.insert(0, "/opt/hvlab/workloads")

import torch

import collective
import exchange
import train
import world as ranks_of

OPERATIONS = {"allreduce": ("sum", "average", "adasum"), "reducescatter": ("sum", "average")}
FORMS = {"allreduce": ("single", "grouped", "fused")}
PLACES = {"allreduce": ("true", "false"), "broadcast": ("true", "false")}


def asked(workload, size="1024", **more):
    """Return the options of a collective."""
    given = {"workload": workload, "world-size": "1", "hosts": "1", "sizes": size, "output": "x", **more}
    return collective.parse([word for name, value in given.items() for word in ("--" + name, value)])


def every():
    """Yield each combination of what collectives may be asked for."""
    for workload in collective.CALLS:
        lists = (
            collective.DTYPES,
            OPERATIONS.get(workload, ("sum",)),
            FORMS.get(workload, ("single",)),
            PLACES.get(workload, ("true",)),
        )
        for dtype, op, form, place in itertools.product(*lists):
            more = {"dtype": dtype, "op": op, "form": form, "tensors": "3", "in-place": place}
            yield ".".join((workload, dtype, op, form, place)), asked(workload, **more)


def collectives(world):
    """Return how many wrong elements each combination gives, and which are refused with what words."""
    observed, refused = {}, {}
    for name, options in every():
        try:
            collective.refuse(options, world)
            made = collective.Exchange(3 * 8 * 1000 * world.size, options, world, "cpu")
            made.refill()
            made.run(name)
        except (ValueError, NotImplementedError) as error:
            refused[name] = str(error)
            continue
        observed[name] = world.total([made.wrong()], name + ".wrong")[0]
    return {"wrong": observed, "refused": refused}


def faults(world):
    """Return how many wrong elements are seen where one element is wrong, or a rank gave nothing."""
    observed = {}
    for workload in collective.CALLS:
        for fault in ("none", "element", "silent"):
            made = collective.Exchange(12000 * world.size, asked(workload), world, "cpu")
            made.refill()
            if fault == "silent" and world.rank == 0:
                made.buffers[0].zero_()
            made.run(workload + fault)
            if fault == "element" and world.rank == world.size - 1:
                made.received[0][7] += 1
            name = "{}.{}".format(workload, fault)
            observed[name] = world.total([made.wrong()], name)[0]
    return observed


def gradients_of(rank):
    """Return gradients as that rank might have them: of all magnitudes, one of nothing."""
    random = torch.Generator().manual_seed(rank)
    made = [torch.randn(shape, generator=random) * scale for shape, scale in (((7, 5), 1e-3), ((33,), 10.0))]
    return [*made, torch.zeros(3)]


def averages(world):
    """Return how far each exchange's average is off, as a part of the largest gradient of its tensor."""
    every = [gradients_of(rank) for rank in range(world.size)]
    wanted = [sum(tensors) / world.size for tensors in zip(*every)]
    largest = [max(float(tensor.abs().max()) for tensor in tensors) or 1.0 for tensors in zip(*every)]
    found = {}
    for name in ("bf16", "8bit", "naive8"):
        way = exchange.create(name, world)
        sums = [torch.zeros_like(tensor) for tensor in wanted]
        for step in range(20):
            got = way.average([tensor.clone() for tensor in every[world.rank]], name + str(step))
            sums = [total + part for total, part in zip(sums, got)]
            if not step:
                once = max(float((a - b).abs().max()) / c for a, b, c in zip(got, wanted, largest))
        over = max(float((a / 20 - b).abs().max()) / c for a, b, c in zip(sums, wanted, largest))
        found[name] = {"once": once, "mean_of_20": over}
        weights = world.gather([tensor.tolist() for tensor in got], name + ".same")
        found[name]["same"] = all(one == weights[0] for one in weights)
    return found


def trainings(world, data, *asked):
    """Return the accuracies that trainings reach, in their order, and failed checks.

    Each is asked for as COMPRESSION:SEED:EPOCHS.
    """
    found, checks = [], []
    for name, seed, epochs in (text.split(":") for text in asked):
        words = ["--workload", "mnist", "--data", data, "--epochs", epochs, "--seed", seed]
        words += ["--world-size", "1", "--hosts", "1", "--output", "x", "--compression", name]
        run = train.Run(train.Digits(train.parse(words), world, "cpu"), exchange.create(name, world))
        run.train()
        checks += run.checks()
        found.append(run.results()["accuracy"])
    return {"accuracy": found, "checks": checks}


def broken_sums(argv):
    """Run the program with a rank that gives nothing."""
    refill = collective.Exchange.refill

    def half(made):
        refill(made)
        if made.rank == 1:
            made.buffers[0].zero_()

    collective.Exchange.refill = half
    return ranks_of.run(collective.parse(argv), collective.measure)


def broken_weights(argv):
    """Run the program without giving rank 0's weights to all."""

    def measure(options, world, result):
        world.hvd.broadcast_parameters = lambda *_, **__: None
        train.measure(options, world, result)

    return ranks_of.run(train.parse(argv), measure)


def broken_samples(argv):
    """Run the program with ranks that all take the first rank's samples."""
    train.samples.place_of_rank = lambda step, among, rank: slice(
        step * sum(among), step * sum(among) + among[rank]
    )
    return ranks_of.run(train.parse(argv), train.measure)


BROKEN = {"sums": broken_sums, "weights": broken_weights, "samples": broken_samples}


def parts(world):
    """Return what the programs' parts make of this world."""
    return {"collectives": collectives(world), "faults": faults(world), "averages": averages(world)}


TOLD = {"parts": parts, "trainings": trainings}


def main():
    """Return what the broken program returns, else 0."""
    what, *words = sys.argv[1:]
    if what in BROKEN:
        sys.argv[1:] = words
        return BROKEN[what](words)
    world = ranks_of.Ranks()
    told = TOLD[what](world, *words)
    if world.rank == 0:
        print(json.dumps(told))
    world.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
