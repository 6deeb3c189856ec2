"""A lab of the tests, driven the way a person drives it: by command lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hvlab.base.paths import lab_runtime_dir
from hvlab.lab.inventory import load
from hvlab.vlab.lab import ssh_argv
from hvlab.vlab.plan import plan_without_limits

PROJECT = Path(__file__).resolve().parents[2]
# The C++ frames of torch.
_FRAMES = re.compile(r"^frame #.*\n", re.MULTILINE)
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Lab:
    """An inventory and where its commands keep what they find."""

    inventory: Path
    results: Path
    data: Path

    @property
    def environment(self):
        return os.environ | {"HVLAB_RESULTS": str(self.results), "HVLAB_DATA": str(self.data)}

    def argv(self, verb, *words):
        """Return a command line of hvlab on this lab; ``lab up`` counts as one verb."""
        return [sys.executable, "-m", "hvlab", *verb.split(), "-i", str(self.inventory), *words]

    def hvlab(self, verb, *words, expect=0):
        return self.run(self.argv(verb, *words), expect)

    def results_of(self, *words):
        """Return what ``hvlab results`` prints as JSON."""
        argv = [sys.executable, "-m", "hvlab", "results", *words, "--format", "json"]
        return json.loads(self.run(argv, 0).stdout)

    def site(self, *words, expect=0):
        """Run site.yml and return, for each host, how much it changed."""
        return self.playbook("site.yml", *words, expect=expect)

    def playbook(self, name, *words, expect=0):
        """Run a playbook and return, for each host, how much it changed."""
        program = str(Path(sys.executable).parent / "ansible-playbook")
        done = self.run([program, name, "-i", str(self.inventory), *words], expect)
        return {host: int(changed) for host, changed, _, _ in RECAP.findall(done.stdout)}

    def on(self, host, command, expect=0):
        """Run a command line on a node, as root, and return what it printed."""
        return self.run(ssh_argv(self.plan, host, (command,)), expect).stdout

    @cached_property
    def plan(self):
        return plan_without_limits(load(self.inventory))

    def run(self, argv, expect):
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            cwd=PROJECT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            timeout=2400,
        )
        assert done.returncode == expect, (
            f"{argv} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}\n{self.failed_launches()}"
        )
        return done

    def failed_launches(self):
        """Return what the cases of the newest run printed whose launchers did not end well."""
        runs = sorted((self.results / "runs").glob("*"))
        folders = [ended.parent for run in runs[-1:] for ended in run.glob("*/case.json")]
        return "\n".join(
            f"{folder.name}/{name}:\n{_FRAMES.sub('', (folder / name).read_text(errors='replace'))[-8000:]}"
            for folder in folders
            if json.loads((folder / "case.json").read_text()).get("rc")
            for name in ("stdout", "stderr")
        )


def leftovers(name):
    """Return everything of a lab that is on this machine, asked of the machine itself."""
    runtime = lab_runtime_dir(name)
    found = [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"hvlab/{name}/" in line
    ]
    links = json.loads(subprocess.check_output(["ip", "-json", "link"]))
    own = re.compile(rf"(hv|vb)(\d+[rud])?-{name}")
    found += [link["ifname"] for link in links if own.match(link["ifname"])]
    tables = subprocess.check_output(["nft", "list", "tables"], text=True)
    found += [line for line in tables.splitlines() if line.endswith(f" hvlab_{name}")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            argv, mounts = (process / "cmdline").read_text(), (process / "mountinfo").read_text()
        except OSError:
            continue
        if f"--directory={runtime}/" in argv or f"upperdir={runtime}/" in mounts:
            found.append(f"process {process.name}: {argv}")
    found += [str(path) for path in Path("/run/systemd/nspawn").glob(f"*/{name}-*")]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/hvlab/{name}")]
    return found + [str(runtime)] * runtime.exists()


@contextmanager
def booted(inventory, tmp_path_factory):
    """Boot the machines of an inventory below tests/vlab, and take them down in the end."""
    folder = tmp_path_factory.mktemp("lab")
    lab = Lab(PROJECT / "tests/vlab" / inventory, folder / "results", folder / "data")
    lab.hvlab("lab down")
    try:
        lab.hvlab("lab up")
        yield lab
    finally:
        lab.hvlab("lab down")
