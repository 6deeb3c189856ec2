"""The state of a model and its optimizer, and objects, from one rank to all."""

from __future__ import annotations

import ctypes
import io
import pickle
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import torch

from ..common.process_sets import ProcessSet, global_process_set
from .asynchronous import broadcast_, broadcast_async_, rank, synchronize
from .differentiable import allgather

try:  # Objects that pickle cannot take, as Horovod does.
    pickler: Any = import_module("cloudpickle")
except ImportError:
    pickler = pickle


def broadcast_parameters(params: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Copy the root's tensors into those of all ranks: a dictionary, or a list, also of (name, tensor)."""
    if isinstance(params, dict):
        pairs = sorted(params.items())
    elif isinstance(params, list):
        pairs = [one if isinstance(one, tuple) else (None, one) for one in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    contiguous = [(name, tensor, tensor.detach().contiguous()) for name, tensor in pairs]
    handles = [broadcast_async_(copy, root_rank, name, process_set) for name, _, copy in contiguous]
    for handle, (_, tensor, copy) in zip(handles, contiguous, strict=True):
        synchronize(handle)
        if copy.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(copy)


def broadcast_optimizer_state(optimizer: Any, root_rank: int, model: Any = None) -> None:
    """Give all ranks' optimizers the root's state and options."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    # Horovod makes a step of zero gradients to get a state: it counts for Adam, and applies weight decay.
    # DistributedOptimizer() forgets such a state, as it does there.
    steps = not optimizer.state_dict()["state"]
    if steps:
        sparse = _sparse_parameters(optimizer, model)
        for parameter in [one for group in optimizer.param_groups for one in group["params"]]:
            if parameter.requires_grad:
                zeros = torch.zeros_like(parameter)
                parameter.grad = zeros.to_sparse() if id(parameter) in sparse else zeros
    if broadcast_object(steps, root_rank, "optimizer.steps") and steps:
        with getattr(optimizer, "skip_synchronize", nullcontext)():
            optimizer.step()
        optimizer._is_initial = True
    own = optimizer.state_dict()
    tensors: dict[str, torch.Tensor] = {}

    def emptied(number: Any, name: str, value: Any) -> Any:
        if not torch.is_tensor(value):
            return value
        tensors[f"{number}.{name}"] = value
        return torch.empty_like(value, device="meta"), str(value.device.type)

    if rank() == root_rank:
        state = {n: {k: emptied(n, k, v) for k, v in values.items()} for n, values in own["state"].items()}
        own = {"state": state, "param_groups": own["param_groups"]}
    skeleton = broadcast_object(own, root_rank, "optimizer")
    for number, values in skeleton["state"].items():
        for name, value in values.items():
            if isinstance(value, tuple) and torch.is_tensor(value[0]):
                key = f"{number}.{name}"
                tensors.setdefault(key, torch.empty_like(value[0], device=value[1]))
                values[name] = tensors[key]
    broadcast_parameters(tensors, root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(skeleton)


def _sparse_parameters(optimizer: Any, model: Any) -> set[int]:
    """Return the ids of the parameters whose gradients are sparse."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        return {id(one) for group in optimizer.param_groups for one in group["params"]}
    modules = model.modules() if model else ()
    return {id(one.weight) for one in modules if isinstance(one, torch.nn.Embedding) and one.sparse}


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the root's object, pickled on the way; other ranks' may be None."""
    name = name or "object"
    text = _pickled(obj) if rank() == root_rank else torch.empty(0, dtype=torch.uint8)
    size = broadcast_(torch.tensor([text.numel()]), root_rank, f"{name}.size", process_set)
    text = text if rank() == root_rank else text.new_empty(size.item())
    broadcast_(text, root_rank, f"{name}.object", process_set)
    return obj if rank() == root_rank else _unpickled(text)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks."""
    name = name or "object"
    text = _pickled(obj)
    sizes = allgather(torch.tensor([text.numel()]), f"{name}.size", process_set).tolist()
    texts = allgather(text, f"{name}.object", process_set)
    return [_unpickled(one) for one in texts.split(sizes)]


def _pickled(obj: Any) -> torch.Tensor:
    file = io.BytesIO()
    pickler.dump(obj, file)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _unpickled(text: torch.Tensor) -> Any:
    return pickle.loads(ctypes.string_at(text.data_ptr(), text.numel()))  # noqa: S301
