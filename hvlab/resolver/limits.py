"""What each component may be by itself: what the wishes, systems, drivers and GPUs of a lab leave of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hvlab.resolver import rules, versions
from hvlab.resolver.built import Built
from hvlab.resolver.facts import Gpu
from hvlab.resolver.lab import Group, names
from hvlab.resolver.model import Candidate, Limit
from hvlab.resolver.pins import TITLES
from hvlab.resolver.rules import listed


class Facts:
    """Assumptions for facts, one for each distinct fact, whatever groups share it."""

    def __init__(self, made: Built) -> None:
        self._made = made
        self._sharing: dict[tuple[str, str], list[int]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        for number, group in enumerate(made.groups):
            for kind, value in self.of(group):
                self._sharing.setdefault((kind, value), []).append(number)
        for (kind, value), numbers in self._sharing.items():
            text = f"{value} on {self.hosts(kind, value)}"
            self._numbers[kind, value] = made.problem.assume("fact", kind, value, text, numbers)

    @staticmethod
    def of(group: Group) -> list[tuple[str, str]]:
        """Return the kind and text of each fact that can be in the way."""
        found = [("os", group.title)]
        found += [("gpu", told(gpu)) for gpu in group.gpus]
        found += [] if group.gpus else [("gpu", "no GPU")]
        if (
            group.gpus
            and group.methods["driver"] == "none"
            and (group.host.driver or not group.host.declared)
        ):
            found.append(("driver", f"driver {group.host.driver}" if group.host.driver else "no driver"))
        if group.host.architecture != "x86_64":
            found.append(("architecture", group.host.architecture))
        return found

    def number(self, kind: str, value: str) -> int:
        """Return the assumption of a fact."""
        return self._numbers[kind, value]

    def hosts(self, kind: str, value: str) -> str:
        """Return the hosts that share a fact, for the reader."""
        return names(self._made.hosts(self._sharing[kind, value]))


def told(gpu: Gpu) -> str:
    """Return a GPU for the reader: Tesla M40 (sm_52)."""
    return f"{gpu.name} ({gpu.sm})"


def among(made: Built, candidates: Sequence[Candidate]) -> str:
    """Return candidates for the reader, neighbours in their domain as a span."""
    return listed(candidates, [candidate.version for candidate in made.problem.domains[candidates[0].key]])


def of_everything(made: Built) -> Iterable[Limit]:
    """Yield what is refused wherever it runs."""

    def say(gone: Sequence[Candidate]) -> str:
        return "; ".join(f"Open MPI {c.version} {c.data.avoid}" for c in gone[:2])

    yield Limit(("openmpi", None), lambda c: c.data is None or c.data.avoid is None, say)
    if made.torch_on_cpu and made.frameworks == ["torch"]:
        yield Limit(
            ("backend", None),
            lambda c: c.version != "nccl",
            lambda _: "backend nccl needs a framework with CUDA, and torch's build for the CPU is asked for",
            made.wished("torch"),
        )


def of_group(made: Built, facts: Facts, number: int, group: Group) -> Iterable[Limit]:
    """Yield what the facts of one group's hosts leave of each component."""
    yield from _system_limits(made, facts, number, group)
    if group.gpus:
        yield from _driver_limits(made, facts, number, group)
    for gpu in group.gpus:
        yield from _gpu_limits(made, facts, number, gpu)


def _system_limits(made: Built, facts: Facts, number: int, group: Group) -> Iterable[Limit]:
    system, host, title = group.system, group.host, group.title
    where = f"{title} on {facts.hosts('os', title)}"
    assumed = (facts.number("os", title),)
    own = versions.minor(host.python) if host.python else None
    pythons = {*system.python, *([own] if own else [])}

    def has(kind: str, found: Iterable[str]) -> Callable[[Sequence[Candidate]], str]:
        told = ", ".join(sorted(found, key=versions.numbers))
        return lambda _: f"{where} has {kind} {told} only"

    yield Limit(("python", None), lambda c: c.version in pythons, has("Python", pythons), assumed)
    if group.pythons:
        yield Limit(
            ("python", None),
            lambda c: c.version in group.pythons,
            lambda gone: (
                f"hvlab has packages for Python {versions.spans(group.pythons, group.pythons)}, not for "
                f"{among(made, gone)}"
            ),
        )
    compilers = {*system.gcc, *([str(versions.major(host.gcc))] if host.gcc else [])}
    yield Limit(("gcc", number), lambda c: c.version in compilers, has("gcc", compilers), assumed)
    if "torch" in made.frameworks:
        yield Limit(
            ("torch", None),
            lambda c: versions.at_most(c.data.glibc, system.glibc),
            lambda gone: (
                f"torch {listed(gone, made.catalogue.torch)} needs glibc "
                f"{min((c.data.glibc for c in gone), key=versions.numbers)}, and {where} has {system.glibc}"
            ),
            assumed,
        )
    if "tensorflow" in made.frameworks and group.gpus and host.architecture != "x86_64":
        machine = f"{host.architecture} on {facts.hosts('architecture', host.architecture)}"
        yield Limit(
            ("tensorflow", None),
            lambda _: False,
            lambda _: f"TensorFlow has no wheel with CUDA for {machine}: it would run on the CPU",
            (facts.number("architecture", host.architecture), *made.wished("tensorflow")),
        )
    yield from _backend_limits(facts, group)
    if group.methods["openmpi"] == "distro":
        version = system.distro.get("openmpi")
        yield Limit(
            ("openmpi", None),
            lambda c: c.version == version,
            lambda _: f"{where} itself has Open MPI {version or 'not at all'} (lab_openmpi_method: distro)",
            assumed,
        )
    if not group.gpus:
        return
    method = group.methods["cuda"]
    yield Limit(
        ("cuda", number),
        lambda c: rules.cuda_offered(c.version, system, method, host.architecture, made.catalogue),
        lambda gone: _no_cuda(made, group, where, gone),
        assumed,
    )
    for name in ("cudnn", "nccl"):
        limits = system.cudnn if name == "cudnn" else system.nccl
        yield Limit(
            (name, number),
            _offers(name, group),
            _no_library(TITLES[name], group.methods[name], limits, where, system.distro.get(name)),
            assumed,
        )


def _backend_limits(facts: Facts, group: Group) -> Iterable[Limit]:
    if not group.gpus:
        hosts = facts.hosts("gpu", "no GPU")
        yield Limit(
            ("backend", None),
            lambda c: c.version != "nccl",
            lambda _: f"backend nccl needs a GPU on every host, and there is none on {hosts}",
            (facts.number("gpu", "no GPU"),),
        )
    architecture = group.host.architecture
    if architecture != "x86_64":
        yield Limit(
            ("backend", None),
            lambda c: c.version != "ccl",
            lambda _: f"backend ccl runs on x86_64 only ({facts.hosts('architecture', architecture)})",
            (facts.number("architecture", architecture),),
        )


def _offers(name: str, group: Group) -> Callable[[Candidate], bool]:
    limits = group.system.cudnn if name == "cudnn" else group.system.nccl
    distro = group.system.distro.get(name)
    method = group.methods[name]
    return lambda c: rules.library_offered(c, limits, method=method, distro=distro)


def _no_cuda(made: Built, group: Group, where: str, gone: Sequence[Candidate]) -> str:
    missing = listed(gone, made.catalogue.cuda)
    if group.methods["cuda"] == "distro":
        own = group.system.distro.get("cuda") or "not at all"
        return f"{where} itself has CUDA {own} (lab_cuda_method: distro)"
    if group.methods["cuda"] == "wheel":
        has = versions.spans(made.catalogue.cuda_wheels, made.catalogue.cuda)
        wheels = f"there are no wheels of a whole toolkit for CUDA {missing}, only for {has}"
        return f"{wheels} (lab_cuda_method: wheel)"
    if group.host.architecture not in group.system.repository:
        return f"NVIDIA's repository for {where} has nothing for {group.host.architecture}"
    has = versions.spans(group.system.cuda, made.catalogue.cuda)
    return f"NVIDIA's repository for {where} has no CUDA {missing} (it has {has})"


def _no_library(
    title: str, method: str, limits: Sequence[str | None] | None, where: str, distro: object
) -> Callable[[Sequence[Candidate]], str]:
    def say(gone: Sequence[Candidate]) -> str:
        if method == "distro":
            return f"{where} itself has {title} {distro or 'not at all'}"
        if method == "wheel" or limits is None:
            return f"there is no wheel of {title} {listed(gone)}, and {where} has no packages of it"
        lowest, highest = limits
        until = f"to {highest}" if highest else "and newer"
        return f"NVIDIA's repository for {where} has {title} {lowest} {until}"

    return say


def _driver_limits(made: Built, facts: Facts, number: int, group: Group) -> Iterable[Limit]:
    installed, method = group.host.driver, group.methods["driver"]
    title = group.title
    if method == "none" and not installed and group.host.declared:
        return
    if method == "none":
        value = f"driver {installed}" if installed else "no driver"
        where = facts.hosts("driver", value)
        hint = "lab_driver_method is none"
        yield Limit(
            ("driver", number),
            lambda c: c.version == (installed or "none"),
            lambda _: f"{where} has {value}, and {hint}",
            (facts.number("driver", value),),
        )
        return
    where = f"{title} on {facts.hosts('os', title)}"
    own = {"repo": "NVIDIA's repository for ", "elrepo": "ELRepo for "}.get(method, "")
    yield Limit(
        ("driver", number),
        lambda c: (
            c.version == installed
            or rules.driver_offered(c.version, c.data, group.system, method, group.host.architecture)
        ),
        lambda gone: f"{own}{where} {_lacks(made, group, gone)}",
        (facts.number("os", title),),
    )


def _lacks(made: Built, group: Group, gone: Sequence[Candidate]) -> str:
    if group.methods["driver"] == "repo" and group.host.architecture not in group.system.repository:
        return f"has nothing for {group.host.architecture}"
    branches = sorted({str(versions.major(c.version)) for c in gone}, key=int)
    told = listed(gone) if len(branches) == 1 else versions.spans(branches, made.catalogue.branches)
    return f"does not have driver {told}"


def _gpu_limits(made: Built, facts: Facts, number: int, gpu: Gpu) -> Iterable[Limit]:
    catalogue, capability = made.catalogue, str(gpu.capability)
    hosts = facts.hosts("gpu", told(gpu))
    assumed = (facts.number("gpu", told(gpu)),)
    where = f"{gpu.sm} {rules.told_gpu(gpu, hosts)}"

    def no_code(gone: Sequence[Candidate]) -> str:
        return f"CUDA {listed(gone, catalogue.cuda)} has no code for {where}"

    def no_driver(gone: Sequence[Candidate]) -> str:
        lowest, last = catalogue.capabilities[capability].driver
        until = f" up to branch {last}" if last else ""
        return f"driver {among(made, gone)} does not run {where}, which needs {lowest} or newer{until}"

    yield Limit(
        ("cuda", number), lambda c: rules.cuda_has_code(c.version, capability, catalogue), no_code, assumed
    )
    yield Limit(
        ("driver", number),
        lambda c: rules.driver_runs(c.version, c.data, capability, catalogue),
        no_driver,
        assumed,
    )
    for name in ("cudnn", "nccl"):
        yield Limit(
            (name, number),
            lambda c: rules.runs_library(c.data, [capability]),
            _no_library_code(made, TITLES[name], where),
            assumed,
        )


def _no_library_code(made: Built, title: str, where: str) -> Callable[[Sequence[Candidate]], str]:
    return lambda gone: f"{title} {among(made, gone)} has no code for {where}"
