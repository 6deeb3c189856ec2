"""What the role's variables ask for of DCGM, and that the test repository has it."""

from pathlib import Path

import pytest

from hvlab.stack.provision.roles import plan_dcgm
from tests.unit.plays import play, program
from tests.vlab.repository import spec

CORE, OPEN, CLOSED = (f"datacenter-gpu-manager-4-{name}" for name in ("core", "cuda", "proprietary"))


def packages(driver, version="4.5.2-1"):
    """Return the packages for a driver."""
    return plan_dcgm(version=version, driver=driver)["packages"]


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("580.178.04", "13"),
        ("595.71.05", "13"),
        ("575.57.08", "12"),
        ("525.60.13", "12"),
        ("470.256.02", "11"),
    ],
)
def test_the_driver_decides_for_which_cuda_the_diagnostics_are(driver, cuda):
    assert packages(driver, "4.6.0-1") == [
        {"name": name, "version": "1:4.6.0-1"}
        for name in (CORE, f"{OPEN}{cuda}", CLOSED, f"{CLOSED}-cuda{cuda}")
    ]


def test_version_3_is_one_package():
    assert packages("550.163.01", "3.3.9") == [{"name": "datacenter-gpu-manager", "version": "1:3.3.9"}]


@pytest.mark.parametrize(("system", "kind"), [("debian12", "deb"), ("ubuntu2404", "deb"), ("rhel9", "rpm")])
def test_the_test_repository_has_the_default_for_every_cuda(system, kind):
    published = {(package.name, package.version) for package in spec.packages(system, kind)}
    for driver in ("580", "550", "470"):
        asked = {(one["name"], one["version"]) for one in packages(driver)}
        assert asked <= published


PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: dcgm, tasks_from: "{{ part }}"}
      vars: {__dcgm_plan: "{{ __dcgm_request | hvlab_plan('dcgm') }}"}
"""


@pytest.fixture
def playbook(tmp_path) -> Path:
    path = tmp_path / "play.yml"
    path.write_text(PLAY, "utf-8")
    return path


def test_without_a_driver_it_is_refused_before_anything_changes(playbook, tmp_path):
    said = play(playbook, tmp_path, {"part": "preflight"}, expect=2)
    assert "no NVIDIA driver is known there" in said
    assert "driver 418.226.00 is known there" in play(
        playbook, tmp_path, {"part": "preflight", "dcgm_driver_version": "418.226.00"}, expect=2
    )


def test_another_dcgmi_is_refused(playbook, tmp_path):
    programs = tmp_path / "bin"
    program(programs, "dcgmi", "#!/bin/sh\necho\necho 'dcgmi  version: 3.3.9'\n")
    said = play(playbook, programs, {"part": "check"}, expect=2)
    assert "dcgmi should be of DCGM 4.5.2; it says dcgmi version: 3.3.9" in said
    program(programs, "dcgmi", "#!/bin/sh\necho\necho 'dcgmi  version: 4.5.2'\n")
    play(playbook, programs, {"part": "check"})


def test_nothing_is_done_unless_asked_for(playbook, tmp_path):
    assert "changed=0 unreachable=0 failed=0 skipped=7" in play(playbook, tmp_path, {"part": "main"})
