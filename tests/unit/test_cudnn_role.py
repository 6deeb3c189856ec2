"""What the role's variables ask for of cuDNN."""

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from tests.contract.tree import ROOT
from tests.unit.test_container_runtime import trusted

ROLE = ROOT / "roles/cudnn"


def filled(file, name, **given):
    """Return one of the role's variables on a system."""
    variables = {}
    for path in (ROLE / "defaults/main.yml", ROLE / "vars/main.yml", ROLE / "vars" / file):
        variables |= trusted(yaml.safe_load(path.read_text("utf-8")))
    return Templar(loader=DataLoader(), variables=variables | given).template(variables[name])


@pytest.mark.parametrize(
    ("file", "version", "kinds"),
    [
        ("Debian.yml", "9.1.0.70", ["", "-dev"]),
        ("Debian.yml", "9.10.2.21", ["", "-dev", "-headers"]),
        ("RedHat.yml", "9.13.0.50", ["", "-devel", "-headers"]),
    ],
)
def test_all_packages_have_the_same_version(file, version, kinds):
    packages = filled(file, "__cudnn_requested", cudnn_version=version, cudnn_cuda_version="12.8")
    assert packages == [{"name": f"libcudnn9{kind}-cuda-12", "version": f"{version}-1"} for kind in kinds]


def test_headers_of_a_newer_version_are_in_the_way_of_an_older_one():
    installed = {f"libcudnn9{kind}-cuda-12": "9.13.0.50-1" for kind in ("", "-dev", "-headers")}
    facts = {"hvlab": {"packages": installed}}
    given = {"ansible_facts": facts, "cudnn_cuda_version": "12.4"}
    in_the_way = filled("Debian.yml", "__cudnn_in_the_way", cudnn_version="9.1.0.70", **given)
    assert in_the_way == ["libcudnn9-headers-cuda-12"]
    assert not filled("Debian.yml", "__cudnn_in_the_way", cudnn_version="9.10.2.21", **given)
