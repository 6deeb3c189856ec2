"""What communication libraries know of ranks that did not come: flight recorder, RAS, stall lines. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hvlab.base.ranges import format_ranges
from hvlab.doctor.places import RankPlace

# A finding: its id, the ranks, and the evidence.
Found = tuple[str, list[int], str]
# ncclSuccess and ncclInProgress of nccl.h.
_NO_ERRORS = (0, 7)
# As RAS writes for people (src/ras/client_support.cc): ranks without data; counts, and the ranks at each.
_MISSED = re.compile(r"Missing communicator data from \d+ ranks?\n((?: +(?:Rank|The missing rank).*\n?)+)")
_COUNTS = re.compile(r"different (\w+) operation counts\n((?: +(?:\d+ ranks|Rank \d+) .*\n?)+)")
_LAUNCHED = re.compile(
    r"( +(?:\d+ ranks have|Rank \d+ has) (?:not )?launched (?:up to operation (\d+)|any).*\n?"
    r"(?: +Rank \d+ -- .*\n?)*)"
)
_LISTED = re.compile(
    r"Rank (?P<rank>\d+) (?:has .*?)?-- (?:GPU \S+ managed by process (?P<pid>\d+) on node (?P<host>\S+))?"
)

_WRONG = re.compile(r"Rank (\d+) reported (.+?) -- ")
# The first line of an answer in words.
_ANSWER = re.compile(r"^(?=NCCL version \S+ compiled with CUDA)", re.MULTILINE)
# 2.28.9 leaves a comma out before the status of a missing rank.
_NO_COMMA = re.compile(r'(\d)(\s*"status")')


def flight(places: Sequence[RankPlace]) -> Found | None:
    """Return the ranks behind the others, or with another call or shape, by torch's flight recorder.

    The sequence number is compared first, then name and sizes. torch's own analyser
    (torch.distributed.flight_recorder) needs torch and all dumps in one place, and unpickles any class.
    """
    groups: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for place in places:
        for entry in place.seen["recorder"]:
            groups[str(entry["process_group"])][place.rank] = entry
    for last in groups.values():
        if late := _fewer({rank: int(entry["collective_seq_id"] or 0) for rank, entry in last.items()}):
            ranks, own, most = late
            name = next(
                str(each["profiling_name"]) for each in last.values() if each["collective_seq_id"] == most
            )
            return "behind", ranks, f"it came to collective {own}, the others to {most} ({name})"
        for kind, field in (("behind", "profiling_name"), ("shapes", "input_sizes")):
            if found := odd(kind, {rank: str(entry[field]) for rank, entry in last.items()}):
                return found
    return None


def _fewer(counts: Mapping[int, int]) -> tuple[list[int], int, int] | None:
    """Return the ranks with the lowest count, that and the highest; None where all are the same."""
    low, high = min(counts.values(), default=0), max(counts.values(), default=0)
    return ([rank for rank, number in counts.items() if number == low], low, high) if low < high else None


def odd(kind: str, values: Mapping[int, str]) -> Found | None:
    """Return the ranks with the rarest value; all, as ``differ``, where no value is the most frequent."""
    ranked = Counter(values.values()).most_common()
    if len(ranked) < 2:  # noqa: PLR2004 - one value
        return None
    own = {value: [rank for rank in values if values[rank] == value] for value, _ in ranked}
    if ranked[0][1] > ranked[1][1]:
        return kind, own[ranked[-1][0]], f"{ranked[-1][0]}, the others {ranked[0][0]}"
    return (
        "differ",
        list(values),
        "; ".join(f"rank {format_ranges(ranks)} {value}" for value, ranks in own.items()),
    )


def ras(answers: Mapping[str, Mapping[str, Any]], places: Sequence[RankPlace]) -> Found | None:
    """Return missing ranks, ranks with an error, and those whose counts are behind in two answers of RAS.

    Its own summary may say OK while they differ (github.com/NVIDIA/nccl issue 1730): the counts decide.
    """
    for answer in answers.values():
        for place in answer["ras"][-1]:
            first, last = (each.get(place) for each in (answer["ras"][0], answer["ras"][-1]))
            found = (
                judge_text(str(first), last, answers, places)
                if isinstance(last, str)
                else _judge_json(first, last, answers, places)
            )
            if found:
                return found
    return None


def _judge_json(
    first: Any, last: Any, answers: Mapping[str, Mapping[str, Any]], places: Sequence[RankPlace]
) -> Found | None:
    before = {each["hash"]: each for each in (first or {}).get("communicators", ())}
    for each in (last or {}).get("communicators", ()):
        names = {
            rank["rank"]: _own(rank, answers, places) for rank in (*each["ranks"], *each["missing_ranks"])
        }
        if gone := [rank for rank in each["missing_ranks"] if any(rank["status"].values())]:
            dead = "considered dead" if gone[0]["status"]["considered_dead"] else "not responsive"
            return "behind", [names[rank["rank"]] for rank in gone], f"NCCL calls it {dead}"
        wrong = [rank for rank in each["ranks"] if rank["status"]["async_error"] not in _NO_ERRORS]
        if wrong:
            code = wrong[0]["status"]["async_error"]
            return "error", [names[rank["rank"]] for rank in wrong], f"number {code} of ncclResult_t"
        if each["ranks"] != before.get(each["hash"], {}).get("ranks"):
            continue
        for name in sorted({name for rank in each["ranks"] for name in rank["collective_counts"]}):
            counts = {rank["rank"]: rank["collective_counts"].get(name, 0) for rank in each["ranks"]}
            if late := _fewer(counts):
                detail = f"it has launched {late[1]} {name}, the others {late[2]}, and nothing moves"
                return "behind", [names[rank] for rank in late[0]], detail
    return None


def _own(
    rank: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]], places: Sequence[RankPlace]
) -> int:
    """Return the job's rank of a communicator's: by its pid and its host's address."""
    for place in places:
        here = rank["host"] in (place.host, *answers[place.host]["addresses"])
        if here and place.seen["pid"] == rank["pid"]:
            return place.rank
    return int(rank["rank"])


def judge_text(
    first: str,
    last: str,
    answers: Mapping[str, Mapping[str, Any]] | None = None,
    places: Sequence[RankPlace] = (),
) -> Found | None:
    """Read two answers of RAS in words for people: what it misses, and whose counts stay behind."""
    answers = answers or {}
    # The largest communicator is the first.
    missed = _MISSED.search(last)
    if gone := _list_ranks(missed[1], answers, places) if missed else ():
        return "behind", [*gone], "NCCL misses its data"
    if wrong := _WRONG.findall(last):
        return "error", [int(rank) for rank, _ in wrong], wrong[0][1]
    for name, block in _COUNTS.findall(last):
        counts = {int(count or 0): own for own, count in _LAUNCHED.findall(block)}
        low, most = min(counts), max(counts)
        late = _list_ranks(counts[low], answers, places)
        if late and block in first and low < most:
            detail = f"it has launched {low} {name}, the others {most}, and nothing moves"
            return "behind", late, detail
    return None


def judge_answers(log: str) -> Found | None:
    """Read the last two answers of RAS, or the only one, in a text."""
    answers = _ANSWER.split(log)
    return judge_text(answers[-2] if len(answers) > 1 else "", answers[-1])


def put_in_words(lines: Sequence[str]) -> list[str]:
    """Return a text with RAS's answers as JSON in the words that RAS has for people.

    The words stand in the first line of an answer, between carriage returns: other lines keep their numbers.
    """
    worded = [*lines]
    if not any('"communicators"' in line for line in worded):
        return worded
    begins = [at for at, line in enumerate(worded) if '"nccl_version"' in line]
    for number, ends in zip(begins, [*begins[1:], len(worded)], strict=True):
        # Its brace stands before it, or in its line.
        begun = next((at for at in (number, number - 1) if worded[at].lstrip().startswith("{")), -1)
        rest = _NO_COMMA.sub(r"\1,\2", "\n".join(worded[begun:ends]).lstrip())
        try:
            said, length = json.JSONDecoder().raw_decode(rest)
            words = [*_tell_answer(said)]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
        after = begun + rest[:length].count("\n") + 1
        worded[begun:after] = ["\r".join(words), *[""] * (after - begun - 1)]
    return worded


def _tell_answer(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"NCCL version {answer['nccl_version']} compiled with CUDA"
    for number, each in enumerate(sorted(answer["communicators"], key=lambda each: -each["size"])):
        name = f"#{number}-0 ({each['hash']})"
        if gone := [rank for rank in each["missing_ranks"] if any(rank["status"].values())]:
            yield f"{name} INCOMPLETE"
            yield f"  Missing communicator data from {len(gone)} rank{'s' * (len(gone) > 1)}"
            yield from (_tell_rank(rank, "--") for rank in gone)
        if wrong := [rank for rank in each["ranks"] if rank["status"]["async_error"] not in _NO_ERRORS]:
            yield f"{name} ERROR"
            yield f"  Asynchronous error{'s' * (len(wrong) > 1)} on {len(wrong)} rank{'s' * (len(wrong) > 1)}"
            for rank in wrong:
                yield _tell_rank(rank, f"reported ncclResult_t {rank['status']['async_error']} --")
        for kind in sorted({kind for rank in each["ranks"] for kind in rank["collective_counts"]}):
            yield from _tell_counts(name, kind, each["ranks"])


def _tell_counts(name: str, kind: str, ranks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how many collectives of a kind ranks have launched, the most frequent number first."""
    counts: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for rank in ranks:
        counts[rank["collective_counts"].get(kind, 0)].append(rank)
    if len(counts) < 2:  # noqa: PLR2004 - one number
        return
    yield f"{name} MISMATCH"
    yield f"  Communicator ranks have different {kind} operation counts"
    for count, own in sorted(counts.items(), key=lambda item: -len(item[1])):
        launched = f"launched up to operation {count}" if count else "not launched any operations"
        if len(own) == 1:
            yield _tell_rank(own[0], f"has {launched} --")
            continue
        yield f"  {len(own)} ranks have {launched}"
        if len(own) * 2 < len(ranks):
            yield from (_tell_rank(rank, "--") for rank in own)


def _tell_rank(rank: Mapping[str, Any], said: str) -> str:
    where = f"GPU {rank['nvml_dev']} managed by process {rank['pid']} on node {rank['host']}"
    return f"  Rank {rank['rank']} {said} {where}"


def _list_ranks(
    block: str, answers: Mapping[str, Mapping[str, Any]], places: Sequence[RankPlace]
) -> list[int]:
    listed = [
        {"rank": int(row["rank"]), "host": row["host"], "pid": int(row["pid"] or 0)}
        for row in _LISTED.finditer(block)
    ]
    bare = re.search(r"missing ranks?: (\d+(?:, \d+)*)", block)
    return [_own(rank, answers, places) for rank in listed] or [
        int(rank) for rank in re.findall(r"\d+", bare[1] if bare else "")
    ]


def list_stalled(lines: Sequence[str]) -> Iterator[int]:
    """Yield the ranks that Horovod waits for, by the lines of its stall check."""
    for line in lines:
        listed = re.search(r"[Mm]issing ranks:\s*([\d, ]+)", line) or re.match(r"(?:.*>:)?(\d+): \[", line)
        if listed:
            yield from (int(rank) for rank in re.findall(r"\d+", listed[1]))
