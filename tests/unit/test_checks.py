"""Every check of hosts: listed once, and those of roles with a host that is right and with one that is not.

What is right is a recorded host (``benchmarks/simulated``); each fault changes an answer of it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import ChainMap, Counter
from dataclasses import replace
from types import ModuleType

import pytest
from click.testing import CliRunner

from benchmarks.simulated import hosts as simulated
from hvlab.checks import preflight, registry, system
from hvlab.checks.before import BEFORE
from hvlab.checks.node import limits, subjects
from hvlab.checks.own_programs import NODE_PROGRAMS, SOURCE
from hvlab.checks.provisioned import NotApplicable, RoleHost, UnreachableHostError, WrongNodeError
from hvlab.cli import cli
from hvlab.lab.inventory_reader import Inventory
from tests.contract.tree import ROOT, load

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
    "common: every name resolves to the lab address": {"names": said('{"h0002": ["::1"], "h0003": []}')},
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


def test_open_mpi_5_has_its_internal_hwloc_as_a_library_of_its_own(lab):
    library = said("libhwloc.so.15 => /opt/hvlab/openmpi/5.0.7/lib/libhwloc.so.15 (0x00007fdaab8b4000)")
    first = lab["h0001"]
    node = replace(
        first, answers=first.answers | {"orted libraries": {**first.answers["orted libraries"], **library}}
    )
    CHECKS["hwloc_purge: programs use their own hwloc"].run(node, lab)


def test_a_revoked_key_is_named(lab):
    first = lab["h0001"]
    refused = said(
        rc=255, err="ED25519 host key for h0002 was revoked and you have requested strict checking.\n"
    )
    refused["err"] += "Host key verification failed.\n"
    nodes = lab | {"h0001": replace(first, answers={**first.answers, "ssh h0002": refused})}
    with pytest.raises(WrongNodeError, match=r"h0002 \(ED25519 host key for h0002 was revoked\)"):
        CHECKS["ssh_trust: reaches other hosts[name]"].run(nodes["h0001"], nodes)


def test_the_role_preflight_has_the_limit_of_the_table():
    defaults = load(ROOT / "roles/preflight/defaults/main.yml")
    assert defaults["preflight_clock_offset_max"] == limits.CLOCK_OFFSET_S


def test_every_check_is_listed_once_with_its_stage():
    listed = json.loads(CliRunner().invoke(cli, ["health", "--list", "--format", "json"]).stdout)
    stages = Counter((row["stage"], row["subject"], row["id"]) for row in listed)
    assert set(stages.values()) == {1}
    assert {row["stage"] for row in listed} == {"before", "after a role", "any time", "across hosts"}


def test_every_check_before_a_change_is_run():
    """Preflight imports each subject that has some; the rest need more than facts, or are of `hvlab init`."""
    imported = {module.__name__ for module in vars(preflight).values() if isinstance(module, ModuleType)}
    assert {check.__module__ for check in BEFORE} <= imported
    listed = {each.id for each in registry.list_all() if each.stage == "before"}
    run = {check.__name__.removeprefix("check_").replace("_", " ") for check in BEFORE}
    assert listed - run == {"owner", "possession", "pythons"}


@pytest.mark.parametrize("subject", registry.SUBJECTS, ids=lambda module: module.__name__)
def test_what_is_found_across_hosts_is_listed(subject):
    tree = ast.parse(inspect.getsource(subject))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    named = [call.args[0] for call in calls if ast.unparse(call.func) == "HostFault"]
    ids = {name.value for name in named if isinstance(name, ast.Constant)}
    assert ids <= set(getattr(subject, "FAULTS", ids))


def test_what_a_node_is_judged_by_is_listed(lab):
    judged = subjects.findings(subjects.list_all(), {}, {})
    known = [id_ for subject in subjects.list_all() for id_ in getattr(subject, "CHECKS", ())]
    assert judged
    assert not [each.check for each in judged if not each.check.startswith(tuple(known))]


# --- roles that the recorded host lacks: GPUs, Slurm, docker, the node's own health check

BLACKLIST = "".join(f"blacklist {name}\n" for name in ("nouveau", "nova_core", "nova_drm"))
VARIABLES = {
    "hwloc_purge_enabled": False,
    "lab_user_name": "hvlab",
    "group_names": ["gpu"],
    "nvidia_driver_method": "repo",
    "nvidia_driver_nouveau_blacklisted": True,
    "nvidia_driver_persistence_enabled": True,
    "nvidia_repository_enabled": True,
    "gpudirect_enabled": True,
    "gpudirect_module": "nvidia-peermem",
    **{f"{role}_method": "repo" for role in ("cuda", "cudnn", "nccl")},
    **{"cuda_version": "12.8", "cudnn_version": "9.8.0", "nccl_version": "2.26.2", "dcgm_version": "4.2.3"},
    **{"nccl_hold": True, "dcgm_hold": True, "nccl_tests_version": "2.16.9"},
    "nccl_tests_mpi_home": "/opt/hvlab/openmpi/current",
    "nccl_tests_nccl_home": "/opt/hvlab/nccl/current",
    **{"slurm_enabled": True, "slurm_hosts": ["n1"], "slurm_controller": "n1", "slurm_cluster": "hvlab"},
    **{"slurm_accounting_enabled": True, "slurm_rest_enabled": True},
    **{"container_runtime_enabled": True, "container_runtime_daemon": {"live-restore": True}},
    **{"container_runtime_user": "hvlab", "container_runtime_user_in_group": False},
    **{"container_runtime_nvidia_enabled": True, "container_runtime_nvidia_version": "1.17.5-1"},
    "node_health_enabled": True,
    "horovod_prefix": "/opt/hvlab/horovod",
    "horovod_variants": {"gpu": {"frameworks": ["torch"], "gpu_operations": "nccl"}},
}
URL = "https://packages.example/cuda"
RECORDS = {
    "hwloc_purge": {"enabled": False, "keep": []},
    "common": {"stack": {"nccl_loaded": {"torch": "2.26.2"}}},
    "nvidia_driver": {
        **{
            "method": "repo",
            "version": "570.86.15",
            "kernel": "6.1.0-9",
            "loaded": True,
            "fabric_manager": True,
        },
        **{"modules": ["nvidia/570.86.15"], "subnet_manager": True, "imex": True},
    },
    "nvidia_repository": {"url": URL, "fingerprint": "3BF863CC"},
    "gpudirect": {"enabled": True, "available": True, "way": "peer_memory"},
    "cuda": {
        **{"requested": "12.8", "method": "repo", "version": "12.8"},
        **{"home": "/usr/local/cuda-12.8", "prefix": "/usr/local/cuda"},
    },
    "cudnn": {"requested": "9.8.0", "method": "repo", "version": "9.8.0", "lib": "/usr/lib"},
    "nccl": {"requested": "2.26.2", "method": "repo", "version": "2.26.2", "lib": "/usr/lib"},
    "nccl_tests": {"version": "2.16.9"},
    "dcgm": {"requested": "4.2.3", "version": "4.2.3", "packages": ["datacenter-gpu-manager-4-core"]},
    "slurm": {"controller": "n1", "partitions": ["hvlab"], "uid": "1000"},
    "container_runtime": {"data_root": "/var/lib/docker", "mirrors": ["https://mirror.example"]},
    "node_health": {},
}
DOCKER = {
    "DockerRootDir": "/var/lib/docker",
    "RegistryConfig": {"Mirrors": ["https://mirror.example/"]},
    "Runtimes": {"nvidia": {}},
}
HELD = "libnccl2\ndatacenter-gpu-manager-4-core\n"
DEFINES = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 8\n#define CUDNN_PATCHLEVEL 0\n"
ANSWERS = {
    "hwloc packages": said(),
    "hwloc rpms": said(),
    "facts": {f"{FACTS}{role}.fact": json.dumps(record) for role, record in RECORDS.items()},
    "dkms": said("nvidia/570.86.15, 6.1.0-9, x86_64: installed"),
    "kernels": mode("/boot/vmlinuz-6.1.0-9"),
    "modules": said("/lib/modules/6.1.0-9/updates/dkms/nvidia.ko"),
    "loaded driver": {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Module  570.86.15  Fri"},
    "modprobe.d": {"/etc/modprobe.d/hvlab-nvidia.conf": BLACKLIST},
    "nvidia-smi": said("570.86.15"),
    "fabric manager": said("enabled"),
    "persistence daemon": said("enabled"),
    "IMEX": said("active"),
    "module of the subnet manager": mode("/sys/module/ib_umad"),
    "IMEX channel": mode("/dev/nvidia-caps-imex-channels/channel0"),
    "nvidia source": {"/etc/apt/x": f"URIs: {URL}\nSigned-By: /etc/apt/keyrings/nvidia.asc"},
    "nvidia repo": {},
    "nvidia known": said(f"500 {URL} Packages"),
    "gpudirect modules": {"/proc/modules": "nvidia_peermem 16384 0 - Live 0x0"},
    "gpudirect config": {"/etc/modules-load.d/hvlab-gpudirect.conf": "nvidia-peermem"},
    "nvcc": said("Cuda compilation tools, release 12.8, V12.8.61"),
    "cuda link": mode("/usr/local/cuda", link="/usr/local/cuda-12.8"),
    "cuda libraries": said("libcudart.so.12 => /usr/local/cuda/lib64/libcudart.so.12"),
    "cudnn_version.h": {"/x/cudnn_version.h": DEFINES},
    "cudnn.h": {},
    "cudnn library": said("/x/libcudnn.so.9"),
    "nccl.h": {"/x/nccl.h": "#define NCCL_VERSION_CODE 22602"},
    "nccl library": said("/x/libnccl.so.2"),
    "held by apt": said(HELD),
    "ldd all_reduce_perf_mpi": said(
        "libmpi.so.40 => /opt/hvlab/openmpi/current/lib/x\nlibnccl.so.2 => /opt/hvlab/nccl/current/lib/x"
    ),
    "dcgmi --version": said("version: 4.2.3"),
    "nvidia-dcgm active": said("active"),
    "nvidia-dcgm enabled": said("enabled"),
    **{
        f"{unit} active": said("active")
        for unit in ("munge", "slurmd", "slurmctld", "slurmdbd", "slurmrestd")
    },
    "munge -n": said("MUNGE:x:"),
    "munge key": mode("/etc/munge/munge.key", "0400", "munge"),
    "sinfo": said("idle|hvlab|none"),
    "scontrol show config": said("HASH_VAL                = Match"),
    "id of the lab user": said("1000"),
    "sacctmgr": said("hvlab|hvlab|hvlab"),
    "slurmdbd.conf": mode("/etc/slurm/slurmdbd.conf", "0600", "slurm"),
    "listeners": said("LISTEN 0 80 127.0.0.1:3306 0.0.0.0:*"),
    "slurmrestd's user": said("slurmrestd"),
    "slurmrestd ping": said('HTTP/1.1 200 OK {"pings": []}'),
    "docker info": said(json.dumps(DOCKER)),
    "docker at boot": said("enabled"),
    "docker settings": {"/etc/docker/daemon.json": '{"live-restore": true, "debug": true}'},
    "docker group": said("docker:x:999:"),
    "toolkit deb": said("1.17.5-1"),
    "toolkit held": said("nvidia-container-toolkit"),
    "health programs": said("\n".join(f"{sum_}  /x/{name}" for name, sum_ in NODE_PROGRAMS.items())),
    "health types": {
        "/x.json": json.dumps({"known": dict.fromkeys(path.stem for path in SOURCE.glob("machines/*.yml"))})
    },
    "health check": said("[]"),
    "gpu torch NCCL": said("NCCL 2.26.2"),
}
OF_GPUS = {
    "nvidia_driver: method matches the inventory": {"variables": {"nvidia_driver_method": "runfile"}},
    "nvidia_driver: modules are built": {"dkms": said("nvidia/570.86.15, 6.1.0-9, x86_64: added")},
    "nvidia_driver: the kernels that boot next have a module": {"kernels": mode("/boot/vmlinuz-6.1.0-10")},
    "nvidia_driver: nouveau is kept out": {"modprobe.d": {"/etc/modprobe.d/hvlab-nvidia.conf": ""}},
    "nvidia_driver: installed driver is in use": {
        "loaded driver": {"/proc/driver/nvidia/version": "NVIDIA UNIX Module  550.54.14  Fri"}
    },
    "nvidia_driver: services": {"persistence daemon": said("disabled", 1)},
    "nvidia_driver: gpus are linked": {"IMEX": said("inactive", 3)},
    "nvidia_repository: the source is the recorded one": {"nvidia source": {"/etc/apt/x": "Enabled: no"}},
    "nvidia_repository: signatures are checked": {"nvidia source": {"/etc/apt/x": f"URIs: {URL}"}},
    "nvidia_repository: the package manager knows it": {"nvidia known": said("500 https://other.example")},
    "gpudirect: the record matches the inventory": {"variables": {"gpudirect_enabled": False}},
    "gpudirect: the module is loaded where it is needed": {
        "gpudirect modules": {"/proc/modules": "nvidia 1"}
    },
    "cuda: release matches the inventory": {"nvcc": said("release 12.4, V12.4.99")},
    "cuda: link points to the release": {"cuda link": mode("/usr/local/cuda", link="/usr/local/cuda-12.4")},
    "cuda: loader finds the runtime": {"cuda libraries": said("libcudart.so.11.0 => /x")},
    "cudnn: version matches the inventory": {
        "cudnn_version.h": {"/x/cudnn_version.h": "#define CUDNN_MAJOR 8"}
    },
    "cudnn: library is installed": {"cudnn library": said("/x/libcudnn.so.8")},
    "nccl: version matches the inventory": {"nccl.h": {"/x/nccl.h": "#define NCCL_VERSION_CODE 22105"}},
    "nccl: library is installed": {"nccl library": said(rc=2, err="No such file or directory")},
    "nccl: packages are held": {"held by apt": said("linux-image-amd64")},
    "nccl_tests: version matches the inventory": {"variables": {"nccl_tests_version": "2.13.1"}},
    "nccl_tests: libraries are found": {"ldd all_reduce_perf_mpi": said("libmpi.so.40 => not found")},
    "dcgm: version matches the inventory": {"dcgmi --version": said("version: 3.3.9")},
    "dcgm: service runs": {"nvidia-dcgm active": said("inactive", 3)},
    "dcgm: packages are held": {"held by apt": said("libnccl2")},
    "slurm: daemons run": {"slurmd active": said("failed", 3)},
    "slurm: munge has a key that only it can read": {
        "munge key": mode("/etc/munge/munge.key", "0444", "munge")
    },
    "slurm: slurmctld has the node": {"sinfo": said("down*|hvlab|Not responding")},
    "slurm: its configuration is slurmctlds": {"scontrol show config": said("HASH_VAL = Different")},
    "slurm: the lab user has the uid that all hosts had": {"id of the lab user": said("1001")},
    "slurm: accounting knows the lab and nobody else reaches its database": {
        "listeners": said("LISTEN 0 80 0.0.0.0:3306 0.0.0.0:*")
    },
    "slurm: slurmrestd answers its own user": {"slurmrestd ping": said("HTTP/1.1 500")},
    "container_runtime: docker runs": {"docker at boot": said("disabled", 1)},
    "container_runtime: settings are in the file and in force": {
        "docker settings": {"/etc/docker/daemon.json": '{"live-restore": false}'}
    },
    "container_runtime: only the chosen user reaches docker": {"docker group": said("docker:x:999:hvlab")},
    "container_runtime: toolkit is pinned": {"toolkit deb": said("1.14.0-1")},
    "node_health: programs are those of this clone": {"health programs": said("0  /x/disk.py")},
    "node_health: machine types are those of this clone": {"health types": {"/x.json": "{}"}},
    "node_health: it runs": {"health check": said(rc=127, err="No such file or directory")},
    "hwloc_purge: no package conflicts": {
        "hwloc packages": said("libhwloc-common ii "),
        "variables": {"hwloc_purge_enabled": True},
    },
    "horovod: ranks load the same nccl on all hosts": {"gpu torch NCCL": said("NCCL 2.21.5")},
}


@pytest.mark.parametrize("name", OF_GPUS)
def test_a_fault_of_gpus_slurm_and_docker_is_named_and_what_is_right_is_not(name):
    edit = dict(OF_GPUS[name])
    right = RoleHost("n1", None, VARIABLES, answers=ANSWERS)
    CHECKS[name].run(right, {"n1": right})
    variables = VARIABLES | edit.pop("variables", {})
    wrong = replace(right, variables=variables, answers=ANSWERS | edit)
    with pytest.raises(WrongNodeError, match="n1: ") as raised:
        CHECKS[name].run(wrong, {"n1": wrong})
    assert raised.value.observed
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("kept", "place"),
    [("/etc/apt/sources.list.d/cuda.list", "source"), ("/etc/yum.repos.d/cuda.repo", "repo")],
)
def test_a_package_source_of_somebody_else_that_was_kept_is_the_one_looked_at(kept, place):
    record = json.dumps(RECORDS["nvidia_repository"] | {"file": kept})
    facts = ANSWERS["facts"] | {f"{FACTS}nvidia_repository.fact": record}
    node = RoleHost("n1", None, VARIABLES, answers=ANSWERS | {"facts": facts})
    asked = system.asks_of_nvidia_repository(node)
    assert [name for name, question in asked.items() if kept in str(question)] == [f"nvidia {place}"]


def test_a_host_that_does_not_answer_is_named():
    node = RoleHost("n1", None, {"ansible_host": "198.18.0.11"}, silence="No route to host")
    with pytest.raises(UnreachableHostError, match=r"n1: does not answer at 198\.18\.0\.11: No route"):
        CHECKS["host: answers"].run(node, {"n1": node})


@pytest.mark.parametrize(
    ("silence", "virtual", "remedy"),
    [
        ("ssh: connect to host n1 port 22: Connection refused", True, "`hvlab lab up`"),
        ("ssh: connect to host n1 port 22: Connection refused", False, "Start sshd there"),
        ("Host key verification failed.", True, "`hvlab lab up`"),
        ("[Errno 2] No such file or directory: b'ssh'", True, "install openssh-client"),
        ("it says nothing that anybody knows", True, "ping -vvv n1"),
    ],
)
def test_the_remedy_of_a_silent_host_is_that_of_its_cause(silence, virtual, remedy):
    node = RoleHost("n1", None, {"group_names": ["virtual"] if virtual else []}, silence=silence)
    with pytest.raises(UnreachableHostError) as raised:
        CHECKS["host: answers"].run(node, {"n1": node})
    assert remedy in raised.value.remedy


_SHIM = "horovod-on-ddp-gloo"
# Hosts with torch in Horovod's place.
OF_TORCH = {
    f"horovod: ranks add up {where}[{_SHIM}]": f"torch {_SHIM} {question}"
    for where, question in {
        "on this host": "here",
        "between hosts": "pair",
        "on all hosts": "together h0003",
    }.items()
}


def test_ranks_of_hvlab_horovod_that_do_not_add_up_are_named(lab):
    together = f"torch {_SHIM} together h0003"
    said_right = lab["h0001"].answers["cpu gloo together h0003"]
    said_right = said_right | {"out": said_right["out"].replace("0.28.1", "0.28.1+torch.distributed")}
    nodes = {
        name: replace(node, variables=ChainMap({"horovod_version": ""}, node.variables))
        for name, node in lab.items()
    }
    first = nodes["h0001"]
    right = nodes | {"h0001": replace(first, answers=first.answers | {together: said_right})}
    for name in (*OF_TORCH, "horovod: version matches the inventory"):
        CHECKS[name].run(right["h0001"], right)
    wrong = dict.fromkeys([*OF_TORCH.values(), together], said("[]"))
    nodes["h0001"] = replace(first, answers=first.answers | wrong)
    for name in OF_TORCH:
        with pytest.raises(WrongNodeError, match="h0001: "):
            CHECKS[name].run(nodes["h0001"], nodes)


def test_every_check_of_roles_has_a_fault():
    assert set(CHECKS) - set(FAULTS) - set(OF_GPUS) - set(OF_TORCH) == {"host: answers"}


@pytest.mark.parametrize(
    ("name", "question", "edit", "variables"),
    [
        (
            "openmpi: libraries are found and its own",
            "ldd mpirun",
            lambda told: told["out"] + "\nlibpmix.so.2 => /lib/x86_64-linux-gnu/libpmix.so.2 (0x0)",
            {"openmpi_method": "distro"},
        ),
        (
            "horovod: libraries are found",
            "cpu libraries",
            lambda told: re.sub(
                r"(libmpi\.so\S* => )\S+", r"\1/lib/x86_64-linux-gnu/libmpi.so.40", told["out"]
            ),
            {"openmpi_method": "distro"},
        ),
        (
            "python_env: packages are those of the lock file",
            "environment python",
            lambda told: told["out"].replace("+cpu", ""),
            {},
        ),
    ],
    ids=["libraries of the distribution's Open MPI", "its libmpi", "the index's own torch"],
)
def test_what_provision_accepts_verify_accepts(lab, name, question, edit, variables):
    first = lab["h0001"]
    changed = edit(first.answers[question])
    assert changed != first.answers[question]["out"]
    answers = {**first.answers, question: {**first.answers[question], "out": changed}}
    node = replace(first, answers=answers, variables=ChainMap(variables, first.variables))
    CHECKS[name].run(node, lab)
    if variables:
        built = replace(node, variables=first.variables)
        with pytest.raises(WrongNodeError):
            CHECKS[name].run(built, lab)
