"""An optimizer whose steps use the gradients of all ranks."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from ..common.buckets import split
from ..common.process_sets import ProcessSet, global_process_set
from .asynchronous import ADASUM, barrier, size
from .compression import Compression
from .exchange import Exchange
from .operations import Adasum, Average

TWICE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "The gradients are averaged twice."
)


class _Distributed(torch.optim.Optimizer):
    """The methods that DistributedOptimizer puts before those of the optimizer's own class."""

    _exchanges: list[Exchange]
    _make_exchange: Any
    _parameter_names: dict[Any, str]
    _synchronized = False
    _synchronizes = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Average after this number of backward passes."""
        for exchange in self._exchanges:
            exchange.passes = passes
            exchange.reset()

    def synchronize(self) -> None:
        """Give every parameter the gradient of all ranks."""
        for exchange in self._exchanges:
            exchange.synchronize()
        if self._exchanges and (late := self._late_parameters()):
            passes = self._exchanges[0].passes
            self._exchanges.append(self._make_exchange(late, [], passes=passes))
            self._exchanges[-1].synchronize()
        self._synchronized = True

    def _late_parameters(self) -> list[Any]:
        """Return, once, those of groups added since the optimizer was wrapped, and those frozen then."""
        owned = [parameter for group in self.param_groups for parameter in group["params"]]
        late = [one for one in owned if one.requires_grad and one not in self._parameter_names]
        if late:
            known = len(self._parameter_names)
            self._parameter_names |= {one: f"parameter.{known + n:09}" for n, one in enumerate(late)}
            # All ranks have them: a group is about to be made.
            barrier(self._exchanges[0].process_set, f"{len(late)} more parameters")
        return late

    @property
    def _is_busy(self) -> bool:
        return any(exchange.busy for exchange in self._exchanges)

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within, step() takes the gradients as they are."""
        self._synchronizes = False
        try:
            yield
        finally:
            self._synchronizes = True

    def step(self, closure: Any = None) -> Any:
        """Average the gradients, and update the parameters. Those of a closure are averaged each time."""
        if self._synchronizes:
            if self._synchronized:
                warnings.warn(TWICE, stacklevel=2)
            if closure is None or self._is_busy:
                self.synchronize()
            closure = closure and self._averaged(closure)
        self._synchronized = False
        return super().step(closure)

    def _averaged(self, closure: Any) -> Any:
        def averaged() -> Any:
            loss = closure()
            if self._is_busy:
                self.synchronize()
                self._synchronized = False
            return loss

        return averaged

    def zero_grad(self, *arguments: Any, **options: Any) -> None:
        """Reset the gradients, but none that is on its way."""
        if self._is_busy:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        super().zero_grad(*arguments, **options)

    def load_state_dict(self, *arguments: Any, **options: Any) -> None:
        """Load a state; a step under way is forgotten."""
        for exchange in self._exchanges:
            if not exchange.step:
                exchange.reset()
        self._synchronized = False
        super().load_state_dict(*arguments, **options)


def DistributedOptimizer(
    optimizer: Any,
    named_parameters: Any = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the optimizer with steps that average gradients over all ranks; options as Horovod's.

    Raises ValueError for options that contradict each other, NotImplementedError for Adasum.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if op == Adasum and size() > 1:
        raise NotImplementedError(ADASUM)
    if num_groups:
        warnings.warn("`num_groups` is replaced by `groups`", DeprecationWarning, stacklevel=2)
    names = _names(optimizer, named_parameters)
    wanted = groups if groups is not None else num_groups or None
    members = _groups(wanted, names)
    kind: Any = type(type(optimizer).__name__, (_Distributed, type(optimizer)), {})
    wrapped = kind.__new__(kind)
    # A scheduler may have put its own ``step`` before the method.
    wrapped.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
    if wrapped.__dict__.pop("_is_initial", False):
        wrapped.state = defaultdict(dict)
    wrapped._exchanges = []
    wrapped._parameter_names = {parameter: name for name, parameter in names.items()}
    if size() > 1 and process_set.included():
        wrapped._make_exchange = partial(
            Exchange,
            compression=compression,
            op=op,
            predivide=gradient_predivide_factor,
            sparse_as_dense=sparse_as_dense,
            process_set=process_set,
        )
        first = wrapped._make_exchange(list(names.values()), members, passes=backward_passes_per_step)
        wrapped._exchanges.append(first)
    return wrapped


def _names(optimizer: Any, named_parameters: Any) -> dict[str, Any]:
    """Return the optimizer's parameters that have gradients by name, in the order of names."""
    owned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named_parameters is None:
        named = [(f"parameter.{number:09}", parameter) for number, parameter in enumerate(owned)]
    else:
        named = list(named_parameters)
    if any(not isinstance(one, tuple) for one in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    twice = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if twice:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}"
        )
    known = {id(parameter): name for name, parameter in named}
    if any(id(parameter) not in known for parameter in owned):
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named: "
            f"{sum(id(parameter) not in known for parameter in owned)} of {len(owned)}"
        )
    return dict(sorted((known[id(one)], one) for one in owned if one.requires_grad))


def _groups(wanted: Any, names: dict[str, Any]) -> list[Any]:
    if wanted is None:
        return []
    if not isinstance(wanted, list):
        if not isinstance(wanted, int) or wanted <= 0:
            raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
        return list(split(range(len(names)), wanted))
    numbers = {id(parameter): number for number, parameter in enumerate(names.values())}
    flat = [tensor for group in wanted for tensor in group]
    if any(not isinstance(tensor, torch.Tensor) for tensor in flat):
        raise ValueError("groups must consist of torch.Tensor.")
    if len({id(tensor) for tensor in flat}) < len(flat):
        raise ValueError("A parameter can only appear once in groups.")
    return [[numbers[id(tensor)] for tensor in group if id(tensor) in numbers] for group in wanted]
