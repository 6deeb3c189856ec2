"""The program that answers the questions of `verify` and `health` on a node."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hvlab.health.node import probe


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """As /sys/class/net/*/speed of an interface that is down: EINVAL."""
    (tmp_path / "eth0").write_text("10000\n")
    (tmp_path / "eth1").mkdir()
    assert probe.answers({"speed": {"read": f"{tmp_path}/*"}}) == {"speed": {f"{tmp_path}/eth0": "10000\n"}}


def test_a_command_whose_output_never_ends_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "GRACE_S", 0.2)
    began = time.monotonic()
    answer = probe.run({"run": ["sh", "-c", "sleep 4 &"], "timeout": 0.3})
    assert answer["rc"] == 124
    assert "no end within" in answer["err"]
    assert time.monotonic() - began < 3


def test_a_program_that_is_not_there() -> None:
    assert probe.run({"run": ["hvlab-has-no-such-program"]})["rc"] == 127
