"""Averages gradients while the backward pass still runs, in buckets whose order is the same on all ranks."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..common.agreement import Request
from ..common.buckets import capacity, plan
from ..common.channel import LOCK, STAND_INS, Channel, Operation, wait
from ..common.process_sets import ProcessSet
from ..common.threads import calm
from ..common.world import world
from .asynchronous import sparse_allreduce_async
from .operations import NAMES, REDUCTIONS, Average, scale

MORE_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)
CHANGED = (
    "hvlab_horovod: gradients were changed between backward() and averaging, such as by clipping or "
    "GradScaler.unscale_(): the change is lost; what to do: call optimizer.synchronize() after backward(), "
    "and optimizer.step() within optimizer.skip_synchronize()"
)


class Step(Operation):
    """All ranks are in the same step of an optimizer; one that has joined learns that it has to take part.

    Buckets of all ranks have a group of their own, and do not wait for this, but before the first step: then
    ``own`` holds the order in which gradients became ready, and which were sparse. Buckets of other process
    sets are sent with it: torch names a group by its ranks' number of groups, which may differ among them.
    """

    kind = "step"

    def __init__(self, exchange: Exchange, own: Any) -> None:
        super().__init__(str(exchange.number))
        self.exchange, self.own = exchange, own

    def request(self) -> Request:
        return Request(self.kind, [self.exchange.number, *self.exchange.same], self.own)

    def issue(self, channel: Channel, owns: list[Any]) -> None:
        if self.own is not None or not self.exchange.arranged:
            self.exchange.arrange([own for own in owns if own])
        if not self.exchange.overlaps:
            self.exchange.send_rest()


class Bucket:
    """Gradients that are sent as one tensor."""

    def __init__(self, numbers: Sequence[int], tensors: dict[int, torch.Tensor], contexts: Any) -> None:
        self.numbers = numbers
        # What the compression needs to know of each; a rank may lack a gradient that others have.
        self.contexts = {number: contexts[number] for number in numbers}
        first = tensors[numbers[0]]
        sizes = [tensors[number].numel() for number in numbers]
        self.flat = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
        self.views = {
            number: part.as_strided(tensors[number].shape, _strides(tensors[number]))
            for number, part in zip(numbers, self.flat.split(sizes), strict=True)
        }
        self.reset()

    def reset(self) -> None:
        """Prepare for the next step."""
        self.missing, self.filled = len(self.numbers), False
        self.taken: dict[int, tuple[torch.Tensor, int]] = {}
        self.work: Any = None

    def fill(self, gradients: dict[int, torch.Tensor | None], compress: Any) -> None:
        """Take the gradients; none is zero."""
        views, sources = [], []
        for number in self.numbers:
            gradient, view = gradients[number], self.views[number]
            if gradient is None:
                view.zero_()
            else:
                self.taken[number] = gradient, gradient._version
                source, self.contexts[number] = compress(gradient)
                views.append(view)
                sources.append(source)
        if views:
            torch._foreach_copy_(views, sources)
        self.filled = True

    def is_stale(self) -> bool:
        """Return whether the script has changed a gradient since this bucket copied it."""
        return any(gradient._version != version for gradient, version in self.taken.values())


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the tensor's own strides if its numbers lie densely, as those of channels_last do."""
    return tuple(torch.empty_like(tensor, device="meta").stride())


class Exchange:
    """One optimizer's gradients. Buckets follow the order of the first backward pass on the first rank."""

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        groups: Sequence[Sequence[int]],
        compression: Any,
        passes: int,
        op: int,
        predivide: float,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self.parameters, self.groups = list(parameters), groups
        self.compression, self.passes, self.op, self.predivide = compression, passes, op, predivide
        self.sparse_as_dense, self.process_set = sparse_as_dense, process_set
        self.channel = process_set.channel
        self.number = len(self.channel.optimizers)
        self.channel.optimizers.append(weakref.ref(self))
        self.overlaps = self.channel is world().channels[0]
        self.group = dist.new_group() if self.overlaps else self.channel.group
        calm()
        numbers = sum(parameter.numel() for parameter in self.parameters)
        self.same = [
            f"{len(self.parameters)} parameters of {numbers} numbers",
            NAMES[op],
            f"gradient_predivide_factor {predivide}",
            getattr(compression, "__name__", str(compression)),
        ]
        self.buckets: list[Bucket] = []
        self.bucket_of: dict[int, Bucket] = {}
        self.sparse: list[int] = []
        self.order: list[int] = []
        self.arranged = False
        self.reset()
        reference = weakref.ref(self)
        for number, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(_hook(reference, number))

    def reset(self) -> None:
        """Prepare for the next step."""
        self.left = [self.passes] * len(self.parameters)
        self.busy = False
        self.step: Step | None = None
        self.sent = 0
        for bucket in self.buckets:
            bucket.reset()

    def arrived(self, number: int) -> None:
        """Take note of a gradient; send the buckets that are complete."""
        with LOCK:
            if not self.left[number]:
                raise AssertionError(MORE_PASSES)
            self.busy = True
            self.left[number] -= 1
            if self.left[number]:
                return
            if not self.arranged:
                self.order.append(number)
            elif self.overlaps and number in self.bucket_of:
                self._begin(None)
                bucket = self.bucket_of[number]
                bucket.missing -= 1
                if not bucket.missing:
                    self._fill(bucket)
                    self._send()

    def _begin(self, own: Any) -> Step:
        if self.step is None:
            self.step = Step(self, own)
            self.channel.submit(self.step)
            self.channel.begin()
        return self.step

    def _gradient(self, number: int) -> torch.Tensor | None:
        gradient = self.parameters[number].grad
        if gradient is not None and gradient.is_sparse:
            if not self.sparse_as_dense:
                name = f"parameter {number}"
                raise ValueError(
                    f"{name} has a sparse gradient now, and had none; what to do: sparse_as_dense=True"
                )
            # The result is sparse again, as Horovod's.
            gradient = gradient.to_dense()
        return gradient

    def _fill(self, bucket: Bucket) -> None:
        bucket.fill({number: self._gradient(number) for number in bucket.numbers}, self.compression.compress)

    def _send(self) -> None:
        while self.sent < len(self.buckets) and self.buckets[self.sent].filled:
            bucket = self.buckets[self.sent]
            if self.op == Average:
                scale(bucket.flat, 1 / self.predivide)
            bucket.work = dist.all_reduce(bucket.flat, REDUCTIONS[self.op], group=self.group, async_op=True)
            self.sent += 1

    def send_rest(self) -> None:
        """Send all buckets that were not."""
        for bucket in self.buckets:
            if not bucket.filled:
                self._fill(bucket)
        self._send()
        if self.step:
            self.step.works = [bucket.work for bucket in self.buckets]

    def arrange(self, owns: list[Any]) -> None:
        """Make the buckets, from what the ranks saw in their first backward pass."""
        first = owns[0][0] if owns else []
        self.sparse = sorted({number for own in owns for number in own[1]})
        missing = [number for number in range(len(self.parameters)) if number not in first]
        order = [number for number in (*first, *missing) if number not in self.sparse]
        tensors, contexts = {}, {}
        for number in order:
            empty = torch.empty_like(self.parameters[number], requires_grad=False)
            tensors[number], contexts[number] = self.compression.compress(empty)
        sizes = {number: tensor.numel() * tensor.element_size() for number, tensor in tensors.items()}
        kinds = {number: (tensor.dtype, tensor.device) for number, tensor in tensors.items()}
        self.buckets = [
            Bucket(numbers, tensors, contexts)
            for numbers in plan(order, sizes, kinds, self.groups, capacity())
        ]
        self.bucket_of = {number: bucket for bucket in self.buckets for number in bucket.numbers}
        self.arranged = True

    def synchronize(self) -> None:
        """Give every parameter the gradient of all ranks."""
        with LOCK:
            step = self._begin(None if self.arranged else [self.order, self._sparse()])
        if self.overlaps:
            if not self.arranged:
                wait(step, world().channels)
            self.send_rest()
        wait(step, world().channels)
        handles = {number: self._sparse_handle(number) for number in self.sparse}
        factor = self.predivide / self.channel.size if self.op == Average else 1.0
        if any(bucket.is_stale() for bucket in self.buckets):
            warnings.warn(CHANGED, stacklevel=4)
        for bucket in self.buckets:
            scale(bucket.flat, factor)
            self._give(bucket)
        for number, handle in handles.items():
            self.parameters[number].grad = handle()
        self.reset()

    def _give(self, bucket: Bucket) -> None:
        """Write the results into the gradients, which the script may keep."""
        gradients, results = [], []
        for number, view in bucket.views.items():
            parameter = self.parameters[number]
            result = self.compression.decompress(view, bucket.contexts[number])
            if parameter.grad is None:
                parameter.grad = result.clone()
            elif parameter.grad.is_sparse:
                parameter.grad = result.to_sparse()
            else:
                gradients.append(parameter.grad.detach())
                results.append(result)
        if gradients:
            torch._foreach_copy_(gradients, results)

    def _sparse(self) -> list[int]:
        gradients = [parameter.grad for parameter in self.parameters]
        kept = [n for n, gradient in enumerate(gradients) if gradient is not None and gradient.is_sparse]
        return [] if self.sparse_as_dense else kept

    def _sparse_handle(self, number: int) -> Any:
        gradient = self.parameters[number].grad
        if gradient is None:
            gradient = torch.zeros_like(self.parameters[number]).to_sparse(1)
        return sparse_allreduce_async(gradient, f"{self.number}.{number}", self.op, self.process_set)

    def stand_in(self) -> list[Any]:
        """Send zeros in a step of the other ranks; return the works."""
        zeros = [torch.zeros_like(bucket.flat) for bucket in self.buckets]
        return [dist.all_reduce(flat, REDUCTIONS[self.op], group=self.group, async_op=True) for flat in zeros]


def _hook(reference: weakref.ref[Exchange], number: int) -> Any:
    def hook(_: Any) -> None:
        exchange = reference()
        if exchange is not None:
            exchange.arrived(number)

    return hook


class _JoinedStep(Step):
    def issue(self, channel: Channel, owns: list[Any]) -> None:
        super().issue(channel, owns)
        self.works = self.exchange.stand_in()


def _stand_in(request: Request) -> Operation:
    return _JoinedStep(world().channels[0].optimizers[request.same[0]](), None)


STAND_INS["step"] = _stand_in
