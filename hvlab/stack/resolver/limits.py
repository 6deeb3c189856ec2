"""Rules on one component: limits from the pins, systems, drivers and GPUs of a lab."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hvlab.lab.backends import BACKENDS
from hvlab.lab.pin_variables import TITLES
from hvlab.stack.resolver import packages, rules, versions
from hvlab.stack.resolver.facts import Gpu
from hvlab.stack.resolver.lab import NO_GPU, HostGroup
from hvlab.stack.resolver.model import PIN, Candidate, LabProblem, Limit, keep_driver, list_versions
from hvlab.stack.resolver.pins import Pin, meets


def add(lab: LabProblem) -> None:
    """Add the limits of the pins, of the whole lab, and of each group's facts."""
    lab.limits += [*_limit_pins(lab), *_limit_lab(lab)]
    for number, group in enumerate(lab.groups):
        lab.limits += _limit_group(lab, number, group)
    lab.limits = [limit for limit in lab.limits if limit.key in lab.domains]


def _limit_pins(lab: LabProblem) -> Iterable[Limit]:
    for item in lab.assumptions:
        if item.kind != PIN:
            continue
        pin, numbers, assumed = Pin(item.name, item.value), sorted(item.groups), (item.number,)
        keys = [(pin.name, None), *((pin.name, number) for number in numbers)]
        yield from (Limit(key, _meets(pin), assumptions=assumed) for key in keys if key in lab.domains)
        if pin.cuda:
            cuda = _meets(Pin("cuda", pin.cuda))
            keys = [("cuda", number) for number in numbers]
            yield from (Limit(key, cuda, assumptions=assumed) for key in keys if key in lab.domains)


def _meets(pin: Pin) -> Callable[[Candidate], bool]:
    def fits(candidate: Candidate) -> bool:
        if candidate.version == "none" or not meets(pin, candidate.version):
            return False
        return pin.name != "torch" or pin.cuda is None or pin.cuda in candidate.data.cuda

    return fits


def _limit_lab(lab: LabProblem) -> Iterable[Limit]:

    def say(gone: Sequence[Candidate]) -> str:
        return "; ".join(f"Open MPI {c.version} {c.data.avoid}" for c in gone[:2])

    yield Limit(("openmpi", None), lambda c: c.data is None or c.data.avoid is None, say)
    if lab.torch_on_cpu and lab.frameworks == ["torch"]:
        yield Limit(
            ("backend", None),
            _is_not_gpu,
            lambda gone: (
                f"backend {gone[0].version} needs a framework with CUDA, "
                "and torch's build for the CPU is pinned"
            ),
            lab.find_pin("torch"),
        )


def _limit_group(lab: LabProblem, number: int, group: HostGroup) -> Iterable[Limit]:
    installed = group.host.driver
    if group.gpus and installed:
        yield Limit(("driver", number), lambda c: c.version == installed, soft=keep_driver(number))
    yield from _system_limits(lab, number, group)
    if group.gpus:
        yield from _driver_limits(lab, number, group)
    for gpu in group.gpus:
        yield from _gpu_limits(lab, number, gpu)


def _system_limits(lab: LabProblem, number: int, group: HostGroup) -> Iterable[Limit]:
    title = group.title
    where = f"{title} on {lab.sharing('os', title)}"
    assumed = (lab.fact("os", title),)
    yield from _tool_limits(lab, number, group, where, assumed)
    yield from _framework_limits(lab, group, where, assumed)
    yield from _backend_limits(lab, group)
    yield from _build_limits(lab, group)
    if group.methods["openmpi"] == "distro":
        version = group.system.distro.get("openmpi")
        yield Limit(
            ("openmpi", None),
            lambda c: c.version == version,
            lambda _: f"{where} itself has Open MPI {version or 'not at all'} (lab_openmpi_method: distro)",
            assumed,
        )
    if group.gpus:
        yield from _cuda_limits(lab, number, group, where, assumed)


def _tool_limits(
    lab: LabProblem, number: int, group: HostGroup, where: str, assumed: tuple[int, ...]
) -> Iterable[Limit]:
    system, host = group.system, group.host
    own = versions.minor(host.python) if host.python else None
    pythons = {*system.python, *([own] if own else [])}

    def only(title: str, offered: Iterable[str], more: str = "") -> Callable[[Sequence[Candidate]], str]:
        text = ", ".join(sorted(offered, key=versions.numbers))
        return lambda _: f"{where} has {title} {text} only{more}"

    other = " (ansible_python_interpreter can name another)"
    yield Limit(("python", None), lambda c: c.version in pythons, only("Python", pythons, other), assumed)
    if group.pythons:
        yield Limit(
            ("python", None),
            lambda c: c.version in group.pythons,
            lambda gone: (
                f"hvlab has packages for Python {versions.spans(group.pythons, group.pythons)}, not for "
                f"{lab.name(gone)}"
            ),
        )
    compilers = {*system.gcc, *([str(versions.major(host.gcc))] if host.gcc else [])}
    yield Limit(("gcc", number), lambda c: c.version in compilers, only("gcc", compilers), assumed)


def _framework_limits(
    lab: LabProblem, group: HostGroup, where: str, assumed: tuple[int, ...]
) -> Iterable[Limit]:
    system, architecture = group.system, group.host.architecture
    if "torch" in lab.frameworks:
        yield Limit(
            ("torch", None),
            lambda c: versions.is_at_most(c.data.glibc, system.glibc),
            lambda gone: (
                f"torch {list_versions(gone, lab.catalogue.torch)} needs glibc "
                f"{min((c.data.glibc for c in gone), key=versions.numbers)}, and {where} has {system.glibc}"
            ),
            assumed,
        )
    if "tensorflow" in lab.frameworks and group.gpus and architecture != "x86_64":
        machine = f"{architecture} on {lab.sharing('architecture', architecture)}"
        yield Limit(
            ("tensorflow", None),
            lambda _: False,
            lambda _: f"TensorFlow has no wheel with CUDA for {machine}: it would run on the CPU",
            (lab.fact("architecture", architecture), *lab.find_pin("tensorflow")),
        )


def _cuda_limits(
    lab: LabProblem, number: int, group: HostGroup, where: str, assumed: tuple[int, ...]
) -> Iterable[Limit]:
    system, method = group.system, group.methods["cuda"]
    yield Limit(
        ("cuda", number),
        lambda c: rules.offers_cuda(c.version, system, method, group.host.architecture, lab.catalogue),
        lambda gone: _explain_no_cuda(lab, group, where, gone),
        assumed,
    )
    for name in ("cudnn", "nccl"):
        limits = system.cudnn if name == "cudnn" else system.nccl
        yield Limit(
            (name, number),
            _offers(name, group),
            _explain_no_library(TITLES[name], group.methods[name], limits, where, system.distro.get(name)),
            assumed,
        )


def _is_not_gpu(backend: Candidate) -> bool:
    return not BACKENDS[backend.version].gpu


def _backend_limits(lab: LabProblem, group: HostGroup) -> Iterable[Limit]:
    if not group.gpus:
        hosts = lab.sharing("gpu", NO_GPU)
        yield Limit(
            ("backend", None),
            _is_not_gpu,
            lambda gone: f"backend {gone[0].version} needs a GPU on every host, and there is none on {hosts}",
            (lab.fact("gpu", NO_GPU),),
        )
    architecture = group.host.architecture
    if architecture != "x86_64":
        yield Limit(
            ("backend", None),
            lambda c: architecture in BACKENDS[c.version].architectures,
            lambda gone: (
                f"backend {gone[0].version} runs on "
                f"{', '.join(BACKENDS[gone[0].version].architectures)} only "
                f"({lab.sharing('architecture', architecture)})"
            ),
            (lab.fact("architecture", architecture),),
        )


def _build_limits(lab: LabProblem, group: HostGroup) -> Iterable[Limit]:
    for pin in group.pins:
        if not pin.cuda or pin.name != "torch" or ("torch", None) not in lab.domains:
            continue
        if lab.torch_on_cpu:
            other = next(one for one in lab.pins if one.build == "cpu")
            numbers = (*lab.find_pin("torch", pin.value), *lab.find_pin("torch", other.value))
            reason = f"{pin.text} and {other.text} exclude each other: a lab has torch with CUDA, or without"
        elif not group.gpus:
            numbers = (*lab.find_pin("torch", pin.value), lab.fact("gpu", NO_GPU))
            reason = (
                f"{pin.text} is a build with CUDA, and {lab.sharing('gpu', NO_GPU)} has no GPU: "
                f"pin torch={pin.version} there"
            )
        else:
            continue
        yield Limit(("torch", None), lambda _: False, _sentence(reason), numbers)


def _sentence(text: str) -> Callable[[Sequence[Candidate]], str]:
    return lambda _: text


def _offers(name: str, group: HostGroup) -> Callable[[Candidate], bool]:
    limits = group.system.cudnn if name == "cudnn" else group.system.nccl
    distro = group.system.distro.get(name)
    method = group.methods[name]
    return lambda c: rules.offers_library(c, limits, method=method, distro=distro)


def _explain_no_cuda(lab: LabProblem, group: HostGroup, where: str, gone: Sequence[Candidate]) -> str:
    missing = list_versions(gone, lab.catalogue.cuda)
    if group.methods["cuda"] == "distro":
        own = group.system.distro.get("cuda") or "not at all"
        return f"{where} itself has CUDA {own} (lab_cuda_method: distro)"
    if group.methods["cuda"] == "wheel":
        has = versions.spans(lab.catalogue.cuda_wheels, lab.catalogue.cuda)
        wheels = f"there are no wheels of a whole toolkit for CUDA {missing}, only for {has}"
        return f"{wheels} (lab_cuda_method: wheel)"
    if group.host.architecture not in group.system.repository:
        return f"NVIDIA's repository for {where} has nothing for {group.host.architecture}"
    has = versions.spans(group.system.cuda, lab.catalogue.cuda)
    return f"NVIDIA's repository for {where} has no CUDA {missing} (it has {has})"


def _explain_no_library(
    title: str, method: str, limits: Sequence[str | None] | None, where: str, distro: object
) -> Callable[[Sequence[Candidate]], str]:
    def say(gone: Sequence[Candidate]) -> str:
        if method == "distro":
            return f"{where} itself has {title} {distro or 'not at all'}"
        if method == "wheel" or limits is None:
            return f"there is no wheel of {title} {list_versions(gone)}, and {where} has no packages of it"
        lowest, highest = limits
        until = f"to {highest}" if highest else "and newer"
        return f"NVIDIA's repository for {where} has {title} {lowest} {until}"

    return say


def _driver_limits(lab: LabProblem, number: int, group: HostGroup) -> Iterable[Limit]:
    installed, method = group.host.driver, group.methods["driver"]
    if method == "none" and not installed and group.host.declared:
        return
    if method == "none":
        where = lab.sharing("driver", group.driver)
        because = (
            f"which comes from outside ({group.guest})" if group.guest else "and lab_driver_method is none"
        )
        yield Limit(
            ("driver", number),
            lambda c: c.version == (installed or "none"),
            lambda _: f"{where} has {group.driver}, {because}",
            (lab.fact("driver", group.driver),),
        )
        return
    source = {"repo": "NVIDIA's repository for ", "elrepo": "ELRepo for "}.get(method, "")
    where = f"{source}{group.title} on {lab.sharing('os', group.title)}"
    yield Limit(
        ("driver", number),
        lambda c: (
            c.version == installed
            or rules.offers_driver(c.version, c.data, group.system, method, group.host.architecture)
        ),
        lambda gone: f"{where} {_lacks(lab, group, gone)}",
        (lab.fact("os", group.title),),
    )
    if method == "elrepo" and "required" in packages.modules(group, lab.catalogue):
        needs = ", ".join(gpu.name for gpu in group.gpus)
        yield Limit(
            ("driver", number),
            lambda c: c.version == installed,
            lambda _: f"{where} does not have the open kernel modules, which {needs} needs",
            (lab.fact("os", group.title),),
        )
    if kernel := group.kernel:
        release = kernel.partition(" ")[2]
        running = lab.assumptions[lab.fact("kernel", kernel)].text
        yield Limit(
            ("driver", number),
            lambda c: c.version == installed or rules.compiles(c.version, release, lab.catalogue),
            lambda gone: f"driver {list_versions(gone)} does not compile on {running}",
            (lab.fact("kernel", kernel),),
        )


def _lacks(lab: LabProblem, group: HostGroup, gone: Sequence[Candidate]) -> str:
    if group.methods["driver"] == "repo" and group.host.architecture not in group.system.repository:
        return f"has nothing for {group.host.architecture}"
    branches = sorted({str(versions.major(c.version)) for c in gone}, key=int)
    drivers = list_versions(gone) if len(branches) == 1 else versions.spans(branches, lab.catalogue.branches)
    return f"does not have driver {drivers}"


def _gpu_limits(lab: LabProblem, number: int, gpu: Gpu) -> Iterable[Limit]:
    catalogue, capability = lab.catalogue, str(gpu.capability)
    assumed, where = (lab.fact("gpu", gpu.title),), lab.where(gpu)

    def no_code(gone: Sequence[Candidate]) -> str:
        return f"CUDA {list_versions(gone, catalogue.cuda)} has no code for {where}"

    def no_driver(gone: Sequence[Candidate]) -> str:
        lowest, last = catalogue.capabilities[capability].driver
        until = f" up to branch {last}" if last else ""
        return f"driver {lab.name(gone)} does not run {where}, which needs {lowest} or newer{until}"

    yield Limit(
        ("cuda", number), lambda c: rules.cuda_has_code(c.version, capability, catalogue), no_code, assumed
    )
    yield Limit(
        ("driver", number),
        lambda c: rules.driver_runs(c.version, c.data, capability, catalogue),
        no_driver,
        assumed,
    )
    if "tensorflow" in lab.frameworks:
        yield Limit(
            ("tensorflow", None),
            lambda c: versions.is_within(capability, c.data.capabilities),
            lambda gone: (
                f"TensorFlow {list_versions(gone, catalogue.tensorflow)} does not run on {where} "
                f"({_capabilities(gone)})"
            ),
            (*assumed, *lab.find_pin("tensorflow")),
        )
    for name in ("cudnn", "nccl"):
        yield Limit(
            (name, number),
            lambda c: rules.runs_library(c.data, [capability]),
            _explain_no_code(lab, TITLES[name], where),
            assumed,
        )


def _capabilities(releases: Sequence[Candidate]) -> str:
    ranges = dict.fromkeys(release.data.capabilities for release in releases)
    return ", ".join(
        f"it runs on {lowest} to {highest}" if highest else f"it runs on {lowest} and newer"
        for lowest, highest in ranges
    )


def _explain_no_code(lab: LabProblem, title: str, where: str) -> Callable[[Sequence[Candidate]], str]:
    return lambda gone: f"{title} {lab.name(gone)} has no code for {where}"
