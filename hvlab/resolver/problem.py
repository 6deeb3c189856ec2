"""From a lab and its wishes to a problem of choices: domains, limits, relations, and what may be assumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hvlab.resolver import domains, rules, versions
from hvlab.resolver.built import ONE_CUDA, ONE_NCCL, SAME_TOOLKIT, Built, Wishes
from hvlab.resolver.entries import Catalogue
from hvlab.resolver.lab import Group, names
from hvlab.resolver.limits import Facts, of_everything, of_group
from hvlab.resolver.model import Candidate, Limit, Problem
from hvlab.resolver.pins import Pin, meets
from hvlab.resolver.relations import of_lab, of_pair


def build(groups: Sequence[Group], wishes: Wishes, catalogue: Catalogue) -> Built:
    """Return the problem of these groups."""
    made = Built(Problem(), tuple(groups), wishes, catalogue)
    _lab_domains(made)
    _cuda_domains(made)
    for number, group in enumerate(groups):
        _group_domains(made, number, group)
    _wishes(made)
    facts = Facts(made)
    made.problem.limits += of_everything(made)
    made.problem.relations += of_lab(made)
    for number, group in enumerate(groups):
        made.problem.limits += of_group(made, facts, number, group)
        made.problem.relations += of_pair(made, facts, number, group)
    return made


def _lab_domains(made: Built) -> None:
    problem, catalogue, groups = made.problem, made.catalogue, made.groups
    problem.domain(("python", None), domains.pythons(groups, catalogue))
    if "torch" in made.frameworks:
        gpus = any(group.gpus for group in groups) and not made.torch_on_cpu
        proven = next((v for build, v in catalogue.proven.items() if (build != "cpu") == gpus), None)
        problem.domain(("torch", None), domains.releases(catalogue.torch, proven))
    if "tensorflow" in made.frameworks:
        problem.domain(("tensorflow", None), domains.releases(catalogue.tensorflow))
    problem.domain(("horovod", None), domains.releases(catalogue.horovod, catalogue.defaults.get("horovod")))
    problem.domain(("openmpi", None), domains.openmpis(groups, catalogue))
    problem.domain(("backend", None), domains.backends(groups))


def _cuda_domains(made: Built) -> None:
    problem, catalogue = made.problem, made.catalogue
    found = {}
    for number, group in enumerate(made.groups):
        if group.gpus:
            pins = made.wishes.of(group)
            drivers = domains.drivers(group, pins, catalogue)
            usual = next((v for v, branch in drivers if _usable(v, branch, group, catalogue)), None)
            found[number] = domains.cudas(usual, pins, catalogue)
    if len(found) > 1:
        order = [[versions.minor(version) for version, _ in releases] for releases in found.values()]
        shared = sorted(catalogue.cuda, key=lambda release: sum(each.index(release) for each in order))
        problem.domain((ONE_CUDA, None), [(release, None) for release in shared])
    for number, releases in found.items():
        problem.domain(("cuda", number), releases)
    if len(found) > 1:
        majors = sorted({versions.major(release) for release in catalogue.nccl}, reverse=True)
        problem.domain(("nccl major", None), [(str(major), None) for major in majors])
        problem.domain((ONE_NCCL, None), list(catalogue.nccl.items()))
        made.soft += [ONE_CUDA, ONE_NCCL]
    if found and "torch" in made.frameworks and not made.torch_on_cpu:
        made.soft.insert(0, SAME_TOOLKIT)


def _group_domains(made: Built, number: int, group: Group) -> None:
    problem, catalogue = made.problem, made.catalogue
    if not group.gpus:
        problem.domain(("gcc", number), domains.gccs(group, catalogue))
        return
    problem.domain(("driver", number), domains.drivers(group, made.wishes.of(group), catalogue))
    problem.domain(("gcc", number), domains.gccs(group, catalogue))
    problem.domain(("cudnn", number), domains.cudnns(catalogue))
    problem.domain(("nccl", number), domains.nccls(catalogue))
    if group.host.driver:
        kept, installed = _keep(number), group.host.driver
        made.soft.insert(0, kept)
        problem.limits.append(Limit(("driver", number), lambda c: c.version == installed, soft=kept))


def _keep(number: int) -> str:
    return f"keep driver {number}"


def _usable(version: str, branch: object, group: Group, catalogue: Catalogue) -> bool:
    fits = all(
        rules.driver_runs(
            version, catalogue.branches.get(str(versions.major(version))), capability, catalogue
        )
        for capability in group.capabilities
    )
    method = group.methods["driver"]
    offered = version in (group.host.driver, "none") or rules.driver_offered(
        version,
        catalogue.branches.get(str(versions.major(version))),
        group.system,
        method,
        group.host.architecture,
    )
    return fits and offered and (branch is not None or version in (group.host.driver, "none"))


def _wishes(made: Built) -> None:
    for pin, numbers in made.pins().items():
        if not pin.value:
            continue
        everyone = len(numbers) == len(made.groups)
        text = pin.text if everyone else f"{pin.text} ({names(made.hosts(numbers))})"
        assumption = made.problem.assume("wish", pin.name, pin.value, text, numbers)
        for key in [(pin.name, None), *((pin.name, number) for number in sorted(numbers))]:
            if key in made.problem.domains:
                made.problem.limits.append(Limit(key, _meets(pin), assumptions=(assumption,)))
        if pin.cuda:
            wanted = Pin("cuda", pin.cuda)
            for number in sorted(numbers):
                if ("cuda", number) in made.problem.domains:
                    made.problem.limits.append(
                        Limit(("cuda", number), _meets(wanted), assumptions=(assumption,))
                    )


def _meets(pin: Pin) -> Callable[[Candidate], bool]:
    def fits(candidate: Candidate) -> bool:
        if candidate.version == "none" or not meets(pin, candidate.version):
            return False
        return pin.name != "torch" or pin.cuda is None or pin.cuda in candidate.data.cuda

    return fits
