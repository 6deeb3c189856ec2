"""What to know of a stack: what can go wrong with it, or is not as usual."""

from __future__ import annotations

from collections.abc import Iterable

from hvlab.resolver import domains, packages, rules, versions
from hvlab.resolver.about import About
from hvlab.resolver.built import ONE_CUDA, ONE_NCCL, SAME_TOOLKIT
from hvlab.resolver.facts import Gpu
from hvlab.resolver.model import Scope
from hvlab.resolver.provider import infeasible
from hvlab.resolver.solve import Solution

# Source: https://github.com/horovod/horovod/issues/1123
_OWN_HWLOC = ("1.14", "1.15")
# What comes before one CUDA for all hosts.
_DEARER = {SAME_TOOLKIT: "each gets the one that a torch wheel with code for its GPUs is built for"}


def of_lab(solution: Solution) -> list[str]:
    """Return what is to be known of the lab as a whole."""
    built, told = solution.built, []
    if solution.gave_up(ONE_CUDA):
        told.append(_cudas(solution))
    if solution.gave_up(ONE_NCCL):
        told.append(
            "hosts get different NCCL releases, and NCCL refuses to run between them "
            "(Mismatched NCCL version detected): backend nccl works among hosts of one release only"
        )
    python, usable = solution.version("python"), built.catalogue.pythons
    if python not in usable:
        has = versions.spans(usable, usable)
        told.append(f"hvlab has packages for Python {has}, not for {python}: site.yml refuses this lab")
    for pin, numbers in built.pins().items():
        keys = [(pin.name, None), *((pin.name, number) for number in numbers)]
        if not any(key in built.problem.domains for key in keys):
            told.append(f"{pin.text} has no effect: no host it is for has a GPU")
    return told


def _cudas(solution: Solution) -> str:
    """Return why hosts get different CUDA releases: the GPUs, or a preference that comes first."""
    if ONE_CUDA in solution.undecided:
        return (
            "hosts get different CUDA releases: the search ended at its limit before it knew of one for all"
        )
    built, known = solution.built, solution.built.catalogue
    capabilities = {capability for group in built.groups for capability in group.capabilities}
    serving = [
        release
        for release in known.cuda
        if all(rules.cuda_has_code(release, capability, known) for capability in capabilities)
    ]
    if not serving:
        return "no one CUDA release has code for all GPUs here: hosts get different ones"
    why = next(
        (
            because
            for soft, because in _DEARER.items()
            if soft in solution.kept and infeasible(built.problem, Scope(soft=frozenset([soft, ONE_CUDA])))
        ),
        "the rest of their stacks does not go with one of them",
    )
    return (
        f"hosts get different CUDA releases, though {versions.spans(serving, known.cuda)} would have code "
        f"for all GPUs here: {why}"
    )


def of_group(about: About) -> list[str]:
    """Return what is to be known of one group's hosts."""
    told = [*_openmpi(about), *_tensorflow(about), *_gcc(about)]
    if about.group.gpus:
        told += [*_driver(about), *_cuda(about), *_torch(about), *_nccl(about)]
    return told


def _openmpi(about: About) -> Iterable[str]:
    openmpi = about.data("openmpi", None)
    for warning in openmpi.warnings if openmpi else ():
        yield f"Open MPI {openmpi.version}: {warning}"


def _tensorflow(about: About) -> Iterable[str]:
    tensorflow = about.found["tensorflow"]
    if tensorflow and versions.minor(tensorflow) in _OWN_HWLOC:
        yield (
            f"TensorFlow {tensorflow} exports symbols of its own hwloc: where mpirun fails with "
            "opal_hwloc_base_free_topology, load libhwloc first (LD_PRELOAD)"
        )


def _gcc(about: About) -> Iterable[str]:
    present, chosen = about.gcc, about.version("gcc")
    if present is None or str(present) == chosen:
        return
    wants = []
    cuda = about.data("cuda", about.number)
    if cuda and present > cuda.gcc:
        wants.append(f"CUDA {cuda.version} takes gcc up to {cuda.gcc}")
    if cuda and present < cuda.gcc_min:
        wants.append(f"CUDA {cuda.version} takes gcc from {cuda.gcc_min} on")
    if about.torch and present < about.torch.gcc:
        wants.append(f"torch {about.torch.version} needs gcc {about.torch.gcc} or newer")
    yield f"gcc {chosen} is used instead of gcc {present}" + (f": {', '.join(wants)}" if wants else "")


def _driver(about: About) -> Iterable[str]:
    driver, cuda, installed = about.found["driver"], about.version("cuda"), about.group.host.driver
    if driver is None:
        yield "its GPUs are told, not seen: the driver of the hosts that will run this is not checked"
        return
    if domains.support(driver, cuda, about.catalogue) == 1:
        yield (
            f"driver {driver} supports CUDA up to {_full_support(driver, about)} in full; CUDA {cuda} "
            "runs on it by minor-version compatibility: programs need machine code for this GPU "
            "(no PTX is compiled), and features newer than the driver fail"
        )
    branch = domains.branch_of(driver, about.catalogue)
    known = about.catalogue.capabilities
    ends = [gpu for gpu in about.group.gpus if branch and known[str(gpu.capability)].driver[1] == branch.name]
    if branch and ends:
        yield f"branch {branch.name} is the last one for {', '.join(gpu.name for gpu in ends)}"
    elif branch and branch.kind in ("legacy", "new-feature"):
        yield f"driver branch {branch.name} is a {branch.kind} branch"
    if packages.kept(about.group, driver, about.catalogue):
        yield f"driver {driver} stays as it is: there are no packages of it for {about.group.title} here"
    if installed and installed != driver:
        yield f"driver {installed} is replaced by {driver}{_too_old(installed, cuda, about)}"


def _too_old(installed: str, cuda: str, about: About) -> str:
    """Return why an installed driver cannot stay, where that is known."""
    catalogue = about.catalogue
    branch = domains.branch_of(installed, catalogue)

    def runs(gpu: Gpu) -> bool:
        return rules.driver_runs(installed, branch, str(gpu.capability), catalogue)

    without = [gpu.name for gpu in about.group.gpus if not runs(gpu)]
    if without:
        return f": it does not run {', '.join(without)}"
    return f": it is too old for CUDA {cuda}" if domains.support(installed, cuda, catalogue) > 1 else ""


def _cuda(about: About) -> Iterable[str]:
    cuda, group = about.version("cuda"), about.group
    if group.methods["cuda"] == "auto" and packages.methods(group, cuda)["cuda"] == "distro":
        yield f"NVIDIA's repository for {group.title} has no CUDA {cuda}: the distribution's own is taken"


def _full_support(driver: str, about: About) -> str:
    known = about.catalogue.cuda
    full = [release for release in known if domains.support(driver, release, about.catalogue) == 0]
    return max(full, key=versions.numbers, default="none")


def _torch(about: About) -> Iterable[str]:
    if about.torch is None:
        return
    torch, cuda, build = f"torch {about.torch.version}", about.version("cuda"), about.torch_build
    if about.solution.built.torch_on_cpu:
        yield f"{torch} is the build without CUDA, as asked for: it uses no GPU"
    elif build and build != versions.minor(cuda):
        yield (
            f"{torch} has no wheel for CUDA {cuda} that runs here: the one for {build} is taken, "
            "which works within a CUDA major; torch warns of it when extensions are built"
        )


def _nccl(about: About) -> Iterable[str]:
    nccl, cuda = about.found["nccl"], about.version("cuda")
    build = rules.nccl_build(nccl) if nccl else None
    if nccl is None or build is None:
        return
    release, driver = nccl.partition("-")[0], about.found["driver"]
    if build != versions.minor(cuda):
        yield (
            f"NCCL {release} is taken in its build for CUDA {build}, for there is none for {cuda}: "
            "it works by minor-version compatibility"
        )
    if driver and domains.support(driver, build, about.catalogue) == 1:
        yield (
            f"NCCL's build for CUDA {build} is newer than what driver {driver} supports in full: where it "
            "fails with `unhandled cuda error`, take an older build or a newer driver"
        )
    plain = _plain_install(about, release, build)
    if plain:
        yield f"a plain install of NCCL would take {plain}: it is pinned to {nccl}"


def _plain_install(about: About, release: str, build: str) -> str:
    """Return what the package manager would take unasked, where that is a build for a newer CUDA."""
    known, limits = about.catalogue.nccl, about.group.system.nccl
    if limits is None or about.group.methods["nccl"] != "repo":
        return ""
    newest = next(name for name in known if versions.within(name, limits))
    taken = {f"{name}-1+cuda{known[name].builds[-1]}" for name in (release, newest)}
    newer = [one for one in taken if versions.numbers(str(rules.nccl_build(one))) > versions.numbers(build)]
    return " or ".join(sorted(newer, key=versions.numbers))
