"""The result of a parser from a case's files."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hvlab.base import answers, remedies
from hvlab.base.answers import AnswerError
from hvlab.base.errors import some
from hvlab.doctor import reading, standing
from hvlab.doctor.last_words import echoes, ends
from hvlab.doctor.last_words import read as ended_by
from hvlab.doctor.places import HostStanding
from hvlab.doctor.text import read as read_log
from hvlab.lab.backends import BACKENDS, SHIM
from hvlab.lab.inventory import ROOT
from hvlab.workloads import answered, proof
from hvlab.workloads.case import Case
from hvlab.workloads.metrics import METRICS
from hvlab.workloads.parameters import MPIRUN, Parameter

_TAIL_LINES = 4
_LIMIT = 500
# horovodrun's prefix of a rank's line, and torch.distributed's of a traceback.
_RANK = re.compile(r"^(?:\[\d+\]<std(?:err|out)>:)?(?:\[rank\d+\]: )?")
# command.py's line for each rank that ended well.
CORES = "hvlab: cores: "
STEP = "hvlab: step: "
# Lines of launchers and tracebacks around the informative one.
_FRAME = re.compile(
    r"[-=*~^\s]*$|File \"|Traceback |Process name: |Exit code: |Terminated$"
    r"|Primary job  terminated normally|a non-zero exit code\. Per user-direction"
    r"|(?:mpirun|prterun) detected that one or more processes exited"
    r"|(?:thus causing )?the job to be terminated\. The first process"
    r"|RuntimeError: Horovod detected that one or more processes exited"
    r"|torch\.distributed\.elastic\.\S+ChildFailedError"
    # libevent in mpirun, of the connections of ranks that are gone.
    r"|\[warn\] Epoll (?:ADD|MOD|DEL)\(\d+\) on fd \d+ failed\."
    r"|srun: (?:launch/slurm|cluster configuration lacks|Force Terminated|Job step aborted)"
    # Ranks that srun ended because of another one.
    r"|srun: error: \S+: tasks? [\d,-]+: (?:Terminated|Exited with exit code 1(?:37|43))$"
)
# mpirun's constant guess when a daemon of it could not be started.
_ADVICE = re.compile(
    r"^This (?:usually is caused by|is usually due to)\b.*?(?:^-{20,}\n|\Z)", re.MULTILINE | re.DOTALL
)
_FIRST, _LAST = 0, -1
# The most informative lines first: a C++ exception, the end of a rank, a Python exception, a rank lost by
# horovodrun or srun. The last line of a traceback counts, and the first end of a rank, which ends the others.
_TELLING = (
    (_LAST, re.compile(r"what\(\):\s*(.*)")),
    (_LAST, re.compile(r"(?:mpirun|prterun) noticed that process rank .*")),
    (_LAST, re.compile(r"srun: error: (Node failure on .*|Unable to .*)")),
    (_FIRST, re.compile(r"srun: error: (Task launch for \S+ failed on node .*)")),
    (_FIRST, re.compile(r"srun: error: (\S+: tasks? [\d,-]+: (?!Terminated|Killed|Exited).*)")),
    (_LAST, re.compile(r"\b(?:\w{1,40}+\.){0,5}(\w{0,40}(?:Error|Exception|Interrupt)\b.*)")),
    (_FIRST, re.compile(r"Process \d+ exit with status code .*")),
    (_FIRST, re.compile(r"srun: error: (\S+: tasks? [\d,-]+: Exited .*)")),
    (_FIRST, re.compile(r"(An MPI communication peer process has unexpectedly disconnected)")),
    (_FIRST, re.compile(r"E\d{4} .*(failed \(exitcode: .*)")),
    (_FIRST, re.compile(r"nodes: (.*)")),
    (_LAST, re.compile(r"srun: (First task exited \d+s ago)")),
)
# Exit status of shells and launchers for a signal, less its number.
_SIGNALLED = 128
# A silent hang may be lost packets.
_SILENT = (
    "; what to do: `hvlab find-slow` tries each pair of hosts (a firewall, packets too large for a link); a "
    "case that was only slow needs a longer --timeout"
)
# The remedy in a lab with hvlab's authorities; others do it by hand.
_ISSUE = (
    "run `hvlab keys issue`: it signs every host again, and writes what each trusts; where that does not "
    "help, `hvlab doctor`, and `journalctl -t sshd` there, say why (no such user, AllowUsers, a wrong clock)"
)
_LAB_REMEDIES = dict.fromkeys(("host-key", "host-key-changed", "ssh-denied"), _ISSUE)
# The rank that failed first, as mpirun (two forms; 5 calls itself prterun), horovodrun and torchrun name it.
_FAILED = re.compile(
    r"Process name: (?:\[(?:\[\d+,\d+\]|\S+@\d+),)?(\d+)"
    r"|(?<!prterun has exited due to )process rank (\d+) with PID|^Process (\d+) exit with"
    r"|^  rank      : (\d+) \(local_rank",
    re.MULTILINE,
)
# Open MPI 5 may name a rank here that ended itself because another one was gone.
_GONE = re.compile(r"^ *Peer host: +(\S+)$.*^prterun has exited due to", re.MULTILINE | re.DOTALL)
# A login that a launcher could not make; a daemon of mpirun that could not begin.
_NOT_STARTED = re.compile(
    r"(?:ORTE|PRTE) was unable to reliably start|^ssh not successful for host (\S+):$", re.MULTILINE
)
_DAEMON = re.compile(
    r"^(?:\[| *Node: +)([\w.-]+)(?::\d+\] \[\[\d+,0\],\d+\] (?:ORTE|PRTE)_ERROR_LOG|$)", re.MULTILINE
)
# Open MPI 5 breaks its lines.
_BROKEN = re.compile(r"^(prterun noticed that process rank .*[^.\n])\n", re.MULTILINE)
_ADVISED = "; what to do: "
_MISSING = re.compile(r"Missing ranks:\s*(.*)")


@dataclass(frozen=True)
class Figure:
    """One measured value with its unit; ``params`` are those beyond the case's own."""

    metric: str
    value: float
    unit: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The end of a case: ``error`` is None if all went well; then ``figures`` count.

    ``started_at`` is seconds since the epoch on the first host, ``seconds`` the duration of the launcher.
    """

    started_at: float
    seconds: float = 0.0
    error: str | None = None
    skipped: bool = False
    proved_backend: str | None = None
    world_size: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Workload:
    """A program that runs on the nodes, its parameters, and the parser of its files.

    ``primary`` is the default metric of comparisons; ``collective`` is the one that its backend must carry.
    ``model`` returns for a training's parameters the multiply-adds of one sample's forward pass, and the
    number of weights.
    """

    name: str
    program: str
    parameters: tuple[Parameter, ...]
    parse: Callable[[Case, Mapping[str, Any], Path], Outcome]
    primary: str
    collective: str = "allreduce"
    model: Callable[[Mapping[str, Any]], tuple[float, float]] = lambda _: (0.0, 0.0)


def ending(hosts: Sequence[str], folder: Path) -> Mapping[str, Any]:
    """Return the end of the launch, from case.json of the first host.

    Raises FileNotFoundError if there is none, AnswerError if it cannot be right.
    """
    where = f"{hosts[0] if hosts else 'a host'}: its case.json"
    ended: Mapping[str, Any] = answers.read(folder / "case.json", where, answered.Ended)
    if ended.get("ended_at", ended.get("started_at", 0)) < ended.get("started_at", 0):
        raise AnswerError(where, "the case ended before it began", remedy="look at the clock there")
    return ended


def result(case: Case, folder: Path) -> Mapping[str, Any]:
    """Return the output of a case's program, if any. Raises AnswerError if it cannot be right."""
    try:
        where = f"{case.hosts[0]}: its result.json"
        return dict(answers.read(folder / "result.json", where, answered.CaseResult))
    except FileNotFoundError:
        return {}


def host_names(case: Case, result: Mapping[str, Any]) -> dict[str, str]:
    """Return the inventory's name of each host, by its own name, which may differ."""
    placement = (result.get("world") or {}).get("placement") or ()
    places = ((node, rank // case.slots) for rank, _, node, _ in placement)
    return {node: case.hosts[place] for node, place in places if place < len(case.hosts)}


def figure(metric: str, value: float, **params: Any) -> Figure:
    """Return a figure in its metric's own unit."""
    return Figure(metric, float(value), METRICS[metric].unit, params)


def start_outcome(ended: Mapping[str, Any]) -> Outcome:
    """Return an outcome with only the times of the case."""
    begun = float(ended.get("started_at") or 0)
    return Outcome(begun, float(ended.get("ended_at") or begun) - begun)


def open_outcome(
    case: Case, ended: Mapping[str, Any], folder: Path, shape: Any
) -> tuple[Outcome, Mapping[str, Any]]:
    """Return the facts that every program reports on a case, and its result; an error if it cannot count.

    ``shape`` is that of the workload's own results; a failed case need not have it. A case counts if all
    checks passed, the launcher ended well, the ranks were as many and on the device as requested, and the
    requested backend, and no other, carried the case's collective.
    """
    begun = start_outcome(ended)
    failed = launcher_error(case, ended, folder)
    try:
        written = result(case, folder)
    except AnswerError as error:
        return replace(begun, error=failed or f"{error}: {error.remedy}"), {}
    if not written:
        return replace(begun, error=failed or "the program wrote no result"), {}
    outcome = _judge(case, begun, written, failed)
    if not outcome.error:
        try:
            answers.check(written, f"{case.hosts[0]}: its result.json", shape)
        except AnswerError as error:
            outcome = replace(outcome, error=f"{error}: {error.remedy}")
    return outcome, written


def _judge(case: Case, begun: Outcome, result: Mapping[str, Any], failed: str | None) -> Outcome:
    """Return the facts that every program reports on a case; ``failed`` is the error of its launch."""
    if result.get("unavailable"):
        return replace(begun, error=str(result["unavailable"]), skipped=True)
    known = (result.get("state") or {}).get("versions") or {}
    outcome = replace(
        begun,
        proved_backend=proof.find_proved(case, result),
        world_size=(result.get("world") or {}).get("size"),
        versions={
            **{name: str(text) for name, text in known.items() if text is not None},
            **_transport(case, result),
            **_library(case, result),
        },
    )
    error = "; ".join(result.get("checks") or []) or failed or _elsewhere(case, outcome, result)
    return replace(outcome, error=error or proof.explain_unproved(case, result))


def _transport(case: Case, result: Mapping[str, Any]) -> dict[str, str]:
    """Return the transport that carried the data: Open MPI's layer, and network devices between hosts."""
    shown = {"pml": (result.get("state") or {}).get("pml")}
    if len(case.hosts) > 1:
        shown["transport"] = ", ".join((result.get("wire") or {}).get("carriers") or [])
    return {name: text for name, text in shown.items() if text}


def _library(case: Case, result: Mapping[str, Any]) -> dict[str, str]:
    """Return the library that answered the ranks' ``import horovod``, unless it was Horovod."""
    libraries = (result.get("state") or {}).get("libraries") or []
    return {"answered_by": ", ".join(libraries)} if BACKENDS[case.backend].framework == SHIM else {}


def _elsewhere(case: Case, outcome: Outcome, result: Mapping[str, Any]) -> str | None:
    if outcome.world_size != case.world_size:
        return f"asked for {case.world_size} ranks, {outcome.world_size} took part"
    device = str(result.get("device", "cpu")).partition(":")[0]
    requested = case.params["device"]
    return None if device == requested else f"asked for the device {requested}, the tensors were on {device}"


def launcher_error(case: Case, ended: Mapping[str, Any], folder: Path) -> str | None:
    """Return the error of the launch itself, from case.json and the launcher's last words.

    It begins with the host of the rank that failed, with a remedy if hvlab's own installation there is at
    fault.
    """
    error = _launch_failure(case, ended, folder)
    if not error or ended.get("timed_out"):
        return error
    if culprit := _unlike(case, folder):
        return f"{culprit}{_ADVISED}{culprit.remedy}"
    first = _read_first_failed(case, folder)
    where = first or (case.hosts[1:] if re.search("orted|ORTE|prted|PRTE", error) else case.hosts[:1])
    place = first[0] if first else _place(case, folder)
    known = not place or any(re.search(rf"\b{re.escape(host)}\b", error) for host in first or case.hosts[1:])
    seen = error if known else f"{place}: {error}"
    # A user's own program, a container's image: not from hvlab.
    if case.command or case.container or ROOT not in read_text(folder / "argv.json"):
        return seen
    hosts = ",".join(where)
    mended = remedies.remedy("installation", error, hosts=hosts)
    if mended:
        seen = seen if first else f"{hosts}: {error}"
        return f"{seen.partition(_ADVISED)[0]}{_ADVISED}{mended}"
    looked = remedies.remedy("crash", error, hosts=hosts, all=",".join(case.hosts))
    return seen.rstrip(".") + (_ADVISED if _ADVISED not in seen else "; or ") + looked if looked else seen


def _unlike(case: Case, folder: Path) -> standing.Holdup | None:
    """Return the ranks that gave a collective another shape than the rest: they notice last."""
    found = ended_by(output(folder), case.world_size)
    if not found or found.kind not in ("shapes", "differ"):
        return None
    homes = {rank: case.hosts[rank // case.slots] for rank in range(case.world_size)}
    return standing.blame(found, homes, case.hosts)


def _read_first_failed(case: Case, folder: Path) -> Sequence[str]:
    text = output(folder)
    if case.params.get(MPIRUN.name):
        return ()
    if gone := _GONE.search(text):
        return [host for host in case.hosts if host == gone[1]]
    told = ends(read_log(text.splitlines()))
    match = _FAILED.search(text)
    if not match:
        return ()
    if told and told[0].noticed:
        return ()
    rank = told[0].rank if told else int(match[match.lastindex or 0])
    return case.hosts[rank // case.slots :][:1]


def _place(case: Case, folder: Path) -> str:
    text = output(folder)
    daemons = set(_DAEMON.findall(text))
    if len(daemons) == 1 and daemons <= set(case.hosts):
        return str(daemons.pop())
    match = _NOT_STARTED.search(text)
    if not match or len(case.hosts) == 1:
        return ""
    ends = [match[1]] if match[1] else case.hosts[1:]
    return f"from {case.hosts[0]} to {'one of ' * (len(ends) > 1)}{some(ends)}"


def _launch_failure(case: Case, ended: Mapping[str, Any], folder: Path) -> str | None:
    if ended.get("error"):
        return str(ended["error"])
    if ended.get("timed_out"):
        return _explain_timeout(case, folder)
    if ended.get("rc") == 0:
        return None
    how = f"{case.launcher} ended with exit status {ended.get('rc')}"
    # ssh's answers for hosts whose ranks could not be ended.
    lost = {host: answer for host, answer in (ended.get("reaped") or {}).items() if isinstance(answer, str)}
    known = _explain_cause(how, folder, *lost.values())
    if known:
        return known
    silent = [f"{host} is unreachable ({answers.clean(said)})" for host, said in lost.items()]
    words = last_words(folder, None if silent else ended.get("rc"))
    words = words and (_of_first(folder, words) or f"{words}; {reading.LOST}")
    return ": ".join(filter(None, [how, words, *silent]))


def _explain_timeout(case: Case, folder: Path) -> str:
    missing = _MISSING.search(read_text(folder / "stderr"))
    over = f"ran over its {case.timeout} s and was ended"
    if culprit := _culprit(folder):
        return f"{over}: {culprit}{_ADVISED}{culprit.remedy}"
    if missing:
        return f"{over}: Horovod waited for ranks {missing.group(1)}"
    # How its processes died is hvlab's own doing.
    return _explain_cause(over, folder, known=True) or over + _SILENT * (len(case.hosts) > 1)


def _culprit(folder: Path) -> standing.Holdup | None:
    try:
        said = answers.read(folder / "standing.json", "the hosts: standing.json", dict[str, Any])
    except (FileNotFoundError, AnswerError):
        return None
    seen, silent = {}, {}
    for host, words in said.items():
        try:
            seen[host] = answers.check(words, f"{host}: standing.py", HostStanding)
        except AnswerError as error:
            silent[host] = words if isinstance(words, str) else error.observed
    jobs = standing.judge(seen, silent, over=True)
    return next((job.culprit for job in jobs if job.job.startswith("HVLAB_CASE=") and job.culprit), None)


def _read_signal(status: object) -> str:
    """Return the signal that ended a rank if the launcher reports only its exit status."""
    try:
        name = signal.Signals(int(str(status)) - _SIGNALLED).name
    except ValueError:
        return ""
    return (
        f"a rank was ended by {name}; what to do: `dmesg` on its host tells whether memory was used up "
        "(SIGKILL) or the program crashed (SIGSEGV, SIGBUS)"
    )


def _explain_cause(how: str, folder: Path, *messages: str, known: bool = False) -> str:
    """Return the cause that the output shows, its line and the remedy, if known.

    ``messages`` count if they are nearer to the root than the output. A launcher's general advice is left
    out; with ``known``, a failure whose cause is not known is, too.
    """
    said = [line for text in messages for line in answers.clean(text).splitlines()]
    shown = [reading.root(output(folder).splitlines()), reading.root(said)]
    root = min(filter(None, shown), key=lambda each: each.cause.weight, default=None)
    if not root or (known and not root.cause.known):
        return ""
    line, words = root.lines[0][1][:_LIMIT], _of_first(folder, _find_telling_line(_last_lines(folder)))
    argv = read_text(folder / "argv.json")
    foreign = argv and ROOT not in argv
    remedy = ({} if foreign else _LAB_REMEDIES).get(root.cause.id, root.cause.remedy).rstrip(".")
    ended = f"{how}: {words}" if words and words not in line else how
    return f"{root.cause.title} ({line}); what to do: {remedy}; {ended}"


def last_words(folder: Path, status: object = None) -> str:
    """Return why the launcher ended, from its and the ranks' output, and its exit status."""
    lines = _last_lines(folder)
    return _find_telling_line(lines) or _read_signal(status) or " | ".join(lines[-_TAIL_LINES:])[-_LIMIT:]


def _of_first(folder: Path, words: str) -> str:
    """Return the words; the first end of a rank, if known, where they only tell that another lost it."""
    if not echoes(read_log([words])):
        return words
    told = ends(read_log(output(folder).splitlines()))
    return str(told[0]) if told and not told[0].noticed else ""


def _last_lines(folder: Path) -> list[str]:
    text = _BROKEN.sub(r"\1 ", _ADVICE.sub("", output(folder)))
    lines = [_RANK.sub("", line).strip() for line in text.splitlines()]
    return [line for line in lines if not _FRAME.match(line) and not line.startswith((CORES, STEP))]


def _find_telling_line(lines: Sequence[str]) -> str:
    for which, pattern in _TELLING:
        matches = [match for line in lines if (match := pattern.match(line))]
        if matches:
            match = matches[which]
            return str(match.group(match.lastindex or 0))[:_LIMIT]
    return ""


def output(folder: Path) -> str:
    """Return all output of a case, standard error first."""
    return read_text(folder / "stderr") + "\n" + read_text(folder / "stdout")


def read_text(path: Path) -> str:
    """Return the text of an output file without terminal control sequences; empty if it is missing."""
    try:
        return answers.clean(path.read_text("utf-8", errors="replace"))
    except OSError:
        return ""
