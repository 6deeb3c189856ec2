"""From a case and its lab to the command that starts its ranks. Pure.

Read ``command`` first: a ``Job`` goes into a launcher, a ``Command`` comes out. Each launcher is one
module, which registers itself. ``container`` is the command that starts the container of a run.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hvlab.base.paths import project_dir
from hvlab.lab.backends import BACKENDS, HOROVOD, SHIM
from hvlab.lab.inventory import Host, Lab, folders, parameters_file
from hvlab.workloads import DATA_FOLDER
from hvlab.workloads.case import Case
from hvlab.workloads.datasets import rules
from hvlab.workloads.launchers import srun
from hvlab.workloads.launchers.command import LAUNCHERS, RECIPES, Command, Job, deadline
from hvlab.workloads.parameters import RULES, STACK, environment, variables

# Each module registers its own launcher: a new launcher is a new module.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
__all__ = ["LAUNCHERS", "RULES_FILE", "Command", "Job", "command", "job", "rank_environment", "recipe"]

_HOROVOD = {
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "20",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60",
    "HOROVOD_TIMELINE": "DYNAMIC",
}
# mpirun reads these by default: the user's own file, then that of its folder, which a stack replaces.
_PARAMETER_FILES, _USERS = "OMPI_MCA_mca_base_param_files", "~/.openmpi/mca-params.conf"
# Open MPI replaces ~/ in it by each rank's home.
_USE_RULES, _RULES_FILE = (
    f"OMPI_MCA_coll_tuned_{name}" for name in ("use_dynamic_rules", "dynamic_rules_filename")
)
# What stands for the rules file in a recipe.
RULES_FILE = "RULES"
# Where the ranks of DDP and FSDP meet: torch's own port, and those above it.
_FIRST_PORT, _PORTS = 29500, 500


def command(
    case: Case, lab: Lab, run_id: str, program: Sequence[str], *, container_options: Sequence[str] = ()
) -> Command:
    """Return the command that starts ``case`` on its first host; ``program`` is a file name and arguments.

    ``container_options`` are the user's, where srun starts the ranks inside a container.
    """
    return LAUNCHERS[case.launcher](job(case, lab, run_id, program, container_options=container_options))


def job(
    case: Case, lab: Lab, run_id: str, program: Sequence[str], *, container_options: Sequence[str] = ()
) -> Job:
    """Return the case with each rank's argv and environment."""
    backend = BACKENDS[case.backend]
    hosts = [lab.host(name) for name in case.hosts]
    stack = str(case.params.get(STACK.name, ""))
    where = folders(lab, stack)
    prefix = f"{where.horovod}/{case.variant}"
    python = lab.text("hvlab_rank_python", f"{prefix}/bin/python3")
    settings = rank_environment(case, lab)
    env = {"HVLAB_CASE": f"{run_id}/{case.id}", "OMP_NUM_THREADS": settings["OMP_NUM_THREADS"]}
    if backend.framework == HOROVOD:
        env |= _HOROVOD
    if backend.group:
        env |= _set_rendezvous(hosts[0], lab, env["HVLAB_CASE"])
    env |= settings
    if case.params["device"] == "cuda":
        env["HVLAB_DEVICE"] = "cuda"
    if stack:
        env = {_PARAMETER_FILES: f"{_USERS},{parameters_file(stack)}"} | env
    user = lab.text("lab_user_name", "hvlab")
    home = lab.text("lab_user_home", f"/home/{user}")
    options = list(map(str, lab.vars.get("hvlab_step_options") or ()))
    if case.container and case.launcher == srun.NAME:
        # The roles install on the hosts; on somebody else's cluster everything is in the image.
        alias = [env["PYTHONPATH"]] if backend.framework == SHIM else []
        read = ("/opt/hvlab",) if lab.prepared else (where.workloads, *alias)
        options += srun.container_options(case.container, home=home, read=read, more=container_options)
    argv = (
        *deadline(case),
        *(python, f"{where.workloads}/{program[0]}", *program[1:]),
        *("--output", f"~/.hvlab/runs/{run_id}/{case.id}/result.json"),
    )
    return Job(
        case=case,
        program=argv,
        python=python,
        env=env,
        network=lab.network,
        interface=lab.interface,
        horovod=prefix,
        openmpi=lab.text("hvlab_rank_mpi", where.openmpi),
        workloads=where.workloads,
        gpu=all(host.gpu for host in hosts),
        shared=any(host.virtual for host in hosts),
        port=case.ssh_port,
        local=lab.local,
        foreign=not lab.prepared,
        pmi=lab.text("lab_slurm_mpi", "pmix"),
        srun=tuple(options),
        host_python=lab.python,
        head=lab.hosts[0].name if lab.step else case.hosts[0],
        home=home,
    )


def rank_environment(case: Case, lab: Lab) -> dict[str, str]:
    """Return the environment that affects the ranks, without variables that only hvlab's programs read.

    The inventory overrides hvlab's defaults, and the case's parameters override both.
    """
    backend = BACKENDS[case.backend]
    own = {name: str(value) for name, value in lab.vars.get("lab_rank_env", {}).items()}
    tuning = environment(case.params, named=own)
    if backend.framework != HOROVOD:
        tuning = {name: value for name, value in tuning.items() if name == "OMP_NUM_THREADS"}
    shipped = Path(folders(lab, str(case.params.get(STACK.name, ""))).workloads, "hvlab_horovod")
    alias = shipped if lab.prepared else project_dir() / "hvlab_horovod/alias"
    given = {name: value.format(interface=lab.interface, alias=alias) for name, value in backend.env.items()}
    env = tuning | given
    env |= own | tuning | variables(case.params)
    if RULES.name in case.params:
        key = rules.key(case.params[RULES.name])
        env |= {_USE_RULES: "1", _RULES_FILE: f"{DATA_FOLDER}/{key}/{rules.FILE}"}
    return env


def recipe(case: Case, lab: Lab) -> list[str]:
    """Return shell lines that start the user's own job in the way ``case`` is started.

    Hosts, ranks and program are left out; RULES stands for the rules file.
    """
    env = rank_environment(case, lab)
    if _RULES_FILE in env:
        env[_RULES_FILE] = RULES_FILE
    start = RECIPES[case.launcher](replace(job(case, lab, "", ("",)), env=env))
    lines = [f"export {name}={shlex.quote(value)}" for name, value in start.env.items()]
    return [*lines, f"{shlex.join(start.argv)} ...".lstrip()]


def _set_rendezvous(first: Host, lab: Lab, mark: str) -> dict[str, str]:
    """Return the rendezvous of torch's ranks: the first host, and a port that other cases hardly use.

    It carries no gradients. The address is on the ranks' network if the inventory has it.
    """
    port = _FIRST_PORT + int(hashlib.sha256(mark.encode()).hexdigest(), 16) % _PORTS
    return {"MASTER_ADDR": "127.0.0.1" if lab.local else lab.rank_address(first), "MASTER_PORT": str(port)}
