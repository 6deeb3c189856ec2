"""Which rank ended a job, and what each rank gave to the collective that failed, by the job's log. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hvlab.base.ranges import format_ranges
from hvlab.base.yaml_files import read_shipped
from hvlab.doctor import knowledge, stacks, text
from hvlab.doctor.cause import WEIGHTS, Sign
from hvlab.doctor.recorders import Found, judge_answers, odd, put_in_words
from hvlab.doctor.text import LogText

# The rank that wrote it, and its words.
_Line = tuple[int | None, str]
_TABLES = read_shipped(Path(__file__).with_name("standing.yml"))
_ENDED, _HOMES = tuple(map(Sign, _TABLES["ended"])), _TABLES["homes"]
_CRASHES = {4: "SIGILL", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
# Added to a signal's number in an exit status, as shells do.
_SIGNALLED, _SIGNALS = 128, 64
_WIDTH = 200
# Marks of a rank before a line: mpirun, horovodrun, torch, srun --label; not torchrun's of local ranks.
_MARK = re.compile(r"\[(?:(?:[\w.-]+@)?\d+,(?:mpirank:)?|rank)?(\d+)\]|(?:^|\])(\d+):")
# The owner of a stack: a rank, or mpirun's mark of one.
_NUMBERED = re.compile(r"^rank (\d+)|^\[\d+,(\d+)\]")
_NAMED = re.compile(r"(?i)\b(?:process rank|process|rank) (\d+)\b")
_FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=(\d+),? ?)?"
    r"OpType=(\w+)(?:, TensorShape=(\[[\d, ]*\]))?"
)
_COUNTS = re.compile(r"Rank (\d+) has (\d+) params, while rank (\d+) has inconsistent (\d+) params")
_UNLIKE_0 = re.compile(
    r"(?:\[(\d+)\]: )?(params\[\d+\]) in this process with sizes (\[[\d, ]*\]) appears not to match"
)
_LARGER = re.compile(r"op\.preamble\.length <= op\.nbytes\.? (\d+) vs (\d+)")
_TWO = re.compile(
    r"Mismatched (\w+) tensor shapes: One rank sent a tensor of shape (\[[\d, ]*\]), "
    r"but another rank sent a tensor of shape (\[[\d, ]*\])"
)
# hvlab_horovod names all.
_SUBMITTED = re.compile(r": (ranks? \d[^\n]{0,2000}? submits? [^\n]{0,2000}?); what to do: the same type")
_OF_RANKS = re.compile(r"ranks? ([\d, ]+)(?: \.\.\.)?(?: submits?)? (.+?)(?=, ranks? \d|$)")
_WAITING = re.compile(r"ranks wait for different operations: (.+?); what to do")
# Gloo's ring sums what the next rank sends.
_RING = re.compile(r"(?i)all_?reduce|_engine_run_backward|\bbackward\(")


@dataclass(frozen=True)
class LastWords:
    """Who ended a job: ``ranks`` may be empty; ``homes`` has the hosts of ranks that the log names.

    ``size`` is the number of ranks, 0 where some of them are not in the log.
    """

    kind: str
    ranks: list[int]
    detail: str
    homes: Mapping[int, str] = field(default_factory=dict)
    size: int = 0


@dataclass(frozen=True)
class End:
    """The end of a rank, as its launcher tells it; ``code`` is its exit status, of a signal 128 more.

    ``noticed`` says that it lost another rank, ``said`` is its last line, ``lines`` has the numbers of the
    launcher's lines.
    """

    rank: int
    host: str
    code: int
    noticed: bool
    said: str
    lines: frozenset[int]

    def __str__(self) -> str:
        on = f" on {self.host}" * bool(self.host)
        number = self.code - _SIGNALLED
        how = f"by signal {number}" if 0 < number <= _SIGNALS else f"with exit status {self.code}"
        words = f"; its last line: {self.said}" if self.said else ""
        return f"rank {self.rank}{on} ended first, {how}{words}"


def ends(log: LogText) -> list[End]:
    """Return the ends that launchers tell, the first one first; last, those of ranks that lost another."""
    noticed = {_rank(line.writer) for line in echoes(log)}
    # Before torch 2.2 no line says whose it is: each agent of torchrun may have ended for another's sake.
    unmarked = bool(noticed) and not any(_rank(line.writer) is not None for line in log.lines)
    said = {rank: line.text for line in log.lines if (rank := _rank(line.writer)) is not None}
    found = []
    for sign in _ENDED:
        for match in sign.matches(log):
            row = match.groupdict()
            rank, code = int(row["rank"]), int(row.get("code") or 9)
            signalled = code < 0 or "signal" in match[0] or not row.get("code")
            end = End(
                rank,
                row.get("host") or "",
                _SIGNALLED + abs(code) if signalled else code,
                rank in noticed or (unmarked and "at" in row),
                said.get(rank, "")[:_WIDTH],
                frozenset(line.number for line in log.find_lines(match.start(), match.end())),
            )
            found.append((end.noticed, row.get("at") or "", min(end.lines), end))
    return [end for *_, end in sorted(found, key=lambda row: row[:3])]


def echoes(log: LogText) -> list[text.WrittenLine]:
    """Return the lines in which ranks say that they lost another."""
    signs = (sign for cause in knowledge.CAUSES if cause.weight == WEIGHTS["echo"] for sign in cause.patterns)
    matches = (match for sign in signs for match in sign.matches(log))
    return [line for match in matches for line in log.find_lines(match.start(), match.end())]


def read(log: str, size: int = 0) -> LastWords | None:
    """Return who ended a job, by what its launcher, torch or Horovod says; None for ranks that only noticed.

    ``size`` is the number of ranks where it is known. An exit status other than that of a signal, SIGABRT
    and SIGTERM are seen at the victims, too.
    """
    raw = log.splitlines()
    searched = text.read(raw)
    said = searched.text
    # A log as text keeps a few of the lines that are alike: here, each stands for a rank.
    lines = [(_rank(writer), words) for writer, words in text.split_writers(raw)]
    ranks = {rank for rank, _ in lines if rank is not None} | {int(rank) for rank in _NAMED.findall(log)}
    size = size or (len(ranks) if ranks == {*range(len(ranks))} else 0)
    verdict = (
        _find_killed(searched)
        or _unlike(said, lines, size)
        or _find_late(searched.whole)
        or judge_answers("\n".join(put_in_words(raw)).replace("\r", "\n"))
        or _find_apart(raw)
    )
    homes: dict[int, str] = {}
    # Lines put together as a terminal may have cut them come last.
    for sign in _HOMES:
        for match in re.finditer(sign, f"{said}\n{searched.whole}"):
            homes.setdefault(int(match["rank"]), match["host"])
    return LastWords(*verdict, homes, size) if verdict else None


def _rank(writer: str) -> int | None:
    marks = [one or other for one, other in _MARK.findall(writer)]
    return int(marks[-1]) if marks else None


def _find_killed(log: LogText) -> Found | None:
    for end in ends(log):
        number = end.code - _SIGNALLED
        kind = "killed" if number == 9 else "crashed" if number in _CRASHES else ""  # noqa: PLR2004
        if kind:
            return kind, [end.rank], _CRASHES.get(number, "")
        if not end.noticed:
            break
    return None


def _find_late(log: str) -> Found | None:
    """Return the ranks that did not come to a collective, by what torch says."""
    for cause in knowledge.CAUSES:
        # What may be past is no end.
        for figures in (each for each in cause.reads if each.kind and not cause.over):
            matches = figures.pattern.pattern.finditer(log)
            for ranks, words in figures.tell(match.groupdict() for match in matches):
                return figures.kind, sorted(ranks), words
    return None


def _find_apart(raw: Sequence[str]) -> Found | None:
    """Return the ranks whose stacks are not in the collective in which more than half of them wait."""
    placed = stacks.groups(raw)
    ranks = {where: [_NUMBERED.search(owner) for owner in owners] for where, (owners, _) in placed.items()}
    every = sum(number for _, number in placed.values())
    most = next((where for where, (_, number) in placed.items() if number * 2 > every), "")
    few = {where: marks for where, marks in ranks.items() if where != most}
    if not most.startswith("waiting in ") or len(few) != 1:
        return None
    ((where, marks),) = few.items()
    own = [int(mark[1] or mark[2]) for mark in marks if mark]
    return ("behind", own, f"{where}, the others {most}") if own and len(own) == len(marks) else None


def _unlike(said: str, lines: Sequence[_Line], size: int) -> Found | None:
    printed = _FINGERPRINT.findall(said)
    given = {int(rank): (f"{name} {number}".strip(), shape) for rank, number, name, shape in printed}
    for at, kind in enumerate(("behind", "shapes")):
        if found := odd(kind, {rank: own[at] for rank, own in given.items()}):
            return found
    counts = {
        int(rank): f"{number} params" for row in _COUNTS.findall(said) for rank, number in (row[:2], row[2:])
    }
    submitted = _SUBMITTED.search(said)
    named = _OF_RANKS.findall(submitted[1]) if submitted else ()
    counts |= {int(rank): given for ranks, given in named for rank in ranks.split(", ")}
    waiting = _WAITING.search(said)
    awaited = re.findall(r"rank (\d+) for (\S+?)(?:,|$)", waiting[1]) if waiting else ()
    return (
        odd("behind", {int(rank): f"at {name}" for rank, name in awaited})
        or odd("shapes", dict(sorted(counts.items())))
        or _unlike_first(lines, size)
        or _larger(said, lines, size)
        or _two(said, size)
    )


def _unlike_first(lines: Sequence[_Line], size: int) -> Found | None:
    """Return the ranks whose parameters differ from rank 0's; rank 0 where all others say so."""
    signs = [(rank, match) for rank, words in lines if (match := _UNLIKE_0.search(words))]
    found = [(int(match[1]) if match[1] else rank, match) for rank, match in signs]
    ranks = sorted({rank for rank, _ in found if rank is not None})
    if not ranks:
        return None
    detail = f"{found[0][1][2]} of rank {format_ranges(ranks)} is {found[0][1][3]}, rank 0's is another"
    if len(ranks) == 1 and size == 2:  # noqa: PLR2004 - no third to compare with
        return "differ", [0, *ranks], detail
    return ("shapes", [0], detail) if len(ranks) == size - 1 else ("shapes", ranks, detail)


def _larger(said: str, lines: Sequence[_Line], size: int) -> Found | None:
    """Return the rank that Gloo sent too much, and in an allreduce the next one, who sent it."""
    signs = [(rank, match) for rank, words in lines if (match := _LARGER.search(words))]
    if not signs:
        return None
    rank, match = signs[0]
    aborted = re.search(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal 6", said)
    rank = int(aborted[1]) if rank is None and aborted else rank
    sizes = f"{match[1]} bytes where it expected {match[2]} (Gloo sends a tensor in parts)"
    if rank is None or not size or not _RING.search(said):
        return "differ", [] if rank is None else [rank], f"a rank was sent {sizes}"
    following = (rank + 1) % size
    # Either reads the same: no other rank's size is told.
    either = f"rank {following}'s tensor is too large or rank {rank}'s too small"
    return "differ", sorted({rank, following}), f"rank {following} sent rank {rank} {sizes}: {either}"


def _two(said: str, size: int) -> Found | None:
    """Return both ranks of two that Horovod compared; of more, it does not say which."""
    match = _TWO.search(said)
    if not match:
        return None
    ranks = [0, 1] if size == 2 else []  # noqa: PLR2004 - there is no other
    return "differ", ranks, f"one rank gave {match[1].lower()} {match[2]}, another {match[3]}"


def by_order(size: int, hosts: Sequence[str]) -> dict[int, str]:
    """Return the host of each rank if they fill the hosts in their order; {} where they cannot, evenly."""
    each, rest = divmod(size, len(hosts) or 1)
    return {} if rest or not each else {rank: hosts[rank // each] for rank in range(size)}
