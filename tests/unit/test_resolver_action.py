"""The action plugin that the play runs: raw variables in, a stack for every host or a failure out."""

from types import SimpleNamespace

import pytest

from hvlab.ansible.action import hvlab_resolve
from hvlab.base.errors import UsageError

pytestmark = pytest.mark.resolver

GPU = {"name": "Tesla M40", "compute_capability": "5.2", "memory_mib": 22945, "pci": "0000:00:05.0"}


class HostVars(dict):
    """Like Ansible's: templates are filled in on the way out, unless asked for raw."""

    def raw_get(self, name):
        return self[name]["raw"]


def task_vars(**raw):
    facts = {
        "distribution": "Ubuntu",
        "distribution_version": "22.04",
        "architecture": "x86_64",
        "python_version": "3.10.12",
        "hvlab": {"gcc": "11.4.0", "driver": None, "gpus": [GPU]},
    }
    hosts = {name: {"ansible_facts": facts, "raw": raw} for name in ("n1", "n2")}
    return {
        "hostvars": HostVars(hosts),
        "groups": {"all": ["n1", "n2"], "gpu": ["n1"]},
        "ansible_play_hosts": ["n1", "n2"],
    }


@pytest.fixture
def action():
    task = SimpleNamespace(args={}, async_val=0, check_mode=False, diff=False)
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    return hvlab_resolve.ActionModule(task, connection, SimpleNamespace(check_mode=False), None, None, None)


def test_every_host_gets_its_stack(action):
    result = action.run(task_vars=task_vars(cuda_version="{{ hvlab_stacks }}", lab_cuda="12.6"))
    stacks = result["stacks"]
    assert stacks["n1"]["versions"]["cuda"] == "12.6"
    assert stacks["n2"]["versions"]["cuda"] is None
    assert not result.get("failed")
    # Ansible copies every host's facts for each of its tasks: 1,000 hosts would copy 1,000 stacks each.
    assert "ansible_facts" not in result


def test_a_templated_pin_is_evaluated(action):
    result = action.run(task_vars=task_vars(lab_cuda="{{ our_cuda }}", our_cuda="12.6"))
    assert result["stacks"]["n1"]["versions"]["cuda"] == "12.6"


def test_hosts_left_out_are_named(action):
    variables = task_vars()
    assert action.run(task_vars=variables)["warnings"] == []
    variables["ansible_play_hosts"] = ["n1"]
    [told] = action.run(task_vars=variables)["warnings"]
    assert told.startswith("n2 left out: ")


def test_a_display_card_outside_the_group_gpu_does_not_matter(action):
    variables = task_vars()
    facts = variables["hostvars"]["n2"]["ansible_facts"]
    card = {"name": None, "compute_capability": None, "pci_device": "ffff"}
    variables["hostvars"]["n2"]["ansible_facts"] = {**facts, "hvlab": {"gpus": [card]}}
    assert not action.run(task_vars=variables).get("failed")
    variables["groups"]["gpu"] = ["n1", "n2"]
    assert "lab_gpus" in action.run(task_vars=variables)["msg"]


def test_a_refusal_fails_with_the_text_of_the_cli(action):
    result = action.run(task_vars=task_vars(lab_cuda="13.0"))
    assert result["failed"]
    message = "CUDA 13.0 has no code for sm_52 (Tesla M40 on n1); with CUDA 12.9 or without n1 it resolves"
    assert message in result["msg"]
    assert result["refusal"]["message"] == message


def test_a_malformed_pin_fails_with_what_to_write(action):
    result = action.run(task_vars=task_vars(lab_cuda="new"))
    assert result["failed"]
    assert "n1: lab_cuda: new: 'new' is not a version" in result["msg"]
    assert "what to do: write it as cuda=12.4" in result["msg"]
    with pytest.raises(UsageError):
        hvlab_resolve.lab(task_vars(lab_cuda_method="apt"), None)


def in_files(tmp_path, variables):
    for host in variables["hostvars"].values():
        host["inventory_file"] = str(tmp_path / "hosts.yml")
    return variables


def test_a_run_keeps_its_versions_on_request_and_a_limited_one_uses_them(action, tmp_path):
    action._task.args = {"write_lock": True}
    first = action.run(task_vars=in_files(tmp_path, task_vars(lab_openmpi="4.1.6")))
    assert first["warnings"] == []
    action._task.args = {}
    variables = in_files(tmp_path, task_vars())
    variables["ansible_play_hosts"] = ["n2"]
    limited = action.run(task_vars=variables)
    before, after = (answer["stacks"]["n2"] for answer in (first, limited))
    assert after["versions"] == before["versions"]
    assert f"those in {tmp_path / '.hvlab-lock.json'} are kept" in limited["warnings"][0]
    whole = action.run(task_vars=in_files(tmp_path, task_vars()))
    assert whole["warnings"] == ["n1, n2: Open MPI 4.1.8, and 4.1.6 in the lock"]


def test_check_mode_keeps_nothing(action, tmp_path):
    action._task.args, action._task.check_mode = {"write_lock": True}, True
    action.run(task_vars=in_files(tmp_path, task_vars()))
    assert not list(tmp_path.iterdir())
