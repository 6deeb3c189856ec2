"""What can be measured: programs that run on the nodes, and the parsers of their result files.

In: a ``Case`` (``case``, read it first). Out: the program's arguments (``argv``), and later, from its files,
an ``Outcome`` (``outcome``). ``collective``, ``training`` and ``command`` (the user's own) are the kinds of
workload; ``parameters``, ``sizes`` and ``limits`` their settings, ``metrics`` their results (``tables.yml``
has the data), ``proof`` shows the carrier of the data, ``contention`` the cores taken by others. ``programs``
never import hvlab: hosts lack it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvlab.base.answers import AnswerError
from hvlab.lab.backends import BACKENDS, FSDP, SHIM
from hvlab.workloads.case import Case
from hvlab.workloads.collective import COLLECTIVES
from hvlab.workloads.command import COMMAND
from hvlab.workloads.contention import with_contention
from hvlab.workloads.outcome import Figure, Outcome, Workload, ending, start_outcome
from hvlab.workloads.parameters import COMMON, Parameter, find, word
from hvlab.workloads.training import TRAININGS

WORKLOADS: Mapping[str, Workload] = {one.name: one for one in (*COLLECTIVES, *TRAININGS, COMMAND)}
__all__ = [
    "PROGRAMS", "WORKLOADS", "Figure", "Outcome", "Workload",
    "argv", "data", "files", "outcome", "parameters", "read_back",
]  # fmt: skip

# The hosts' programs, on this machine.
PROGRAMS = Path(__file__).with_name("programs")
# The folder of data sets on each host, below the lab user's home.
DATA_FOLDER = "~/.hvlab/data"
# Made by the program itself.
_SYNTHETIC = "synthetic"


def argv(case: Case, keys: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the program's file name and arguments; ``keys`` names each data set's folder on the hosts."""
    workload = WORKLOADS[case.workload]
    own = "" if case.framework == "torch" else f"_{case.framework}"
    words = [workload.program.replace(".py", f"{own}.py"), "--workload", case.workload]
    words += ["--world-size", str(case.world_size), "--hosts", str(len(case.hosts))]
    for parameter in workload.parameters:
        if parameter.kind == "note" or parameter.name not in case.params:
            continue
        value = case.params[parameter.name]
        if parameter.kind == "files":
            value = f"{DATA_FOLDER}/{value.split()[0]}" if value else ""
        if parameter.kind == "data" and value != _SYNTHETIC:
            value = f"{DATA_FOLDER}/{(keys or {}).get(value, Path(value).name)}"
        if parameter.kind == "seed":
            value += case.repeat - 1
        words += [f"--{parameter.name.replace('_', '-')}", word(value)]
    backend = BACKENDS[case.backend]
    how = ["--ddp", backend.group] if backend.group else [] if backend.parallel else ["--serial"]
    # Through Horovod's calls; of the user's own command, torch.distributed reports its group.
    how = [] if backend.framework == SHIM and not case.command else how
    how += ["--sharded"] if backend.framework == FSDP else []
    return (*words, *how)


def data(case: Case) -> tuple[str, ...]:
    """Return the names or folders of the data sets that a case needs on its hosts."""
    kinds = [item.name for item in WORKLOADS[case.workload].parameters if item.kind == "data"]
    return tuple(case.params[name] for name in kinds if case.params[name] != _SYNTHETIC)


def files(case: Case) -> tuple[str, ...]:
    """Return the user's own files that a case needs on its hosts, as ``datasets.own_files`` writes them."""
    kinds = [item.name for item in WORKLOADS[case.workload].parameters if item.kind == "files"]
    return tuple(case.params[name] for name in kinds if case.params[name])


def parameters(workload: str) -> tuple[Parameter, ...]:
    """Return all parameters of a workload, its own first."""
    return (*WORKLOADS[workload].parameters, *COMMON)


def read_back(workload: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parse parameters from a file or store, each with its own reader; texts stay. Raises UsageError."""
    known = dict(params)
    items = parameters(workload) if workload in WORKLOADS else COMMON
    for name, value in known.items():
        item = find(name, items)
        if item is None or value is None:
            continue
        read = value if item.kind == "text" and isinstance(value, str) else item.read(value)
        # Read again, `~` would be another home, and masked text would get quotes.
        known[name] = value if isinstance(value, str) and isinstance(read, str) else read
    return known


def outcome(case: Case, folder: Path) -> Outcome:
    """Read the result of ``case`` from its files in ``folder``."""
    try:
        ended = ending(case.hosts, folder)
    except FileNotFoundError:
        return Outcome(0.0, error=f"no case.json in {folder}")
    except AnswerError as error:
        return Outcome(0.0, error=f"{error}: {error.remedy}")
    if ended.get("skipped"):
        return replace(start_outcome(ended), error=str(ended["skipped"]), skipped=True)
    parsed = WORKLOADS[case.workload].parse(case, ended, folder)
    return with_contention(case, parsed, folder)
