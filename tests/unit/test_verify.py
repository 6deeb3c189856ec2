"""`hvlab verify`: how pytest is called, what outcomes mean, and a run on a machine that is no lab host."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hvlab.cli import checks as printed_checks
from hvlab.cli import cli
from hvlab.remote import verify
from hvlab.remote.verify import Check

INVENTORY = """---
all:
  hosts:
    here:
      ansible_host: 192.0.2.1
      ansible_connection: local
      ansible_become: false
  vars:
    lab_network: 192.0.2.0/24
    lab_interface: nosuch0
    lab_user_name: hvlab-nobody
"""


def check(host: str, outcome: str) -> Check:
    return Check(
        host=host,
        role="openmpi",
        check="version matches the inventory",
        outcome=outcome,
        observed="observed",
        remedy="do",
    )


def test_command_is_plain_pytest() -> None:
    argv = verify.command(Path("/x/inventory"), "/dev/fd/7", limit="n1,n2", junit=Path("/x/junit.xml"))
    assert argv[1:3] == ["-m", "pytest"]
    assert "--hosts=ansible://n1,n2" in argv
    assert "--ansible-inventory=/x/inventory" in argv
    assert "--hvlab-report=/dev/fd/7" in argv
    assert "--junitxml=/x/junit.xml" in argv
    assert "--hosts=ansible://all" in verify.command(Path("/x/inventory"), "f")


@pytest.mark.parametrize(
    ("outcomes", "code", "hosts"),
    [
        (["passed", "skipped"], 0, ""),
        (["passed", "failed", "failed"], 1, "n1, n2"),
        (["passed", "error"], 1, "n1"),
        (["failed", "unreachable", "skipped"], 3, ""),
    ],
)
def test_verdict_names_the_hosts_and_has_an_exit_code(outcomes: list[str], code: int, hosts: str) -> None:
    checks = [check(f"n{number}", outcome) for number, outcome in enumerate(outcomes)]
    error = verify.verdict(checks[::-1])
    assert (error.exit_code if error else 0) == code
    assert hosts in str(error)


@pytest.mark.slow
def test_a_machine_that_is_no_lab_host_fails(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(INVENTORY, encoding="utf-8")
    junit = tmp_path / "junit.xml"
    done = CliRunner().invoke(
        cli,
        ["verify", "-i", str(inventory), "--format", "json", "--junit", str(junit)],
        standalone_mode=False,
    )
    assert getattr(done.exception, "exit_code", None) == 1
    checks = json.loads(done.stdout)
    assert {row["host"] for row in checks} == {"here"}
    outcomes = {(row["role"], row["check"]): row["outcome"] for row in checks}
    assert outcomes["host", "answers"] == "passed"
    assert outcomes["lab_user", "exists"] == "failed"
    assert outcomes["openmpi", "version matches the inventory"] == "failed"
    assert all(row["observed"] and row["remedy"] for row in checks if row["outcome"] == "failed")
    assert not [row for row in checks if row["outcome"] == "error"]
    assert junit.is_file()


def test_a_failure_of_many_hosts_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [check(f"h{number:04}", "failed") for number in range(1000)]
    printed_checks.print_failed([*outcomes, replace(check("n1", "failed"), observed="another thing")])
    printed = capsys.readouterr().out
    assert "h0000, h0001, h0002 and 997 more  openmpi: version matches" in printed
    assert "n1  openmpi: version matches" in printed
    assert printed.count("what to do") == 2
    error = verify.verdict(outcomes)
    assert "h0000, h0001, h0002 and 997 more" in str(error)
