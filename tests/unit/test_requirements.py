"""What an environment's packages are."""

import re

import pytest
import yaml

from hvlab.stack.provision import python_env
from hvlab.stack.provision.packs import pack_key
from hvlab.stack.provision.python_env import of_framework, read_locked, requirements, without_build
from hvlab.stack.resolver.catalogue import FOLDER, load
from tests.contract.tree import ROOT

FILES = ROOT / "roles/python_env/files"


def text(framework="torch", version="", build="cpu", python="3.11", architecture="x86_64"):
    asked = {"framework": framework, "version": version, "build": build}
    return requirements(asked, FILES, python=python, architecture=architecture)


@pytest.mark.parametrize("path", sorted(FILES.glob("*.txt")), ids=lambda path: path.name)
def test_every_package_of_a_lock_file_has_a_checksum_or_none_has(path):
    """pip refuses a file in which one is without. Public sums of torch 2.8.0 for Python 3.9 disagree."""
    packages = re.findall(r"(?m)^[^#\s].*(?:\n    --hash.*)*", path.read_text("utf-8"))
    without = [package for package in packages if "--hash=sha256:" not in package]
    assert without == (packages if path.name == "torch-cpu-3.9.txt" else [])


def test_a_version_that_is_the_locked_one_changes_nothing():
    assert text(version="2.13.0") == text()
    assert text(version="2.12.1", build="cu130") == text(build="cu130")


def test_another_version_keeps_the_pins_of_the_tools_alone():
    found = text(version="2.4.1", build="cu124")
    assert "torch==2.4.1+cu124" in found.splitlines()
    assert "setuptools<82" in found
    assert "--hash" not in found
    assert re.search(r"(?m)^cloudpickle==", found)
    assert not re.search(r"(?m)^sympy", found)


def test_an_old_torch_gets_an_old_numpy():
    assert "numpy<2" in text(version="2.2.2", build="cu121").splitlines()
    assert "numpy" in text(version="2.3.0", build="cu121").splitlines()


def test_tensorflow_has_its_own_names():
    assert read_locked(text("tensorflow")) == "2.15.1"
    assert "tensorflow[and-cuda]==2.14.0" in text("tensorflow", "2.14.0", "cu118").splitlines()
    assert "tensorflow-cpu==2.14.0" in text("tensorflow", "2.14.0", python="3.9").splitlines()


def test_tensorflow_is_the_distribution_that_the_catalogue_names():
    pythons = set(load().pythons)
    releases = yaml.safe_load((FOLDER / "tensorflow.yml").read_text("utf-8"))["releases"]
    for version, entry in releases.items():
        low, high = (tuple(map(int, end.split("."))) for end in entry["python"])
        usable = [python for python in pythons if low <= tuple(map(int, python.split("."))) <= high]
        for python in usable:
            lines = text("tensorflow", version, "cu118", python=python).splitlines()
            assert f"{entry['package']}[and-cuda]=={version}" in lines


def test_the_build_of_the_package_index_has_no_build_in_its_number():
    asked = text(version="2.11.0", build="cu130", python="3.12")
    index = {version: release.index for version, release in load().torch.items()}
    plain = without_build(asked, index, architecture="x86_64")
    assert set(plain.splitlines()) ^ set(asked.splitlines()) == {"torch===2.11.0", "torch==2.11.0+cu130"}
    assert without_build(asked, index, architecture="aarch64") is None
    for version, build in (("2.11.0", "cu128"), ("2.4.1", "cu124")):
        assert without_build(text(version=version, build=build), index, architecture="x86_64") is None
    assert without_build(text("tensorflow"), index, architecture="x86_64") is None


def test_the_index_has_another_file_of_a_locked_torch_so_no_sum_is_asked_for():
    locked = text(version="2.13.0", build="cpu")
    plain = without_build(locked, {}, architecture="aarch64")
    assert "--hash" in locked
    assert [line.split(" ")[0] for line in locked.splitlines() if "==" in line] == [
        line.replace("torch===2.13.0", "torch==2.13.0+cpu") for line in plain.splitlines() if "==" in line
    ]


@pytest.mark.parametrize(
    ("asked", "own"),
    [
        ("numpy==2\ntorch==2.13.0+cpu\nyaml==6\n", "torch==2.13.0+cpu"),
        ("torch==2.12.1 \\\n    --hash=sha256:a \\\n    --hash=sha256:b\ntriton==3\n",
         "torch==2.12.1 \\\n    --hash=sha256:a \\\n    --hash=sha256:b"),
        ("torch==2.4.1+cu124\ntorchvision==0.19.1+cu124\n", "torch==2.4.1+cu124\ntorchvision==0.19.1+cu124"),
        ("tensorflow-estimator==2.15.0\ntensorflow[and-cuda]==2.18.0\n", "tensorflow[and-cuda]==2.18.0"),
        ("torch-geometric==2.6\nnumpy<2\n", ""),
    ],
)  # fmt: skip
def test_what_the_framework_s_own_index_is_asked_for(asked, own):
    assert of_framework(asked) == own


def test_without_a_lock_a_version_is_needed():
    with pytest.raises(ValueError, match="set its version"):
        text(build="cu118")


def test_an_unknown_python_is_told():
    with pytest.raises(ValueError, match=r"3\.7.*3\.8"):
        text(version="1.13.1", build="cu117", python="3.7")


@pytest.mark.parametrize("path", sorted(FILES.glob("*.txt")), ids=lambda path: path.name)
def test_every_lock_file_pins_pip_and_a_framework(path):
    lock = path.read_text("utf-8")
    assert read_locked(lock)
    assert re.search(r"(?m)^pip==", lock)


def planned(environment, **changes):
    request = {
        "environments": {"python": {"framework": "torch", "version": "", "build": "cpu", **environment}},
        "prefix": "/opt/hvlab", "python": "/usr/bin/python3", "minor": "3.11", "index": "https://index",
        "system": "Debian bookworm", "architecture": "x86_64",
    }  # fmt: skip
    (plan,) = python_env.plan(**request | changes)
    return plan


def test_an_environment_is_made_of_its_wheels_alone():
    plan = planned({"version": "2.4.1", "build": "cu124"})
    assert plan["entry"] == {"framework": "torch", "version": "2.4.1+cu124", "build": "cu124"}
    assert plan["wheels"]["fallback_index"] == "https://index/cu124"
    assert plan["path"] == "/opt/hvlab/python"
    stages = {stage["name"]: stage["argv"] for stage in plan["stages"]}
    assert "--no-index" in stages["install"]
    assert stages["trim"] == ["rm", "-rf", "/opt/hvlab/python/lib/python3.11/site-packages/torch/test"]


def test_the_key_of_an_environment_stays():
    """Another key, and everybody makes it again."""
    inputs = {**planned({})["inputs"], "requirements": "", "needs": []}
    assert pack_key("python", inputs) == "97ee4598771c3ea0"


def test_an_environment_may_have_requirements_of_its_own(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("pip==25.2\ntorch==2.8.0+cpu\n")
    assert planned({"requirements": str(own)})["requirements"] == "pip==25.2\ntorch==2.8.0+cpu"
    own.write_text("torch==2.8.0\n")
    with pytest.raises(ValueError, match="python_env_environments: the requirements of python pin no fr"):
        planned({"requirements": str(own)})
    with pytest.raises(ValueError, match=r"python_env_environments: .*No such file"):
        planned({"requirements": str(tmp_path / "none")})
