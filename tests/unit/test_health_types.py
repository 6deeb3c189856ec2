"""Machine types: which file fits a machine, what is wrong in a file, and what a good host teaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvlab.base.errors import UsageError
from hvlab.base.yaml_files import read_shipped
from hvlab.checks import machine_types
from hvlab.checks.node import machine, subjects

DGX = {"machine_product": "DGXH100", "gpu_model": "NVIDIA H100 80GB HBM3", "gpu_count": 8}


def kind(name: str, own: bool = False, **match: object) -> dict[str, object]:
    return {"name": name, "own": own, "match": match, "expect": {"cpu_count": 1}}


H100, DGX_H100 = {"gpu_model": "*H100*"}, {"product": "DGXH100", "gpu_model": "*H100*"}
FOUR, EIGHT = kind("four", **DGX_H100, gpu_count=4), kind("eight", **DGX_H100, gpu_count=8)


@pytest.mark.parametrize(
    ("types", "gpus", "chosen"),
    [
        ([kind("dgx", product="dgxh100*")], 8, "dgx"),
        ([kind("dgx", product=["DGXA100*", "DGXH100*"])], 8, "dgx"),
        ([kind("dgx", product="DGXA100*")], 8, None),
        ([kind("dgx", product="DGXH100", vendor="NVIDIA")], 8, None),
        ([kind("any", **H100), kind("dgx", **DGX_H100)], 8, "dgx"),
        ([kind("dgx", **DGX_H100), kind("mine", own=True, **H100)], 8, "mine"),
        # A machine that lost a GPU stays of its type, which is how the loss is told.
        ([FOUR, EIGHT], 7, "eight"),
        ([FOUR, EIGHT], 4, "four"),
        ([FOUR], 8, None),
        # Without a name, one GPU is no board of eight.
        ([kind("board", **H100, gpu_count=8)], 7, None),
        ([kind("board", **H100, gpu_count=8)], 8, "board"),
        # One without a match is chosen by name alone.
        ([kind("by name")], 8, None),
    ],
)
def test_the_type_that_fits_best(types, gpus, chosen):
    assert (machine.choose(types, {**DGX, "gpu_count": gpus}) or {}).get("name") == chosen


def test_the_inventory_may_name_the_type():
    types = [kind("dgx", product="DGXH100"), kind("by-name")]
    assert machine.find_expected(types, DGX, "by-name") == {"cpu_count": 1, "machine_type": "by-name"}
    assert machine.find_expected(types, {}, None) == {}
    with pytest.raises(UsageError) as error:
        machine_types.check_names(types, [None, "by-name", "by-nane"])
    assert "did you mean by-name" in (error.value.remedy or "")


RIGHT = {
    "match": {"product": "DGXH100*", "gpu_count": 8},
    "expect": {"memory_gib": {"value": 2048, "source": "https://example.org"}, "cpu_governor": "performance"},
    "source": "https://example.org",
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"expect": {"memory_gb": 2048}}, "did you mean memory_gib?"),
        ({"expect": {"memory_gib": "2 TiB"}}, "write a number"),
        ({"expect": {"memory_gib": {"value": "2 TiB", "source": "x"}}}, "write a number"),
        ({"expect": {"memory_gib": {"value": 2048, "from": "x"}}}, "{value: ..., source: ...}"),
        ({"expect": {"cpu_count": 8.5}}, "write a whole number"),
        ({"expect": {"network_interfaces": "eth0"}}, "write a list of names"),
        ({"match": {"produkt": "DGX"}}, "did you mean product?"),
        ({"match": {"gpu_count": True}}, "gpu_count is True"),
        ({"match": {"product": 100}}, "product is 100"),
        ({"expected": {}}, "did you mean expect?"),
        ({"match": None}, "no mappings"),
    ],
)
def test_what_is_wrong_in_a_file(change, said):
    text = str(machine_types.problems(Path("x.yml"), {**RIGHT, **change}))
    assert said in text
    assert bool(said) == (text != "[]")


def test_all_mistakes_of_all_files_come_at_once(tmp_path):
    (tmp_path / "health").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"health/{name}.yml").write_text("match: {}\nexpect: {memory_gb: 1}\n")
    (tmp_path / "health/c.yml").write_text("match: {\n")
    with pytest.raises(UsageError) as error:
        machine_types.load(tmp_path)
    assert all(f"{name}.yml" in str(error.value) for name in ("a", "b", "c"))


def test_every_type_of_ours_is_right_and_has_its_sources():
    for path in sorted(machine_types.FOLDER.glob("*.yml")):
        data = read_shipped(path)
        assert not machine_types.problems(path, data)
        plain = [name for name, entry in data["expect"].items() if not isinstance(entry, dict)]
        assert not plain or data.get("source"), f"{path.name}: {plain} have no source"


def test_names_of_values_are_one_subject_s():
    known = subjects.list_known()
    assert len(set(known)) == len(known)


LEARNT = {
    **DGX,
    "cpu_count": 224,
    "memory_gib": 2015.4,
    "rdma_rate_gbit": 400.0,
    "rdma_device_count": 10,
    "shm": {},
}


def test_a_good_host_teaches_a_type_that_fits_it(tmp_path):
    path = machine_types.write(tmp_path, "n7", LEARNT, day="2026-01-02", force=False)
    assert path == tmp_path / "health/dgxh100-8x-nvidia-h100-80gb-hbm3.yml"
    assert "n7 taught" in path.read_text("utf-8")
    values = machine.find_expected(machine_types.load(tmp_path), LEARNT, None)
    assert values["machine_type"] == path.stem
    assert {
        name: values[name] for name in ("cpu_count", "memory_gib", "rdma_rate_gbit", "rdma_device_count")
    } == {
        "cpu_count": 224,
        "memory_gib": 2015.4,
        "rdma_rate_gbit": 400.0,
        "rdma_device_count": 10,
    }
    assert "shm" not in values
    path.write_text("# mine\n")
    with pytest.raises(UsageError):
        machine_types.write(tmp_path, "n7", LEARNT, day="2026-01-02", force=False)
    assert path.read_text("utf-8") == "# mine\n"
    machine_types.write(tmp_path, "n7", LEARNT, day="2026-01-02", force=True)
    assert machine_types.load(tmp_path)


@pytest.mark.parametrize(
    ("firmware", "name"),
    [({}, "n7"), ({"machine_product": "Virtual Machine", "machine_vendor": "QEMU"}, "virtual-machine")],
)
def test_a_machine_without_gpus_is_chosen_by_the_inventory(tmp_path, firmware, name):
    """Other machines have the same name in their firmware."""
    readings = {"cpu_count": 2, **firmware}
    path = machine_types.write(tmp_path, "n7", readings, day="2026-01-02", force=False)
    assert path.name == f"{name}.yml"
    types = machine_types.load(tmp_path)
    assert machine.find_expected(types, readings, None) == {}
    assert machine.find_expected(types, readings, name)["cpu_count"] == 2


def test_a_name_of_the_inventory_that_is_no_type_is_refused():
    types = [kind("big")]
    machine_types.check_names(types, [None, "", "big"])
    with pytest.raises(UsageError, match="unknown machine type 'bigg'"):
        machine_types.check_names(types, ["big", "bigg"])


def test_a_file_has_a_name_though_the_firmwares_has_no_latin_letter() -> None:
    assert machine_types.type_name("n7", {"machine_product": "浪潮"}) == "n7"
