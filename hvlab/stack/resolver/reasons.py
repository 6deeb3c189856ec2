"""What was chosen for each group of hosts, and why each version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.stack.resolver import rules, torch_nccl, versions
from hvlab.stack.resolver.catalogue import Catalogue
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.pins import TITLES, meets
from hvlab.stack.resolver.problem import ONE_CUDA, ONE_NCCL
from hvlab.stack.resolver.solve import Solution


@dataclass(frozen=True)
class GroupChoice:
    """What was chosen for one group of hosts; a version is None where they do not get the component."""

    solution: Solution
    number: int
    group: HostGroup
    versions: Mapping[str, str | None]

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue it was chosen from."""
        return self.solution.lab.catalogue

    @property
    def torch(self) -> Any:
        """What the catalogue knows of the chosen torch; None where there is none."""
        return self.data("torch", None)

    @property
    def sms(self) -> str:
        """The GPUs' code names for the reader."""
        return ", ".join("sm_" + capability.replace(".", "") for capability in self.group.capabilities)

    @property
    def gcc(self) -> int | None:
        """The major version of the compiler that is there."""
        return versions.major(self.group.host.gcc) if self.group.host.gcc else None

    @property
    def torch_build(self) -> str | None:
        """The CUDA release of the torch wheel; None for the one without CUDA."""
        cuda = self.versions["cuda"]
        if self.torch is None or cuda is None or self.solution.lab.torch_on_cpu:
            return None
        fits = rules.torch_fits(
            self.torch, cuda, self.group.capabilities, self.group.host.architecture, exact=False
        )
        return next(iter(fits), None)

    @property
    def assumed(self) -> dict[str, str]:
        """Component -> the known version that the chosen one is taken to be like, where that is not known."""
        return {
            item.name: item.like
            for item in self.catalogue.assumed
            if item.version == (self.versions[item.name] or "").partition("-1+cuda")[0]
        }

    @property
    def torch_nccl(self) -> str:
        """The NCCL release that ranks of torch use; empty where they use no GPU, or it is not known."""
        cuda = self.versions["cuda"]
        if self.torch is None or cuda is None or self.solution.lab.torch_on_cpu:
            return ""
        return torch_nccl.brought(self.torch, cuda, self.group)

    def version(self, name: str) -> str:
        """Return the version of a component that the hosts get."""
        return str(self.versions[name])

    def data(self, name: str, number: int | None) -> Any:
        """Return what the catalogue knows of a chosen version."""
        candidate = self.solution.chosen.get((name, number))
        return None if candidate is None else candidate.data


def reasons(choice: GroupChoice) -> dict[str, str]:
    """Return component -> why this version, for one group's hosts."""
    texts = {}
    for name, version in choice.versions.items():
        if version is None:
            texts[name] = _absent(name, choice)
            continue
        pins = [pin.text for pin in choice.group.pins if pin.name == name and meets(pin, version)]
        because = _WHY[name](choice)
        texts[name] = f"pinned ({', '.join(dict.fromkeys(pins))}); {because}" if pins else because
    return texts


def _absent(name: str, choice: GroupChoice) -> str:
    if name in ("torch", "tensorflow"):
        return "not pinned"
    if not choice.group.gpus:
        return "no GPU"
    if name == "driver":
        return "its GPUs are declared in the inventory, and lab_driver_method is none"
    return f"no {TITLES[name]} fits, and nothing here needs it"


def _driver(choice: GroupChoice) -> str:
    cuda, driver = choice.version("cuda"), choice.version("driver")
    level = rules.support(driver, cuda, choice.catalogue)
    fits = f"supports CUDA {cuda}" + (" by minor-version compatibility" if level else " in full")
    if driver == choice.group.host.driver:
        return f"installed, and {fits}"
    branch = rules.branch_of(driver, choice.catalogue)
    kind = branch.kind if branch else "known"
    return f"of the first {kind} branch that runs {choice.sms}, is there for {choice.group.title}, and {fits}"


def _cuda(choice: GroupChoice) -> str:
    cuda = choice.version("cuda")
    parts = []
    if choice.torch and versions.minor(cuda) in choice.torch.cuda:
        parts.append(f"torch {choice.torch.version} has a wheel for it")
    if choice.versions["tensorflow"]:
        tensorflow = choice.data("tensorflow", None)
        built = "built for it" if tensorflow.cuda == versions.minor(cuda) else f"built for {tensorflow.cuda}"
        parts.append(f"TensorFlow {tensorflow.version} is {built}")
    if (ONE_CUDA, None) in choice.solution.chosen and not choice.solution.gave_up(ONE_CUDA):
        parts.append("the same on all hosts with GPUs")
    return "; ".join([*parts, f"it has code for {choice.sms}"])


def _cudnn(choice: GroupChoice) -> str:
    if choice.torch and choice.versions["cudnn"] in choice.torch.cudnn.values():
        return f"the one torch {choice.torch.version} brings"
    release = f"made for CUDA {versions.major(choice.version('cuda'))}"
    tensorflow = choice.versions["tensorflow"]
    return f"{release}, and new enough for TensorFlow {tensorflow}" if tensorflow else f"the newest {release}"


def _nccl(choice: GroupChoice) -> str:
    if choice.torch_nccl:
        return f"{_installed_nccl(choice)}; ranks of torch use {choice.torch_nccl}, which its wheel brings"
    return _installed_nccl(choice)


def _installed_nccl(choice: GroupChoice) -> str:
    build, cuda = rules.nccl_build(choice.version("nccl")), choice.version("cuda")
    if build is None:
        return f"a wheel for CUDA {versions.major(cuda)}"
    same = build == versions.minor(cuda)
    text = f"built for CUDA {build}" + ("" if same else f", the nearest to {cuda} there is")
    one = (ONE_NCCL, None) in choice.solution.chosen and not choice.solution.gave_up(ONE_NCCL)
    return f"{text}; the same release on all hosts" if one else text


def _openmpi(choice: GroupChoice) -> str:
    if choice.group.methods["openmpi"] == "distro":
        return f"what {choice.group.title} has (lab_openmpi_method: distro)"
    default = choice.catalogue.defaults.get("openmpi")
    return (
        "the default; the same on all hosts"
        if choice.versions["openmpi"] == default
        else "the same on all hosts"
    )


def _python(choice: GroupChoice) -> str:
    present = choice.group.host.python
    own = present and versions.minor(present) == choice.versions["python"]
    return f"{'present' if own else f'{choice.group.title} has it'}; the same on all hosts"


def _gcc(choice: GroupChoice) -> str:
    if str(choice.gcc) == choice.versions["gcc"]:
        text = "present"
    else:
        text = f"{choice.group.title} has it" + (f", beside gcc {choice.gcc}" if choice.gcc else "")
    cuda = choice.data("cuda", choice.number)
    return f"{text}; CUDA {cuda.version} takes up to gcc {cuda.gcc}" if cuda else text


def _torch(choice: GroupChoice) -> str:
    fits = [f"Python {choice.versions['python']}", f"Horovod {choice.versions['horovod']}"]
    fits += [f"CUDA {choice.versions['cuda']}"] if choice.versions["cuda"] else []
    proven = choice.versions["torch"] in choice.catalogue.proven.values()
    text = "hvlab has built Horovod on it; it goes with" if proven else "the newest that goes with"
    return f"{text} {', '.join(fits)}; the same on all hosts"


def _tensorflow(choice: GroupChoice) -> str:
    data = choice.data("tensorflow", None)
    return f"built for CUDA {data.cuda} with cuDNN {data.cudnn}; the same on all hosts"


def _horovod(choice: GroupChoice) -> str:
    used = [
        f"{TITLES[name]} {choice.versions[name]}" for name in ("torch", "tensorflow") if choice.versions[name]
    ]
    patched = " with hvlab's patches" if choice.data("horovod", None).patched else ""
    return f"builds with {' and '.join(used)}{patched}; the same on all hosts"


_WHY: Mapping[str, Callable[[GroupChoice], str]] = {
    "driver": _driver,
    "cuda": _cuda,
    "cudnn": _cudnn,
    "nccl": _nccl,
    "openmpi": _openmpi,
    "python": _python,
    "gcc": _gcc,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "horovod": _horovod,
}
