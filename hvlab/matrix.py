"""Axes in, cases out. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass

from hvlab.errors import UsageError
from hvlab.inventory import Lab
from hvlab.stack import BACKENDS

DTYPES = {"float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}
_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_ALL_COUNTS_UP_TO = 4


@dataclass(frozen=True)
class Spec:
    """What was asked for. ``hosts`` and ``slots`` are counts; ``timeout`` is seconds a case may take.

    ``container`` is the image the ranks run in, with an sshd on ``ssh_port``; None: on the hosts themselves.
    """

    backends: tuple[str, ...]
    hosts: tuple[int, ...]
    slots: tuple[int, ...]
    sizes: tuple[int, ...]
    workload: str = "allreduce"
    launcher: str | None = None
    repeats: int = 1
    iterations: int = 20
    warmup: int = 5
    dtype: str = "float32"
    timeout: int = 900
    container: str | None = None
    ssh_port: int = 9435
    container_options: tuple[str, ...] = ()

    def key(self, lab: Lab) -> str:
        """Return a hash of all that makes two commands ask for the same measurements."""
        asked = {"spec": asdict(self), "lab": lab.name, "hosts": [[h.name, h.address] for h in lab.hosts]}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Case:
    """One launch: ``slots`` ranks on each of ``hosts``; the first of them starts it.

    ``container`` and ``ssh_port`` are empty and 0 where the ranks run on the hosts themselves.
    """

    id: str
    workload: str
    backend: str
    launcher: str
    hosts: tuple[str, ...]
    slots: int
    repeat: int
    sizes: tuple[int, ...]
    iterations: int
    warmup: int
    dtype: str
    timeout: int
    container: str = ""
    ssh_port: int = 0

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return len(self.hosts) * self.slots


@dataclass(frozen=True)
class Impossible:
    """A case that cannot be, and why."""

    case: str
    reason: str


def expand(spec: Spec, lab: Lab) -> tuple[list[Case], list[Impossible]]:
    """Return every case of ``spec`` on ``lab``, repeats outermost, and those that cannot be run."""
    cases: list[Case] = []
    impossible: list[Impossible] = []
    for repeat in range(1, spec.repeats + 1):
        for backend in spec.backends:
            for count in spec.hosts:
                for slots in spec.slots:
                    case = _case(spec, lab, backend=backend, count=count, slots=slots, repeat=repeat)
                    reason = _reason(case, lab, count)
                    if reason is None:
                        cases.append(case)
                    elif repeat == 1:
                        impossible.append(Impossible(case.id, reason))
    return cases, impossible


def default_hosts(count: int) -> tuple[int, ...]:
    """Return 1..N for up to four hosts, else the powers of two below N, and N."""
    if count <= _ALL_COUNTS_UP_TO:
        return tuple(range(1, count + 1))
    return (*(2**power for power in range(count.bit_length()) if 2**power < count), count)


def default_slots(lab: Lab) -> tuple[int, ...]:
    """Return 1 and the most that every host has room for."""
    return tuple(sorted({1, min(host.slots for host in lab.hosts)}))


def parse_sizes(text: str, *, item: int = 1) -> tuple[int, ...]:
    """Return sizes in bytes from ``min:max:factor`` or a list; as nccl-tests, rounded down to whole items.

    K, M and G are powers of 1024. Raises UsageError.
    """
    if ":" in text:
        low, high, factor = _bounds(text)
        sizes = []
        while low <= high:
            sizes.append(low)
            low *= factor
    else:
        sizes = [_bytes(part) for part in text.split(",") if part.strip()]
    small = [size for size in sizes if size < item]
    if small or not sizes:
        raise UsageError(
            f"--sizes {text}: " + (f"{small[0]} bytes hold no element" if small else "no size in it"),
            remedy=f"give sizes of {item} bytes and more, such as 1K:64M:4 or 1K,4M",
        )
    return tuple(dict.fromkeys(size - size % item for size in sizes))


def parse_counts(text: str, option: str) -> tuple[int, ...]:
    """Return the whole numbers of a list such as ``1,2,3``. Raises UsageError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(
            f"{option} {text}: not a list of whole numbers from 1 on", remedy=f"write {option} 1,2,3"
        )
    return tuple(dict.fromkeys(int(part) for part in parts))


def _bounds(text: str) -> tuple[int, int, int]:
    parts = text.split(":")
    remedy = "write min:max:factor, such as 1K:64M:4"
    if len(parts) != 3 or not parts[2].isdigit():  # noqa: PLR2004 - the three parts the message names
        raise UsageError(f"--sizes {text}: not min:max:factor", remedy=remedy)
    low, high, factor = _bytes(parts[0]), _bytes(parts[1]), int(parts[2])
    if factor < 2 or not 0 < low <= high:  # noqa: PLR2004 - a smaller factor does not grow
        raise UsageError(f"--sizes {text}: min must be from 1 to max and factor 2 or more", remedy=remedy)
    return low, high, factor


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMG]?)(?:I?B)?", text.strip().upper())
    if match is None:
        raise UsageError(f"--sizes: {text!r} is no size", remedy="write 4096, 4K, 16M or 1G")
    return int(match[1]) * _UNITS[match[2]]


def _case(spec: Spec, lab: Lab, *, backend: str, count: int, slots: int, repeat: int) -> Case:
    launcher = spec.launcher or BACKENDS[backend].launchers[0]
    chosen = [*([launcher] if spec.launcher else []), *(["container"] if spec.container else [])]
    named = [spec.workload, backend, *chosen, f"{count}x{slots}", f"r{repeat}"]
    return Case(
        id="-".join(named),
        workload=spec.workload,
        backend=backend,
        launcher=launcher,
        hosts=tuple(host.name for host in lab.hosts[:count]),
        slots=slots,
        repeat=repeat,
        sizes=spec.sizes,
        iterations=spec.iterations,
        warmup=spec.warmup,
        dtype=spec.dtype,
        timeout=spec.timeout,
        container=spec.container or "",
        ssh_port=spec.ssh_port if spec.container else 0,
    )


def _reason(case: Case, lab: Lab, count: int) -> str | None:
    if count > len(lab.hosts):
        return f"{count} hosts asked for, the lab has {len(lab.hosts)}"
    full = [f"{host.name} has {host.slots}" for host in lab.hosts[:count] if host.slots < case.slots]
    if full:
        return f"{case.slots} slots asked for, {', '.join(full)} (lab_slots)"
    if case.launcher not in BACKENDS[case.backend].launchers:
        return f"{case.launcher} cannot start {case.backend} ranks"
    if case.launcher == "local" and case.world_size > 1:
        return "the launcher local starts one rank only"
    return None
