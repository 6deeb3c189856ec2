"""What a fault is put into: a lab whose hosts are up, and a controller of its own beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from hvlab.base.paths import cache_dir
from hvlab.lab.inventory import load
from hvlab.vlab.lab import ssh_argv
from hvlab.vlab.plan import plan_without_limits

PROJECT = Path(__file__).resolve().parents[2]
# On a host: what a run, or Ansible, may have left there.
LEFT = (
    "for file in $(grep -lz '^HVLAB_CASE=' /proc/[0-9]*/environ 2>/dev/null); do "
    "echo process: $(tr '\\0' ' ' < ${file%environ}cmdline | cut -c1-80); done; "
    "ls -d /tmp/*hvlab* /tmp/ompi.* "
    "/var/tmp/hvlab-* /tmp/pymp* {/root,/home/*}/{.ansible,.hvlab}/tmp/ansible-* "
    "2>/dev/null; cut -d' ' -f2 /proc/mounts | grep -i hvlab; "
    "pgrep -f 'answers many questions in one round [t]rip' >/dev/null && echo process: verify; true"
)
# What `verify` runs there.
PROBE = "pgrep -f 'answers many questions in one round [t]rip' || true"
MARK = "COMMAND"
# They stay on purpose: the hosts, what writes their consoles, connections that the next call takes up.
STAY = ("systemd-nspawn", "ssh", "sshd")
CONSOLE = "/vlab/console.py"


@dataclass
class World:
    """A lab, and where hvlab keeps things on the controller meanwhile; ``extra`` is of its environment."""

    inventory: Path
    folder: Path
    data: Path
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._logins: dict[str, list[str]] = {}
        self.results = self.folder / "results"
        self.tmp = self.folder / "tmp"
        # A copy of the cache, for faults in it; and how long commands take that are not hindered.
        self.cache = self.folder / "cache"
        self.durations: dict[str, float] = {}
        for folder in (self.results, self.tmp):
            folder.mkdir(parents=True, exist_ok=True)
        lab = load(self.inventory)
        self.hosts = [host.name for host in lab.hosts]
        self.addresses = {host.name: host.address for host in lab.hosts}
        self.lab = lab.name

    @property
    def trust(self) -> Path:
        return self.data / "trust" / self.lab

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "HVLAB_RESULTS": str(self.results),
            "HVLAB_DATA": str(self.data),
            "TMPDIR": str(self.tmp),
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        return {**os.environ, **own, **self.extra}

    def argv(self, *words: str) -> list[str]:
        """Return a command line of hvlab on this lab."""
        verbs = 2 if words[0] in ("lab", "keys") else 1
        own = [] if words[0] in ("results", "report") else ["-i", str(self.inventory)]
        return [sys.executable, "-m", "hvlab", *words[:verbs], *own, *words[verbs:]]

    def start(self, *words: str, **streams: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        # Under nohup it would be ignored.
        listening = ["env", "--default-signal=HUP"]
        return subprocess.Popen(
            [*listening, *self.argv(*words)],
            **{"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, **streams},
            text=True,
            errors="replace",
            cwd=PROJECT,
            env=self.environment,
            start_new_session=True,
        )

    def hvlab(self, *words: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        with self.start(*words) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += f"\n(still running after {seconds} s)"
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def on(self, host: str, command: str) -> str:
        """Run a command line on a host, as root."""
        if host not in self._logins:
            plan = plan_without_limits(load(self.inventory))
            self._logins[host] = ssh_argv(plan, host, (MARK,))
        argv = [command if word == MARK else word for word in self._logins[host]]
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
            )
            return done.stdout
        return ""

    def until(self, true: Callable[[], object], seconds: float = 60) -> None:
        """Wait until it is true, but not for ever: the fault then comes when it comes."""
        deadline = time.monotonic() + seconds
        while not true() and time.monotonic() < deadline:
            time.sleep(0.3)

    def ranks(self, host: str) -> bool:
        """Whether ranks run on a host."""
        return bool(self.on(host, "pgrep -f '[c]ollective.py' || true").strip())

    @contextmanager
    def saved(self, path: Path) -> Iterator[Path]:
        """Yield a file or folder that is as it was afterwards, whatever happens to it."""
        kept = self.folder / "kept"
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        copy(path, kept)
        try:
            yield path
        finally:
            for each in (path, kept):
                if each == path or path.exists():
                    shutil.rmtree(each) if each.is_dir() else each.unlink(missing_ok=True)
                if each == path:
                    kept.rename(path)

    @contextmanager
    def changed(self, **names: str) -> Iterator[None]:
        """Set environment variables of hvlab."""
        before = dict(self.extra)
        self.extra.update(names)
        try:
            yield
        finally:
            self.extra = before

    def own_cache(self) -> AbstractContextManager[None]:
        """Have hvlab use a copy of the cache."""
        if not self.cache.exists():
            for name in ("packs", "sources", "wheels"):
                shutil.copytree(cache_dir() / name, self.cache / name)
        return self.changed(HVLAB_CACHE=str(self.cache))

    @contextmanager
    def copied(self, change: Callable[[dict], None] | str, **variables: object) -> Iterator[Path]:
        """Use another inventory: this one after ``change``, or a text; ``variables`` are every host's."""
        before, place = self.inventory, self.folder / "other"
        shutil.copytree(before if before.is_dir() else before.parent, place, dirs_exist_ok=True)
        if isinstance(change, str):
            (place / "hosts.yml").write_text(change)
        else:
            content = yaml.safe_load((place / "hosts.yml").read_text())
            change(content)
            (place / "hosts.yml").write_text(yaml.safe_dump(content))
        file = place / "group_vars/all.yml"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | variables))
        self.inventory = place
        try:
            yield place
        finally:
            self.inventory = before
            shutil.rmtree(place)

    @contextmanager
    def small_disk(self, path: Path, size: str = "64k", *, options: str = "") -> Iterator[Path]:
        """Mount a disk of so much on a folder of the controller."""
        path.mkdir(parents=True, exist_ok=True)
        words = ["-t", "tmpfs", "-o", f"size={size}{options}", "tmpfs", str(path)]
        subprocess.run(["mount", *words], check=True)
        try:
            yield path
        finally:
            subprocess.run(["umount", "-l", str(path)], check=True)

    @contextmanager
    def read_only(self, path: Path) -> Iterator[None]:
        """Make a folder of the controller read-only."""
        subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", str(path)], check=True)

    @contextmanager
    def unplugged(self, host: str) -> Iterator[None]:
        """Take a host's cable out, at the controller's end."""
        self.link(host, "down")
        try:
            yield
        finally:
            self.link(host, "up")

    def link(self, host: str, state: str) -> None:
        subprocess.run(["ip", "link", "set", f"vb-{self.lab}-{host}"[:15], state], check=True)

    def records(self) -> set[str]:
        """Return the records of all runs."""
        journals = self.results.glob("runs/*/store.jsonl")
        return {line for each in journals for line in each.read_text().splitlines() if '"records"' in line}

    def left(self) -> set[str]:
        """Return what is left over: processes, temporary folders, mounts; on controller and hosts."""
        found = {f"controller: {path.name}" for path in self.tmp.iterdir()}
        found |= {f"controller: process {words}" for words in self._own_processes()}
        mounts = Path("/proc/mounts").read_text().splitlines()
        found |= {f"controller: mount {line.split()[1]}" for line in mounts if str(self.folder) in line}
        with ThreadPoolExecutor() as together:
            texts = together.map(partial(self.on, command=LEFT), self.hosts)
            for host, text in zip(self.hosts, texts, strict=True):
                found |= {f"{host}: {line}" for line in text.splitlines() if line.strip()}
        return found

    def _own_processes(self) -> Iterator[str]:
        mark = f"HVLAB_RESULTS={self.results}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                name = (folder / "comm").read_text().strip()
                if mark in (folder / "environ").read_bytes().split(b"\0") and name not in STAY:
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if CONSOLE not in words:
                        yield words[:80]
