"""The NCCL that ranks of torch really use: the one its wheel brings.

Torch is imported before Horovod's library, and its NCCL is loaded with it, so Horovod's calls end there
whatever Horovod was linked with; in a process of TensorFlow they end in the installed one. Torch's library
names the folder of its NCCL as RPATH, which the loader searches before LD_LIBRARY_PATH.
Sources: https://github.com/horovod/horovod/issues/2561; `readelf -d` of torch 2.14.1's libtorch_cuda.so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hvlab.base.errors import some
from hvlab.stack.resolver import rules, versions
from hvlab.stack.resolver.catalogue import TorchRelease
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.model import Candidate, Relation, listed
from hvlab.stack.resolver.problem import ONE_TORCH_NCCL, LabProblem


@dataclass(frozen=True)
class TorchNccl:
    """An NCCL release that a wheel of a torch release brings; empty where that is not known."""

    torch: TorchRelease
    nccl: str


def brought(torch: TorchRelease, cuda: str, group: HostGroup) -> str:
    """Return the NCCL release that torch's wheel for a toolkit brings; empty where that is not known."""
    builds = rules.torch_fits(torch, cuda, group.capabilities, group.host.architecture, exact=False)
    return torch.nccl.get(builds[0], "") if builds else ""


def add(lab: LabProblem) -> None:
    """Add the choice of one NCCL release that torch brings on all hosts with GPUs."""
    numbers = [number for number, group in enumerate(lab.groups) if group.gpus]
    if len(numbers) < 2 or "torch" not in lab.frameworks or lab.torch_on_cpu:  # noqa: PLR2004
        return
    pairs = [
        TorchNccl(candidate.data, nccl)
        for candidate in lab.domains["torch", None]
        for nccl in sorted(set(candidate.data.nccl.values()) or {""}, key=versions.numbers, reverse=True)
    ]
    lab.domain((ONE_TORCH_NCCL, None), [(f"{pair.torch.version} {pair.nccl}", pair) for pair in pairs])
    lab.relations += _relations(lab, numbers)


def _relations(lab: LabProblem, numbers: Iterable[int]) -> Iterable[Relation]:
    one = (ONE_TORCH_NCCL, None)
    yield Relation(
        ("torch", None),
        one,
        lambda torch, pair: bool(torch.version == pair.data.torch.version),
        lambda torches, _: (
            f"torch {listed(torches)} brings NCCL {_each(c.data.nccl.values() for c in torches)}"
        ),
    )
    rules_of_one = [(None, (pin,)) for pin in lab.pinned("backend", "nccl")]
    for number in numbers:
        for soft, assumptions in [(ONE_TORCH_NCCL, ()), *rules_of_one]:
            yield _same(lab, number, soft=soft, assumptions=assumptions)


def _same(lab: LabProblem, number: int, *, soft: str | None, assumptions: tuple[int, ...]) -> Relation:
    group = lab.groups[number]

    def allowed(pair: Candidate, cuda: Candidate) -> bool:
        return brought(pair.data.torch, cuda.version, group) in (pair.data.nccl, "")

    def say(pairs: Sequence[Candidate], cudas: Sequence[Candidate]) -> str:
        torches = ", ".join(dict.fromkeys(pair.data.torch.version for pair in pairs))
        cuda, one = lab.listed(cudas), _each([pair.data.nccl] for pair in pairs)
        return (
            f"torch {torches} brings another NCCL for CUDA {cuda} on {some(group.hosts)} "
            f"than {one} of the other hosts: backend nccl needs one on all"
        )

    return Relation((ONE_TORCH_NCCL, None), ("cuda", number), allowed, say, None, assumptions, soft)


def _each(releases: Iterable[Iterable[str]]) -> str:
    """Return releases for the reader."""
    return ", ".join(sorted({name for some in releases for name in some if name}, key=versions.numbers))
