"""``hvlab doctor --prove``: reproduces a cause in a fresh lab, fixes it, and shows that it is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import yaml

from hvlab.base import process
from hvlab.base.errors import CheckError, HvlabError, UsageError
from hvlab.base.files import lock
from hvlab.base.temporary import temporary_folder
from hvlab.doctor import reading
from hvlab.doctor.proofs import OF_CAUSE, CauseProof
from hvlab.vlab.plan import check_machine

_NETWORK = "198.18.247"
_HOSTS = {f"p{number}": {"ansible_host": f"{_NETWORK}.{10 + number}"} for number in (1, 2)}
_VARIABLES = {
    "lab_name": "prove",
    "lab_network": f"{_NETWORK}.0/24",
    "lab_interface": "host0",
    "lab_slots": 1,
    "lab_cpus": "all",
}
_LOCK = Path("/run/hvlab-prove")
_COMMAND_S = 1800.0
_WRONG = "open an issue with these lines: either doctor or the proof is wrong"


def prove(causes: Sequence[str]) -> None:
    """Prove the first of these causes that virtual hosts can show; root causes come first.

    Raises UsageError if they can show none, CheckError if another cause shows, or the remedy fails.
    """
    proof = next((OF_CAUSE[cause] for cause in causes if cause in OF_CAUSE), None)
    if proof is None:
        raise UsageError(
            f"{', '.join(causes) or 'nothing known'}: virtual hosts cannot show it",
            remedy=f"--prove knows {', '.join(OF_CAUSE)}",
        )
    check_machine()
    click.echo(f"\nprove {proof.cause} on two fresh virtual hosts:")
    with boot_fresh_lab() as lab:
        show(lab, proof)


def show(lab: FreshLab, proof: CauseProof) -> None:
    """Put a cause in, see it, fix it, see it gone. Raises CheckError if any step fails."""
    words = " ".join(["hvlab", *proof.command])
    for cause, line in lab.causes(proof).items():
        raise CheckError(f"`{words}` fails before anything was put in: {cause}: {line}")
    _say("before", f"`{words}` succeeds")
    lab.root(proof.host, proof.put_in)
    _say("put in", f"{proof.host}: {proof.put_in}")
    causes = lab.causes(proof)
    if proof.cause not in causes:
        raise CheckError(f"`{words}` does not show {proof.cause} though it was put in", remedy=_WRONG)
    _say("the same failure", causes[proof.cause])
    if proof.remedy:
        lab.hvlab(proof.remedy, check=True)
        _say("remedy", f"`{' '.join(['hvlab', *proof.remedy])}`")
    else:
        lab.root(proof.host, proof.by_hand)
        _say("remedy", f"{proof.host}: {proof.by_hand}")
    for cause, line in lab.causes(proof).items():
        raise CheckError(f"`{words}` still fails after the remedy: {cause}: {line}", remedy=_WRONG)
    _say("gone", f"`{words}` succeeds")


def _say(what: str, words: str) -> None:
    click.echo(f"  {what}: {words}")


class FreshLab:
    """A lab of two virtual hosts whose inventory, keys and results are in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._inventory = folder / "inventory"
        (self._inventory / "group_vars").mkdir(parents=True)
        hosts = {"all": {"children": {"virtual": {"hosts": _HOSTS}}}}
        (self._inventory / "hosts.yml").write_text(yaml.safe_dump(hosts), "utf-8")
        (self._inventory / "group_vars/all.yml").write_text(yaml.safe_dump(_VARIABLES), "utf-8")
        own = {"HVLAB_RESULTS": str(folder / "results"), "HVLAB_DATA": str(folder / "data")}
        self._env = {**os.environ, **own}

    def hvlab(self, words: Sequence[str], *, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command of hvlab on this lab. Raises HvlabError if it must succeed and does not."""
        verb = 2 if words[0] in ("lab", "keys") else 1
        argv = [sys.executable, "-m", "hvlab", *words[:verb], "-i", str(self._inventory), *words[verb:]]
        done = process.run(process.bound(argv), seconds=_COMMAND_S, env=self._env)
        if check and done.returncode:
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            raise HvlabError(f"`hvlab {' '.join(words)}` exited with {done.returncode}:\n{last}")
        return done

    def root(self, host: str, line: str) -> None:
        """Run a line in root's shell on a host."""
        self.hvlab(["lab", "ssh", host, line], check=True)

    def causes(self, proof: CauseProof) -> dict[str, str]:
        """Return the causes that the proof's command shows now, each with a line; none if it succeeds."""
        done = self.hvlab(proof.command)
        if not done.returncode:
            return {}
        with suppress(ValueError):
            return {each["id"]: each["observed"] for each in json.loads(done.stdout)["findings"]}
        diagnosis = reading.diagnose((done.stdout + done.stderr).splitlines())
        causes = {each.cause.id: each.lines[0][1] for each in diagnosis.causes}
        return causes or {"nothing known": (done.stderr.strip().splitlines() or ["no output"])[-1]}


@contextmanager
def boot_fresh_lab() -> Iterator[FreshLab]:
    """Boot and provision a lab; it is removed after the block."""
    waiting = "another proof is running; waiting for it"
    with lock(_LOCK, waiting=lambda: click.echo(waiting, err=True)), temporary_folder() as folder:
        lab = FreshLab(folder)
        try:
            # The remains of a killed proof are no fresh lab.
            lab.hvlab(["lab", "down"], check=True)
            lab.hvlab(["lab", "up"], check=True)
            lab.hvlab(["provision"], check=True)
            _say("lab", "p1 and p2 are up and provisioned")
            yield lab
        finally:
            lab.hvlab(["lab", "down"], check=True)
