"""The short form, installed as by role node_health: what it prints, and what drains a node."""

from __future__ import annotations

import ast
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hvlab.base.paths import project_dir
from hvlab.checks import node
from hvlab.checks.node import probe, short, smi
from hvlab.checks.node.finding import hard, passed, soft

SOURCE = Path(node.__file__).parent
TYPES = {"own": {}, "known": {}, "type": "", "expect": {}}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return the installed program."""
    root = tmp_path / "health"
    shutil.copytree(SOURCE, root / "hvlab/checks/node", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SOURCE / "__main__.py", root)
    (root / "python3").symlink_to(sys.executable)
    (tmp_path / "bin").mkdir()
    shutil.copy(
        project_dir() / "roles/node_health/templates/opt/hvlab/bin/hvlab-node-health.j2",
        tmp_path / "bin/hvlab-node-health",
    )
    (tmp_path / "bin/hvlab-node-health").chmod(0o755)
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake/logger").write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/log\n')
    (tmp_path / "fake/logger").chmod(0o755)
    expect(tmp_path, {})
    return tmp_path / "bin/hvlab-node-health"


def expect(folder: Path, values: dict[str, object]) -> None:
    (folder / "health/machine-types.json").write_text(json.dumps({**TYPES, "expect": values}))


def call(program: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = f"{program.parent.parent}/fake:{os.environ['PATH']}"
    return subprocess.run(
        [str(program), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={"PATH": path},
        timeout=60,
    )


def log(program: Path) -> str:
    file = program.parent.parent / "log"
    return file.read_text() if file.exists() else ""


def test_every_check_as_json(program):
    done = call(program, "--json")
    checks = {row["check"]: row for row in json.loads(done.stdout)}
    assert {"cpu count", "memory size", "disk space /"} <= set(checks)
    assert set(checks["cpu count"]) == {"check", "outcome", "severity", "observed", "remedy"}
    assert not log(program)


def test_metrics_hold_every_check_that_was_judged(program, tmp_path):
    expect(program.parent.parent, {"cpu_count": 10**6})
    call(program, "--prolog", "--metrics", str(tmp_path / "metrics"))
    [file] = (tmp_path / "metrics").iterdir()
    host = socket.gethostname()
    lines = file.read_text().splitlines()
    assert f'hvlab_hard_fault{{host="{host}",check="cpu count"}} 1' in lines
    assert f'hvlab_soft_fault{{host="{host}",check="cpu count"}} 0' in lines
    assert lines[-1].startswith('hvlab_ended_seconds{verb="node-health",')


def test_a_hard_fault_is_one_line_and_code_1(program):
    expect(program.parent.parent, {"cpu_count": 10**6})
    done = call(program, "--prolog")
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if "cpu" in line]
    assert line.startswith("hvlab: cpu count: ")
    assert line.endswith("CPUs are online, this machine type should have 1000000")


def test_soft_faults_drain_no_node():
    findings = [passed("a"), soft("b", "slow", "do"), hard("c", "broken", "do")]
    assert short.lines(findings, hard_only=True) == ["hvlab: c: broken"]
    assert short.lines(findings[:2], hard_only=True) == []
    assert len(short.lines(findings, hard_only=False)) == 2


@pytest.mark.parametrize(
    "broken",
    [
        "health/python3",
        "health/machine-types.json",
        "health/hvlab/checks/node/subjects.py",
        "health/__main__.py",
    ],
)
def test_a_check_that_cannot_run_drains_no_node(program, broken):
    (program.parent.parent / broken).unlink()
    assert call(program, "--prolog").returncode == 0
    assert "could not run" in log(program)


def test_a_broken_file_of_types_drains_no_node(program):
    (program.parent.parent / "health/machine-types.json").write_text('{"own": ')
    assert call(program, "--prolog").returncode == 0
    assert "could not run" in log(program)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "bigg"},
        {"own": {"mine": None}},
        {"own": {"mine": {"match": {"produkt": "x"}, "expect": {}}}},
        {"own": {"mine": {"match": {}, "expect": {"cpu_count": {"from": "x"}}}}},
        {"own": {"mine": {"match": {}, "expect": {"memory_gib": "2 TiB"}}}, "type": "mine"},
    ],
    ids=["no such type", "no mapping", "no such criterion", "no value", "no number"],
)
def test_a_type_that_cannot_be_used_is_a_soft_fault(program, change):
    file = program.parent.parent / "health/machine-types.json"
    file.write_text(json.dumps({**TYPES, **change}))
    done = call(program, "--json")
    rows = json.loads(done.stdout)
    assert [row["severity"] for row in rows if row["check"] == "machine type"] == ["soft", ""]
    assert "memory size" in {row["check"] for row in rows}
    assert not log(program)


def test_it_runs_nothing_of_the_folder_it_is_called_in(program, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/json.py").write_text("raise SystemExit('mine')\n")
    done = call(program, "--json", cwd=tmp_path / "elsewhere")
    assert json.loads(done.stdout)
    assert not log(program)


def test_any_python_from_3_8_on_runs_it_without_the_rest_of_hvlab():
    for path in SOURCE.glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 8))
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        modules += [
            name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
        ]
        foreign = {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names}
        assert all(name.startswith("hvlab.checks.node") for name in foreign), path.name


def test_a_node_whose_gpus_are_initialised_first_is_waited_for(program):
    """Eight A100 without persistence mode take nvidia-smi 25 to 30 s: Azure/AgentBaker, pull request 2829."""
    whole = int(program.read_text("utf-8").split("--kill-after=2 ")[1].split()[0])
    assert 35 < smi.TIMEOUT_S < whole - 2 * probe.GRACE_S - 10
