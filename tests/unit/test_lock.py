"""A plan that is kept: what is written, what a later plan takes from it, and what differs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hvlab.base.errors import UsageError
from hvlab.base.paths import project_dir
from hvlab.cli import run
from hvlab.lab import pin_variables
from hvlab.lab.pin_variables import patches
from hvlab.stack.resolver import HostRequest, Resolution, facts, lock, pins, plan

H100 = {"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "memory_mib": 81559}
UBUNTU = {"distribution": "Ubuntu", "distribution_version": "22.04", "python": "3.10.12", "gcc": "11.4.0"}
OLDER = ("driver=580.95.05", "cuda=12.6", "torch=2.7.1", "nccl=2.26.2", "openmpi=4.1.6")


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    folder = tmp_path / "mylab"
    (folder / "group_vars").mkdir(parents=True)
    hosts = {name: {"ansible_host": f"192.0.2.{i}"} for i, name in enumerate(("n1", "n2", "n3"), start=1)}
    gpu = {"gpu": {"hosts": {name: {} for name in hosts}}}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "children": gpu}}))
    common = {"lab_network": "192.0.2.0/24", "lab_interface": "eth0", "lab_name": "kept"}
    (folder / "group_vars/all.json").write_text(json.dumps(common))
    (tmp_path / "facts.json").write_text(json.dumps({name: {**UBUNTU, "gpus": [H100]} for name in hosts}))
    return folder


def planned(inventory: Path, *options: str) -> int:
    return run(["plan", "-i", str(inventory), "--facts", str(inventory.parent / "facts.json"), *options])


def versions(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    answer = json.loads(capsys.readouterr().out)
    return {name: stack["versions"] for name, stack in answer["hosts"].items()}, answer["notes"]


def pin(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--pin", text)]


def test_the_lock_lies_beside_the_inventory_whether_that_is_a_file_or_a_folder(inventory: Path) -> None:
    assert lock.path_of(inventory) == lock.path_of(inventory / "hosts.json") == inventory / ".hvlab-lock.json"


def test_a_replaced_node_gets_the_same_stack(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(inventory, *pin(*OLDER), "--write-lock", "--format", "json") == 0
    before, _ = versions(capsys)
    assert planned(inventory, "--limit", "n2", "--format", "json") == 0
    after, notes = versions(capsys)
    assert after == {"n2": before["n2"]}
    assert notes == [f"the versions in {inventory / '.hvlab-lock.json'} are pins here"]


def test_a_locked_driver_is_kept_to_its_last_number(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(inventory, "--write-lock") == 0
    capsys.readouterr()
    assert planned(inventory, "--limit", "n1", "--format", "json") == 0
    stack = json.loads(capsys.readouterr().out)["hosts"]["n1"]
    assert stack["driver_requested"] == stack["versions"]["driver"]


def test_a_driver_asked_for_by_its_branch_is_locked_as_such_until_it_is_there() -> None:
    stack = {"versions": {"driver": "580.178.04", "cuda": "12.6"}, "driver_requested": "580"}
    held = lock.Lock(Path("lock"), {"n1": lock._lock(stack)})
    assert held.versions("n1") == {"driver": "580", "cuda": "12.6"}
    assert not held.differences({"n1": {"versions": {"driver": "580.170.01", "cuda": "12.6"}}})


def test_a_new_node_gets_what_the_others_share(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(inventory, "--limit", "n1,n2", *pin(*OLDER), "--write-lock", "--format", "json") == 0
    before, _ = versions(capsys)
    assert planned(inventory, "--limit", "n3", "--format", "json") == 0
    after, notes = versions(capsys)
    assert after["n3"] == before["n1"]
    assert "n3: not in the lock: it gets what the locked hosts share" in notes


def test_without_a_limit_the_plan_is_new_and_tells_what_differs(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(inventory, *pin(*OLDER), "--write-lock") == 0
    capsys.readouterr()
    assert planned(inventory, "--format", "json") == 0
    after, notes = versions(capsys)
    assert after["n1"]["cuda"] != "12.6"
    assert f"n1, n2, n3: CUDA {after['n1']['cuda']}, and 12.6 in the lock" in notes


def test_a_pin_comes_before_the_lock_and_is_told(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(inventory, *pin(*OLDER), "--write-lock") == 0
    capsys.readouterr()
    assert planned(inventory, "--limit", "n1", "--pin", "openmpi=4.1.8", "--format", "json") == 0
    after, notes = versions(capsys)
    assert after["n1"]["openmpi"] == "4.1.8"
    assert after["n1"]["cuda"] == "12.6"
    assert "n1: Open MPI 4.1.8, and 4.1.6 in the lock" in notes


def test_a_lock_that_no_longer_fits_is_named_in_the_refusal(
    inventory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(inventory, *pin(*OLDER), "--write-lock") == 0
    blackwell = {"name": "NVIDIA B200", "compute_capability": "10.0"}
    recorded = {name: {**UBUNTU, "gpus": [blackwell]} for name in ("n1", "n2", "n3")}
    (inventory.parent / "facts.json").write_text(json.dumps(recorded))
    capsys.readouterr()
    assert planned(inventory, "--limit", "n1") == 1
    message = capsys.readouterr().err
    assert "CUDA 12.6 has no code for sm_100" in message
    assert f"the versions in {inventory / '.hvlab-lock.json'} are pins here" in message


def test_writing_for_some_hosts_leaves_the_others(inventory: Path) -> None:
    assert planned(inventory, *pin(*OLDER), "--write-lock") == 0
    assert planned(inventory, "--limit", "n3", "--pin", "openmpi=4.1.8", "--write-lock") == 0
    kept = lock.read(lock.path_of(inventory))
    assert kept
    assert [kept.hosts[name]["openmpi"] for name in ("n1", "n2", "n3")] == ["4.1.6", "4.1.6", "4.1.8"]


def test_a_lock_has_all_that_roles_build_with_defaults_included(
    inventory: Path,
) -> None:
    common = json.loads((inventory / "group_vars/all.json").read_text())
    own = {"horovod_arch_flags": "-O1", "openmpi_parameters": {"btl_tcp_links": 2}, "flags": "-O3"}
    (inventory / "group_vars/all.json").write_text(json.dumps(common | own | {"openmpi_ucx": "{{ flags }}"}))
    assert planned(inventory, "--write-lock") == 0
    kept = lock.read(lock.path_of(inventory))
    assert kept
    build = kept.builds["n1"]
    assert (build["horovod_arch_flags"], build["openmpi_parameters"]) == ("-O1", {"btl_tcp_links": 2})
    assert "--with-ofi=no" in build["openmpi_configure_flags"]
    assert build["horovod_variants"]["cpu"]["cpu_operations"] == "mpi"
    assert {"horovod_oneccl_version", "horovod_oneccl_checksum"} <= set(build), (
        "one is nothing without the other"
    )
    assert not {"openmpi_ucx", "horovod_cc", "horovod_checksum", "openmpi_prefix"} & set(build), (
        "a play decides"
    )
    assert kept.patches["n1"] == patches() == lock.read(lock.path_of(inventory)).patches["n3"]


def test_the_sum_of_patches_moves_with_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(project_dir() / "roles/horovod", tmp_path / "roles/horovod")
    before = patches()
    monkeypatch.setattr(pin_variables, "project_dir", lambda: tmp_path)
    assert patches() == before
    file = tmp_path / "roles/horovod/files/patches/no-debug-info.patch"
    file.write_text(file.read_text() + "\n")
    assert patches() != before


def test_a_host_without_gpus_takes_no_gpu_part_of_the_others() -> None:
    hosts = facts.from_file({"n1": {**UBUNTU, "gpus": [H100]}, "n2": UBUNTU})
    lab = [HostRequest(host) for host in hosts.values()]
    first = plan(lab[:1], [pins.parse(text) for text in OLDER])
    assert isinstance(first, Resolution)
    kept = lock.Lock(Path("lock"), {"n1": first.hosts["n1"]["versions"]})
    answer = plan(kept.pin(lab))
    assert isinstance(answer, Resolution), answer.message
    assert answer.hosts["n2"]["versions"]["cuda"] is None
    assert answer.hosts["n2"]["versions"]["openmpi"] == "4.1.6"


@pytest.mark.parametrize("text", ["{", "[]", '{"hosts": {"n1": 1}}', "{}"])
def test_a_file_that_is_no_lock_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / lock.NAME
    path.write_text(text)
    with pytest.raises(UsageError, match=r"is not a lock of hvlab") as caught:
        lock.read(path)
    assert "Error" not in str(caught.value)


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({"cuda": 12.6}, "n1: cuda is 12.6"),
        ({"driver": ["595"]}, "n1: driver is"),
        ({"cdua": "12.6"}, "n1: unknown component 'cdua'"),
        ({"cuda": "latest"}, "'latest' is not a version"),
    ],
)
def test_a_lock_that_was_edited_holds_versions_of_components(
    tmp_path: Path, versions: dict[str, Any], told: str
) -> None:
    path = tmp_path / lock.NAME
    path.write_text(json.dumps({"hosts": {"n1": {"versions": versions}}}))
    with pytest.raises(UsageError, match=re.escape(told)):
        lock.read(path)


@pytest.mark.parametrize("options", [["--what-if", "cuda=12.4"], []])
def test_a_lock_belongs_to_an_inventory(
    inventory: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    recorded = str(inventory.parent / "facts.json")
    named = ["-i", str(inventory)] if options else []
    assert run(["plan", *named, "--facts", recorded, "--write-lock", *options]) == 2
    assert "name the inventory with -i" in capsys.readouterr().err
