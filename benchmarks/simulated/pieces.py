"""Single pieces of hvlab's work for many hosts, each in a process of its own: ``PIECE FOLDER HOSTS``."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paramiko

from benchmarks.records import BACKENDS, COLLECTIVE, SIZES, STACK
from hvlab.lab import inventory
from hvlab.lab.inventory import Host
from hvlab.remote import host_keys
from hvlab.remote.known_hosts import entry_name, read_known_keys
from hvlab.remote.trust import ensure_lab_trust
from hvlab.results.store import Record, Store
from hvlab.searches.slow import search as slow
from hvlab.searches.slow.hosts import MOST_HOSTS
from hvlab.searches.slow.steps import ProbeStep, Rates

_REPEATS = 3
# What all records have in common.
RECORD: dict[str, Any] = {
    "started_at": "2026-11-20T15:53:01.000Z",
    "workload": "allreduce",
    "slots_per_host": 2,
    "status": "ok",
    "error": None,
    "stack": STACK,
}


def read(folder: Path, _: int) -> None:
    """Read the inventory."""
    inventory.load(folder / "inventory/hosts.yml")


def sign(folder: Path, _: int) -> None:
    """Sign every host's key, one after another, as the role ssh_trust does for each host."""
    lab = inventory.load(folder / "inventory/hosts.yml")
    trust = ensure_lab_trust("signed")
    for host in lab.hosts:
        key = (folder / "hosts" / host.address / "scan").read_text("utf-8").split(" ", 1)[1].strip()
        trust.sign_host(key, name=host.name, principals=[host.name, host.address])


def fingerprints(folder: Path, _: int) -> None:
    """Read a file of every host's fingerprint, and pick what each shows, as `hvlab init` does."""
    lab = inventory.load(folder / "inventory/hosts.yml")
    shown = [_shown(folder, host) for host in lab.hosts]
    file = folder / "fingerprints"
    lines = [f"{one.host.name} {one.new[0].fingerprint}\n" for one in shown]
    file.write_text("".join(lines), "utf-8")
    trusted = host_keys.read_fingerprints(file)
    for one in shown:
        assert host_keys.select_trusted(one, trusted).new  # noqa: S101 - what is timed is right
    host_keys.find_shared_keys(shown)


def _shown(folder: Path, host: Host) -> host_keys.ShownKeys:
    line = (folder / "hosts" / host.address / "scan").read_text("utf-8")
    entry = paramiko.hostkeys.HostKeyEntry.from_line(line)
    assert entry is not None  # noqa: S101 - written by hosts.py
    return host_keys.ShownKeys(host, new=(entry.key,))


def look_up(folder: Path, _: int, *, hashed: bool = False) -> None:
    """Look every host up in a known_hosts file of all, as each first contact does."""
    lab = inventory.load(folder / "inventory/hosts.yml")
    file = folder / f"known-hosts-{hashed}"
    lines = []
    for host in lab.hosts:
        address, key = (folder / "hosts" / host.address / "scan").read_text("utf-8").split(" ", 1)
        lines.append(f"{paramiko.HostKeys.hash_host(address) if hashed else address} {key}")
    file.write_text("".join(lines), "utf-8")
    for host in lab.hosts:
        assert read_known_keys([host.name, entry_name(host)], [file]).keys  # noqa: S101 - what is timed is right


def look_up_hashed(folder: Path, hosts: int) -> None:
    """Do the same with hashed names."""
    look_up(folder, hosts, hashed=True)


def look_up_authority(folder: Path, _: int) -> None:
    """Do the same in the lab's own file, whose one line names all hosts."""
    lab = inventory.load(folder / "inventory/hosts.yml")
    trust = ensure_lab_trust("signed")
    file = folder / "known-hosts-authority"
    file.write_text(trust.known_hosts_text({host.name: [host.address] for host in lab.hosts}), "utf-8")
    for host in lab.hosts:
        assert read_known_keys([host.name, entry_name(host)], [file]).by_authority  # noqa: S101


def make_trust(folder: Path, _: int) -> None:
    """Make the lab's keys, and the file by which the controller trusts all hosts; no host is contacted."""
    lab = inventory.load(folder / "inventory/hosts.yml")
    trust = ensure_lab_trust(lab.name)
    trust.write_known_hosts(trust.known_hosts_text({host.name: [host.address] for host in lab.hosts}))


def search(_: Path, hosts: int) -> None:
    """Plan and judge a search for slow hosts, of at most as many as `hvlab find-slow` takes.

    What the hosts measure is made up, and one link is slow.
    """
    hosts = min(hosts, MOST_HOSTS)
    draw = random.Random(hosts)  # noqa: S311 - figures of a benchmark

    def measure(steps: Sequence[ProbeStep]) -> list[Rates]:
        return [
            {cell: draw.gauss(1e9, 1e7) / (3 if cell == (0, 1) else 1) for cell in step.cells(hosts)}
            for step in steps
        ]

    slow.search(hosts, measure, seed=1)


def store(folder: Path, hosts: int) -> None:
    """Store a run of allreduce on 1, 2, 4, ... and all hosts, three repeats over two backends."""
    names = [f"h{number:04}" for number in range(1, hosts + 1)]
    counts = sorted({*(2**power for power in range(hosts.bit_length())), hosts})
    records = Store(folder / "results")
    run_id = f"20261120T{hosts:06d}Z-ab12"
    repeats = range(1, _REPEATS + 1)
    cases = [(repeat, backend, count) for repeat in repeats for backend in BACKENDS for count in counts]
    records.create(run_id, lab="simulated", spec_key="k", spec={}, cases=[_case(*case) for case in cases])
    draw = random.Random(hosts)  # noqa: S311 - figures of a benchmark
    for repeat, backend, count in cases:
        first = RECORD | {
            "run_id": run_id,
            "case_id": _case(repeat, backend, count),
            "launcher": BACKENDS[backend],
            **dict.fromkeys(("backend", "proved_backend"), backend),
            "hosts": names[:count],
            "world_size": 2 * count,
            "repeat": repeat,
            "raw_path": f"runs/{run_id}/{_case(repeat, backend, count)}",
        }
        figures = [
            {
                "metric": metric,
                "unit": unit,
                "value": draw.uniform(0.9, 1.1) * value,
                "params": COLLECTIVE | {"size_bytes": size},
            }
            for size in SIZES
            for metric, unit, value in (
                ("time", "us", 10 + size / 1e3 * count),
                ("busbw", "GB/s", 1 / count),
            )
        ]
        records.add([Record(**first, **figure) for figure in figures])
    records.enter(run_id, "finished")


def _case(repeat: int, backend: str, count: int) -> str:
    return f"allreduce-{backend}-{count}x2-r{repeat}"


PIECES = {
    "read": read,
    "sign": sign,
    "fingerprints": fingerprints,
    "look-up": look_up,
    "look-up-hashed": look_up_hashed,
    "look-up-authority": look_up_authority,
    "trust": make_trust,
    "search": search,
    "store": store,
}

if __name__ == "__main__":
    PIECES[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
