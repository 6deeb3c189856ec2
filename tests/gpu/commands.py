"""hvlab's commands on this machine, and a folder that keeps what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
INVENTORY = "tests/gpu/inventory"
# Empty: nothing is kept.
OUTPUT = os.environ.get("HVLAB_GPU_OUTPUT", "")


def run(*argv, expect=0, keep=""):
    """Run a program and return what it printed on stdout; ``keep`` names a file for all it printed."""
    environment = os.environ | ({"HVLAB_RESULTS": f"{OUTPUT}/results"} if OUTPUT else {})
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        timeout=3600,
        env=environment,
    )
    if OUTPUT and keep:
        Path(OUTPUT, keep).write_text(done.stdout + done.stderr, "utf-8")
    assert done.returncode == expect, f"{argv} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def hvlab(*words, expect=0, keep=""):
    return run(sys.executable, "-m", "hvlab", *words, expect=expect, keep=keep)


def site(keep=""):
    """Run site.yml and return its output."""
    playbook = str(Path(sys.executable).parent / "ansible-playbook")
    return run(playbook, "site.yml", "-i", INVENTORY, keep=keep)


def measured(*words, keep):
    """Run a bench; return its records, which are printed too."""
    hvlab("bench", "-i", INVENTORY, *words, keep=f"bench-{keep}.txt")
    records = json.loads(hvlab("results", "show", "--format", "json", keep=f"records-{keep}.json"))
    print(json.dumps(records, indent=1))
    return records
