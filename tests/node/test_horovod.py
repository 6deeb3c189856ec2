"""Every variant of Horovod matches the inventory, and two ranks compute the right sum."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from hvlab.bench.matrix import Case
from hvlab.lab.backends import BACKENDS
from hvlab.launchers import horovodrun, mpirun
from hvlab.launchers.command import Job
from tests.node.lab import ROOT, Node, Question, run

LAUNCHERS = {"mpi": mpirun.command, "gloo": horovodrun.command}
FRAMEWORKS = {"torch": "pytorch", "tensorflow": "tensorflow", "mxnet": "mxnet"}
RANKS = 2
PROGRAMS = {
    "torch": """
import json, socket
import torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.full((1024,), float(hvd.rank() + 1)), op=hvd.Sum)
print(json.dumps({"rank": hvd.rank(), "size": hvd.size(), "host": socket.gethostname(),
                  "least": total.min().item(), "most": total.max().item()}), flush=True)
hvd.shutdown()
""",
    "tensorflow": """
import json, os, socket
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
total = hvd.allreduce(tf.fill((1024,), float(hvd.rank() + 1)), op=hvd.Sum)
print(json.dumps({"rank": hvd.rank(), "size": hvd.size(), "host": socket.gethostname(),
                  "least": float(tf.reduce_min(total)), "most": float(tf.reduce_max(total))}), flush=True)
hvd.shutdown()
""",
}
# What a rank does, up to where it has loaded its NCCL.
LOADED = """
import importlib, sys
importlib.import_module("horovod." + sys.argv[1])
print("NCCL", nccl())
"""
each_backend = pytest.mark.parametrize("backend", LAUNCHERS)


def variants(node: Node) -> dict[str, dict[str, Any]]:
    """The variants in the inventory."""
    return dict(node.variables["horovod_variants"])


def prefix(node: Node, variant: str) -> str:
    """The folder of a variant."""
    return f"{node.variables['horovod_prefix']}/{variant}"


def having(node: Node, backend: str) -> list[str]:
    """The variants that are to have this backend."""
    return [variant for variant, options in variants(node).items() if options.get(backend)]


def gpu_planes(options: dict[str, Any]) -> set[str]:
    """The backends that carry tensors in GPU memory in a variant."""
    operations = options.get("gpu_operations") or ""
    return set(operations.values() if isinstance(operations, dict) else [operations]) - {""}


def nccl_frameworks(node: Node, variant: str) -> list[str]:
    """The frameworks whose ranks use NCCL in a variant."""
    options = variants(node)[variant]
    return list(options["frameworks"]) if "nccl" in gpu_planes(options) else []


def nccl_of(node: Node, variant: str, framework: str) -> str:
    """The NCCL release that a rank of a variant loads on a host."""
    output = node.output(f"{variant} {framework} NCCL", "run role horovod")
    match = re.search(r"^NCCL (\S+)$", output, re.MULTILINE)
    return match[1] if match else "none"


def neighbour(node: Node) -> str | None:
    """The host whose name comes next; None for the last one. So every host is in a pair."""
    return min((peer for peer in node.peers if peer > node.name), default=None)


def allreduce(node: Node, variant: str, backend: str, hosts: tuple[str, ...]) -> Question:
    """Ask for a sum over two ranks, started just as a benchmark is."""
    interface = node.variables["lab_interface"]
    case = Case(
        id="check", workload="allreduce", backend=backend, launcher="", hosts=hosts,
        slots=RANKS // len(hosts), repeat=1, timeout=180,
    )  # fmt: skip
    job = Job(
        case=case,
        program=(
            f"{prefix(node, variant)}/bin/python",
            "-c",
            PROGRAMS[variants(node)[variant]["frameworks"][0]],
        ),
        env={name: value.format(interface=interface) for name, value in BACKENDS[backend].env.items()},
        network=node.variables["lab_network"],
        interface=interface,
        horovod=prefix(node, variant),
        openmpi=f"{node.variables['openmpi_prefix']}/current",
        workloads=node.variables["workloads_dir"],
    )
    command = LAUNCHERS[backend](job)
    return run(list(command.argv), user=node.user, env=dict(command.env), timeout=180, alone=True)


def asks(node: Node) -> dict[str, Question]:
    questions = {}
    other = neighbour(node)
    for variant in variants(node):
        program = f"{prefix(node, variant)}/bin/horovodrun"
        questions[f"{variant} build"] = run([program, "--check-build"], user=node.user, timeout=180)
        library = ["find", f"{prefix(node, variant)}/lib", "-name", "mpi_lib*.so"]
        for framework in nccl_frameworks(node, variant):
            text = (ROOT / "hvlab/workloads/programs/loaded.py").read_text(encoding="utf-8") + LOADED
            python = f"{prefix(node, variant)}/bin/python"
            loaded = run([python, "-c", text, framework], user=node.user, timeout=180)
            questions[f"{variant} {framework} NCCL"] = loaded
        questions[f"{variant} libraries"] = run([*library, "-exec", "ldd", "{}", "+"])
    for backend in LAUNCHERS:
        for variant in having(node, backend):
            questions[f"{variant} {backend} here"] = allreduce(node, variant, backend, (node.name,))
            if other:
                questions[f"{variant} {backend} pair"] = allreduce(node, variant, backend, (node.name, other))
    return questions


def built(output: str) -> dict[str, set[str]]:
    """What `horovodrun --check-build` ticks, by section."""
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


def test_version_matches_the_inventory(node: Node) -> None:
    for variant in variants(node):
        output = node.output(f"{variant} build", "run role horovod")
        match = re.search(r"Horovod v(\S+?):", output)
        version, requested = match[1] if match else "unknown", node.variables["horovod_version"]
        node.expect(
            version == requested,
            f"variant {variant} is {version}, the inventory asks for {requested}",
            "run role horovod",
        )


def test_build_flags_match_the_inventory(node: Node) -> None:
    recorded = node.fact("horovod")["variants"]
    for variant, options in variants(node).items():
        available = built(node.output(f"{variant} build", "run role horovod"))
        planes = {name for name in ("mpi", "gloo") if options.get(name)}
        # oneCCL is left out where there is no build of it for the machine; the role records that.
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


def test_libraries_are_found(node: Node) -> None:
    for variant, options in variants(node).items():
        output = node.output(f"{variant} libraries", "run role horovod")
        node.expect("=>" in output, f"variant {variant} has no library of its own", "run role horovod")
        # The framework's libraries are loaded by its import, which comes first.
        missing = [line.strip() for line in output.splitlines() if "not found" in line]
        missing = [line for line in missing if "torch" not in line and "tensorflow" not in line]
        missing = [line for line in missing if not line.startswith(("libc10", "libcudart"))]
        node.expect(not missing, f"variant {variant}: {'; '.join(missing)}", "run roles openmpi and horovod")
        if options.get("mpi"):
            mpi = re.search(r"libmpi\.so\S* => (\S+)", output)
            node.expect(
                mpi and mpi[1].startswith("/opt/hvlab/openmpi/"),
                f"variant {variant} loads MPI from {mpi[1] if mpi else 'nowhere'}",
                "remove the other MPI from the loader's path, and run role horovod",
            )


def test_ranks_load_the_same_nccl_on_all_hosts(node: Node, nodes: dict[str, Node]) -> None:
    """The one that is loaded counts: torch brings its own, whatever Horovod was built with."""
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
            # A plan may give hosts different ones, and says so, unless the lab is to run NCCL.
            node.expect(
                not differing or (expected and node.variables.get("lab_backend") != "nccl"),
                f"{ranks} load NCCL {loaded}, {', '.join(differing)}; NCCL refuses to run between them",
                "set lab_torch to what `hvlab plan --pin backend=nccl` chooses",
            )


def check_sum(node: Node, question: str, hosts: int) -> None:
    """The sum of 1 and 2 is 3, on every rank."""
    output = node.output(
        question, "run what `hvlab bench --dry-run` prints by hand; roles ssh_trust and horovod"
    )
    ranks = [json.loads(line) for line in re.findall(r"\{.*\}", output)]
    right = [r for r in ranks if (r["size"], r["least"], r["most"]) == (RANKS, 3.0, 3.0)]
    node.expect(
        len(ranks) == RANKS and right == ranks and len({rank["host"] for rank in ranks}) == hosts,
        f"{question}: {RANKS} ranks should each have 3.0, and printed {ranks}",
        "run role horovod; if that changes nothing, remove the variant first",
    )


def skip_without(node: Node, backend: str) -> None:
    """Skip where no variant has the backend."""
    if not having(node, backend):
        pytest.skip(f"no variant on {node.name} is to have {backend}")


@each_backend
def test_two_ranks_add_up_on_this_host(node: Node, backend: str) -> None:
    skip_without(node, backend)
    for variant in having(node, backend):
        check_sum(node, f"{variant} {backend} here", hosts=1)


@each_backend
def test_two_ranks_add_up_between_hosts(node: Node, backend: str) -> None:
    if neighbour(node) is None:
        pytest.skip(f"no host follows {node.name}; the one before it forms a pair with it")
    skip_without(node, backend)
    for variant in having(node, backend):
        check_sum(node, f"{variant} {backend} pair", hosts=2)
