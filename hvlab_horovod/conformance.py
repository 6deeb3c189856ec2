"""Run Horovod's own tests of horovod.torch against hvlab_horovod, and print which pass.

``python -m hvlab_horovod.conformance SOURCE`` takes the tree of a Horovod release (its ``test/`` folder is
needed), starts two ranks on this machine, and prints a table. Needs torch, pytest, mock and cloudpickle. Each
failure, and each test that takes longer than a minute, ends the ranks; the next test gets new ones.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hvlab_horovod import ALIAS

RANKS = 2
PATIENCE_S = 60
# Horovod's test utilities import its launcher, of which test_torch.py needs nothing.
PROGRAM = """
import json, sys, types, unittest, warnings
warnings.simplefilter("ignore")
for name in ("horovod.runner", "horovod.runner.util", "horovod.runner.util.threads"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["horovod.runner.util.threads"].in_thread = None
sys.path.insert(0, sys.argv[1])
import test_torch, torch
if hasattr(torch.optim, "Muon"):  # Younger than the tests; it refuses their parameters.
    torch.optim.Muon.__module__ = "later"
for name in json.loads(sys.argv[2]):
    result = unittest.TestResult()
    unittest.TestSuite([test_torch.TorchTests(name)]).run(result)
    trouble = result.failures + result.errors
    why = trouble[0][1].strip().splitlines()[-1] if trouble else "".join(why for _, why in result.skipped)
    outcome = "failed" if trouble else "skipped" if result.skipped else "passed"
    with open(sys.argv[3], "a") as file:
        file.write(json.dumps([name, outcome, why]) + "\\n")
        if trouble:
            file.write("\\n".join(text for _, text in trouble))
            sys.exit(1)
"""


def names(source: Path) -> list[str]:
    """Return the names of all tests."""
    tree = ast.parse((source / "test/parallel/test_torch.py").read_text(encoding="utf-8"))
    return [
        one.name
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
    ]


def run(source: Path, tests: list[str], folder: Path) -> list[list[str]]:
    """Return each rank's [test, outcome, why] until one fails, which is the last."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    processes, files = [], [folder / f"{rank}.json" for rank in range(RANKS)]
    for rank, file in enumerate(files):
        file.write_text("", encoding="utf-8")
        command = [sys.executable, "-c", PROGRAM, str(source / "test/parallel"), json.dumps(tests), str(file)]
        place = {"RANK": rank, "SIZE": RANKS, "LOCAL_RANK": rank, "LOCAL_SIZE": RANKS}
        environment = {
            **os.environ,
            **{f"HOROVOD_{name}": str(value) for name, value in place.items()},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": str(ALIAS)},
        }
        with (folder / f"{rank}.log").open("w") as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder))
    _wait(processes, files)
    if not any(file.stat().st_size for file in files):
        sys.exit("the tests do not start: " + (folder / "0.log").read_text().strip()[-500:])
    return _merged(files, tests)


def _wait(processes: list[Any], files: list[Path]) -> None:
    seen, since = 0, time.monotonic()
    while any(process.poll() is None for process in processes):
        time.sleep(0.05)
        size = sum(file.stat().st_size for file in files)
        if size != seen:
            seen, since = size, time.monotonic()
        # After a failure the other rank has a moment to notice.
        patience = PATIENCE_S if all(process.poll() is None for process in processes) else 5
        if time.monotonic() - since > patience:
            for process in processes:
                process.kill()
    for process in processes:
        process.wait()


def _merged(files: list[Path], tests: list[str]) -> list[list[str]]:
    """Return the worse of both ranks' outcomes for each test."""
    order = ("passed", "skipped", "failed")
    rows = []
    lines = [[line for line in file.read_text().splitlines() if line.startswith('["test_')] for file in files]
    ranks = [{row[0]: row for row in map(json.loads, each)} for each in lines]
    for test in tests:
        outcomes = [rank.get(test, [test, "failed", "no end"]) for rank in ranks]
        worst = max(outcomes, key=lambda row: (order.index(row[1]), row[2] != "no end"))
        rows.append(worst)
        if worst[1] == "failed":
            break
    return rows


def main() -> int:
    """Print the table; return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="the tree of a Horovod release")
    parser.add_argument("--only", default="", help="tests with this in their names")
    options = parser.parse_args()
    source = options.source.resolve()
    remaining = [name for name in names(source) if options.only in name]
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        while remaining:
            new = run(source, remaining, Path(folder))
            rows += new
            remaining = remaining[len(new) :]
    for outcome, count in Counter(row[1] for row in rows).items():
        print(f"{outcome}: {count}")
    for name, outcome, why in rows:
        if outcome != "passed":
            print(f"{outcome:8} {name}: {why}")
    return int(any(row[1] == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
