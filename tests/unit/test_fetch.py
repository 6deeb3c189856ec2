"""What roles build from is fetched before anything is built; all that is missing is named at once."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader

from hvlab.ansible import plugin
from hvlab.ansible.action import hvlab_fetch
from hvlab.stack.provision import packs
from hvlab.stack.resolver import HostRequest, plan
from hvlab.stack.resolver.facts import from_file
from tests.contract.tree import ROOT

FACTS = {"distribution": "Debian", "distribution_version": "12", "python": "3.11", "gcc": "12"}
ROLES = {"roles": ["openmpi", "python_env", "horovod"], "gpu_roles": ["cuda", "cudnn", "nccl", "nccl_tests"]}


class HostVars(dict):
    raw_get = dict.__getitem__


@pytest.fixture
def fetch(monkeypatch, tmp_path):
    """The plugin for two hosts and one of ARM; ``absent`` cannot be had, ``asked`` are its calls."""
    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path / "cache"))
    machines = {"n1": "x86_64", "n2": "x86_64", "n3": "aarch64"}
    hosts = from_file({name: FACTS | {"architecture": machine} for name, machine in machines.items()})
    stacks = plan([HostRequest(host) for host in hosts.values()]).hosts
    loader = DataLoader()
    wiring = loader.load_from_file(str(ROOT / "group_vars/all.yml"), trusted_as_template=True)
    facts = {
        "distribution": "Debian", "distribution_release": "bookworm", "python_version": "3.11.2",
        "python": {"executable": "/usr/bin/python3"}, "hvlab": {}, "ansible_local": {},
    }  # fmt: skip
    hostvars = HostVars(
        {
            name: wiring
            | {
                "inventory_hostname": name,
                "group_names": [],
                "__stack": stack,
                "ansible_facts": copy.deepcopy(facts) | {"architecture": machines[name]},
                "__preflight_stacks": {"stacks": stacks},
                "lab_name": "lab",
            }
            for name, stack in stacks.items()
        }
    )
    made = object.__new__(hvlab_fetch.ActionModule)
    made._task = SimpleNamespace(check_mode=False, args={}, copy=lambda: SimpleNamespace(args={}))
    made._loader, made._templar = loader, None
    made._connection = made._play_context = made._shared_loader_obj = None
    made.asked, made.warned, made.absent = [], [], set()
    made._display = SimpleNamespace(warning=made.warned.append)

    class Action:
        def __init__(self, task, *_):
            self.args = task.args

        def run(self, _, variables):
            made.asked.append((variables["inventory_hostname"], self.args))
            if self.args["name"] in made.absent:
                raise AnsibleActionFail(f"{self.args['name']} is nowhere")
            path = tmp_path / "cache/sources" / self.args["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            return {"path": str(path)}

    monkeypatch.setattr(hvlab_fetch, "ACTIONS", dict.fromkeys(("source", "wheels"), Action))
    monkeypatch.setattr(plugin.ActionBase, "run", lambda *_: {})
    made.given = ROLES | {"to": None}
    made.validate_argument_spec = lambda **_: (None, made.given)
    made.variables = {
        "hostvars": hostvars,
        "groups": {"all": list(stacks)},
        "ansible_play_hosts": list(stacks),
    }
    made.stacks = stacks
    return made


def names(fetch):
    return sorted((host, args["name"]) for host, args in fetch.asked)


def test_hosts_alike_count_once_and_sources_are_the_same_for_all(fetch):
    fetch.run(None, fetch.variables)
    assert names(fetch) == [
        ("n1", "horovod"), ("n1", "oneccl"), ("n1", "openmpi"), ("n1", "python"), ("n3", "python"),
    ]  # fmt: skip
    assert {args["architecture"] for _, args in fetch.asked if args["name"] == "python"} == {
        "x86_64",
        "aarch64",
    }


def test_all_that_is_missing_is_named_at_once(fetch):
    fetch.absent = {"openmpi", "oneccl"}
    result = fetch.run(None, fetch.variables)
    assert result["failed"]
    assert "2 of 5 things cannot be fetched; nothing was built yet" in result["msg"]
    assert "openmpi is nowhere" in result["msg"]
    assert "oneccl is nowhere" in result["msg"]


def pack(fetch, name, key):
    path = hvlab_fetch.Archive(name, key).path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"pack")
    path.with_name(f"{path.name}.sha256").write_text("0" * 64)


def test_what_a_pack_was_built_from_is_not_needed_again(fetch):
    needed = fetch.run(None, fetch.variables)["fetched"]
    key = next(
        file for file in needed["wheels of oneccl for Python 3 on x86_64"] if file.startswith("packs/")
    )
    pack(fetch, "oneccl", key.removeprefix("packs/oneccl-").removesuffix(".tar.gz"))
    fetch.asked.clear()
    fetch.absent = {"oneccl"}
    assert "failed" not in fetch.run(None, fetch.variables)
    assert "oneccl" not in {name for _, name in names(fetch)}


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_host_has_is_not_needed_again(fetch, whole):
    """Its pack is saved from there, for the others."""
    fetch.absent = {"horovod"}
    facts = fetch.variables["hostvars"]["n2"]["ansible_facts"]
    facts["hvlab_managed"] = {"packs": {"/opt/hvlab/horovod/cpu": {"whole": whole, "key": "0" * 16}}}
    assert fetch.run(None, fetch.variables).get("failed", False) is not whole
    assert len(fetch.warned) == whole


def test_only_hosts_with_gpus_need_wheels_of_nvidia(fetch):
    fetch.variables["groups"]["gpu"] = ["n3"]
    own = fetch.variables["hostvars"]["n3"]
    own |= {"nccl_method": "wheel", "nccl_version": "2.29.7", "nccl_cuda_version": "13.0"}
    own |= {"cuda_version": "", "cudnn_version": "", "nccl_tests_enabled": False}
    fetch.run(None, fetch.variables)
    (nccl,) = [(host, args) for host, args in fetch.asked if args["name"] == "nccl"]
    assert nccl[0] == "n3"
    assert nccl[1]["requirements"].startswith("nvidia-nccl-cu13==2.29.7 --hash=sha256:674a")


def test_a_plan_names_what_is_missing(fetch):
    stacks = list(fetch.stacks.values())
    assert [name.split()[0] for name in packs.find_missing(stacks)] == ["openmpi", "torch", "horovod"]
    fetch.run(None, fetch.variables)
    assert packs.find_missing(stacks) == []
    packs.cache_dir().joinpath("sources/openmpi").unlink()
    assert packs.find_missing(stacks) == [f"openmpi {fetch.stacks['n1']['versions']['openmpi']}"]


def test_a_folder_to_be_carried_is_a_cache(fetch, monkeypatch, tmp_path):
    pack(fetch, "openmpi", "0" * 16)
    fetch.given["to"] = str(tmp_path / "stick")
    fetch.run(None, fetch.variables)
    copies = {
        str(path.relative_to(tmp_path / "stick"))
        for path in (tmp_path / "stick").rglob("*")
        if path.is_file()
    }
    assert {
        "sources/openmpi",
        f"packs/openmpi-{'0' * 16}.tar.gz",
        f"packs/openmpi-{'0' * 16}.tar.gz.sha256",
    } < copies
    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path / "stick"))
    fetch.asked.clear()
    fetch.given["to"] = None
    assert hvlab_fetch.Archive("openmpi", "0" * 16).cached()


def test_check_mode_fetches_nothing(fetch):
    fetch._task.check_mode = True
    fetch.run(None, fetch.variables)
    assert not fetch.asked


def test_each_role_that_fetches_says_so_before():
    """A task that calls an action which fetches belongs to a role whose list hvlab_fetch reads."""
    known = {role for roles in ROLES.values() for role in roles}
    play = (ROOT / "playbooks/fetch.yml").read_text()
    for tasks in sorted((ROOT / "roles").glob("*/tasks/*.yml")):
        text = tasks.read_text()
        fetches = any(word in text for word in ("hvlab_source:", "hvlab_wheels:", "tasks_from: toolkit"))
        role = Path(tasks).parents[1].name
        if fetches and role != "pack":
            assert role in known
            assert f"__{role}_fetch:" in (tasks.parents[1] / "vars/main.yml").read_text()
    assert all(role in play for role in known)
