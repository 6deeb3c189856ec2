"""Packs that hosts forward: who serves whom, and what happens if that fails."""

import threading
import time
from pathlib import Path

import pytest

from hvlab.stack.provision.packs import (
    _CONTROLLER,
    Forwarding,
)


class Hosts:
    """Hosts that get an archive at the same time, each in a thread; transfers take a moment."""

    def __init__(self, folder: Path, *, broken: tuple[str, ...] = ()) -> None:
        self.folder, self.broken = folder, broken
        self.taken: list[tuple[str, str]] = []
        self.serving: list[str] = []
        self.has: set[str] = set()
        self.mistakes: list[str] = []

    def run(self, *names: str) -> None:
        threads = [threading.Thread(target=self.host, args=[name]) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive(), f"{thread} is stuck; {self.taken}"
        assert not self.mistakes

    def host(self, name: str) -> None:
        forwarding = Forwarding(self.folder, name)
        with forwarding.source() as source:
            worked = source is None or self.transfer(source.host, name)
            if source:
                forwarding.record(source, worked=worked)
            if not worked or source is None:
                self.transfer(_CONTROLLER, name)
            self.has.add(name)
            if worked:
                forwarding.offer(f"/{name}", {"address": "192.0.2.1"})
        forwarding.withdraw()
        self.has.discard(name)

    def transfer(self, source: str, target: str) -> bool:
        if source in self.serving and source != _CONTROLLER:
            self.mistakes.append(f"{source} serves two hosts")
        self.serving.append(source)
        time.sleep(0.02)
        self.serving.remove(source)
        if source != _CONTROLLER and source not in self.has:
            self.mistakes.append(f"{source} had gone while it served {target}")
        self.taken.append((source, target))
        return source not in self.broken

    def from_controller(self) -> int:
        return [source for source, _ in self.taken].count(_CONTROLLER)


def test_many_hosts_at_once_take_it_from_the_controller_once(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    names = [f"n{number}" for number in range(12)]
    hosts.run(*names)
    assert sorted(target for _, target in hosts.taken) == sorted(names)
    assert hosts.from_controller() == 1
    assert [path.name for path in (tmp_path / "sources").iterdir()] == [_CONTROLLER]


def test_a_host_that_serves_badly_serves_once(tmp_path: Path) -> None:
    """The host that it serves turns to the controller, and all others have a good source."""
    first = Hosts(tmp_path / "first")
    forwarding = Forwarding(first.folder, "bad")
    with forwarding.source() as source:
        assert source is None
        first.has.add("bad")
        forwarding.offer("/bad", {"address": "192.0.2.1"})
    first.broken = ("bad",)
    first.run("n1", "n2", "n3", "n4")
    forwarding.withdraw()
    assert [source for source, _ in first.taken].count("bad") == 1
    assert {target for source, target in first.taken if source != "bad"} == {"n1", "n2", "n3", "n4"}


def test_where_nothing_works_all_turn_to_the_controller(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(8)]
    hosts = Hosts(tmp_path, broken=tuple(names))
    hosts.run(*names)
    assert {target for source, target in hosts.taken if source == _CONTROLLER} == set(names)
    assert len(hosts.taken) - hosts.from_controller() <= 4


def test_a_process_that_ends_leaves_its_source_free(tmp_path: Path) -> None:
    forwarding = Forwarding(tmp_path, "n1")
    with pytest.raises(RuntimeError), forwarding.source():
        raise RuntimeError
    forwarding.withdraw()
    with Forwarding(tmp_path, "n2").source() as source:
        assert source is None
