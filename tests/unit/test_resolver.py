"""The resolver's parts: versions, pins, facts, the search, and what a big lab costs."""

import copy
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.base.errors import UsageError
from hvlab.lab.pin_variables import METHODS
from hvlab.stack.resolver import HostRequest, Infeasible, Resolution, facts, pins, plan, rules, versions
from hvlab.stack.resolver.catalogue import CatalogueError, build, files, load
from hvlab.stack.resolver.lab import group, request
from hvlab.stack.resolver.model import ONE_CUDA, ConstraintProblem, Limit, Relation, Scope, prune
from hvlab.stack.resolver.solve import SearchLimitError, search

pytestmark = pytest.mark.resolver

A100 = {"name": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0", "memory_mib": 81920}
M40 = {"name": "Tesla M40", "compute_capability": "5.2", "memory_mib": 22945}
UBUNTU = {"distribution": "Ubuntu", "distribution_version": "22.04", "python": "3.10.12", "gcc": "11.4.0"}


def lab(*names, **changes):
    hosts = facts.from_file({name: {**UBUNTU, "gpus": [A100], **changes} for name in names})
    return [HostRequest(host) for host in hosts.values()]


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("12.4", (12, 4)), ("2.21.5-1+cuda12.4", (2, 21, 5)), ("2.4.1+cu121", (2, 4, 1)), ("none", ())],
)
def test_numbers(version, numbers):
    assert versions.numbers(version) == numbers


def test_a_short_version_counts_for_what_it_leaves_open():
    assert versions.is_at_least("450", "450.80.02")
    assert not versions.is_at_least("450.36", "450.80.02")
    assert versions.is_at_most("580.95.05", "580")
    assert not versions.is_at_most("590.1", "580")


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=3), st.lists(st.integers(0, 30), min_size=1, max_size=3)
)
def test_at_least_and_at_most_agree(one, other):
    first, second = ".".join(map(str, one)), ".".join(map(str, other))
    assert versions.is_at_least(first, second) or versions.is_at_most(first, second)


def test_prefixes_end_at_a_number():
    assert versions.is_prefix("12", "12.4")
    assert not versions.is_prefix("12.1", "12.10")
    assert versions.is_prefix("2.4.1", "2.4.1+cu121")


def test_neighbours_are_told_as_a_span():
    known = ["12.0", "12.1", "12.2", "12.3", "13.0"]
    assert versions.spans(["12.0", "12.1", "12.2", "13.0"], known) == "12.0 to 12.2, 13.0"
    assert versions.nearest("12.25", known, 2) == ["12.3", "13.0"]
    assert versions.by_distance("12.2", known)[:2] == ["12.1", "12.2"]


@pytest.mark.parametrize(
    ("text", "version", "fits"),
    [
        ("cuda=12", "12.4", True),
        ("cuda=12.4", "12.4.1", True),
        ("cuda=12.4.1", "12.4", False),
        ("driver=550", "550.54.14", True),
        ("nccl=2.21.5", "2.21.5-1+cuda12.4", True),
        ("nccl=2.21.5+cuda12.4", "2.21.5-1+cuda12.4", True),
        ("nccl=2.21.5-1+cuda12.2", "2.21.5-1+cuda12.4", False),
        ("nccl=2.2", "2.21.5-1+cuda12.4", False),
        ("nccl=2.21.5+cuda12", "2.21.5-1+cuda12.4", True),
        ("cudnn=8.9.7.29-1+cuda12.2", "8.9.7.29", True),
        ("driver=550.54.15-0ubuntu1", "550.54.15", True),
        ("gcc=12.2.0", "12", True),
        ("python=3.10.12", "3.10", True),
        ("torch=2.4.1+cu121", "2.4.1", True),
        ("torch=2.4", "2.4.1", True),
    ],
)
def test_what_meets_a_pin(text, version, fits):
    assert pins.meets(pins.parse(text), version) is fits


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cdua=12", "did you mean cuda"),
        ("cuda", "write it as cuda=12.4"),
        ("cuda=", "write it as cuda=12.4"),
        ("cuda=new", "write it as"),
        ("torch=2.4+rocm6", "write it as"),
        ("backend=ncl", "did you mean nccl"),
        ("=12", "it can be"),
    ],
)
def test_malformed_pins(text, told):
    with pytest.raises(UsageError) as raised:
        pins.parse(text)
    assert told in str(raised.value.remedy)


def test_pins_of_the_inventory():
    variables = {
        "lab_cuda": 12.4,
        "cuda_version": "{{ ansible_facts.hvlab_stacks }}",
        "lab_openmpi": "4.1.6",
        "lab_torch": None,
        "lab_nccl": "",
        "lab_driver": 580,
    }
    assert {pin.text for pin in pins.of_host("n1", variables)} == {"cuda=12.4", "openmpi=4.1.6", "driver=580"}
    with pytest.raises(UsageError, match="lab_python is the number"):
        pins.of_host("n1", {"lab_python": 3.10})
    with pytest.raises(UsageError, match="lab_cudnn is the number"):
        pins.of_host("n1", {"lab_cudnn": 9.10})
    with pytest.raises(UsageError, match="n1: lab_cuda_method is 'apt'"):
        pins.methods_of("n1", {"lab_cuda_method": "apt"})


def test_methods_of_the_inventory():
    assert pins.methods_of("n1", {"lab_openmpi_method": "distro", "lab_cuda_method": ""}) == {
        **{name: allowed[0] for name, allowed in METHODS.items()},
        "openmpi": "distro",
    }


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("5.2", "5.2"),
        (5.2, "5.2"),
        ("sm_52", "5.2"),
        ("compute_90", "9.0"),
        (9, "9.0"),
        ("sm_120", "12.0"),
        (12.0, "12.0"),
    ],
)
def test_capabilities_are_read_as_they_are_written(written, read):
    host = facts.from_file({"n1": {**UBUNTU, "gpus": [{"name": "x", "compute_capability": written}]}})["n1"]
    assert host.gpus[0].capability == read


@pytest.mark.parametrize(
    ("distribution", "version", "system"),
    [
        ("CentOS", "7.9.2009", "rhel7"),
        ("CentOS", "7", "rhel7"),
        ("Red Hat Enterprise Linux", "8.10", "rhel8"),
        ("RedHat", 9.4, "rhel9"),
        ("Rocky", "9", "rhel9"),
        ("Rocky Linux", "9.5", "rhel9"),
        ("AlmaLinux", "10.0", "rhel10"),
        ("OracleLinux", "8.9", "rhel8"),
        ("Debian", "12.5", "debian12"),
        ("Debian GNU/Linux", "11", "debian11"),
        ("ubuntu", "18.04", "ubuntu1804"),
        ("Amazon Linux", "2023", "amzn2023"),
        ("Amazon", "2", "amzn2"),
        ("Debian", "1", None),
        ("Ubuntu", "23.10", None),
    ],
)
def test_systems(distribution, version, system):
    host = facts.from_file({"n1": {"distribution": distribution, "distribution_version": version}})["n1"]
    found = facts.system_of(host, load())
    assert (found.name if found else None) == system


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "not a JSON object by host"),
        ({}, "not a JSON object by host"),
        ({"n1": []}, "n1: its facts are []"),
        ({"n1": {"distribution": "Debian"}}, "n1: distribution_version is missing"),
        ({"n1": {**UBUNTU, "gpus": "A100"}}, "n1: gpus is 'A100'"),
        ({"n1": {**UBUNTU, "gpus": [{}]}}, "gpus[0] is {}"),
        (
            {"n1": {**UBUNTU, "gpus": [{"name": "x", "compute_capability": "new"}]}},
            "compute_capability is 'new'",
        ),
        ({"n1": {**UBUNTU, "driver": "yes"}}, "driver is 'yes', not a version"),
        ({"n1": {**UBUNTU, "gcc": ["11"]}}, "gcc is ['11']"),
        ({"n1": {**UBUNTU, "gcc": -12}}, "gcc is -12, not a version"),
        ({"n1": {**UBUNTU, "python": 3.1}}, "python is the number 3.1: write it in quotes"),
        ({" ": UBUNTU}, "a host has no name"),
        ({"n1": {**UBUNTU, "gpus": [{**A100, "memory_mib": -1}]}}, "gpus[0].memory_mib is -1"),
        ({"n1": {**UBUNTU, "gpus": [{**A100, "memory_mib": float("inf")}]}}, "gpus[0].memory_mib is inf"),
        ({"n1": {**UBUNTU, "gpus": [{**A100, "memory_mib": float("nan")}]}}, "gpus[0].memory_mib is nan"),
        ({"n1": {**UBUNTU, "gpus": [{**A100, "memory_mib": "much"}]}}, "gpus[0].memory_mib is 'much'"),
    ],
)
def test_bad_facts(data, told):
    with pytest.raises(UsageError) as raised:
        facts.from_file(data)
    assert told in str(raised.value)


def test_facts_survive_being_written():
    host = lab("n1")[0].host
    assert facts.from_file({"n1": host.as_json()})["n1"] == host


def test_ansible_facts():
    gpu = {"name": "Tesla T4", "compute_capability": "7.5", "memory_mib": 15360, "pci": "0000:00:1e.0"}
    observed = {
        "distribution": "Ubuntu",
        "distribution_version": "22.04",
        "python_version": "3.10.12",
        "architecture": "x86_64",
        "kernel": "5.15",
        "hvlab": {"gcc": "11.4.0", "driver": None, "driver_installed": "535.104.05", "gpus": [gpu]},
    }
    host = facts.from_ansible("n1", observed)
    assert (host.driver, host.loaded, host.gcc, host.python) == ("535.104.05", False, "11.4.0", "3.10.12")
    assert host.gpus == (facts.Gpu("Tesla T4", "7.5", 15360),)


@pytest.mark.parametrize("name", ["NVIDIA A100 (vfio-pci)", "AMD device 1002:74a1", "Habana Gaudi2"])
def test_a_gpu_that_nvidias_driver_does_not_get_is_named(name):
    facts_ = {"distribution": "Debian", "distribution_version": "12", "hvlab": {"other_gpus": [name]}}
    host = facts.from_ansible("n1", facts_)
    assert (host.gpus, host.others) == ((), (name,))
    refused = plan([request(host, {})])
    assert f"it is in the group gpu, and has no GPU for NVIDIA's driver: {name}" in refused.message


@pytest.mark.parametrize(
    ("gpu", "name", "capability"),
    [
        ({"pci_device": "20b2"}, "NVIDIA A100", "8.0"),
        ({"pci_device": "2B8F"}, "NVIDIA device 10de:2b8f", "12.0"),
        ({"pci_device": "ffff"}, "NVIDIA device 10de:ffff", None),
        ({}, "NVIDIA device 10de:unknown", None),
        ({"name": "TU104GL [Tesla T4]", "pci_device": "1eb8"}, "TU104GL [Tesla T4]", "7.5"),
        ({"name": "Tesla K80", "pci_device": None}, "Tesla K80", None),
    ],
)
def test_a_gpu_without_a_driver_is_known_by_its_device_id(gpu, name, capability):
    nothing = dict.fromkeys(["name", "compute_capability", "memory_mib", "pci_device"])
    observed = {"distribution": "Debian", "distribution_version": "12", "hvlab": {"gpus": [nothing | gpu]}}
    assert facts.from_ansible("n1", observed).gpus == (facts.Gpu(name, capability),)


def test_an_unknown_device_is_refused_unless_the_inventory_tells_it():
    observed = {**UBUNTU, "hvlab": {"gpus": [{"name": None, "pci_device": "ffff"}]}}
    host = facts.from_ansible("n1", observed)
    refused = plan([request(host, {})])
    assert isinstance(refused, Infeasible)
    assert "its GPU 'NVIDIA device 10de:ffff' is not known" in refused.message
    assert "lab_gpus" in refused.message
    assert isinstance(plan([request(host, {"lab_gpus": [A100]})]), Resolution)
    assert isinstance(plan([request(host, {}, gpu=False)]), Resolution)


def test_a_remedy_has_one_order_whatever_the_hash_seed():
    builds = {f"2.21.5-1+cuda{build}" for build in ("11.0", "12.2", "12.4", "12.5")}
    assert versions.by_distance("2.21.5", builds) == sorted(builds)


def test_code_runs_on_later_gpus_of_its_major():
    assert rules.runs(["8.0"], ptx=False, capability="8.6")
    assert not rules.runs(["8.6"], ptx=False, capability="8.0")
    assert not rules.runs(["9.0"], ptx=False, capability="10.0")
    assert rules.runs(["9.0"], ptx=True, capability="10.0")


def test_nccl_builds_by_distance():
    assert rules.nccl_distance("2.10.3-1+cuda11.1", "11.1") < rules.nccl_distance("2.10.3-1+cuda11.0", "11.1")
    assert rules.nccl_distance("2.10.3-1+cuda11.0", "11.1") < rules.nccl_distance("2.10.3-1+cuda11.4", "11.1")


def test_a_release_of_the_catalogue_in_numbers_is_refused():
    broken = copy.deepcopy(files())
    broken["cuda"]["releases"][12.4] = broken["cuda"]["releases"].pop("12.4")
    with pytest.raises(CatalogueError, match=r"cuda.yml, 12.4: write the version in quotes"):
        build(broken)
    broken = copy.deepcopy(files())
    del broken["torch"]["releases"]["2.4.1"]["python"]
    with pytest.raises(CatalogueError, match=r"torch.yml, 2.4.1: python: Field required"):
        build(broken)


def small():
    """a and b in 1..3, b not below a; b may be 2 at most."""
    problem = ConstraintProblem()
    problem.add_domain(("a", None), [("3", None), ("2", None), ("1", None)])
    problem.add_domain(("b", None), [("1", None), ("2", None), ("3", None)])
    assumed = problem.assume("pin", "b", "2", "b=2", [0])
    problem.limits.append(Limit(("b", None), lambda c: int(c.version) <= 2, assumptions=(assumed,)))
    problem.relations.append(
        Relation(("a", None), ("b", None), lambda a, b: int(a.version) <= int(b.version))
    )
    return problem


def test_the_search_takes_the_preferred_that_fits():
    problem = small()
    found = search(problem, Scope())
    assert {key[0]: c.version for key, c in found.items()} == {"a": "2", "b": "2"}
    free = search(problem, Scope(frozenset()))
    assert free["a", None].version == "3"
    assert prune(problem, Scope(only={("a", None): 1})).empty is not None
    assert search(problem, Scope(only={("a", None): 1})) is None


def test_pins_of_one_host_and_of_all():
    pinned = [HostRequest(lab("n1")[0].host, (pins.parse("cuda=12.6"),)), *lab("n2")]
    found = plan(pinned, [pins.parse("driver=580")])
    assert isinstance(found, Resolution)
    assert {stack["versions"]["cuda"] for stack in found.hosts.values()} == {"12.6"}
    clash = plan(pinned, [pins.parse("cuda=12.4")])
    assert isinstance(clash, Infeasible)
    assert {item["text"] for item in clash.conflict} == {"cuda=12.4", "cuda=12.6 (n1)"}


def test_no_driver_and_none_wanted():
    host = lab("n1")[0].host
    refused = plan([request(host, {"lab_driver_method": "none"})])
    assert isinstance(refused, Infeasible)
    assert refused.message.startswith("n1 has no driver, and lab_driver_method is none; with driver 595")
    declared = plan([request(host, {"lab_driver_method": "none", "lab_gpus": [A100]})])
    assert isinstance(declared, Resolution)
    assert declared.hosts["n1"]["versions"]["driver"] is None
    assert any("declared in the inventory" in note for note in declared.hosts["n1"]["notes"])
    kept = lab("n1", driver="535.104.05")[0].host
    fixed = plan([request(kept, {"lab_driver_method": "none"})], [pins.parse("cuda=13.0")])
    assert isinstance(fixed, Infeasible)
    assert "driver 535.104.05 on n1 is too old for CUDA 13.0, which needs 580.65.06 or newer" in fixed.message
    assert fixed.nearest[0].text.startswith("with CUDA 12")


def test_a_toolkit_of_wheels_without_a_driver():
    variables = {
        "lab_gpus": [{"name": "NVIDIA H200", "compute_capability": "9.0", "memory_mib": 143771}],
        "lab_driver": "580",
        "lab_cuda": "13.0",
        "lab_torch": "2.12.1",
        "lab_driver_method": "none",
        **dict.fromkeys(["lab_cuda_method", "lab_cudnn_method", "lab_nccl_method"], "wheel"),
    }
    host = facts.from_file(
        {"n1": {"distribution": "Debian", "distribution_version": "12", "python": "3.11"}}
    )["n1"]
    found = plan([request(host, variables)])
    assert isinstance(found, Resolution), found.message
    stack = found.hosts["n1"]
    assert stack["versions"]["cuda"] == "13.0"
    assert stack["versions"]["driver"].startswith("580.")
    assert stack["torch_index"] == "cu130"
    assert {stack["methods"][name] for name in ("driver", "cuda", "cudnn", "nccl")} == {"none", "wheel"}
    assert not any(stack["packages"][name] for name in ("driver", "cuda", "cudnn", "nccl"))


def test_packages_are_called_as_the_system_calls_them():
    asked = [pins.parse(text) for text in ("driver=550", "cuda=12.4", "nccl=2.21.5", "cudnn=8.9.7")]
    ubuntu = plan(lab("n1"), asked).hosts["n1"]["packages"]
    assert ubuntu["cuda"] == [{"name": "cuda-toolkit-12-4", "version": None}]
    assert ubuntu["nccl"] == [
        {"name": "libnccl2", "version": "2.21.5-1+cuda12.4"},
        {"name": "libnccl-dev", "version": "2.21.5-1+cuda12.4"},
    ]
    assert ubuntu["cudnn"][0] == {"name": "libcudnn8", "version": "8.9.7.29-1+cuda12.2"}
    assert ubuntu["driver"][0]["name"] == "cuda-drivers-550"
    rocky = lab("n1", distribution="Rocky", distribution_version="9.4", python="3.9")
    stack = plan(rocky, asked[:3]).hosts["n1"]
    assert stack["packages"]["nccl"][1] == {"name": "libnccl-devel", "version": "2.21.5-1+cuda12.4"}
    assert stack["driver_stream"] == "nvidia-driver:550-dkms"
    exact = plan(lab("n1"), [pins.parse("driver=580.95.05")]).hosts["n1"]
    assert exact["driver_requested"] == "580.95.05"
    assert exact["open_modules"] is True


B200 = {"name": "NVIDIA B200", "compute_capability": "10.0"}
V100 = {"name": "Tesla V100-SXM2-32GB", "compute_capability": "7.0"}


@pytest.mark.parametrize(
    ("gpu", "system", "driver", "names"),
    [
        # Blackwell runs with the open modules alone.
        (B200, {}, "580", ["nvidia-headless-580-server-open", "nvidia-utils-580-server"]),
        (V100, {}, "580", ["nvidia-headless-580-server", "nvidia-utils-580-server"]),
        (
            V100,
            {"distribution": "Debian", "distribution_version": "12", "python": "3.11"},
            "535.261.03",
            ["nvidia-kernel-dkms", "libcuda1", "nvidia-persistenced", "nvidia-smi"],
        ),
    ],
)
def test_a_distributions_own_driver_has_the_modules_that_its_gpus_need(gpu, system, driver, names):
    host = lab("n1", gpus=[gpu], **system)[0].host
    resolved = plan([HostRequest(host, (pins.parse(f"driver={driver}"),), methods={"driver": "distro"})])
    assert isinstance(resolved, Resolution), resolved.message
    packages = resolved.hosts["n1"]["packages"]["driver"]
    assert [package["name"] for package in packages] == names
    # Its versions are not the driver's.
    assert not [p for p in packages if p["version"] and "persistenced" in p["name"]]


@pytest.mark.parametrize(
    ("system", "cudnn", "names"),
    [
        ("Ubuntu", "9.1.0.70", ["libcudnn9-cuda-12", "libcudnn9-dev-cuda-12"]),
        ("Ubuntu", "9.10.2.21", ["libcudnn9-cuda-12", "libcudnn9-dev-cuda-12", "libcudnn9-headers-cuda-12"]),
        ("Rocky", "9.13.0.50", ["libcudnn9-cuda-12", "libcudnn9-devel-cuda-12", "libcudnn9-headers-cuda-12"]),
    ],
)
def test_cudnns_headers_are_a_package_of_their_own_from_9_10_on(system, cudnn, names):
    own = {} if system == "Ubuntu" else {"distribution_version": "9.4", "python": "3.9"}
    asked = [pins.parse(f"cudnn={cudnn}"), pins.parse("cuda=12.8")]
    packages = plan(lab("n1", distribution=system, **own), asked).hosts["n1"]["packages"]["cudnn"]
    assert packages == [{"name": name, "version": f"{cudnn}-1"} for name in names]


@pytest.mark.parametrize(
    ("name", "architecture", "flag", "imex"),
    [
        ("NVIDIA B200", "x86_64", True, False),
        ("NVIDIA B300", "x86_64", True, False),
        ("NVIDIA GB200", "aarch64", False, True),
        ("NVIDIA GB300", "aarch64", False, True),
        ("NVIDIA H200", "x86_64", False, False),
    ],
)
def test_boards_with_hidden_switches_ask_for_the_fabric_manager(name, architecture, flag, imex):
    found = plan(lab("n1", gpus=[{"name": name}], architecture=architecture))
    assert isinstance(found, Resolution), found.message
    stack = found.hosts["n1"]
    assert (stack["fabric_manager"], stack["imex"]) == (flag, imex)
    assert ("error 802" in " ".join(stack["notes"])) is flag
    assert ("nvidia-imex" in " ".join(stack["notes"])) is imex


@pytest.mark.parametrize(("architecture", "opened"), [("aarch64", True), ("x86_64", False)])
def test_grace_hopper_gets_the_open_modules(architecture, opened):
    hopper = {"name": "NVIDIA GH200 480GB", "compute_capability": "9.0"}
    found = plan(lab("n1", gpus=[hopper], architecture=architecture), [pins.parse("driver=550")])
    assert isinstance(found, Resolution), found.message
    assert found.hosts["n1"]["open_modules"] is opened


def test_a_host_of_the_group_gpu_has_to_show_one():
    refused = plan([request(lab("n1", gpus=[])[0].host, {}), *lab("n2")])
    assert isinstance(refused, Infeasible)
    assert refused.message == (
        "n1: it is in the group gpu, and shows no GPU (lab_gpus, or take it out of the group gpu); "
        "without n1 it resolves"
    )


def test_a_jetson_whose_gpu_is_not_on_the_bus_is_told_by_its_kernel():
    refused = plan([request(lab("n1", gpus=[], kernel="5.15.148-tegra")[0].host, {})])
    assert isinstance(refused, Infeasible)
    assert "n1: its kernel 5.15.148-tegra is a Jetson's (its driver and CUDA come with" in refused.message


def test_a_python_that_ansible_does_not_run_on_is_refused_with_the_package_of_another():
    [old] = lab("n1", distribution="Ubuntu", distribution_version="18.04", python="3.6.9", gpus=[])
    result = plan([old])
    assert isinstance(result, Resolution)
    [problem] = result.refused
    assert problem.host == "n1"
    assert problem.observed == "its Python is 3.6.9; Ansible needs 3.8 there, or later"
    assert problem.remedy.startswith("install python3.8 there")
    [new] = lab("n1", distribution="Ubuntu", distribution_version="22.04", python="3.10.12", gpus=[])
    assert not plan([new]).refused


@pytest.mark.parametrize(
    ("distribution", "version", "advice"),
    [
        ("ubuntu", "18.04", "install python3.8 there, and set ansible_python_interpreter"),
        ("rhel", "8.10", "install python3.12 there, and set ansible_python_interpreter"),
        ("debian", "12", "install python3 there, and set ansible_python_interpreter: /usr/bin/python3"),
        ("amzn", "2", "use a newer system, or a container"),
        ("arch", "", "install Python 3.8 or later there"),
    ],
)
def test_the_way_to_another_python_exists_on_that_system(distribution, version, advice):
    system = facts.system_of(facts.HostFacts("n1", distribution, version), load())
    assert advice in facts.advise_python(system)


def test_pythons_without_packages():
    """What an inventory installs is held to the Pythons the roles have; of bare facts it is told."""
    [bare] = lab("n1", distribution="CentOS", distribution_version="7", python="3.6.8", gcc="4.8.5", gpus=[])
    noted = plan([bare])
    assert isinstance(noted, Resolution)
    [problem] = noted.refused
    assert problem.observed == "it gets Python 3.6, and hvlab has packages for 3.8 to 3.14"
    assert "use a newer system" in problem.remedy
    refused = plan([request(bare.host, {}, gpu=False)])
    assert isinstance(refused, Infeasible)
    assert "hvlab has packages for Python 3.8 to 3.14, not for 3.6" in refused.message


def test_a_python_that_the_roles_know_comes_before_the_present_one():
    found = plan(lab("n1", distribution="Amazon", distribution_version="2023", python="3.15.0"))
    assert isinstance(found, Resolution)
    assert found.hosts["n1"]["versions"]["python"] != "3.15"


def test_a_present_python_that_the_system_does_not_have_brings_no_packages():
    [stack] = plan(lab("n1", python="3.12.1"), [pins.parse("python=3.12")]).hosts.values()
    assert stack["system"]["python"] == "3.10"
    assert stack["packages"]["python"] == []


def test_tensorflow_has_no_cuda_on_arm():
    hopper = {"name": "NVIDIA GH200 480GB", "compute_capability": "9.0"}
    hosts = lab("n1", gpus=[hopper], architecture="aarch64")
    refused = plan(hosts, [pins.parse("tensorflow=2.15"), pins.parse("python=3.10")])
    assert isinstance(refused, Infeasible)
    assert "TensorFlow has no wheel with CUDA for aarch64 on n1: it would run on the CPU" in refused.message
    assert {item["text"] for item in refused.conflict} == {"tensorflow=2.15", "aarch64 on n1"}
    assert isinstance(
        plan(lab("n1", gpus=[], architecture="aarch64"), [pins.parse("tensorflow=2.15")]), Resolution
    )


def test_why_hosts_get_different_cudas():
    p100 = {"name": "Tesla P100-PCIE-16GB", "compute_capability": "6.0"}
    rtx5090 = {"name": "NVIDIA GeForce RTX 5090", "compute_capability": "12.0"}
    k80 = {"name": "Tesla K80", "compute_capability": "3.7"}
    found = plan([*lab("n1", gpus=[p100]), *lab("n2", gpus=[rtx5090])])
    assert isinstance(found, Resolution)
    assert found.hosts["n1"]["versions"]["cuda"] != found.hosts["n2"]["versions"]["cuda"]
    [note] = [note for note in found.notes if "CUDA" in note]
    assert note == (
        "hosts get different CUDA releases, though 12.8, 12.9 would have code for all GPUs here: "
        "each gets the one that a torch wheel with code for its GPUs is built for"
    )
    old = HostRequest(lab("n1", gpus=[k80])[0].host, methods={"driver": "distro"})
    apart = plan([old, *lab("n2", gpus=[rtx5090])], [pins.parse("torch=2.13+cpu")])
    assert isinstance(apart, Resolution), apart.message
    assert "no one CUDA release has code for all GPUs here: hosts get different ones" in apart.notes


def test_ranks_of_different_nccl_releases_do_not_talk():
    first, second = lab("n1", "n2")
    hosts = [
        HostRequest(first.host, (pins.parse("nccl=2.21.5"),)),
        HostRequest(second.host, (pins.parse("nccl=2.23.4"),)),
    ]
    found = plan(hosts)
    assert isinstance(found, Resolution)
    # Ranks of torch use torch's own.
    assert any("nccl-tests, which does not run between them" in note for note in found.notes)
    tensorflow = plan(hosts, [pins.parse("tensorflow=2.15.1")])
    assert isinstance(tensorflow, Resolution)
    assert any("NCCL refuses to run between them" in note for note in tensorflow.notes)
    refused = plan(hosts, [pins.parse("backend=nccl")])
    assert isinstance(refused, Infeasible)
    assert {item["text"] for item in refused.conflict} == {
        "backend=nccl",
        "nccl=2.21.5 (n1)",
        "nccl=2.23.4 (n2)",
    }
    assert "backend nccl needs one on all" in refused.message


def test_a_thousand_hosts_cost_as_one():
    hosts = lab(*(f"n{i}" for i in range(1000)))
    started = time.perf_counter()
    found = plan(hosts)
    assert isinstance(found, Resolution)
    assert len(found.hosts) == 1000
    old = lab("old", gpus=[M40])
    refused = plan([*hosts, *old], [pins.parse("cuda=13.0")])
    assert time.perf_counter() - started < 60
    assert refused.message == (
        "CUDA 13.0 has no code for sm_52 (Tesla M40 on old); with CUDA 12.9 or without old it resolves"
    )


def test_many_kinds_of_hosts():
    hosts = []
    for i, (driver, gpu) in enumerate(
        (d, g) for d in (None, "535.104.05", "570.86.10", "580.65.06") for g in (A100, M40)
    ):
        hosts += lab(f"n{i}", driver=driver, gpus=[gpu])
    started = time.perf_counter()
    found = plan(hosts)
    assert time.perf_counter() - started < 60
    assert isinstance(found, Resolution)
    assert len({stack["versions"]["cuda"] for stack in found.hosts.values()}) == 1
    kept = [found.hosts[f"n{i}"]["versions"]["driver"] for i in (2, 4, 6)]
    assert kept == ["535.104.05", "570.86.10", "580.65.06"]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("hvlab.stack.resolver.solve.ROUNDS", 1)
    monkeypatch.setattr("hvlab.stack.resolver.solve.ROUNDS_EACH", 0)


def test_a_search_that_ends_at_its_limit_refuses_nothing(impatient):
    with pytest.raises(SearchLimitError, match="limit of 1 rounds: there may be a stack") as caught:
        plan(lab("n1"))
    assert "lab_torch" in caught.value.remedy


def test_a_proven_conflict_stays_a_refusal_without_claims_of_what_would_work(impatient):
    refused = plan(lab("n1", gpus=[M40]), [pins.parse("cuda=13.0")])
    assert isinstance(refused, Infeasible)
    assert "CUDA 13.0 has no code for sm_52" in refused.message
    assert "ended at its limit" in refused.remedy


def test_a_preference_that_the_search_cannot_decide(monkeypatch):
    def give_up(problem, scope):
        if ONE_CUDA in scope.soft:
            raise SearchLimitError("")
        return search(problem, scope)

    monkeypatch.setattr("hvlab.stack.resolver.solve.search", give_up)
    found = plan([*lab("n1"), *lab("n2", gpus=[M40])])
    assert isinstance(found, Resolution)
    assert any("the search ended at its limit before it knew of one for all" in note for note in found.notes)


RTX2080TI = {"name": "NVIDIA GeForce RTX 2080 Ti", "compute_capability": "7.5"}


@pytest.mark.parametrize(
    ("version", "python", "asked", "driver", "requested"),
    [
        # The branch of an ended one that was cared for longest, not the newest.
        ("20.04", "3.8", [], "535.", "535"),
        ("18.04", "3.8", [], "525.", "525"),
        # As NVIDIA's repository for that system is seen to have it.
        ("20.04", "3.8", ["driver=575"], "575.57.08", "575.57.08"),
        ("18.04", "3.8", ["driver=530"], "530.30.02", "530.30.02"),
        ("20.04", "3.8", ["driver=570"], "570.", "570"),
        ("20.04", "3.8", ["driver=575.64.05"], "575.64.05", "575.64.05"),
        ("22.04", "3.10", [], "595.91.07", "595.91.07"),
    ],
)
def test_a_driver_is_one_that_its_repository_is_seen_to_have(version, python, asked, driver, requested):
    host = lab("n1", distribution_version=version, python=python, gcc=None, gpus=[RTX2080TI])
    stack = plan(host, [pins.parse(text) for text in asked]).hosts["n1"]
    assert stack["versions"]["driver"].startswith(driver)
    assert stack["driver_requested"] == requested
    assert any("is asked for" in note for note in stack["notes"]) == ("." not in requested)
    assert any("pin driver=575.57.08" in note for note in stack["notes"]) == (driver == "575.64.05")
    there = lab("n1", distribution_version=version, python=python, gpus=[RTX2080TI], driver="575.64.05")
    assert not any("pin driver" in note for note in plan(there).hosts["n1"]["notes"])


@pytest.mark.parametrize(
    ("kernel", "asked", "method", "refused"),
    [
        ("6.17.0-14-generic", "550", "repo", "driver 550.163.01 does not compile on kernel 6.17.0 on n1"),
        ("6.17.0-14-generic", "550", "runfile", "does not compile on kernel 6.17.0"),
        ("6.17.9-1", "580.119.02", "repo", "does not compile on kernel 6.17.9"),
        # Given up before the branches that are seen to fail.
        ("6.17.0-14-generic", "545", "repo", "driver 545.29.06 does not compile on kernel 6.17.0"),
        ("6.13.0-1", "560", "repo", "driver 560.35.05 does not compile on kernel 6.13.0"),
        ("6.17.0-14-generic", "580.119.02", "repo", ""),
        ("6.17.9-1", "580", "repo", ""),
        ("6.14.0-30-generic", "550", "repo", ""),
        # Ubuntu's own are patched for its kernels.
        ("6.17.0-14-generic", "550", "distro", ""),
    ],
)
def test_a_branch_that_does_not_compile_on_a_kernel_is_refused(kernel, asked, method, refused):
    one = {**UBUNTU, "distribution_version": "24.04", "python": "3.12", "kernel": kernel, "gpus": [A100]}
    host = HostRequest(
        facts.from_file({"n1": one})["n1"], (pins.parse(f"driver={asked}"),), {"driver": method}
    )
    found = plan([host])
    assert isinstance(found, Infeasible) == bool(refused)
    assert refused in getattr(found, "message", "")
    if refused:
        assert "with driver" in found.message


def test_hosts_that_differ_in_kernels_alone_are_one_group_unless_it_matters():
    kernels = ("6.8.0-60-generic", "6.8.0-90-generic", "6.17.0-14-generic", "6.17.0-15-generic")
    hosts = [one for i, kernel in enumerate(kernels) for one in lab(f"n{i}", kernel=kernel)]
    groups, _ = group(hosts, load())
    assert [one.hosts for one in groups] == [("n0", "n1"), ("n2", "n3")]


@pytest.mark.parametrize(
    ("machine", "variables", "remedy"),
    [
        ({}, {"lab_driver_method": "elrepo"}, "with lab_driver_method repo on n1"),
        (
            {"kernel": "6.17.0-14-generic", "distribution_version": "24.04", "python": "3.12", "gcc": "13"},
            {"lab_driver": "550"},
            "with lab_driver_method distro on n1",
        ),
    ],
)
def test_another_source_of_the_driver_is_offered(machine, variables, remedy):
    refused = plan([request(lab("n1", **machine)[0].host, variables)])
    assert isinstance(refused, Infeasible)
    assert remedy in refused.message


UEK = "5.15.0-306.177.4.el9uek.x86_64"
ROCKY9 = {"distribution": "Rocky", "distribution_version": "9.6", "python": "3.9.21", "gcc": "11.5.0"}


@pytest.mark.parametrize(
    ("machine", "refused"),
    [
        ({}, ""),
        (
            {"gpus": [{"name": "NVIDIA GeForce RTX 5090"}]},
            "does not have the open kernel modules, which NVIDIA Ge",
        ),
        ({"architecture": "aarch64"}, "ELRepo for Rocky 9.6 on n1 does not have driver"),
    ],
)
def test_elrepo_has_proprietary_modules_for_x86_alone(machine, refused):
    found = plan([request(lab("n1", **ROCKY9, **machine)[0].host, {"lab_driver_method": "elrepo"})])
    assert isinstance(found, Infeasible if refused else Resolution)
    if refused:
        assert refused in found.message
        assert found.remedy == "with lab_driver_method repo on n1 it resolves"


RHEL10 = {"distribution": "RedHat", "distribution_version": "10.0", "python": "3.12.9", "gcc": "14.2.1"}
CENTOS8 = {"distribution": "CentOS", "distribution_version": "8.5", "python": "3.9.6", "gcc": "8.5.0"}
UBUNTU2604 = {"distribution": "Ubuntu", "distribution_version": "26.04", "python": "3.14.3", "gcc": "15.2.0"}


@pytest.mark.parametrize(
    ("machine", "variables", "refused"),
    [
        (RHEL10, {}, "no public source has the fingerprint"),
        (RHEL10, {"nvidia_repository_key_fingerprint": "0" * 40}, ""),
        (RHEL10, {"nvidia_repository_enabled": "false"}, ""),
        ({**RHEL10, "gpus": []}, {}, ""),
        (UBUNTU, {"lab_driver_method": "runfile"}, "nvidia_driver_runfile_checksum is not set"),
        (UBUNTU, {"lab_driver_method": "local_repo"}, "nvidia_driver_local_repo_checksum is not set"),
        (UBUNTU, {"lab_driver_method": "runfile", "nvidia_driver_runfile_checksum": "sha256:0"}, ""),
        ({**UBUNTU, "driver": "595.91.07"}, {"lab_driver_method": "runfile"}, ""),
        (UBUNTU, {"lab_cuda_method": "runfile"}, "cuda_runfile_checksum is not set"),
        (UBUNTU, {"lab_cuda_method": "runfile", "cuda_runfile_checksum": "0"}, ""),
        ({**UBUNTU, "gpus": []}, {"lab_driver_method": "runfile", "lab_cuda_method": "runfile"}, ""),
        ({**ROCKY9, "kernel": UEK}, {"lab_driver_method": "elrepo"}, "ELRepo's modules are built for RHEL's"),
        ({**ROCKY9, "kernel": UEK, "driver": "580.95.05"}, {"lab_driver_method": "elrepo"}, ""),
        ({**ROCKY9, "kernel": UEK}, {}, ""),
        (UBUNTU, {"lab_slurm": True}, ""),
        (UBUNTU2604, {"lab_slurm": True}, "Ubuntu 26.04 has no Slurm"),
        (
            {**UBUNTU, "distribution": "Amazon", "distribution_version": "2023"},
            {"lab_slurm": "yes"},
            "no Slurm",
        ),
    ],
)
def test_plan_says_what_the_roles_refuse(machine, variables, refused):
    host = lab("n1", **machine)[0].host
    found = plan([request(host, variables, gpu=bool(host.gpus))])
    assert [refused in one.observed for one in found.refused] == ([True] if refused else [])
    assert all(one.remedy for one in found.refused)


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        ({**UBUNTU, "distribution_version": "20.04", "python": "3.8"}, "support ended in 2025-05"),
        (CENTOS8, "CentOS 8.5: its maker's standard support ended in 2024-05"),
        (UBUNTU2604, "Ubuntu 26.04: its sudo is sudo-rs"),
        (UBUNTU2604, "its Python is 3.14.3: ansible-core 2.19 is made for hosts with 3.8 to 3.13"),
    ],
)
def test_plan_says_what_a_system_is_like(machine, told):
    assert any(told in note for note in plan(lab("n1", **machine)).hosts["n1"]["notes"])
    assert not any(
        told in note for note in plan(lab("n1", distribution_version="24.04")).hosts["n1"]["notes"]
    )


def test_systems_whose_slurm_differs_are_told_before_provision_refuses_them():
    versions = {"n1": ("8.10", "3.12"), "n2": ("9.6", "3.9")}
    hosts = [
        lab(name, distribution="Rocky", distribution_version=version, python=python, gpus=[])[0].host
        for name, (version, python) in versions.items()
    ]
    told = [
        plan([request(one, {"lab_slurm": slurm}, gpu=False) for one in hosts]).notes
        for slurm in (True, False)
    ]
    assert [any("n1 20.11, n2 22.05" in note for note in notes) for notes in told] == [True, False]


@pytest.mark.parametrize(
    "name",
    [
        *("AMD Instinct MI250X", "Radeon Pro W7900", "MI300X", "gfx90a", "Aldebaran/MI200", "Navi 31"),
        *("Intel Data Center GPU Max 1550", "Ponte Vecchio XT", "Data Center GPU Flex 170", "Arc Pro B60"),
    ],
)
def test_gpus_of_other_makers_are_left_alone(name):
    """Their compute capability was asked for, and with one they got CUDA."""
    other = {"name": name, "compute_capability": "9.0"}
    alone = plan(lab("n1", gpus=[other])).hosts["n1"]
    assert alone["versions"]["cuda"] is None
    assert f"{name}: not for NVIDIA's driver, and left alone" in alone["notes"]
    mixed = plan(lab("n1", gpus=[other, A100])).hosts["n1"]
    assert [gpu["name"] for gpu in mixed["gpus"]] == [A100["name"]]
    declared = plan([request(lab("n1")[0].host, {"lab_gpus": [{"name": name}]})])
    assert f"it is in the group gpu, and has no GPU for NVIDIA's driver: {name}" in declared.message


def test_no_gpu_of_nvidia_is_taken_for_another_makers():
    names = [f"{prefix}{model.match}" for model in load().models for prefix in ("", "NVIDIA ", "Tesla ")]
    hosts = facts.from_file({"n1": {**UBUNTU, "gpus": [{"name": name} for name in names]}})
    assert hosts["n1"].others == ()
