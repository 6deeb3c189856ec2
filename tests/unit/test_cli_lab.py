"""The command line of the virtual lab: what it tells, and what an inventory may say for it."""

from functools import cache

import pytest

from hvlab.cli import run
from hvlab.lab.inventory import load

REMARK = "n1: could not be kept on the cores 0"
# Reading an inventory takes a second, and it does not change.
known = cache(load)


@pytest.fixture(scope="module")
def inventory(tmp_path_factory):
    """A lab whose topology still names a host that was removed."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "group_vars").mkdir()
    (folder / "hosts.yml").write_text(
        "all: {children: {virtual: {hosts: {n1: {ansible_host: 198.18.0.11}}}}}"
    )
    variables = "{lab_name: cli-lab, lab_network: 198.18.0.0/24, lab_interface: host0, lab_slots: 1}"
    (folder / "group_vars/all.yml").write_text(variables)
    (folder / "group_vars/virtual.yml").write_text("lab_topology: racks.txt")
    (folder / "racks.txt").write_text("{hosts: {n2: {up: 20mbit}}}")
    return str(folder)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr("hvlab.cli.lab.load", known)
    monkeypatch.setattr("hvlab.cli.lab.check_machine", lambda: None)
    monkeypatch.setattr("hvlab.cli.lab.virtual.down", lambda *_, **__: True)
    monkeypatch.setattr("hvlab.cli.lab.virtual.up", lambda *_, **__: [REMARK])


@pytest.mark.parametrize(
    ("words", "code", "observed"),
    [
        (["up"], 2, "n2 is not a virtual host of the inventory"),
        (["status"], 0, "198.18.0.11"),
        (["ssh", "n1"], 3, "n1 (198.18.0.11) is not up"),
        (["down"], 0, "lab cli-lab is down"),
    ],
)
def test_only_up_needs_limits_that_can_be_set(inventory, capsys, words, code, observed):
    assert run(["lab", *words, "-i", inventory]) == code
    assert observed in "".join(capsys.readouterr())


@pytest.mark.parametrize("terminal", ["0", "1"])
def test_limits_that_do_not_hold_stay_on_the_screen(inventory, capsys, tmp_path, monkeypatch, terminal):
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    (tmp_path / "none.yml").write_text("{}")
    assert run(["lab", "up", "-i", inventory, "--topology", str(tmp_path / "none.yml")]) == 0
    assert capsys.readouterr().err.splitlines()[-2].endswith(REMARK)
