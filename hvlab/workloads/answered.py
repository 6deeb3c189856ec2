"""What a host may send of a case: the shapes of case.json, of result.json and of its parts.

Names that no reader here knows may hold anything: a newer program may tell more.
"""

from __future__ import annotations

from typing import Any

from hvlab.answers.shapes import anything, entries, flag, many, maybe, number, row, scalar, table, text, whole

# Year 1 to 9999, as datetime has it; and three years of seconds, above which no case runs.
_EPOCH = number(0, 253_402_300_799)
_SECONDS, _TAKEN = number(0, 1e8), number(0, 1e8, above=True)

ENDED = entries(
    {
        "started_at": _EPOCH,
        "ended_at": _EPOCH,
        "rc": maybe(whole(-(2**31), 2**32)),
        "timed_out": flag,
        "error": maybe(text),
        "skipped": maybe(text),
        "reaped": maybe(table(anything)),
        "step": entries({"state": text, "error": text}),
    },
)

# What one host tells of its cores, see programs/stolen.py. Counters of a guest may go back a little.
_CHANGE = number(-1e9, 1e9)
_EACH_CPU = table(row(_CHANGE, _CHANGE))
_NUMBER_DIGITS = 6


def _cpus(value: Any, where: str) -> str | None:
    odd = [name for name in value if not _is_number(name)] if isinstance(value, dict) else []
    return f"{where} names the CPU {odd[0][:20]!r}" if odd else _EACH_CPU(value, where)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= _NUMBER_DIGITS


COUNTED = entries(
    {
        "machine": text,
        "seconds": _SECONDS,
        "cpus": _cpus,
        "own_s": _CHANGE,
        "throttled_s": _CHANGE,
    },
    needed=("machine", "seconds", "cpus", "own_s", "throttled_s"),
)
# Rank, local rank, host, and what else a program tells of it.
_PLACE = row(whole(), whole(), text, anything)

RESULT = entries(
    {
        "unavailable": maybe(scalar),
        "checks": maybe(many(text)),
        "device": text,
        "world": maybe(entries({"size": maybe(whole(0, 2**31)), "placement": maybe(many(_PLACE))})),
        "proof": maybe(entries({"activities": maybe(many(text)), "groups": maybe(many(text))})),
        "state": maybe(
            entries(
                {
                    "versions": maybe(table(scalar)),
                    "pml": maybe(text),
                    "horovod": maybe(table(scalar)),
                }
            )
        ),
        "wire": maybe(entries({"carriers": maybe(many(text))})),
        "stolen": maybe(table(COUNTED)),
    }
)

_SIZE = entries(
    {"size_bytes": whole(1), "mean_s": many(_TAKEN, least=1)},
    needed=("size_bytes", "mean_s"),
)
COLLECTIVE = entries({"sizes": many(_SIZE)}, needed=("sizes",))

_STEPS = entries({"mean_s": many(_TAKEN), "samples": many(whole(0, 2**50))}, needed=("mean_s", "samples"))
TRAINING = entries(
    {
        "steps": _STEPS,
        "epochs": maybe(many(anything)),
        "accuracy": maybe(number(0, 100)),
        "loss": maybe(number()),
        "sent_bytes": maybe(number(0)),
        "times": entries(
            {
                "training_s": maybe(_SECONDS),
                "first_step_at": _EPOCH,
                "user_s": maybe(_SECONDS),
                "sys_s": maybe(_SECONDS),
            },
            needed=("first_step_at",),
        ),
        "model": entries({"gradient_bytes": maybe(number(0)), "flops_per_sample": maybe(number(0))}),
        "compute": entries({"by_host_s": table(_SECONDS)}, needed=("by_host_s",)),
        "world": entries({}),
    },
    needed=("steps", "times", "model", "compute", "world"),
)

# What the iterations are read from: also of a case that does not count, as far as it came.
_TIMED = entries({"size_bytes": whole(1), "mean_s": many(_TAKEN)}, needed=("size_bytes", "mean_s"))
SAMPLED = entries(
    {"sizes": maybe(many(_TIMED)), "steps": maybe(entries({"mean_s": maybe(many(_TAKEN))}))},
)

COMMAND = entries(
    {"command": entries({"seconds": _SECONDS, "removed": maybe(many(text))}, needed=("seconds",))},
    needed=("command",),
)
