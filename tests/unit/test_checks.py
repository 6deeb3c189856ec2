"""Every check of hosts: listed once, and those of roles with a host that is right and with one that is not.

What is right is a recorded host (``benchmarks/simulated``); each fault changes an answer of it.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections import Counter
from dataclasses import replace

import pytest
from click.testing import CliRunner

from benchmarks.simulated import hosts as simulated
from hvlab.checks import registry
from hvlab.checks.node import subjects
from hvlab.checks.provisioned import NotApplicable, RoleHost, WrongNodeError
from hvlab.checks.variables import Inventory
from hvlab.cli import cli

FACTS = "/etc/ansible/facts.d/hvlab_"
CHECKS = {f"{check.role.name}: {check.name}": check for check in registry.after_roles()}


def said(out="", rc=0, err=""):
    return {"rc": rc, "out": out, "err": err}


def mode(path, mode="0644", owner="root", link=None):
    return {path: {"mode": mode, "owner": owner, "group": owner, "link": link}}


# What one answer is instead, for each check of a host without GPUs.
FAULTS = {
    "common: facts are json": {"facts": {f"{FACTS}common.fact": "{"}},
    "common: facts belong to roles": {"facts": {f"{FACTS}nothing.fact": "{}"}},
    "common: every name resolves to the lab address": {
        "names": said('{"h0002": ["::1"], "h0003": []}')
    },
    "preflight: host name matches the inventory": {"hostname": said("localhost")},
    "preflight: own name is no loopback": {"own address": said("127.0.1.1    STREAM h0001")},
    "preflight: lab interface has an address": {"addresses": said(err="Device does not exist.")},
    "preflight: tmp can be used": {"tmp options": said("rw,noexec")},
    "lab_user: exists": {"account": said(rc=2)},
    "lab_user: is unprivileged": {"groups": said("hvlab docker")},
    "lab_user: owns its home": {"home": said("root")},
    "ssh_trust: reaches other hosts[name]": {"ssh h0002": said(rc=255, err="Permission denied")},
    "ssh_trust: reaches other hosts[address]": {"ssh 198.18.0.3": said("hvlab and more")},
    "ssh_trust: checks host keys": {"ssh config": said("stricthostkeychecking false")},
    "ssh_trust: private files are private": {"ssh files": said(".ssh/id_ed25519 hvlab 644")},
    "ssh_trust: certificate of the host lasts": {
        "host certificate": said("Valid: from 2026-01-01T00:00:00 to 2026-01-02T00:00:00")
    },
    "ssh_trust: sshd trusts the authority": {"sshd config": said("hostcertificate none")},
    "packs: files are as installed": {"packs": said('{"/opt/hvlab/x": [["/opt/hvlab/x/a", "is missing"]]}')},
    "python_env: packages are those of the lock file": {
        "environment python": said('{"python": "3.11.2", "machine": "x86_64", "packages": {}}')
    },
    "python_env: framework is the recorded one": {"environment python": said('{"version": "1.0"}')},
    "openmpi: version matches the inventory": {"mpirun version": said("mpirun (Open MPI) 5.0.0")},
    "openmpi: parameters match the inventory": {"openmpi parameters": {"/x.conf": "btl = tcp"}},
    "openmpi: link points to the version": {"openmpi link": mode("/opt/hvlab/openmpi/current", link="5.0.0")},
    "openmpi: libraries are found and its own": {"ldd libmpi": said("libhwloc.so.15 => not found")},
    "openmpi: cuda support matches the inventory": {
        "ompi_info": said("mca:mpi:base:param:mpi_built_with_cuda_support:value:true")
    },
    "openmpi: ucx is there as recorded": {"facts": {f"{FACTS}openmpi.fact": '{"ucx": "1.18.1"}'}},
    "hwloc_purge: no package conflicts": {"hwloc packages": said("libhwloc15 ii ")},
    "hwloc_purge: programs use their own hwloc": {"orted libraries": said("libhwloc.so.15 => /usr/lib/x")},
    "horovod: version matches the inventory": {"cpu build": said("Horovod v0.1:")},
    "horovod: build flags match the inventory": {"cpu build": said("Available Frameworks:\n [ ] PyTorch")},
    "horovod: libraries are found": {"cpu libraries": said("libmpi.so.40 => not found")},
    "horovod: ranks add up on this host[mpi]": {"cpu mpi here": said("[]")},
    "horovod: ranks add up on this host[gloo]": {"cpu gloo here": said("[]")},
    "horovod: ranks add up between hosts[mpi]": {"cpu mpi pair": said("[]")},
    "horovod: ranks add up between hosts[gloo]": {"cpu gloo pair": said("[]")},
    "horovod: ranks add up on all hosts[mpi]": {"cpu mpi together h0003": said("[]")},
    "horovod: ranks add up on all hosts[gloo]": {"cpu gloo together h0003": said("[]")},
    "workloads: programs are those of this clone": {"programs": said("0  /opt/hvlab/workloads/train.py")},
}
_LAUNCHES = ("mpi together h0003", "gloo together h0003", "mpi here", "gloo here")
# A launch over one host or a pair counts only after the one over all has failed.
FAULTS |= {
    name: edit | {question.replace("here", "together h0003").replace("pair", "together h0003"): said("[]")}
    for name, edit in FAULTS.items()
    for question in edit
    if question.endswith((" here", " pair"))
}
FAULTS |= {
    name: edit | {f"cpu {launch}": said() for launch in _LAUNCHES}
    for name, edit in FAULTS.items()
    if "cpu build" in edit
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Three hosts that answer what was recorded."""
    written = simulated.write(tmp_path_factory.mktemp("lab") / "lab", 3)
    inventory = Inventory(str(written.inventory))
    nodes = {}
    names = list(written.hosts)
    for place, (name, address) in enumerate(written.hosts.items()):
        answers = json.loads((written.folder / "hosts" / address / "checks").read_text("utf-8"))
        answers.setdefault("openmpi parameters", {})  # asked since it was recorded
        peers = {peer: written.hosts[peer] for peer in names[place + 1 :] + names[:place]}
        node = RoleHost(name, None, {}, peers, answers)
        nodes[name] = replace(node, variables=inventory.variables(name, node.stack))
    return nodes


@pytest.mark.parametrize("name", CHECKS)
def test_a_recorded_host_is_right(lab, name):
    for node in lab.values():
        try:
            CHECKS[name].run(node, lab)
        except NotApplicable:
            assert name not in FAULTS or "on all hosts" in name


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_host_and_what_to_do(lab, name):
    first = lab["h0001"]
    edit = {key: {**first.answers.get(key, {}), **each} for key, each in FAULTS[name].items()}
    nodes = lab | {"h0001": replace(first, answers={**first.answers, **edit})}
    with pytest.raises(WrongNodeError, match="h0001: ") as raised:
        CHECKS[name].run(nodes["h0001"], nodes)
    assert raised.value.observed
    assert raised.value.remedy


def test_every_check_is_listed_once_with_its_stage():
    listed = json.loads(CliRunner().invoke(cli, ["health", "--list", "--format", "json"]).stdout)
    stages = Counter((row["stage"], row["subject"], row["id"]) for row in listed)
    assert set(stages.values()) == {1}
    assert {row["stage"] for row in listed} == {"before", "after a role", "any time", "across hosts"}


@pytest.mark.parametrize("subject", registry.SUBJECTS, ids=lambda module: module.__name__)
def test_what_is_found_across_hosts_is_listed(subject):
    tree = ast.parse(inspect.getsource(subject))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    named = [call.args[0] for call in calls if ast.unparse(call.func) == "HostFault"]
    ids = {name.value for name in named if isinstance(name, ast.Constant)}
    assert ids <= set(getattr(subject, "FAULTS", ids))


def test_what_a_node_is_judged_by_is_listed(lab):
    judged = subjects.findings(subjects.every(), {}, {})
    known = [id_ for subject in subjects.every() for id_ in getattr(subject, "CHECKS", ())]
    assert judged
    assert not [each.check for each in judged if not each.check.startswith(tuple(known))]
