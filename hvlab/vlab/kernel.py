"""Settings of this machine's kernel that a lab needs while it is up; the last lab puts them back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from hvlab.base.files import locked
from hvlab.vlab.files import write

_FORWARD = "net/ipv4/ip_forward"
# At least these. Each node's systemd takes about eight inotify instances; Linux grants root 128 in all.
# Each node keeps the link address of each other one; Linux has room for 1024 in all. With 32 nodes there was
# always one without, whose login or connection ended with "No route to host".
LEAST = {
    _FORWARD: 1,
    "fs/inotify/max_user_instances": 8192,
    "net/ipv4/neigh/default/gc_thresh1": 8192,
    "net/ipv4/neigh/default/gc_thresh2": 16384,
    "net/ipv4/neigh/default/gc_thresh3": 32768,
}
_SETTINGS = Path("/proc/sys")


def prepare(runtime: Path, *, settings: Path = _SETTINGS) -> None:
    """Raise the settings, and record in ``runtime`` what they were before the first lab."""
    with _record(runtime) as record:
        before = _read(record)
        for name, least in LEAST.items():
            value = int((settings / name).read_text(encoding="ascii"))
            if value < least:
                before.setdefault(name, value)
        write(record, json.dumps(before) + "\n")
        for name, least in LEAST.items():
            if name in before:
                (settings / name).write_text(str(least), encoding="ascii")


def routes(runtime: Path, *, settings: Path = _SETTINGS) -> bool:
    """Return whether this machine forwards packets without labs, too."""
    # In this order: a lab that begins now records before it sets.
    forwards = int((settings / _FORWARD).read_text(encoding="ascii"))
    return bool(forwards) and _FORWARD not in _read(runtime / "kernel.json")


def restore(runtime: Path, *, settings: Path = _SETTINGS) -> None:
    """When no lab is left in ``runtime``, put the settings back, apart from those changed by others since.

    The directory goes with them: nothing is left of the labs.
    """
    with _record(runtime) as record:
        if any(path.is_dir() for path in runtime.iterdir()):
            return
        for name, value in _read(record).items():
            if int((settings / name).read_text(encoding="ascii")) == LEAST[name]:
                (settings / name).write_text(str(value), encoding="ascii")
        record.unlink(missing_ok=True)
        with suppress(OSError):
            runtime.rmdir()


def _read(record: Path) -> dict[str, int]:
    try:
        recorded: Mapping[str, int] = json.loads(record.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {name: value for name, value in recorded.items() if name in LEAST}


@contextmanager
def _record(runtime: Path) -> Iterator[Path]:
    """Hold the record for oneself; labs come and go at the same time."""
    with locked(runtime):
        yield runtime / "kernel.json"
