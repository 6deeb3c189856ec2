"""What components may be together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hvlab.resolver import domains, rules, versions
from hvlab.resolver.built import ONE_CUDA, ONE_NCCL, SAME_TOOLKIT, Built
from hvlab.resolver.entries import Catalogue
from hvlab.resolver.lab import Group, names
from hvlab.resolver.limits import Facts, among, told
from hvlab.resolver.model import Candidate, Key, Relation
from hvlab.resolver.pins import TITLES
from hvlab.resolver.rules import listed

# Longer lists are cut.
_FEW = 6


def _torch_runs(
    capabilities: tuple[str, ...], architecture: str, *, exact: bool
) -> Callable[[Candidate, Candidate], bool]:
    return lambda torch, cuda: bool(
        rules.torch_fits(torch.data, cuda.version, capabilities, architecture, exact=exact)
    )


def _torch_has_no_code(
    made: Built, architecture: str, where: str
) -> Callable[[Sequence[Candidate], Sequence[Candidate]], str]:
    def say(torches: Sequence[Candidate], cudas: Sequence[Candidate]) -> str:
        torch = listed(torches, made.catalogue.torch)
        every = len(cudas) >= len(made.catalogue.cuda)
        cuda = "" if every else f" for CUDA {listed(cudas, made.catalogue.cuda)}"
        on = "" if architecture == "x86_64" else f" on {architecture}"
        return f"torch {torch}{cuda}{on} has no code for {where}"

    return say


def _fits(
    made: Built, title: str, other: str, limits: str
) -> Callable[[Sequence[Candidate], Sequence[Candidate]], str]:
    """Return the sentence for a release (left or right) whose range does not hold the other's version."""

    def say(lefts: Sequence[Candidate], rights: Sequence[Candidate]) -> str:
        ours, theirs = (lefts, rights) if lefts[0].key[0] == title else (rights, lefts)
        ranges = {getattr(candidate.data, limits) for candidate in ours}
        lowest = min((low for low, _ in ranges if low), key=versions.numbers, default="any")
        highest = max((high for _, high in ranges if high), key=versions.numbers, default="any")
        takes = f" ({'it takes' if len(ours) == 1 else 'they take'} {lowest} to {highest})"
        told = f"{TITLES[title]} {among(made, ours)} does not take {TITLES[other]}"
        return f"{told} {among(made, theirs)}{takes}"

    return say


def of_lab(made: Built) -> Iterable[Relation]:
    """Yield how the components of the whole lab go together."""
    for name in made.frameworks:
        yield Relation(
            ("python", None),
            (name, None),
            lambda python, item: versions.within(python.version, item.data.python),
            _fits(made, name, "python", "python"),
            assumptions=made.wished(name),
        )
        yield Relation(
            (name, None),
            ("horovod", None),
            _horovod_takes(name),
            _fits(made, "horovod", name, name),
            assumptions=made.wished(name),
        )
    yield Relation(
        ("python", None),
        ("horovod", None),
        lambda python, item: versions.within(python.version, item.data.python),
        _fits(made, "horovod", "python", "python"),
    )


def _horovod_takes(name: str) -> Callable[[Candidate, Candidate], bool]:
    return lambda item, horovod: versions.within(item.version, getattr(horovod.data, name))


def of_pair(made: Built, facts: Facts, number: int, group: Group) -> Iterable[Relation]:
    """Yield how the components of one group's hosts go together, and with those of the lab."""
    if "torch" in made.frameworks:
        yield Relation(
            ("torch", None),
            ("gcc", number),
            lambda torch, gcc: int(gcc.version) >= torch.data.gcc,
            lambda torches, gccs: (
                f"torch {listed(torches, made.catalogue.torch)} needs gcc "
                f"{min(torch.data.gcc for torch in torches)} or newer, not {among(made, gccs)}"
            ),
            assumptions=made.wished("torch"),
        )
    if not group.gpus:
        return
    yield from _agreements(made, number, names(group.hosts))
    if "torch" in made.frameworks and not made.torch_on_cpu:
        yield from _torch_relations(made, facts, number, group)
    if "tensorflow" in made.frameworks:
        yield from _tensorflow_relations(made, number)
    yield from _cuda_relations(made, number, group)


def _agreements(made: Built, number: int, where: str) -> Iterable[Relation]:
    if ("nccl major", None) not in made.problem.domains:
        return
    yield Relation(
        ("nccl major", None),
        ("nccl", number),
        lambda major, nccl: versions.major(nccl.version) == int(major.version),
        lambda majors, _: f"NCCL {listed(majors)} on other hosts: the major has to be the same on all",
    )
    yield Relation(
        (ONE_NCCL, None),
        ("nccl", number),
        lambda one, nccl: versions.prefix(one.version, nccl.version),
        soft=ONE_NCCL,
    )
    # NCCL compares the releases of all ranks. Source: https://github.com/NVIDIA/nccl, src/init.cc
    for wish in made.wished("backend", "nccl"):
        yield Relation(
            (ONE_NCCL, None),
            ("nccl", number),
            lambda one, nccl: versions.prefix(one.version, nccl.version),
            lambda _, nccls: (
                f"NCCL {among(made, nccls)} on {where} is not the release of the other hosts: "
                "backend nccl needs one on all"
            ),
            assumptions=(wish,),
        )
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


def _torch_relations(made: Built, facts: Facts, number: int, group: Group) -> Iterable[Relation]:
    """Yield that a wheel is made for the toolkit, and that it has code for the GPUs.

    Of the same minor where that is a preference that holds, else of the same major.
    """

    def say(torches: Sequence[Candidate], cudas: Sequence[Candidate]) -> str:
        torch, cuda = listed(torches, made.catalogue.torch), listed(cudas, made.catalogue.cuda)
        has = sorted({b for torch in torches for b in torch.data.codes(architecture)}, key=versions.numbers)
        near = f"the nearest it has are {', '.join(versions.nearest(cudas[0].version, has))}"
        told = near if len(has) > _FEW else f"it has {', '.join(has) or 'none with CUDA'}"
        on = "" if architecture == "x86_64" else f" on {architecture}"
        return f"torch {torch} has no wheel for CUDA {cuda}{on} ({told})"

    torch, cuda, wished = ("torch", None), ("cuda", number), made.wished("torch")
    architecture = group.host.architecture
    if architecture != "x86_64":
        wished = (*wished, facts.number("architecture", architecture))
    for exact in (True, False):
        soft = SAME_TOOLKIT if exact else None
        yield Relation(torch, cuda, _torch_is_built(architecture, exact=exact), say, None, wished, soft)
        each = [[gpu] for gpu in group.gpus]
        for gpus in [*each, list(group.gpus)] if len(each) > 1 else each:
            where = [f"{gpu.sm} {rules.told_gpu(gpu, facts.hosts('gpu', told(gpu)))}" for gpu in gpus]
            yield Relation(
                torch,
                cuda,
                _torch_runs(tuple(str(gpu.capability) for gpu in gpus), architecture, exact=exact),
                _torch_has_no_code(made, architecture, " and ".join(where)),
                assumptions=(*(facts.number("gpu", told(gpu)) for gpu in gpus), *wished),
                soft=soft,
            )


def _torch_is_built(architecture: str, *, exact: bool) -> Callable[[Candidate, Candidate], bool]:
    return lambda torch, cuda: bool(rules.torch_builds(torch.data, cuda.version, architecture, exact=exact))


def _tensorflow_relations(made: Built, number: int) -> Iterable[Relation]:
    def other_cuda(items: Sequence[Candidate], cudas: Sequence[Candidate]) -> str:
        of = listed(cudas, made.catalogue.cuda)
        other = f", not for {of}: it" if len(cudas) <= _FEW else ": with another it"
        needs, told = _each(item.data.cuda for item in items), listed(items, made.catalogue.tensorflow)
        return f"TensorFlow {told} is built for CUDA {needs}{other} would run on the CPU"

    yield Relation(
        ("tensorflow", None),
        ("cuda", number),
        lambda item, cuda: versions.minor(cuda.version) == item.data.cuda,
        other_cuda,
        assumptions=made.wished("tensorflow"),
    )
    yield Relation(
        ("tensorflow", None),
        ("cudnn", number),
        lambda item, cudnn: cudnn.version != "none" and rules.tensorflow_takes(item.data, cudnn.version),
        lambda items, cudnns: (
            f"TensorFlow {listed(items, made.catalogue.tensorflow)} needs cuDNN "
            f"{_each(item.data.cudnn for item in items)} or newer of its major, not {among(made, cudnns)}"
        ),
        assumptions=made.wished("tensorflow"),
    )


def _each(found: Iterable[str]) -> str:
    return ", ".join(sorted(set(found), key=versions.numbers))


def _cuda_relations(made: Built, number: int, group: Group) -> Iterable[Relation]:
    catalogue, where = made.catalogue, names(group.hosts)
    cuda: Key = ("cuda", number)

    def too_old(cudas: Sequence[Candidate], drivers: Sequence[Candidate]) -> str:
        needs = min((_floor(c.version, catalogue) for c in cudas), key=versions.numbers)
        told = listed(cudas, catalogue.cuda)
        old = among(made, drivers)
        return f"driver {old} on {where} is too old for CUDA {told}, which needs {needs} or newer"

    def not_built(cudas: Sequence[Candidate], nccls: Sequence[Candidate]) -> str:
        releases = {nccl.version.partition("-")[0] for nccl in nccls}
        nccl = nccls[0].version if len(nccls) == 1 else versions.spans(releases, catalogue.nccl)
        return f"NCCL {nccl} is not built for CUDA {listed(cudas, catalogue.cuda)}"

    yield Relation(
        cuda,
        ("driver", number),
        lambda cuda, driver: domains.support(driver.version, cuda.version, catalogue) < 2,  # noqa: PLR2004
        too_old,
        prefer=lambda cuda, driver: domains.support(driver.version, cuda.version, catalogue),
    )
    yield Relation(
        cuda,
        ("gcc", number),
        lambda cuda, gcc: rules.gcc_fits(cuda.data, gcc.version),
        lambda cudas, gccs: (
            f"CUDA {listed(cudas, catalogue.cuda)} takes gcc {min(c.data.gcc_min for c in cudas)} to "
            f"{max(c.data.gcc for c in cudas)}, not {among(made, gccs)} ({where})"
        ),
    )
    yield Relation(
        cuda,
        ("cudnn", number),
        lambda cuda, cudnn: cudnn.data is None or rules.cudnn_serves(cudnn.data, cuda.version),
        lambda cudas, cudnns: (
            f"cuDNN {among(made, cudnns)} is not made for CUDA {listed(cudas, catalogue.cuda)}"
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
    return catalogue.minor_compatibility.get(versions.major(cuda), full)
