"""Every variant of Horovod matches the inventory, and ranks compute the right sum."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from hvlab.checks import horovod_ranks as ranks
from hvlab.checks import openmpi
from hvlab.checks.horovod_ranks import having, neighbour, prefix, variants
from hvlab.checks.provisioned import ROOT, NotApplicable, Question, Role, RoleHost, is_virtual, run, unfound

FRAMEWORKS = {"torch": "pytorch", "tensorflow": "tensorflow", "mxnet": "mxnet"}
# The start of a rank, up to loading its NCCL.
LOADED = """
import importlib, sys
importlib.import_module("horovod." + sys.argv[1])
print("NCCL", nccl())
"""
MUTE_REMEDY = "take `exit` or what waits out of the ~/.bashrc, ~/.bash_profile or ~/.profile there"


def gpu_planes(options: dict[str, Any]) -> set[str]:
    """The backends that carry tensors in GPU memory in a variant."""
    operations = options.get("gpu_operations") or ""
    return set(operations.values() if isinstance(operations, dict) else [operations]) - {""}


def nccl_frameworks(node: RoleHost, variant: str) -> list[str]:
    """The frameworks whose ranks use NCCL in a variant."""
    options = variants(node)[variant]
    return list(options["frameworks"]) if "nccl" in gpu_planes(options) else []


def nccl_of(node: RoleHost, variant: str, framework: str) -> str:
    """The NCCL release that a rank of a variant loads on a host."""
    output = node.output(f"{variant} {framework} NCCL")
    match = re.search(r"^NCCL (\S+)$", output, re.MULTILINE)
    return match[1] if match else "none"


def asks(node: RoleHost) -> dict[str, Question]:
    questions = {}
    for variant in variants(node):
        library = ["find", f"{prefix(node, variant)}/lib", "-name", "mpi_lib*.so"]
        for framework in nccl_frameworks(node, variant):
            text = (ROOT / "hvlab/workloads/programs/evidence.py").read_text(encoding="utf-8") + LOADED
            python = f"{prefix(node, variant)}/bin/python"
            loaded = run([python, "-c", text, framework], user=node.user, timeout=180)
            questions[f"{variant} {framework} NCCL"] = loaded
        questions[f"{variant} libraries"] = run([*library, "-exec", "ldd", "{}", "+"])
    return questions


def asks_after(node: RoleHost, nodes: Mapping[str, RoleHost]) -> dict[str, Question]:
    """Launches over many hosts first; if one fails, those of each host; then anything no rank reported."""
    questions, ended = launches(node, nodes)
    questions = {name: question for name, question in questions.items() if name not in node.answers}
    if questions or not ended:
        return questions
    return {
        f"{variant} build": run(
            [f"{prefix(node, variant)}/bin/horovodrun", "--check-build"], **limits(node, nodes)
        )
        for variant in variants(node)
        if f"{variant} build" not in node.answers and not rank_report(node, nodes, variant)
    }


def limits(node: RoleHost, nodes: Mapping[str, RoleHost]) -> dict[str, Any]:
    """The user of ranks, and the seconds that a launch may take."""
    shared = sum(map(is_virtual, nodes.values()))
    return {"user": node.user, "timeout": ranks.TIMEOUT_S + ranks.TIMEOUT_SHARED_S * shared}


def launches(node: RoleHost, nodes: Mapping[str, RoleHost]) -> tuple[dict[str, Question], bool]:
    """The launches that begin on this host, given the answers so far, and whether those of groups ended."""
    slots, timeout = ranks.ranks_per_host(nodes), limits(node, nodes)["timeout"]
    questions, ended = {}, True
    planes = [(variant, backend) for backend in ranks.LAUNCHERS for variant in having(node, backend)]
    for variant, backend in planes:
        start = partial(ranks.allreduce, node, variant, backend, timeout=timeout)
        name = partial(ranks.name, variant, backend)
        for group in ranks.groups_of(node, nodes, variant, backend):
            failed = ranks.has_failed(nodes, variant, backend, group)
            ended &= failed is not None
            if failed is None and node.name == group[0]:
                questions[name("together", group)] = start(hosts=group, slots=slots)
            elif failed:
                questions[name("here")] = start(hosts=(node.name,), slots=2)
                if (other := neighbour(node)) and not mute_of((node.name, other), nodes):
                    questions[name("pair")] = start(hosts=(node.name, other), slots=1)
    return questions, ended


def mute_of(pair: Iterable[str], nodes: Mapping[str, RoleHost]) -> list[str]:
    """The hosts of a pair whose logins run no command: a launcher would wait until it times out."""
    return [name for name in pair if name in nodes and nodes[name].mute]


def parse_built(output: str) -> dict[str, set[str]]:
    """The items ticked by `horovodrun --check-build`, by section."""
    sections: dict[str, set[str]] = {}
    section = ""
    for line in output.splitlines():
        heading = re.fullmatch(r"Available (.+):", line.strip())
        ticked = re.fullmatch(r"\[(X| )\] (\w+)", line.strip())
        if heading:
            section = heading[1]
        elif ticked and ticked[1] == "X":
            sections.setdefault(section, set()).add(ticked[2].lower())
    return sections


def rank_report(node: RoleHost, nodes: Mapping[str, RoleHost], variant: str) -> dict[str, Any] | None:
    """A rank's report on a variant, if complete: a rank loads only one framework."""
    alone = len(variants(node)[variant]["frameworks"]) == 1
    return ranks.report_of(node, nodes, variant) if alone else None


def build(node: RoleHost, nodes: Mapping[str, RoleHost], variant: str) -> tuple[str, dict[str, set[str]]]:
    """A variant's version and build options by section, as reported by a rank or by horovodrun."""
    report = rank_report(node, nodes, variant)
    if report:
        (framework,) = variants(node)[variant]["frameworks"]
        planes = {plane for plane in ("mpi", "gloo") if plane in report["built"]}
        sections = {"Frameworks": {FRAMEWORKS[framework]}, "Controllers": planes}
        return report["version"], sections | {"Tensor Operations": set(report["built"])}
    output = node.output(f"{variant} build")
    match = re.search(r"Horovod v(\S+?):", output)
    return match[1] if match else "unknown", parse_built(output)


ROLE = Role("horovod", asks, asks_after=asks_after)


@ROLE.check
def version_matches_the_inventory(node: RoleHost, nodes: dict[str, RoleHost]) -> None:
    for variant in variants(node):
        version, _ = build(node, nodes, variant)
        requested = node.variables["horovod_version"]
        right = version == requested if requested else version.endswith("+torch.distributed")
        asked = requested or "hvlab_horovod (lab_horovod: torch)"
        node.expect(right, f"variant {variant} is {version}, the inventory asks for {asked}")


@ROLE.check
def build_flags_match_the_inventory(node: RoleHost, nodes: dict[str, RoleHost]) -> None:
    recorded = node.fact("horovod")["variants"]
    for variant, options in variants(node).items():
        _, available = build(node, nodes, variant)
        planes = {name for name in ("mpi", "gloo") if options.get(name)}
        # oneCCL is left out if it has no build for the machine; the role records that.
        has_ccl = "CCL" in recorded.get(variant, {}).get("operations", [])
        operations = {"ccl"} if options.get("ccl") and has_ccl else set()
        operations |= planes | gpu_planes(options)
        frameworks = {FRAMEWORKS[name] for name in options["frameworks"]}
        requested = {"Frameworks": frameworks, "Controllers": planes, "Tensor Operations": operations}
        missing = [
            f"{kind}: {name}"
            for kind, names in requested.items()
            for name in names - available.get(kind, set())
        ]
        node.expect(
            not missing,
            f"variant {variant} was built without {', '.join(sorted(missing))}",
            f"remove {prefix(node, variant)} and run role horovod",
        )


@ROLE.check
def libraries_are_found(node: RoleHost) -> None:
    if node.variables.get("horovod_version") == "":
        raise NotApplicable("torch is in Horovod's place (lab_horovod: torch)")
    for variant, options in variants(node).items():
        output = node.output(f"{variant} libraries")
        node.expect("=>" in output, f"variant {variant} has no library of its own")
        # The framework's libraries are loaded by its import, which comes first.
        missing = unfound(output)
        missing = [line for line in missing if "torch" not in line and "tensorflow" not in line]
        missing = [line for line in missing if not line.startswith(("libc10", "libcudart"))]
        node.expect(not missing, f"variant {variant}: {'; '.join(missing)}", "run roles openmpi and horovod")
        if options.get("mpi"):
            mpi = re.search(r"libmpi\.so\S* => (\S+)", output)
            node.expect(
                mpi and (openmpi.is_packaged(node) or node.is_packed(mpi[1], "openmpi")),
                f"variant {variant} loads MPI from {mpi[1] if mpi else 'nowhere'}",
                "remove the other MPI from the loader's path, and run role horovod",
            )


@ROLE.check
def ranks_load_the_same_nccl_on_all_hosts(node: RoleHost, nodes: dict[str, RoleHost]) -> None:
    """The loaded one counts: torch brings its own, independent of Horovod's build."""
    planned = node.stack.get("nccl_loaded") or {}
    for variant in variants(node):
        for framework in nccl_frameworks(node, variant):
            loaded, expected = nccl_of(node, variant, framework), planned.get(framework)
            ranks = f"ranks of variant {variant} with {framework}"
            node.expect(
                loaded != "none" and expected in (None, loaded),
                f"{ranks} load NCCL {loaded}; planned was {expected or 'one'}",
                "run roles python_env and horovod; LD_PRELOAD must name no other NCCL",
            )
            others = {
                other.name: nccl_of(other, variant, framework)
                for other in nodes.values()
                if f"{variant} {framework} NCCL" in other.answers
            }
            differing = [f"{release} on {name}" for name, release in others.items() if release != loaded]
            # A plan may give hosts different ones, and says so, unless the lab must run NCCL.
            node.expect(
                not differing or (expected and node.variables.get("lab_backend") != "nccl"),
                f"{ranks} load NCCL {loaded}, {', '.join(differing)}; NCCL refuses to run between them",
                "set lab_torch to what `hvlab plan --pin backend=nccl` chooses",
            )


def expect_sum(node: RoleHost, question: str, *, hosts: int) -> None:
    """Expect the right sum from every rank of a launch over one host or a pair."""
    output = node.output(
        question, "run what `hvlab bench --dry-run` prints by hand; roles ssh_trust and horovod"
    )
    node.expect(
        ranks.adds_up(node[question], hosts=hosts, slots=2 // hosts),
        f"{question}: 2 ranks should each have 3.0, and printed {output.strip()}",
        "run role horovod; if that changes nothing, remove the variant first",
    )


def expect_launches(
    node: RoleHost, nodes: Mapping[str, RoleHost], backend: str, where: str, *, hosts: int
) -> None:
    """Expect right sums with the other hosts, or at least in a launch of this host alone."""
    if not having(node, backend):
        raise NotApplicable(f"no variant on {node.name} is to have {backend}")
    for variant in having(node, backend):
        groups = ranks.groups_of(node, nodes, variant, backend)
        if any(ranks.has_failed(nodes, variant, backend, group) for group in groups):
            expect_sum(node, ranks.name(variant, backend, where), hosts=hosts)


@ROLE.check_each(*ranks.LAUNCHERS)
def ranks_add_up_on_this_host(node: RoleHost, nodes: dict[str, RoleHost], case: str) -> None:
    expect_launches(node, nodes, case, "here", hosts=1)


@ROLE.check_each(*ranks.LAUNCHERS)
def ranks_add_up_between_hosts(node: RoleHost, nodes: dict[str, RoleHost], case: str) -> None:
    if not node.peers:
        raise NotApplicable(f"{node.name} is the only host")
    if other := neighbour(node):
        mute = mute_of((node.name, other), nodes)
        node.expect(not mute, f"a login to {', '.join(mute)} does not run its command", MUTE_REMEDY)
        expect_launches(node, nodes, case, "pair", hosts=2)


@ROLE.check_each(*ranks.LAUNCHERS)
def ranks_add_up_on_all_hosts(node: RoleHost, nodes: dict[str, RoleHost], case: str) -> None:
    """Reported by the first host of each launch only, so that a failed launch counts once."""
    for variant in having(node, case):
        for group in ranks.groups_of(node, nodes, variant, case):
            if node.name == group[0] and len(group) > 1:
                question = ranks.name(variant, case, "together", group)
                slots = ranks.ranks_per_host(nodes)
                output = node.output(question, "see the checks of each host; else run `hvlab find-slow`")
                node.expect(
                    ranks.adds_up(node[question], hosts=len(group), slots=slots),
                    f"{question}: {len(group)} hosts, {slots} ranks each, printed {output.strip()[-600:]}",
                    "see the checks of each host",
                )
