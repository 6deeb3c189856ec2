"""Trainings as Horovod's scripts have them, on three ranks: each function asserts what Horovod would give."""

import time
import warnings

import horovod.torch as hvd
import torch

RATE = 0.5


def model():
    """Return a layer whose gradients by ``train`` are 1 + rank on all its three weights."""
    layer = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    return layer


def optimizer(layer, name="layer", base=torch.optim.SGD, rate=RATE, **options):
    named = layer.named_parameters(prefix=name)
    return hvd.DistributedOptimizer(base(layer.parameters(), rate), named, **options)


def backward(layer):
    loss = layer(torch.full((1, 3), 1.0 + hvd.rank())).sum()
    loss.backward()
    return loss


def train(layer, wrapped, steps=2):
    for _ in range(steps):
        wrapped.zero_grad()
        backward(layer)
        wrapped.step()


def check(layer, gradient, steps=2):
    assert torch.allclose(layer.weight, torch.full((1, 3), -RATE * gradient * steps)), layer.weight


def test_process_sets_and_all_ranks():
    """Ranks outside a set, and those of two sets, have different numbers of optimizers."""
    first, second = PAIRS
    layers = [model() for _ in range(3)]
    for layer, process_set in zip(layers, (first, second, hvd.global_process_set), strict=True):
        train(layer, optimizer(layer, process_set=process_set))
    check(layers[0], 2.0)
    check(layers[1], 2.5 if second.included() else 1.0)
    check(layers[2], 2.0)


def test_an_optimizer_of_one_set_alone():
    own = hvd.add_process_set([0, 1])
    if own.included():
        layer = model()
        train(layer, optimizer(layer, process_set=own))
        check(layer, 1.5)
    everybodys = model()
    train(everybodys, optimizer(everybodys))
    check(everybodys, 2.0)


def test_operations_of_overlapping_sets():
    """Each rank waits first for what another rank has yet to begin."""
    sets = [one for one in (hvd.global_process_set, *PAIRS) if one.included()]
    for turn in range(50):
        handles = [
            hvd.allreduce_async(torch.ones(100), op=hvd.Sum, name=f"{turn}.{one.ranks}", process_set=one)
            for one in sets
        ]
        order = [(number + hvd.rank() + turn) % len(handles) for number in range(len(handles))]
        for number in order:
            assert float(hvd.synchronize(handles[number])[0]) == sets[number].size()


def test_gradients_that_a_script_keeps():
    layer, kept = model(), []
    wrapped = optimizer(layer)
    for _ in range(2):
        wrapped.zero_grad()
        backward(layer)
        kept.append(layer.weight.grad)
        wrapped.synchronize()
        kept.append(layer.weight.grad)
        with wrapped.skip_synchronize():
            wrapped.step()
        layer.weight.grad = None
        (layer(torch.ones(1, 3)).sum() * 5).backward()
        wrapped.step()
    assert [float(gradient[0, 0]) for gradient in kept] == [2.0] * 4


def test_gradients_changed_too_early():
    layer = model()
    wrapped = optimizer(layer)
    train(layer, wrapped)
    wrapped.zero_grad()
    backward(layer)
    torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrapped.step()
    assert "optimizer.synchronize() after backward()" in str(caught[0].message)


def test_closures():
    for base in (torch.optim.SGD, torch.optim.LBFGS):
        layer = model()
        wrapped = optimizer(layer, base=base)

        def closure(layer=layer, wrapped=wrapped):
            wrapped.zero_grad()
            return backward(layer) + (layer.weight**2).sum().detach()

        for _ in range(2):
            wrapped.step(closure)
        assert torch.equal(hvd.broadcast(layer.weight.detach(), 0), layer.weight)
        if base is torch.optim.SGD:
            check(layer, 2.0)


def test_first_state_as_horovod_makes_it():
    """By a step of zero gradients, which counts; wrapping forgets it."""
    layer = model()
    torch.nn.init.ones_(layer.weight)
    plain = torch.optim.AdamW(layer.parameters(), RATE, weight_decay=0.1)
    hvd.broadcast_optimizer_state(plain, root_rank=0)
    assert torch.allclose(layer.weight, torch.tensor(1 - RATE * 0.1))
    assert int(plain.state[layer.weight]["step"]) == 1
    wrapped = hvd.DistributedOptimizer(plain, layer.named_parameters())
    assert not wrapped.state
    hvd.broadcast_optimizer_state(wrapped, root_rank=0)
    assert int(wrapped.state[layer.weight]["step"]) == 1


def test_a_state_that_only_the_root_has():
    layer = model()
    wrapped = optimizer(layer, base=torch.optim.Adam)
    if hvd.rank() == 1:
        state = {"step": torch.tensor(7.0), "exp_avg": torch.ones(1, 3), "exp_avg_sq": torch.ones(1, 3)}
        wrapped.load_state_dict({**wrapped.state_dict(), "state": {0: state}})
    hvd.broadcast_optimizer_state(wrapped, root_rank=1)
    assert int(wrapped.state[layer.weight]["step"]) == 7
    check(layer, 0.0)


def test_averages_of_other_types():
    for dtype, value in ((torch.uint8, 200), (torch.int8, 100), (torch.int16, 30000), (torch.int64, 2**40)):
        assert hvd.allreduce(torch.tensor([value], dtype=dtype)).tolist() == [value]
    assert hvd.allreduce(torch.tensor([1 + 2j])).item() == 1 + 2j


def test_parameters_that_come_later():
    """Of a group added since the optimizer was wrapped, and one that was frozen then."""
    layers = [model() for _ in range(3)]
    layers[1].weight.requires_grad_(False)
    parameters = [layer.weight for layer in layers[:2]]
    wrapped = hvd.DistributedOptimizer(torch.optim.SGD(parameters, RATE))
    train(layers[0], wrapped)
    layers[1].weight.requires_grad_(True)
    wrapped.add_param_group({"params": layers[2].parameters(), "lr": RATE})
    for _ in range(2):
        wrapped.zero_grad()
        for layer in layers:
            backward(layer)
        wrapped.step()
    for layer, steps in zip(layers, (4, 2, 2), strict=True):
        check(layer, 2.0, steps)


class Halves(hvd.Compression.none):
    """A compression that has no context, and keeps the type."""

    @staticmethod
    def compress(tensor):
        return tensor / 2, None

    @staticmethod
    def decompress(tensor, _):
        return tensor * 2


def test_compression_of_ones_own():
    layer, unused = model(), model()
    named = [("layer", layer.weight), ("unused", unused.weight)]
    base = torch.optim.SGD([weight for _, weight in named], RATE)
    train(layer, hvd.DistributedOptimizer(base, named, compression=Halves))
    check(layer, 2.0)
    check(unused, 0.0)


def test_rows_of_nothing():
    columns = torch.zeros(1 + hvd.rank(), 0)
    assert hvd.allgather(columns).shape == (6, 0)
    assert hvd.alltoall(torch.zeros(3, 0)).shape == (3, 0)


def test_large_objects():
    start = time.monotonic()
    assert len(hvd.broadcast_object(bytes(2**26) * (hvd.rank() == 1), root_rank=1)) == 2**26
    assert time.monotonic() - start < 30


def test_some_ranks_alone():
    hvd.shutdown()
    said = ""
    try:
        hvd.init([0, 1])
    except NotImplementedError as error:
        said = str(error)
    assert "hvd.add_process_set([0, 1])" in said
    hvd.init()


if __name__ == "__main__":
    hvd.init()
    PAIRS = [hvd.add_process_set([0, 2]), hvd.add_process_set([1, 2])]
    for name, function in list(globals().items()):
        if name.startswith("test_"):
            function()
            hvd.barrier()
            print(f"{name} passed", flush=True)
