"""A pack to many hosts over a slow link of the controller: one copy, and all hosts, forwarded or not.

Boots a lab of its own whose hosts are behind one uplink, which is the controller's link to them, and sets up
their trust. The pack is random bytes. Each round takes two ways in turn: to the first host alone, and to all
hosts, forwarded. --direct adds one to all hosts from the controller, which takes long. The pack is removed in
between. Prints one JSON line; ratios are to one copy. Needs root.

    python -m benchmarks.bench_packs [--hosts 16] [--size 100] [--rate 50mbit] [--rounds 3] [--direct]
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from hvlab.base.files import file_sha256
from hvlab.base.paths import images_dir, project_dir
from hvlab.stack.provision.packs import MARKER, pack_key

NETWORK = "198.18.48"
NAME, FOLDER, INPUTS = "bench-pack", "/opt/hvlab/bench-pack", {"random": True}
PLAYBOOK: list[dict[str, Any]] = [
    {
        "name": "Install the pack",
        "hosts": "all",
        "become": True,
        "gather_facts": False,
        "tasks": [
            {
                "name": "Install the pack",
                "ansible.builtin.import_role": {"name": "pack"},
                "vars": {
                    "pack_label": "random bytes",
                    "pack_name": NAME,
                    "pack_path": FOLDER,
                    "pack_inputs": INPUTS,
                    "pack_version": "1",
                    "pack_build_dir": "/var/tmp",  # noqa: S108 - of a build that does not take place
                    "pack_tasks": {},  # never built
                },
            }
        ],
    }
]


@dataclass(frozen=True)
class BenchLab:
    """An inventory, and the environment of the commands on it."""

    inventory: Path
    environment: dict[str, str]

    def run(self, *words: str) -> str:
        """Run one of the project's programs on the lab."""
        program, *more = words
        argv = [str(Path(sys.executable).parent / program), *more, "-i", str(self.inventory)]
        done = subprocess.run(
            argv, env=self.environment, cwd=project_dir(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise click.ClickException(
                f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
            )
        return done.stdout

    def copy(self, hosts: Sequence[str], *, forwarded: bool) -> dict[str, Any]:
        """Install the pack on hosts that lack it; return the seconds, and where they got it from."""
        limit = ",".join(hosts)
        self.run("ansible", limit, "--become", "-m", "file", "-a", f"path={FOLDER} state=absent")
        peer = [] if forwarded else ["-e", json.dumps({"pack_peer": {}})]
        playbook = str(self.inventory.parent / "pack.yml")
        start = time.monotonic()
        printed = self.run("ansible-playbook", playbook, "--limit", limit, *peer)
        seconds = time.monotonic() - start
        sources = re.findall(r'"source": "(.+?)"', printed)
        return {
            "hosts": len(hosts),
            "seconds": round(seconds, 1),
            "from_controller": sources.count("controller"),
        }


@contextmanager
def booted(hosts: Sequence[str], *, size: int, rate: str) -> Iterator[BenchLab]:
    """Boot a lab behind a slow uplink, with trust, and with a pack in a cache of its own."""
    with tempfile.TemporaryDirectory(prefix="hvlab-bench-") as name:
        folder = Path(name)
        inventory = folder / "inventory"
        inventory.mkdir()
        addresses = {host: f"{NETWORK}.{10 + number}" for number, host in enumerate(hosts)}
        virtual = {host: {"ansible_host": address} for host, address in addresses.items()}
        settings = {
            "lab_name": "benchpack", "lab_network": f"{NETWORK}.0/24", "lab_interface": "host0",
            "lab_cpus": "all",
            "pack_peer": {"user": "hvlab", "address": "{{ ansible_host }}", "port": 22},
        }  # fmt: skip
        hosts_of_lab = {"all": {"children": {"virtual": {"hosts": virtual}, "gpu": None}, "vars": settings}}
        uplink = {"racks": {"all": {"hosts": list(hosts), "uplink": {"rate": rate}}}}
        for file, content in (
            ("inventory/hosts.yml", hosts_of_lab),
            ("pack.yml", PLAYBOOK),
            ("uplink.yml", uplink),
        ):
            (folder / file).write_text(yaml.safe_dump(content), encoding="utf-8")
        (folder / "group_vars").symlink_to(project_dir() / "group_vars")
        own = {
            "HVLAB_CACHE": f"{name}/cache",
            "HVLAB_IMAGES": str(images_dir()),
            "HVLAB_DATA": f"{name}/data",
            "ANSIBLE_CONFIG": str(project_dir() / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "minimal",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        }
        lab = BenchLab(inventory, os.environ | own)
        make_pack(folder / "cache", size)
        try:
            lab.run("hvlab", "lab", "up", "--topology", str(folder / "uplink.yml"))
            lab.run("ansible-playbook", "playbooks/base.yml", "--tags", "lab_user,ssh_trust")
            yield lab
        finally:
            lab.run("hvlab", "lab", "down")


def make_pack(cache: Path, size: int) -> None:
    """Put a pack of so many random bytes into a cache."""
    key = pack_key(NAME, INPUTS | {"needs": []})
    file = cache / "packs" / f"{NAME}-{key}.tar.gz"
    file.parent.mkdir(parents=True)
    marker = json.dumps({"name": NAME, "key": key, "files": 1, "bytes": size}).encode()
    with tarfile.open(file, "w:gz", compresslevel=1) as tar:
        for name, content in ((MARKER, marker), ("random", secrets.token_bytes(size))):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    file.with_name(file.name + ".sha256").write_text(f"{file_sha256(file)}  {file.name}\n", encoding="utf-8")


@click.command(help=__doc__)
@click.option("--hosts", type=click.IntRange(2, 64), default=16, show_default=True)
@click.option("--size", type=click.IntRange(1), default=100, show_default=True, help="MB of the pack.")
@click.option(
    "--rate", default="50mbit", show_default=True, help="Of the controller's link, as tc writes it."
)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--direct", is_flag=True, help="Also without forwarding, once.")
def main(hosts: int, size: int, rate: str, rounds: int, direct: bool) -> None:
    names = [f"b{number}" for number in range(1, hosts + 1)]
    with booted(names, size=size * 1_000_000, rate=rate) as lab:
        one, all_ = [], []
        for _ in range(rounds):
            one.append(lab.copy(names[:1], forwarded=True))
            all_.append(lab.copy(names, forwarded=True))
        alone = [lab.copy(names, forwarded=False)] if direct else []
    usual = statistics.median(each["seconds"] for each in one)
    ratios = {
        name: round(statistics.median(each["seconds"] for each in runs) / usual, 2)
        for name, runs in (("forwarded", all_), ("direct", alone))
        if runs
    }
    click.echo(json.dumps({"one": one, "forwarded": all_, "direct": alone, "ratios": ratios}))


if __name__ == "__main__":
    main()
