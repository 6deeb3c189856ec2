"""Notes on a stack: what may go wrong, or is unusual."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date

from hvlab.base.errors import Problem
from hvlab.lab.pin_variables import AUTO, TITLES
from hvlab.stack.provision.driver.obstacles import (
    explain_container,
    explain_secure_boot,
    explain_uek,
    explain_unchecked,
    explain_unloaded,
)
from hvlab.stack.provision.names import of_system
from hvlab.stack.resolver import facts, packages, rules, versions
from hvlab.stack.resolver.facts import Gpu, model_of
from hvlab.stack.resolver.lab import DOWNLOADS, HostGroup, HostRequest
from hvlab.stack.resolver.model import ONE_CUDA, ONE_NCCL, ONE_TORCH_NCCL, SAME_TOOLKIT, Scope
from hvlab.stack.resolver.solve import GroupChoice, Solution, is_infeasible

# Source: https://github.com/horovod/horovod/issues/1123
_OWN_HWLOC = ("1.14", "1.15")
# Preferences that outrank one CUDA for all hosts.
_MORE_IMPORTANT = {SAME_TOOLKIT: "each gets the one that a torch wheel with code for its GPUs is built for"}

_NCCL_REFUSES = (
    "and NCCL refuses to run between them (Mismatched NCCL version detected): "
    "backend nccl works among hosts of one release only"
)


def refusals(solution: Solution, hosts: Mapping[str, HostRequest]) -> list[Problem]:
    """Return why site.yml will refuse hosts that have a stack."""
    return [
        Problem(name, observed, remedy)
        for number, group in enumerate(solution.lab.groups)
        for name in group.hosts
        for observed, remedy in (
            *_explain_refused(hosts[name], group, solution),
            *_explain_unloadable(hosts[name], group, str(solution.version("driver", number))),
            *_explain_unchecked(hosts[name], group, str(solution.version("driver", number))),
        )
    ]


def _explain_refused(one: HostRequest, group: HostGroup, solution: Solution) -> Iterable[tuple[str, str]]:
    python, usable, own = solution.version("python"), solution.lab.catalogue.pythons, one.host.python
    if python not in usable:
        has = versions.spans(usable, usable)
        yield f"it gets Python {python}, and hvlab has packages for {has}", facts.advise_python(group.system)
    elif own and versions.numbers(own) < versions.numbers(facts.LEAST_PYTHON):
        observed = f"its Python is {own}; Ansible needs {facts.LEAST_PYTHON} there, or later"
        yield observed, facts.advise_python(group.system)
    fetched = bool(group.gpus) and "repo" in packages.methods(group).values()
    if group.system.key_unknown and fetched and not one.own_key:
        yield (
            f"no public source has the fingerprint of the key of NVIDIA's repository for {group.title}",
            "read it with `gpg --show-keys` on a machine that you trust, compare it with the one that NVIDIA "
            "tells you, and set nvidia_repository_key_fingerprint",
        )
    if one.slurm and not group.system.packages.get("slurm"):
        yield f"{group.title} has no Slurm", "leave it out of the group slurm, or lab_slurm out"


def _explain_unloadable(one: HostRequest, group: HostGroup, driver: str) -> Iterable[tuple[str, str]]:
    method, host = group.methods["driver"], one.host
    if not group.gpus or one.unloaded:
        return
    if method == "none":
        if not host.loaded:
            yield explain_unloaded(host.driver, group.guest)
        return
    there = host.loaded and versions.major(host.driver or "") == versions.major(driver)
    signed = method == "distro" and host.distribution == "Ubuntu"
    if host.container:
        yield explain_container(method)
    elif method == "elrepo" and "uek" in (host.kernel or "") and not there:
        yield explain_uek(str(host.kernel))
    elif host.secure_boot and not (one.trusted or signed or there):
        yield explain_secure_boot(host.distribution)


def _explain_unchecked(one: HostRequest, group: HostGroup, driver: str) -> Iterable[tuple[str, str]]:
    for (part, method), name in DOWNLOADS.items():
        there = part == "driver" and one.host.driver == driver
        if group.gpus and group.methods[part] == method and name not in one.checked and not there:
            yield explain_unchecked(name)


def of_lab(solution: Solution, hosts: Mapping[str, HostRequest]) -> list[str]:
    """Return the notes on the lab as a whole."""
    lab, notes = solution.lab, []
    slurm = {
        name: str(group.system.packages["slurm"]["usual_version"])
        for group in lab.groups
        for name in group.hosts
        if hosts[name].slurm and group.system.packages.get("slurm")
    }
    if len(set(slurm.values())) > 1:
        usual = ", ".join(f"{name} {release}" for name, release in slurm.items())
        notes.append(f"Slurm: systems have different releases, {usual}; provision refuses a mixture")
    if solution.drops(ONE_CUDA):
        notes.append(_cudas(solution))
    if solution.drops(ONE_TORCH_NCCL):
        notes.append(f"torch brings different NCCL releases for these hosts, {_NCCL_REFUSES}")
    elif solution.drops(ONE_NCCL) and ONE_TORCH_NCCL in solution.kept:
        notes.append(
            "hosts get different NCCL releases for nccl-tests, which does not run between them; "
            "ranks of torch use the one that torch brings"
        )
    elif solution.drops(ONE_NCCL):
        notes.append(f"hosts get different NCCL releases, {_NCCL_REFUSES}")
    for pin, numbers in lab.pins.items():
        keys = [(pin.name, None), *((pin.name, number) for number in numbers)]
        if not (any(key in lab.domains for key in keys) or (lab.without_horovod and pin.name == "horovod")):
            notes.append(f"{pin.text} has no effect: no host it is for has a GPU")
    return notes


def _cudas(solution: Solution) -> str:
    if ONE_CUDA in solution.undecided:
        return (
            "hosts get different CUDA releases: the search ended at its limit before it knew of one for all"
        )
    lab, known = solution.lab, solution.lab.catalogue
    capabilities = {capability for group in lab.groups for capability in group.capabilities}
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
            for soft, because in _MORE_IMPORTANT.items()
            if soft in solution.kept and is_infeasible(lab, Scope(soft=frozenset([soft, ONE_CUDA])))
        ),
        "the rest of their stacks does not go with one of them",
    )
    return (
        f"hosts get different CUDA releases, though {versions.spans(serving, known.cuda)} would have code "
        f"for all GPUs here: {why}"
    )


def of_group(choice: GroupChoice) -> list[str]:
    """Return the notes on one group's hosts."""
    notes = [
        *_system(choice),
        *_note_not_shipped(choice),
        *_openmpi(choice),
        *_tensorflow(choice),
        *_gcc(choice),
    ]
    if choice.group.gpus:
        notes += [
            *_platform(choice),
            *_driver(choice),
            *_modules(choice),
            *_fabric(choice),
            *_cuda(choice),
            *_torch(choice),
            *_torch_nccl(choice),
            *_nccl(choice),
        ]
    return notes


def _system(choice: GroupChoice) -> Iterable[str]:
    system, title, own = choice.group.system, choice.group.title, choice.group.host.python
    end = system.ends.get(choice.group.host.distribution, system.end)
    if end and end < f"{date.today():%Y-%m}":
        yield f"{title}: its maker's standard support ended in {end}, and mirrors of it may be gone"
    yield from (f"{title}: {remark}" for remark in system.remarks)
    if own and versions.numbers(versions.minor(own)) > versions.numbers(facts.LAST_PYTHON):
        supported = f"{facts.LEAST_PYTHON} to {facts.LAST_PYTHON}"
        yield f"its Python is {own}: ansible-core 2.19 is made for hosts with {supported}"
    if choice.group.host.others:
        yield f"{', '.join(choice.group.host.others)}: not for NVIDIA's driver, and left alone"


def _note_not_shipped(choice: GroupChoice) -> Iterable[str]:
    for name, like in choice.assumed.items():
        yield (
            f"{TITLES[name]} {choice.versions[name]} is not known to hvlab: it is newer than the catalogue, "
            f"and taken to need and to run what {like} does"
        )
    for name, version in choice.versions.items():
        release = (version or "").partition("-1+cuda")[0]
        entry = {
            "driver": ("drivers", str(versions.major(release))),
            "cuda": ("cuda", versions.minor(release)),
        }.get(name, (name, release))
        if entry in choice.catalogue.own:
            yield f"{TITLES[name]} {version} is of your own catalogue file, {choice.catalogue.own[entry]}"
    driver = choice.group.host.driver
    newest = max(choice.catalogue.branches, key=int)
    if (
        choice.group.gpus
        and driver
        and driver == choice.versions["driver"]
        and versions.major(driver) > int(newest)
    ):
        yield (
            f"the installed driver {driver} is not known to hvlab: its branch is newer than the catalogue, "
            f"and taken to run what branch {newest} does"
        )


def _platform(choice: GroupChoice) -> Iterable[str]:
    gpus, driver = [gpu.name for gpu in choice.group.gpus], choice.versions["driver"]
    slices, boards = list(filter(facts.is_mig, gpus)), list(filter(facts.is_board, gpus))
    for gpu in choice.group.gpus:
        model = model_of(gpu, choice.catalogue)
        if model and model.capability != gpu.capability:
            known = replace(gpu, capability=model.capability)
            yield f"{gpu.name} is known as {known.sm}; {gpu.sm} is taken, as the facts say"
    if slices:
        yield (
            f"{', '.join(slices)}: a process sees one MIG slice, and nothing is copied from slice to slice, "
            "so NCCL does not run between slices of one GPU: start one rank for each GPU, or turn MIG off"
        )
    if choice.group.guest == facts.VGPU:
        yield (
            f"{', '.join(filter(facts.is_vgpu, gpus))}: a vGPU; its driver {driver} goes with that of the "
            "hypervisor, and is left as it is"
        )
    if choice.group.guest == facts.WSL:
        yield f"its kernel is that of WSL2: driver {driver} is that of Windows, and is left as it is"
    if choice.group.guest == facts.CONTAINER:
        yield f"a container: driver {driver} is that of the machine below it, and is left as it is"
    if boards and driver and not packages.needs_fabric_manager(choice.group, choice.catalogue):
        yield (
            f"{', '.join(boards)}: of an HGX or DGX board; where it has NVSwitches, programs start only with "
            f"the fabric manager {driver}, of exactly the driver's version"
        )


def _openmpi(choice: GroupChoice) -> Iterable[str]:
    openmpi = choice.data("openmpi", None)
    for warning in openmpi.warnings if openmpi else ():
        yield f"Open MPI {openmpi.version}: {warning}"


def _tensorflow(choice: GroupChoice) -> Iterable[str]:
    tensorflow = choice.versions["tensorflow"]
    if tensorflow and versions.minor(tensorflow) in _OWN_HWLOC:
        yield (
            f"TensorFlow {tensorflow} exports symbols of its own hwloc: where mpirun fails with "
            "opal_hwloc_base_free_topology, load libhwloc first (LD_PRELOAD)"
        )
    cuda = choice.versions["cuda"]
    if tensorflow and cuda and versions.minor(cuda) != (built := choice.data("tensorflow", None).cuda):
        yield (
            f"TensorFlow {tensorflow} is built for CUDA {built}: with {versions.minor(cuda)} it runs by "
            "minor-version compatibility"
        )


def _gcc(choice: GroupChoice) -> Iterable[str]:
    present, chosen = choice.gcc, choice.version("gcc")
    if present is None or str(present) == chosen:
        return
    needs = []
    cuda = choice.data("cuda", choice.number)
    if cuda and present > cuda.gcc:
        needs.append(f"CUDA {cuda.version} takes gcc up to {cuda.gcc}")
    if cuda and present < cuda.gcc_min:
        needs.append(f"CUDA {cuda.version} takes gcc from {cuda.gcc_min} on")
    if choice.torch and present < choice.torch.gcc:
        needs.append(f"torch {choice.torch.version} needs gcc {choice.torch.gcc} or newer")
    yield f"gcc {chosen} is used instead of gcc {present}" + (f": {', '.join(needs)}" if needs else "")


def _driver(choice: GroupChoice) -> Iterable[str]:
    driver, cuda, installed = choice.versions["driver"], choice.version("cuda"), choice.group.host.driver
    if driver is None:
        yield "its GPUs are declared in the inventory: the driver of the hosts that run this is not checked"
        return
    if rules.support(driver, cuda, choice.catalogue) == 1:
        yield (
            f"driver {driver} supports CUDA up to {_note_full_support(driver, choice)} in full; CUDA {cuda} "
            "runs on it by minor-version compatibility: programs need machine code for this GPU "
            "(no PTX is compiled), and features newer than the driver fail"
        )
    branch = rules.branch_of(driver, choice.catalogue)
    known = choice.catalogue.capabilities
    ends = [
        gpu for gpu in choice.group.gpus if branch and known[str(gpu.capability)].driver[1] == branch.name
    ]
    if branch and ends:
        yield f"branch {branch.name} is the last one for {', '.join(gpu.name for gpu in ends)}"
    elif branch and branch.kind in ("legacy", "new-feature"):
        yield f"driver branch {branch.name} is a {branch.kind} branch"
    if packages.keeps_driver(choice.group, driver, choice.catalogue):
        yield f"driver {driver} stays as it is: there are no packages of it for {choice.group.title} here"
    elif choice.group.methods["driver"] == "repo" and not packages.is_exact(choice.group, driver):
        yield (
            f"driver branch {versions.major(driver)} is asked for, and the version that comes is recorded: "
            f"no source says which NVIDIA's repository for {choice.group.title} has"
        )
    newest = choice.group.system.newest.get(str(versions.major(driver)))
    new = choice.group.methods["driver"] == "repo" and installed != driver
    if new and newest and versions.numbers(driver) > versions.numbers(newest):
        yield (
            f"driver {driver} is newer than {newest}, the newest of its branch that a source names in "
            f"NVIDIA's repository for {choice.group.title}: if provision does not find it, "
            f"pin driver={newest}"
        )
    if installed and installed != driver:
        yield f"driver {installed} is replaced by {driver}{_too_old(installed, cuda, choice)}"


def _modules(choice: GroupChoice) -> Iterable[str]:
    group, used = choice.group, choice.group.host.kernel_gcc
    stays = group.host.driver == choice.versions["driver"]
    if stays or not used or used == str(choice.gcc) or group.methods["driver"] in ("none", "elrepo"):
        return
    kernel = f"the kernel was built with gcc {used}, and gcc here is {choice.gcc or 'missing'}"
    names = [package["name"] for package in packages.gcc(group, used)]
    known = {"distribution": group.system.distributions[0], "os_family": group.system.family}
    if not names:
        own = f"{group.title} has no gcc {used}"
        yield f"{kernel}: {own}; boot one of its own kernels, or add a repository with it"
    elif "compiler" in of_system("driver", known):
        yield f"{kernel}: {names[0]} is installed first, and the driver's modules are built with it"
    else:
        yield f"{kernel}: if the driver's modules do not build, install {names[0]}"


def _fabric(choice: GroupChoice) -> Iterable[str]:
    group = choice.group
    models = [(gpu.name, model_of(gpu, choice.catalogue)) for gpu in group.gpus]
    names = ", ".join(dict.fromkeys(name for name, model in models if model and (model.fabric or model.imex)))
    by_hand = group.methods["driver"] == "none"
    if packages.needs_fabric_manager(group, choice.catalogue):
        yield (
            f"the NVSwitches of {names} need the fabric manager, the subnet manager nvlsm, and the kernel's "
            "modules ib_umad and mlx5_ib: without them CUDA stops with error 802 (system not yet initialized)"
            + ("; lab_driver_method is none: they have to be there" if by_hand else "")
        )
    if packages.needs_imex(group, choice.catalogue):
        nodes = "nvidia_driver_imex_nodes lists the hosts of one NVLink domain, by default all of group gpu"
        yield (
            f"NVLink between hosts with {names} needs nvidia-imex of the driver's version; "
            + ("lab_driver_method is none: it has to be there" if by_hand else nodes)
        )


def _too_old(installed: str, cuda: str, choice: GroupChoice) -> str:
    catalogue = choice.catalogue
    branch = rules.branch_of(installed, catalogue)

    def runs(gpu: Gpu) -> bool:
        return rules.driver_runs(installed, branch, str(gpu.capability), catalogue)

    without = [gpu.name for gpu in choice.group.gpus if not runs(gpu)]
    if without:
        return f": it does not run {', '.join(without)}"
    return f": it is too old for CUDA {cuda}" if rules.support(installed, cuda, catalogue) > 1 else ""


def _cuda(choice: GroupChoice) -> Iterable[str]:
    cuda, group = choice.version("cuda"), choice.group
    if group.methods["cuda"] == AUTO and packages.methods(group, cuda)["cuda"] == "distro":
        yield f"NVIDIA's repository for {group.title} has no CUDA {cuda}: the distribution's own is taken"


def _note_full_support(driver: str, choice: GroupChoice) -> str:
    known = choice.catalogue.cuda
    full = [release for release in known if rules.support(driver, release, choice.catalogue) == 0]
    return max(full, key=versions.numbers, default="none")


def _torch(choice: GroupChoice) -> Iterable[str]:
    if choice.torch is None:
        return
    torch, cuda, build = f"torch {choice.torch.version}", choice.version("cuda"), choice.torch_build
    if choice.solution.lab.torch_on_cpu:
        yield f"{torch} is the build without CUDA, as pinned: it uses no GPU"
    elif build and build != versions.minor(cuda):
        yield (
            f"{torch} has no wheel for CUDA {cuda} that runs here: the one for {build} is taken, "
            "which works within a CUDA major; torch warns of it when extensions are built"
        )


def _torch_nccl(choice: GroupChoice) -> Iterable[str]:
    nccl, own = choice.versions["nccl"], choice.torch_nccl
    release = str(nccl).partition("-")[0]
    if nccl is None or own in ("", release):
        return
    others = "nccl-tests and TensorFlow" if choice.versions["tensorflow"] else "nccl-tests"
    yield (
        f"ranks of torch use NCCL {own}, which torch {choice.torch.version} brings and loads first; "
        f"the installed NCCL {release} serves {others}"
    )


def _nccl(choice: GroupChoice) -> Iterable[str]:
    nccl, cuda = choice.versions["nccl"], choice.version("cuda")
    build = rules.nccl_build(nccl) if nccl else None
    if nccl is None or build is None:
        return
    release, driver = nccl.partition("-")[0], choice.versions["driver"]
    if build != versions.minor(cuda):
        yield (
            f"NCCL {release} is used in its build for CUDA {build}, because none exists for {cuda}: "
            "it works by minor-version compatibility"
        )
    if driver and rules.support(driver, build, choice.catalogue) == 1:
        yield (
            f"NCCL's build for CUDA {build} is newer than what driver {driver} supports in full: where it "
            "fails with `unhandled cuda error`, take an older build or a newer driver"
        )
    plain = _plain_install(choice, release, build)
    if plain:
        yield f"a plain install of NCCL would take {plain}: it is pinned to {nccl}"


def _plain_install(choice: GroupChoice, release: str, build: str) -> str:
    """Return the version the package manager would install by default if it is built for a newer CUDA."""
    known, limits = choice.catalogue.nccl, choice.group.system.nccl
    if limits is None or choice.group.methods["nccl"] != "repo":
        return ""
    newest = next(name for name in known if versions.is_within(name, limits) and known[name].builds)
    taken = {f"{name}-1+cuda{known[name].builds[-1]}" for name in (release, newest)}
    newer = [one for one in taken if versions.numbers(str(rules.nccl_build(one))) > versions.numbers(build)]
    return " or ".join(sorted(newer, key=versions.numbers))
