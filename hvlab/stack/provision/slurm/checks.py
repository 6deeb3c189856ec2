"""Obstacles to role slurm on a host or cluster, found before anything is changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hvlab.base.errors import Problem
from hvlab.stack.provision.names import numbers
from hvlab.stack.provision.slurm.host import Node, SlurmHost, SlurmRequest
from hvlab.stack.provision.slurm.plan import REST_APIS

# What was seen, and the remedy.
Finding = tuple[str, str]
# Of user slurm, in Debian's packages and by role slurm.
USER_ID = "64030"
# Replaces the host's name for the whole cluster.
CLUSTER = "slurm"
_DATABASE = re.compile(r"(mariadb|mysql)(-community)?-server(-[0-9.]+)?$", re.IGNORECASE)
_ACCOUNT = re.compile(r"[^A-Z\s,=|]+\Z")
_TIME = re.compile(r"(time|maxage|halflife)$", re.IGNORECASE)
# States of a node that does not respond, or that slurmctld calls down.
_DOWN = re.compile(r"^down|[*]")


def find_lost_hardware(host: SlurmHost, request: SlurmRequest, recorded: Mapping[str, Node]) -> list[Problem]:
    """Return the hardware in the host's line of slurm.conf that the host no longer has."""
    line: dict[str, Any] = {"gpus": 0, "counted": True, "resources": {}, **recorded.get(host.name, {})}
    amounts = (
        ("GPUs", line["gpus"], request.gpus),
        ("CPUs", 0 if line["counted"] else line["resources"]["CPUs"], host.cpus),
        ("MB of memory", line["resources"].get("RealMemory", 0), host.memory),
    )
    return [
        Problem(
            host.name,
            f"its line in slurm.conf says {said} {name}, and the host has {there}. The line stays",
            "repair the host; or, if it should stay so, run this once with `-e slurm_less_hardware=true`",
        )
        for name, said, there in amounts
        if int(there) < int(said) and not request.less_hardware
    ]


def check_host(
    host: SlurmHost, request: SlurmRequest, *, active: str, configured: str, database: bool
) -> list[Problem]:
    """Return the obstacles on a host: another Slurm, another database, another queue.

    ``active`` is the output of ``systemctl is-active slurmctld slurmd munge``, empty if there is a record;
    ``configured`` says who wrote slurm.conf (none, hvlab, other), ``database`` whether hvlab wrote the
    database's settings.
    """
    findings = [*_host_findings(host, request, active=active, configured=configured, database=database)]
    return [Problem(host.name, observed, remedy) for observed, remedy in findings]


def _host_findings(
    host: SlurmHost, request: SlurmRequest, *, active: str, configured: str, database: bool
) -> Iterator[Finding]:
    states = zip(("slurmctld", "slurmd", "munge"), active.splitlines(), strict=False)
    running = [name for name, state in states if state.startswith("activ")]
    daemons = [name for name in running if name != "munge"]
    came = (host.facts.get("hvlab") or {}).get("installed_own") or ()
    # EPEL's package brings a slurm.conf: hvlab's own, where a first run stopped after its installation.
    brought = host.system.version_package in came
    if active and not daemons and configured == "other" and not brought:
        yield (
            f"{host.system.etc}/slurm.conf of another Slurm is there, whose daemons do not run. "
            "Nothing was changed",
            "leave lab_slurm out; or, if nobody needs that Slurm, move the file away",
        )
    if daemons and configured != "hvlab":
        yield (
            f"{' and '.join(daemons)} of another Slurm, which hvlab did not install, run there. "
            "Nothing was changed",
            "leave lab_slurm out, and use that cluster by `hvlab bench --launcher srun` or, in a job, "
            "by `hvlab bench --here` (docs/slurm.md); or remove that Slurm first",
        )
    if running == ["munge"] and configured != "hvlab" and "munge" not in came:
        yield (
            "munge, which hvlab did not install, runs there: it would get the lab's key, and the site's "
            "queue (PBS, another Slurm) would refuse the host. Nothing was changed",
            "leave the host out of lab_slurm; or, if nobody needs that munge, `systemctl disable --now "
            "munge` there, and run this again",
        )
    databases = [name for name in host.packages if _DATABASE.match(name)]
    here = request.accounting and host.name == request.controller
    if here and databases and not database and not host.record.get("accounting"):
        yield (
            f"{', '.join(databases)}, which hvlab did not install, is there, and Slurm's accounting "
            "would bind it to 127.0.0.1. Nothing was changed",
            "set slurm_controller to a host without a database, leave slurm_accounting_enabled out, or "
            "remove that database first",
        )
    record = "/etc/ansible/facts.d/hvlab_slurm.fact"
    for option, now in (("cluster", request.cluster), ("controller", request.controller)):
        before = host.record.get(option, now)
        if before != now:
            yield (
                f"slurm_{option} is {now}, and Slurm was set up there with {before}: its queue would be "
                "lost. Nothing was changed",
                f"set slurm_{option} to {before}; or, when no job is left, stop slurmctld with "
                f"`systemctl disable --now slurmctld` and remove {host.system.state_dir}/slurmctld on "
                f"its host, remove {record} on all hosts, and run this again",
            )


def check_cluster(
    hosts: Sequence[SlurmHost],
    request: SlurmRequest,
    *,
    key: bool,
    uids: Mapping[str, str],
    own_uids: Mapping[str, str],
) -> list[Problem]:
    """Return the disagreements between a cluster's hosts and options.

    ``key`` says whether munge's key is on the controller; ``uids`` has the lab user's UID on each host,
    ``own_uids`` that of Slurm's user on hosts without a record, empty where there is none yet.
    """
    findings = [
        *_releases(hosts),
        *_check_slurmrestd(hosts[0], request),
        *_options(request),
        *_partitions(request),
        *_accounts(request),
        *([] if key else _key(hosts, request)),
        *_uids(request, uids),
        *_own_uids(own_uids),
    ]
    return [Problem(CLUSTER, observed, remedy) for observed, remedy in findings]


def _releases(hosts: Sequence[SlurmHost]) -> Iterator[Finding]:
    remedy = "give the hosts one operating system, or list those of one in the group slurm"
    if len({host.version for host in hosts}) > 1:
        releases = ", ".join(f"{host.name} {host.version}" for host in hosts)
        need = "one slurm.conf, and no slurmd newer than slurmctld"
        yield f"different releases of Slurm, {releases}: they need {need}", remedy
    elif len({host.system.folders for host in hosts}) > 1:
        folders = ", ".join(f"{host.name} {host.system.folders[1]}" for host in hosts)
        yield f"packages of Slurm with different folders, {folders}: they need one slurm.conf", remedy


def _check_slurmrestd(host: SlurmHost, request: SlurmRequest) -> Iterator[Finding]:
    if request.rest and not (host.system.rest_packages and host.version in REST_APIS):
        system = f"{host.facts.get('distribution')} {host.facts.get('distribution_version')}"
        yield (
            f"{system} has no slurmrestd that hvlab knows (Slurm {host.version}). Nothing was changed",
            "leave slurm_rest_enabled out",
        )


def _options(request: SlurmRequest) -> Iterator[Finding]:
    if request.controller not in request.hosts:
        yield (
            f"slurm_controller is {request.controller}, and Slurm's hosts are {', '.join(request.hosts)}",
            "set slurm_controller to one of them, or leave it out",
        )
    if wrong := misread(request):
        yield (
            "slurm_settings, slurm_partitions: values that YAML reads otherwise than Slurm: "
            f"{', '.join(wrong)}",
            "write them in quotes",
        )


def _partitions(request: SlurmRequest) -> Iterator[Finding]:
    partitions = request.every_partition
    names = [*(each["name"] for each in partitions), *request.hosts]
    if reserved := [name for name in names if name.upper() == "DEFAULT"]:
        yield (
            f"a partition or a host is called {reserved[0]}, under which slurm.conf has the settings of all",
            "give it another name",
        )
    if request.partition not in [each["name"] for each in partitions]:
        yield (
            "slurm_partitions: the partition of the benchmarks, slurm_partition, is not among them: "
            f"{request.partition}",
            "set lab_slurm_partition to one of them",
        )
    named = list(dict.fromkeys(name for each in partitions for name in each.get("hosts", request.hosts)))
    if unknown := [name for name in named if name not in request.hosts]:
        yield (
            f"slurm_partitions: hosts that Slurm does not have: {', '.join(unknown)}",
            f"name hosts of {', '.join(request.hosts)}",
        )
    if left_out := [name for name in request.hosts if name not in named]:
        yield (
            f"slurm_partitions: hosts that are in no partition: {', '.join(left_out)}",
            "add them to one, or omit `hosts` to include every host",
        )


def _accounts(request: SlurmRequest) -> Iterator[Finding]:
    misnamed = [json.dumps(each["name"]) for each in request.accounts if not _ACCOUNT.match(each["name"])]
    if misnamed:
        yield (
            f"slurm_accounts: {', '.join(misnamed)}: slurmdbd keeps names in small letters, without spaces, "
            "commas, = and |",
            "rename the accounts accordingly",
        )


def _key(hosts: Sequence[SlurmHost], request: SlurmRequest) -> Iterator[Finding]:
    """Yield the problem if the controller lacks munge's key; hosts left out of this run may have one."""
    present, file = {host.name for host in hosts}, request.munge_key_file
    owners = [host.name for host in hosts if host.record]
    owners += [name for name in request.hosts if name not in present]
    if owners:
        yield (
            f"{file} is not on this machine, and {', '.join(owners)} may have its key from hvlab. "
            "Nothing was changed",
            "copy the file from the machine that set the cluster up, or /etc/munge/munge.key of such a host "
            f"to it, with mode 0600. For a new key of all hosts: `mkdir -p {file.rpartition('/')[0]}; (umask "
            f'077; python3 -c "import secrets; print(secrets.token_hex())" > {file})`, and run it '
            "without --limit",
        )


def _uids(request: SlurmRequest, uids: Mapping[str, str]) -> Iterator[Finding]:
    known = {name: uid for name, uid in uids.items() if uid}
    if len(set(known.values())) > 1:
        listed = ", ".join(f"UID {uid} on {name}" for name, uid in known.items())
        yield (
            f"{request.lab_user} has {listed}, and Slurm knows users by their UID",
            "give it a UID that is free on all hosts, with the option `uid` of role lab_user, and run that "
            "role (docs/slurm.md)",
        )


def _own_uids(uids: Mapping[str, str]) -> Iterator[Finding]:
    known = {name: uid or USER_ID for name, uid in uids.items()}
    if len(set(known.values())) > 1:
        listed = ", ".join(f"UID {uid} on {name}" for name, uid in known.items())
        yield (
            f"Slurm's user slurm has, or gets, {listed}: its daemons trust one UID. Nothing was changed",
            "give it one UID on all hosts, with its files; or remove it where no Slurm needs it",
        )


def misread(request: SlurmRequest) -> list[str]:
    """Return settings that YAML misread: NO and OFF become booleans, 1:30:00 becomes 5400."""
    given = [request.settings, *(p.get("settings", {}) for p in request.every_partition)]
    return [
        f"{name} is {value}"
        for settings in given
        for name, value in settings.items()
        if isinstance(value, bool) or (isinstance(value, int | float) and _TIME.search(name))
    ]


def check_absent(
    request: SlurmRequest,
    recorded: Mapping[str, Node],
    *,
    present: Sequence[str],
    asked: Sequence[str],
    states: str,
) -> list[Problem]:
    """Return the obstacles to a change of slurm.conf while hosts of the cluster are absent from this run.

    ``asked`` are the hosts within --limit, ``present`` those of them that have not failed; ``states`` is the
    output of ``sinfo`` for the others as ``name|state``. A host without Slurm may be absent, and so may one
    that slurmctld calls down.
    """
    controller = request.controller
    if controller in asked and controller not in present:
        return [
            Problem(
                CLUSTER,
                f"slurm.conf would change, and {controller}, which runs slurmctld, failed or did not answer "
                "in this run. No slurm.conf was changed",
                f"repair {controller}, and run this again",
            )
        ]
    rows = [line.split("|") for line in states.splitlines() if "|" in line]
    idle = {name for name, state in rows if _DOWN.search(state)}
    if controller in asked:
        idle |= set(request.hosts) - set(recorded)
    out = [name for name in request.hosts if name not in asked and name not in idle]
    return [
        Problem(
            CLUSTER,
            f"slurm.conf names all nodes, would change, and {', '.join(out)} "
            f"{'is' if len(out) == 1 else 'are'} not in this run",
            "run it without --limit, or leave out only hosts that are down",
        )
    ][: len(out)]


def holes(host: SlurmHost) -> str:
    """Return the security fixes that Slurm's packages lack; empty if none is known to be missing."""
    own = numbers(host.packaged)
    lacks = [
        f"{hole['fixes']} ({hole['below']})"
        for hole in host.system.holes
        if own and numbers(hole.get("from", "0")) <= own < numbers(hole["below"])
    ]
    if not lacks:
        return ""
    lacking = f"{host.name}: Slurm {host.packaged} lacks the fixes of {', '.join(lacks)}"
    return f"{lacking}; its packages get none: admit trusted users only"
