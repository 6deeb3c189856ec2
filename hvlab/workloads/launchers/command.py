"""What a launcher gets and returns, and the register of launchers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hvlab.workloads.case import Case

SSH_OPTIONS = (
    "-o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10 "
    "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"
)
SSH = ("ssh", *shlex.split(SSH_OPTIONS))


# A rank ends itself this long after the watchdog should have ended it.
_DEADLINE_MARGIN = 15


def deadline(case: Case) -> tuple[str, ...]:
    """Return the prefix that ends a rank's program if nothing else does."""
    return ("timeout", "--kill-after=5", str(case.timeout + _DEADLINE_MARGIN))


@dataclass(frozen=True)
class Job:
    """A case with everything a launcher needs to know.

    ``program`` is each rank's argv, run by ``python``, and ``env`` its environment; ``network`` is the ranks'
    network (CIDR) and ``interface`` its name; ``horovod``, ``openmpi`` and ``workloads`` are the folders of
    the variant, of Open MPI and of the programs.
    ``shared``: the hosts are virtual and share their machine's cores. ``port`` is that of ssh to the ranks'
    containers, 0 without containers. ``local``: the only host is the machine that hvlab runs on, whatever the
    inventory calls it. ``foreign``: Open MPI is not hvlab's. ``pmi`` is how srun connects the ranks of MPI,
    and ``srun`` has further options for the ranks' step. ``host_python`` runs hvlab's programs on the hosts,
    outside containers; ``head`` is the host that starts the case, ``home`` the user's home on the hosts.
    """

    case: Case
    program: tuple[str, ...]
    python: str
    env: Mapping[str, str]
    network: str
    interface: str
    horovod: str
    openmpi: str
    workloads: str
    gpu: bool = False
    shared: bool = False
    port: int = 0
    local: bool = False
    foreign: bool = False
    pmi: str = "pmix"
    srun: tuple[str, ...] = ()
    host_python: str = "python3"
    head: str = ""
    home: str = ""

    @property
    def slots(self) -> str:
        """Hosts in the syntax of mpirun and horovodrun: ``h1:2,h2:2``."""
        if self.local:
            return f"localhost:{self.case.slots}"
        return ",".join(f"{host}:{self.case.slots}" for host in self.case.hosts)


@dataclass(frozen=True)
class Command:
    """What to run on the first host of the case.

    ``step`` is the name of its Slurm step in the run's allocation; empty for other launchers.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    step: str = ""

    def line(self) -> str:
        """Return the command as one shell line."""
        given = [f"{name}={value}" for name, value in self.env.items()]
        return shlex.join([*(["env", *given] if given else []), *self.argv])


Launch = Callable[[Job], Command]
LAUNCHERS: dict[str, Launch] = {}
RECIPES: dict[str, Launch] = {}


def launcher(name: str) -> Callable[[Launch], Launch]:
    """Register the function that starts ranks as ``--launcher name``."""
    return _register(LAUNCHERS, name)


def recipe(name: str) -> Callable[[Launch], Launch]:
    """Register the part of such a command that affects the ranks' speed, for jobs that hvlab does not start.

    Its environment is set in the shell that starts it.
    """
    return _register(RECIPES, name)


def _register(register: dict[str, Launch], name: str) -> Callable[[Launch], Launch]:
    def add(launch: Launch) -> Launch:
        register[name] = launch
        return launch

    return add
