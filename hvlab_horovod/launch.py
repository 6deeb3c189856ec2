"""What hvlab-run starts: horovodrun's command line, read; and each rank's command. Needs no torch."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hvlab_horovod import ALIAS

LOCAL = ("localhost", "127.0.0.1")
# Horovod's options whose work torch.distributed does itself or not at all, and their numbers of values.
IGNORED = {
    **dict.fromkeys(("--disable-cache", "--tcp"), 0),
    **dict.fromkeys(("--hierarchical-allreduce", "--no-hierarchical-allreduce"), 0),
    **dict.fromkeys(("--hierarchical-allgather", "--no-hierarchical-allgather"), 0),
    **dict.fromkeys(("--torus-allreduce", "--no-torus-allreduce", "--autotune", "--no-autotune"), 0),
    **dict.fromkeys(("--mpi-threads-disable", "--no-mpi-threads-disable", "--log-with-timestamp"), 0),
    **dict.fromkeys(("--log-without-timestamp", "--log-hide-timestamp", "--no-log-hide-timestamp"), 0),
    **dict.fromkeys(("--autotune-log-file", "--autotune-warmup-samples"), 1),
    **dict.fromkeys(("--autotune-steps-per-sample", "--autotune-bayes-opt-max-samples"), 1),
    **dict.fromkeys(("--autotune-gaussian-process-noise", "--log-level", "--thread-affinity"), 1),
    **dict.fromkeys(("--cycle-time-ms", "--cache-capacity", "--num-nccl-streams"), 1),
    **dict.fromkeys(("--start-timeout", "--gloo-timeout-seconds"), 1),
}
# Options that are a variable of the ranks.
SETTINGS = {
    "--stall-check-warning-time-seconds": "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "--stall-check-shutdown-time-seconds": "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
}
ELASTIC = (
    *("--min-np", "--max-np", "--min-num-proc", "--max-num-proc", "--host-discovery-script"),
    *("--slots-per-host", "--elastic-timeout", "--reset-limit", "--blacklist-cooldown-range"),
)
REFUSED = {
    **dict.fromkeys(ELASTIC, "torchrun --max-restarts"),
    **dict.fromkeys(("--mpi", "--mpi-args", "--jsrun", "--binding-args"), "mpirun, with the same script"),
    **dict.fromkeys(("-cb", "--check-build"), "python -m torch.utils.collect_env"),
    "--config-file": "options here, HOROVOD_ variables in the environment",
}
HOST = re.compile(r"([\w.-]+)(?::(\d+)|\s+slots\s*=\s*(\d+))?(?:\s+max[_-]slots\s*=\s*\d+)?")
# The variables of this environment that ranks on other hosts need, too. They are ssh's arguments, which every
# user can read: no secret is among them.
SENT_PREFIXES = "HOROVOD|HVLAB|OMP|MKL|NCCL|GLOO|TORCH|CUDA|UCX|HF"
SENT = re.compile(
    rf"(?!.*(TOKEN|SECRET|PASSW|CREDENTIAL|KEY))({SENT_PREFIXES})_\w+"
    r"|PATH|PYTHONPATH|LD_LIBRARY_PATH|VIRTUAL_ENV"
)


@dataclass(frozen=True)
class Rank:
    """One rank's host ("" for this one), its command, and the variables that set it apart."""

    host: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options; end the program with a remedy for those that have no counterpart."""
    parser = argparse.ArgumentParser(
        prog="hvlab-run",
        allow_abbrev=False,
        description="Run a script of Horovod's on torch.distributed.",
        epilog="Other hosts get PATH, PYTHONPATH, LD_LIBRARY_PATH, VIRTUAL_ENV and variables that begin with "
        f"{SENT_PREFIXES.replace('|', '_, ')}_; others as in: hvlab-run ... env NAME=value python train.py",
    )
    parser.add_argument(
        "-v", "--version", action="version", version="hvlab-run, for scripts of Horovod 0.28.1"
    )
    parser.add_argument("-np", "--num-proc", type=int, required=True, dest="size", metavar="N")
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument("-H", "--hosts", metavar="HOST:SLOTS,...", help="default: localhost with N slots")
    hosts.add_argument("-hostfile", "--hostfile", type=Path, help="lines as `host slots=2`")
    parser.add_argument("--network-interface", "--network-interfaces", dest="interface", metavar="NAME")
    parser.add_argument("-p", "--ssh-port", type=int, metavar="PORT")
    parser.add_argument("-i", "--ssh-identity-file", metavar="FILE")
    parser.add_argument("--fusion-threshold-mb", type=int, metavar="MB", help="size of gradient buckets")
    parser.add_argument(
        "--output-filename", type=Path, metavar="FOLDER", help="rank.N/stdout and stderr here"
    )
    parser.add_argument("--timeline-filename", metavar="FILE", help="rank 0 writes Horovod's timeline here")
    parser.add_argument("--timeline-mark-cycles", action="store_true", help="with its cycles")
    parser.add_argument("--no-timeline-mark-cycles", action="store_false", dest="timeline_mark_cycles")
    parser.add_argument(
        *("-prefix-timestamp", "--prefix-output-with-timestamp"),
        action="store_true",
        dest="timestamp",
        help="print the time before each line",
    )
    # Gloo is used anyway.
    parser.add_argument("--gloo", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--verbose", action="store_true", help="print each rank's command")
    parser.add_argument("--no-stall-check", action="store_const", const=1, dest="HOROVOD_STALL_CHECK_DISABLE")
    parser.add_argument("--stall-check", action="store_const", const=0, dest="HOROVOD_STALL_CHECK_DISABLE")
    for name, variable in SETTINGS.items():
        parser.add_argument(name, type=int, dest=variable, metavar="S")
    for name, values in IGNORED.items():
        parser.add_argument(name, nargs=values or None, action=_Ignore, help=argparse.SUPPRESS)
    for name in REFUSED:
        parser.add_argument(name, nargs="?", action=_Refuse, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    options = parser.parse_args(argv, argparse.Namespace(ignored=[]))
    if options.size < 1:
        parser.error(f"-np {options.size}; what to do: -np with the number of ranks, 1 or more")
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        parser.error("no command; as in: hvlab-run -np 2 python train.py")
    return options


class _Ignore(argparse.Action):
    def __init__(self, nargs: int | None = None, **options: object) -> None:
        super().__init__(nargs=nargs if nargs else 0, **options)  # type: ignore[arg-type]

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, name: object = None
    ) -> None:
        namespace.ignored.append(name)


class _Refuse(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, name: str | None = None
    ) -> None:
        parser.error(f"{name} has no counterpart here; what to do: {REFUSED[name or '']}")


def slots(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Return the hosts and the ranks on each. Raises ValueError if there are too few slots."""
    if options.hostfile:
        lines = options.hostfile.read_text(encoding="utf-8").splitlines()
        words = [word for line in lines if (word := line.split("#")[0].strip())]
        remedy = f"{options.hostfile}: lines as `host slots=2`"
    else:
        words = (options.hosts or f"localhost:{options.size}").split(",")
        remedy = "-H host:slots,host:slots"
    pairs: dict[str, int] = {}
    for word in words:
        if not (match := HOST.fullmatch(word.strip())):
            raise ValueError(f"not a host and its slots: {word!r}; what to do: {remedy}")
        host, *counts = match.groups()
        pairs[host] = pairs.get(host, 0) + int(next(filter(None, counts), 1))
    placed, left = [], options.size
    for host, count in pairs.items():
        if left and count:
            placed.append((host, min(count, left)))
            left -= min(count, left)
    if left:
        asked = sum(pairs.values())
        raise ValueError(f"-np {options.size}, but the hosts have {asked} slots; what to do: {remedy}")
    return placed


def ranks(
    options: argparse.Namespace,
    address: str,
    port: int,
    environment: Mapping[str, str] = os.environ,
    local_names: Collection[str] = LOCAL,
) -> list[Rank]:
    """Return each rank's command; ``address`` and ``port`` are where rank 0 waits for the others."""
    placed = slots(options)
    folder = str(Path.cwd())
    result: list[Rank] = []
    for number, (host, count) in enumerate(placed):
        for local in range(count):
            peers = [index for index, (_, other) in enumerate(placed) if local < other]
            own = {
                **{"HOROVOD_RANK": len(result), "HOROVOD_SIZE": options.size, "HOROVOD_HOSTNAME": host},
                **{"HOROVOD_LOCAL_RANK": local, "HOROVOD_LOCAL_SIZE": count},
                **{"HOROVOD_CROSS_RANK": peers.index(number), "HOROVOD_CROSS_SIZE": len(peers)},
                **{"MASTER_ADDR": address, "MASTER_PORT": port, "PYTHONUNBUFFERED": 1},
                "PYTHONPATH": os.pathsep.join(filter(None, (str(ALIAS), environment.get("PYTHONPATH")))),
            }
            if options.interface:
                own |= dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), options.interface)
            if options.fusion_threshold_mb:
                own["HOROVOD_FUSION_THRESHOLD"] = options.fusion_threshold_mb * 2**20
            if options.timeline_filename:
                own["HOROVOD_TIMELINE"] = options.timeline_filename
                own["HOROVOD_TIMELINE_MARK_CYCLES"] = int(options.timeline_mark_cycles)
            for name in ("HOROVOD_STALL_CHECK_DISABLE", *SETTINGS.values()):
                if getattr(options, name) is not None:
                    own[name] = getattr(options, name)
            variables = {name: str(value) for name, value in own.items()}
            argv = tuple(options.command)
            if host not in local_names:
                sent = {
                    name: value for name, value in environment.items() if SENT.fullmatch(name)
                } | variables
                argv = (*_ssh(options, host), remote(folder, sent, options.command))
            result.append(Rank("" if host in local_names else host, argv, variables))
    return result


def _ssh(options: argparse.Namespace, host: str) -> list[str]:
    port = ["-p", str(options.ssh_port)] if options.ssh_port else []
    identity = ["-i", options.ssh_identity_file] if options.ssh_identity_file else []
    # A terminal, so that the rank ends with the connection.
    return [
        "ssh",
        "-tt",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=yes",
        *port,
        *identity,
        "--",
        host,
    ]


def remote(folder: str, variables: Mapping[str, str], command: Sequence[str]) -> str:
    """Return the one word that ssh hands to the other host's shell."""
    words = ["exec", "env", *(f"{name}={value}" for name, value in sorted(variables.items())), *command]
    return f"cd {shlex.quote(folder)} && {shlex.join(words)}"
