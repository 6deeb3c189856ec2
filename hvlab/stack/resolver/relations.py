"""Rules on two components: which versions fit together; and one NCCL for all ranks of torch.

Torch, and with it its NCCL, is loaded before Horovod's library, so Horovod's calls reach that NCCL whatever
Horovod was linked with; in a TensorFlow process they reach the installed one. Torch's library names the
folder of its NCCL as RPATH, which the loader searches before LD_LIBRARY_PATH.
Sources: https://github.com/horovod/horovod/issues/2561; `readelf -d` of torch 2.14.1's libtorch_cuda.so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hvlab.base.errors import some
from hvlab.lab.pin_variables import TITLES
from hvlab.stack.resolver import rules, versions
from hvlab.stack.resolver.catalogue import Catalogue, TorchRelease
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.model import (
    ONE_CUDA,
    ONE_NCCL,
    ONE_TORCH_NCCL,
    SAME_TOOLKIT,
    TENSORFLOW_TOOLKIT,
    Candidate,
    Key,
    LabProblem,
    Relation,
    list_versions,
)

# Maximum length of a list.
_FEW = 6


def add(lab: LabProblem) -> None:
    """Add the relations among the lab's components, and those of each group with them and each other."""
    lab.relations += _relate_lab(lab)
    for number, group in enumerate(lab.groups):
        lab.relations += _relate_group(lab, number, group)
    _add_torch_nccl(lab)
    lab.relations = [one for one in lab.relations if {one.left, one.right} <= set(lab.domains)]


def _torch_runs(
    capabilities: tuple[str, ...], architecture: str, *, exact: bool
) -> Callable[[Candidate, Candidate], bool]:
    return lambda torch, cuda: bool(
        rules.torch_fits(torch.data, cuda.version, capabilities, architecture, exact=exact)
    )


def _torch_has_no_code(
    lab: LabProblem, architecture: str, where: str
) -> Callable[[Sequence[Candidate], Sequence[Candidate]], str]:
    def say(torches: Sequence[Candidate], cudas: Sequence[Candidate]) -> str:
        torch = list_versions(torches, lab.catalogue.torch)
        every = len(cudas) >= len(lab.catalogue.cuda)
        cuda = "" if every else f" for CUDA {list_versions(cudas, lab.catalogue.cuda)}"
        on = "" if architecture == "x86_64" else f" on {architecture}"
        return f"torch {torch}{cuda}{on} has no code for {where}"

    return say


def _fits(
    lab: LabProblem, title: str, other: str, limits: str
) -> Callable[[Sequence[Candidate], Sequence[Candidate]], str]:
    """Return the sentence for a release (left or right) whose range excludes the other's version."""

    def say(lefts: Sequence[Candidate], rights: Sequence[Candidate]) -> str:
        ours, theirs = (lefts, rights) if lefts[0].key[0] == title else (rights, lefts)
        ranges = {getattr(candidate.data, limits) for candidate in ours}
        lowest = min((low for low, _ in ranges if low), key=versions.numbers, default="any")
        highest = max((high for _, high in ranges if high), key=versions.numbers, default="any")
        takes = f" ({'it takes' if len(ours) == 1 else 'they take'} {lowest} to {highest})"
        return f"{TITLES[title]} {lab.name(ours)} does not take {TITLES[other]} {lab.name(theirs)}{takes}"

    return say


def _relate_lab(lab: LabProblem) -> Iterable[Relation]:
    for name in lab.frameworks:
        yield Relation(
            ("python", None),
            (name, None),
            lambda python, item: versions.is_within(python.version, item.data.python),
            _fits(lab, name, "python", "python"),
            assumptions=lab.find_pin(name),
        )
        yield Relation(
            (name, None),
            ("horovod", None),
            _horovod_takes(name),
            _fits(lab, "horovod", name, name),
            assumptions=lab.find_pin(name),
        )
    yield Relation(
        ("python", None),
        ("horovod", None),
        lambda python, item: versions.is_within(python.version, item.data.python),
        _fits(lab, "horovod", "python", "python"),
    )


def _horovod_takes(name: str) -> Callable[[Candidate, Candidate], bool]:
    return lambda item, horovod: versions.is_within(item.version, getattr(horovod.data, name))


def _relate_group(lab: LabProblem, number: int, group: HostGroup) -> Iterable[Relation]:
    if "torch" in lab.frameworks:
        yield Relation(
            ("torch", None),
            ("gcc", number),
            lambda torch, gcc: int(gcc.version) >= torch.data.gcc,
            lambda torches, gccs: (
                f"torch {list_versions(torches, lab.catalogue.torch)} needs gcc "
                f"{min(torch.data.gcc for torch in torches)} or newer, not {lab.name(gccs)}"
            ),
            assumptions=lab.find_pin("torch"),
        )
    if not group.gpus:
        return
    yield from _agreements(lab, number, some(group.hosts))
    if "torch" in lab.frameworks and not lab.torch_on_cpu:
        yield from _torch_relations(lab, number, group)
    if "tensorflow" in lab.frameworks:
        yield from _tensorflow_relations(lab, number)
    yield from _cuda_relations(lab, number, group)


def _agreements(lab: LabProblem, number: int, where: str) -> Iterable[Relation]:
    if ("nccl major", None) not in lab.domains:
        return
    yield Relation(
        ("nccl major", None),
        ("nccl", number),
        lambda major, nccl: versions.major(nccl.version) == int(major.version),
        lambda majors, _: f"NCCL {list_versions(majors)} on other hosts: the major has to be the same on all",
    )

    def same(one: Candidate, nccl: Candidate) -> bool:
        return versions.is_prefix(one.version, nccl.version)

    def other(_: Sequence[Candidate], nccls: Sequence[Candidate]) -> str:
        releases = f"NCCL {lab.name(nccls)} on {where} is not the release of the other hosts"
        return f"{releases}: backend nccl needs one on all"

    yield Relation((ONE_NCCL, None), ("nccl", number), same, soft=ONE_NCCL)
    # NCCL compares the releases of all ranks. Source: https://github.com/NVIDIA/nccl, src/init.cc
    for pin in lab.find_pin("backend", "nccl"):
        yield Relation((ONE_NCCL, None), ("nccl", number), same, other, assumptions=(pin,))
    yield Relation(
        ("cuda", number),
        (ONE_NCCL, None),
        lambda *_: True,
        prefer=lambda cuda, one: rules.release_distance(one.data, cuda.version),
        soft=ONE_NCCL,
    )
    yield Relation(
        (ONE_CUDA, None),
        ("cuda", number),
        lambda one, cuda: one.version == versions.minor(cuda.version),
        soft=ONE_CUDA,
    )


def _torch_relations(lab: LabProblem, number: int, group: HostGroup) -> Iterable[Relation]:
    """Yield the relations of torch's wheels to the toolkit and to the GPUs.

    The minor must match if that preference holds, else only the major.
    """

    def say(torches: Sequence[Candidate], cudas: Sequence[Candidate]) -> str:
        torch, cuda = (list_versions(torches, lab.catalogue.torch), list_versions(cudas, lab.catalogue.cuda))
        has = sorted({b for torch in torches for b in torch.data.codes(architecture)}, key=versions.numbers)
        near = f"the nearest it has are {', '.join(versions.nearest(cudas[0].version, has))}"
        wheels = near if len(has) > _FEW else f"it has {', '.join(has) or 'none with CUDA'}"
        on = "" if architecture == "x86_64" else f" on {architecture}"
        return f"torch {torch} has no wheel for CUDA {cuda}{on} ({wheels})"

    torch, cuda, assumed = ("torch", None), ("cuda", number), lab.find_pin("torch")
    # A pinned build must match exactly, not just its major.
    build = next((pin for pin in group.pins if pin.name == "torch" and pin.cuda), None)
    architecture = group.host.architecture
    if architecture != "x86_64":
        assumed = (*assumed, lab.fact("architecture", architecture))
    for exact in (True, False):
        soft = SAME_TOOLKIT if exact and not build else None
        yield Relation(torch, cuda, _torch_is_built(architecture, exact=exact), say, None, assumed, soft)
        each = [[gpu] for gpu in group.gpus]
        for gpus in [*each, list(group.gpus)] if len(each) > 1 else each:
            yield Relation(
                torch,
                cuda,
                _torch_runs(tuple(str(gpu.capability) for gpu in gpus), architecture, exact=exact),
                _torch_has_no_code(lab, architecture, " and ".join(map(lab.where, gpus))),
                assumptions=(*(lab.fact("gpu", gpu.title) for gpu in gpus), *assumed),
                soft=soft,
            )


def _torch_is_built(architecture: str, *, exact: bool) -> Callable[[Candidate, Candidate], bool]:
    return lambda torch, cuda: bool(rules.torch_builds(torch.data, cuda.version, architecture, exact=exact))


def _tensorflow_relations(lab: LabProblem, number: int) -> Iterable[Relation]:
    def other_cuda(items: Sequence[Candidate], cudas: Sequence[Candidate]) -> str:
        of = list_versions(cudas, lab.catalogue.cuda)
        other = f", not for {of}: it" if len(cudas) <= _FEW else ": with another it"
        needs, releases = (
            _list_each(item.data.cuda for item in items),
            list_versions(items, lab.catalogue.tensorflow),
        )
        newer = " (or a newer one of its major)" if any(rules.takes_newer_cuda(i.data) for i in items) else ""
        return f"TensorFlow {releases} is built for CUDA {needs}{newer}{other} would run on the CPU"

    tensorflow, cuda, assumed = ("tensorflow", None), ("cuda", number), lab.find_pin("tensorflow")
    yield Relation(
        tensorflow,
        cuda,
        lambda item, cuda: versions.minor(cuda.version) == item.data.cuda,
        soft=TENSORFLOW_TOOLKIT,
    )
    yield Relation(
        tensorflow,
        cuda,
        lambda item, cuda: rules.tensorflow_loads(item.data, cuda.version),
        other_cuda,
        prefer=lambda _, cuda: versions.numbers(versions.minor(cuda.version)),
        assumptions=assumed,
    )
    yield Relation(
        tensorflow,
        ("cudnn", number),
        lambda item, cudnn: cudnn.version != "none" and rules.tensorflow_takes(item.data, cudnn.version),
        lambda items, cudnns: (
            f"TensorFlow {list_versions(items, lab.catalogue.tensorflow)} needs cuDNN "
            f"{_list_each(item.data.cudnn for item in items)} or newer of its major, not {lab.name(cudnns)}"
        ),
        assumptions=assumed,
    )


def _list_each(releases: Iterable[str]) -> str:
    return ", ".join(sorted({release for release in releases if release}, key=versions.numbers))


def _cuda_relations(lab: LabProblem, number: int, group: HostGroup) -> Iterable[Relation]:
    catalogue, where = lab.catalogue, some(group.hosts)
    cuda: Key = ("cuda", number)

    def too_old(cudas: Sequence[Candidate], drivers: Sequence[Candidate]) -> str:
        needs = min((_floor(c.version, catalogue) for c in cudas), key=versions.numbers)
        cuda, driver = list_versions(cudas, catalogue.cuda), lab.name(drivers)
        return f"driver {driver} on {where} is too old for CUDA {cuda}, which needs {needs} or newer"

    def not_built(cudas: Sequence[Candidate], nccls: Sequence[Candidate]) -> str:
        releases = {nccl.version.partition("-")[0] for nccl in nccls}
        nccl = nccls[0].version if len(nccls) == 1 else versions.spans(releases, catalogue.nccl)
        return f"NCCL {nccl} is not built for CUDA {list_versions(cudas, catalogue.cuda)}"

    yield Relation(
        cuda,
        ("driver", number),
        lambda cuda, driver: rules.support(driver.version, cuda.version, catalogue) < 2,  # noqa: PLR2004
        too_old,
        prefer=lambda cuda, driver: rules.driver_order(driver.version, driver.data, cuda.version, catalogue),
    )
    yield Relation(
        cuda,
        ("gcc", number),
        lambda cuda, gcc: rules.gcc_fits(cuda.data, gcc.version),
        lambda cudas, gccs: (
            f"CUDA {list_versions(cudas, catalogue.cuda)} takes gcc {min(c.data.gcc_min for c in cudas)} to "
            f"{max(c.data.gcc for c in cudas)}, not {lab.name(gccs)} ({where})"
        ),
    )
    yield Relation(
        cuda,
        ("cudnn", number),
        lambda cuda, cudnn: cudnn.data is None or rules.cudnn_serves(cudnn.data, cuda.version),
        lambda cudas, cudnns: (
            f"cuDNN {lab.name(cudnns)} is not made for CUDA {list_versions(cudas, catalogue.cuda)}"
        ),
    )
    yield Relation(
        cuda,
        ("nccl", number),
        lambda cuda, nccl: rules.nccl_serves(nccl.version, nccl.data, cuda.version),
        not_built,
        prefer=lambda cuda, nccl: rules.nccl_distance(nccl.version, cuda.version),
    )


def _floor(cuda: str, catalogue: Catalogue) -> str:
    full = catalogue.cuda[versions.minor(cuda)].driver
    return catalogue.minor_compatibility.get(versions.major(cuda)) or str(full)


@dataclass(frozen=True)
class TorchNccl:
    """The NCCL release included in a torch wheel; empty if unknown."""

    torch: TorchRelease
    nccl: str


def find_bundled_nccl(torch: TorchRelease, cuda: str, group: HostGroup) -> str:
    """Return the NCCL release included in torch's wheel for a toolkit; empty if unknown."""
    builds = rules.torch_fits(torch, cuda, group.capabilities, group.host.architecture, exact=False)
    return torch.nccl.get(builds[0], "") if builds else ""


def _add_torch_nccl(lab: LabProblem) -> None:
    """Add the choice of one NCCL release, included in torch, for all hosts with GPUs."""
    numbers = [number for number, group in enumerate(lab.groups) if group.gpus]
    if len(numbers) < 2 or "torch" not in lab.frameworks or lab.torch_on_cpu:  # noqa: PLR2004
        return
    pairs = [
        TorchNccl(candidate.data, nccl)
        for candidate in lab.domains["torch", None]
        for nccl in sorted(set(candidate.data.nccl.values()) or {""}, key=versions.numbers, reverse=True)
    ]
    lab.add_domain((ONE_TORCH_NCCL, None), [(f"{pair.torch.version} {pair.nccl}", pair) for pair in pairs])
    lab.relations += _torch_nccl_relations(lab, numbers)


def _torch_nccl_relations(lab: LabProblem, numbers: Iterable[int]) -> Iterable[Relation]:
    one = (ONE_TORCH_NCCL, None)
    yield Relation(
        ("torch", None),
        one,
        lambda torch, pair: bool(torch.version == pair.data.torch.version),
        lambda torches, _: (
            f"torch {list_versions(torches)} brings NCCL "
            f"{_list_each(nccl for torch in torches for nccl in torch.data.nccl.values())}"
        ),
    )
    rules_of_one = [(None, (pin,)) for pin in lab.find_pin("backend", "nccl")]
    for number in numbers:
        for soft, assumptions in [(ONE_TORCH_NCCL, ()), *rules_of_one]:
            yield _relate_same(lab, number, soft=soft, assumptions=assumptions)


def _relate_same(lab: LabProblem, number: int, *, soft: str | None, assumptions: tuple[int, ...]) -> Relation:
    group = lab.groups[number]

    def allowed(pair: Candidate, cuda: Candidate) -> bool:
        return find_bundled_nccl(pair.data.torch, cuda.version, group) in (pair.data.nccl, "")

    def say(pairs: Sequence[Candidate], cudas: Sequence[Candidate]) -> str:
        torches = ", ".join(dict.fromkeys(pair.data.torch.version for pair in pairs))
        cuda, one = lab.name(cudas), _list_each(pair.data.nccl for pair in pairs)
        return (
            f"torch {torches} brings another NCCL for CUDA {cuda} on {some(group.hosts)} "
            f"than {one} of the other hosts: backend nccl needs one on all"
        )

    return Relation((ONE_TORCH_NCCL, None), ("cuda", number), allowed, say, None, assumptions, soft)
