"""What a lab can run."""

import pytest
import yaml

from hvlab.errors import UsageError
from hvlab.paths import project_dir
from hvlab.stack import BACKENDS, choose, folders, not_built, summary, variant_for, variants
from tests.unit.labs import lab

GPU_VARIANTS = {"cpu": {"mpi": True, "gloo": True}, "nccl": {"mpi": False, "gpu_operations": "nccl"}}


def facts(*operations: str, **more: object) -> dict:
    variants = {"cpu": {"operations": list(operations), "version": "0.28.1"}}
    return {"ansible_local": {"hvlab_horovod": {"variants": variants}}, **more}


def test_default_backends_of_hosts_without_gpu():
    assert choose([], lab()) == ["mpi", "gloo", "ccl"]


def test_a_gpu_lab_runs_nccl_with_its_variant():
    there = lab(gpu=("n1", "n2", "n3"), horovod_variants=GPU_VARIANTS)
    assert choose([], there) == ["mpi", "gloo", "nccl"]
    assert variant_for("nccl", there.hosts) == "nccl"
    assert variant_for("mpi", there.hosts) == "cpu"


def test_the_default_variants_are_those_of_the_role():
    role = yaml.safe_load((project_dir() / "roles/horovod/defaults/main.yml").read_text())
    assert variants(lab(horovod_variants=role["horovod_variants"]).hosts[0]) == variants(lab().hosts[0])


def test_the_default_folders_are_those_of_the_roles():
    assert folders(lab()).horovod == "/opt/hvlab/horovod"
    assert folders(lab(openmpi_prefix="/x/{{ a }}", a="y")).openmpi == "/x/y/current"


def test_nccl_without_gpu_names_hosts_and_what_works():
    with pytest.raises(UsageError, match="n2, n3") as caught:
        choose(["nccl"], lab(gpu=("n1",), horovod_variants=GPU_VARIANTS))
    assert "mpi, gloo" in str(caught.value.remedy)
    assert caught.value.exit_code == 2


def test_an_unknown_backend_lists_all_and_guesses():
    with pytest.raises(UsageError, match="'glo'") as caught:
        choose(["glo"], lab())
    assert caught.value.remedy == "did you mean gloo? the backends are mpi, gloo, nccl, ccl"


def test_a_backend_no_variant_has():
    with pytest.raises(UsageError, match="no Horovod variant"):
        choose(["ccl"], lab(horovod_variants=GPU_VARIANTS))


def test_facts_say_what_was_not_built():
    found = {"n1": facts("mpi", "gloo"), "n2": facts("gloo"), "n3": {}}
    assert not_built("gloo", "cpu", {"n1": found["n1"], "n2": found["n2"]}) is None
    told = not_built("mpi", "cpu", found)
    assert told is not None
    assert "not installed on n3" in told
    assert "without mpi on n2" in told


def test_the_summary_tells_hosts_apart_only_where_they_differ():
    found = {"n1": facts("mpi", kernel="6.1"), "n2": facts("mpi", kernel="6.2")}
    told = summary(found, "cpu")
    assert told["horovod"] == "0.28.1"
    assert told["kernel"] == {"n1": "6.1", "n2": "6.2"}


def test_every_backend_proves_itself_differently():
    proofs = [backend.proof for backend in BACKENDS.values()]
    assert len(set(proofs)) == len(proofs)
    assert not any(a != b and a.startswith(b) for a in proofs for b in proofs)
