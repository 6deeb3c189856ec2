"""The constraint problem of a lab: its groups of hosts, and the pins and facts that can be in conflict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hvlab.base.errors import some
from hvlab.stack.resolver.catalogue import Catalogue
from hvlab.stack.resolver.facts import Gpu
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.model import Candidate, ConstraintProblem, listed
from hvlab.stack.resolver.pins import FRAMEWORKS, Pin

# Preferences, besides that of keeping an installed driver.
SAME_TOOLKIT, ONE_CUDA, ONE_NCCL = "toolkit", "one cuda", "one nccl"
TENSORFLOW_TOOLKIT = "toolkit of tensorflow"
ONE_TORCH_NCCL = "one nccl of torch"
PIN, FACT = "pin", "fact"


def keep_driver(number: int) -> str:
    """Return the preference that a group keeps its installed driver."""
    return f"keep driver {number}"


@dataclass(kw_only=True)
class LabProblem(ConstraintProblem):
    """A constraint problem with the lab that it is of. Its assumptions are the lab's pins and facts."""

    groups: tuple[HostGroup, ...]
    catalogue: Catalogue
    _facts: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Assume every pin, then every fact, each once for all groups that share it."""
        for pin, numbers in self.pins.items():
            if pin.value:
                everyone = len(numbers) == len(self.groups)
                text = pin.text if everyone else f"{pin.text} ({some(self.hosts(numbers))})"
                self.assume(PIN, pin.name, pin.value, text, numbers)
        sharing: dict[tuple[str, str], list[int]] = {}
        for number, group in enumerate(self.groups):
            for fact in group.facts:
                sharing.setdefault(fact, []).append(number)
        for (kind, value), groups in sharing.items():
            text = f"{value} on {some(self.hosts(groups))}"
            self._facts[kind, value] = self.assume(FACT, kind, value, text, groups)

    @property
    def pins(self) -> dict[Pin, frozenset[int]]:
        """Every pin with the numbers of the groups it is for."""
        numbers: dict[Pin, set[int]] = {}
        for number, group in enumerate(self.groups):
            for pin in group.pins:
                numbers.setdefault(pin, set()).add(number)
        return {pin: frozenset(those) for pin, those in numbers.items()}

    def hosts(self, numbers: Iterable[int]) -> list[str]:
        """Return the hosts of groups."""
        return [host for number in sorted(numbers) for host in self.groups[number].hosts]

    def listed(self, candidates: Sequence[Candidate]) -> str:
        """Return candidates for the reader, neighbours in their domain as a span."""
        return listed(candidates, [candidate.version for candidate in self.domains[candidates[0].key]])

    def fact(self, kind: str, value: str) -> int:
        """Return the assumption of a fact."""
        return self._facts[kind, value]

    def sharing(self, kind: str, value: str) -> str:
        """Return the hosts that share a fact, for the reader."""
        return some(self.hosts(self.assumptions[self.fact(kind, value)].groups))

    def where(self, gpu: Gpu) -> str:
        """Return a GPU with its hosts, for the reader: sm_52 (Tesla M40 on n3)."""
        return f"{gpu.sm} ({gpu.name} on {self.sharing('gpu', gpu.title)})"

    def pinned(self, name: str, value: str | None = None) -> tuple[int, ...]:
        """Return the first pin of a component (to this value) as the assumption of a rule; else nothing."""
        numbers = [
            item.number
            for item in self.assumptions
            if item.kind == PIN and item.name == name and value in (None, item.value)
        ]
        return tuple(numbers[:1])

    @property
    def frameworks(self) -> list[str]:
        """The frameworks to install: torch unless only TensorFlow is pinned."""
        pinned = {pin.name for pin in self.pins}
        return [name for name in FRAMEWORKS if name in pinned] or ["torch"]

    @property
    def torch_on_cpu(self) -> bool:
        """Whether torch's build without CUDA is pinned."""
        return any(pin.build == "cpu" for pin in self.pins)

    @property
    def preferences(self) -> list[str]:
        """What the lab would rather have, the most important first; a search gives up as few as it can."""
        gpus = [number for number, group in enumerate(self.groups) if group.gpus]
        kept = [keep_driver(number) for number in reversed(gpus) if self.groups[number].host.driver]
        toolkit = [SAME_TOOLKIT] if gpus and "torch" in self.frameworks and not self.torch_on_cpu else []
        torch_nccl = [ONE_TORCH_NCCL] if toolkit else []
        toolkit = [TENSORFLOW_TOOLKIT, *toolkit] if gpus and "tensorflow" in self.frameworks else toolkit
        return [*kept, *toolkit, *([ONE_CUDA, *torch_nccl, ONE_NCCL] if len(gpus) > 1 else [])]
