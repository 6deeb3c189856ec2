"""The catalogue of versions has no holes and does not contradict itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvlab.base.yaml_files import read_shipped
from hvlab.stack.resolver import catalogue, facts
from hvlab.stack.resolver.versions import is_within, major, minor, numbers
from tests.contract.tree import ROOT

pytestmark = pytest.mark.resolver

FOLDER = catalogue.FOLDER
ROLES = ROOT / "roles"
FILES = sorted(FOLDER.glob("*.yml"))
DATA: dict[str, dict[str, Any]] = {path.stem: read_shipped(path) for path in FILES}

CUDA = DATA["cuda"]["releases"]
WHEELS = DATA["cuda"]["wheels"]
CAPABILITIES = DATA["capabilities"]["capabilities"]
BRANCHES = DATA["drivers"]["branches"]
GPUS = DATA["gpus"]
MODELS = GPUS["models"]
SYSTEMS = {system["name"]: system for system in DATA["systems"]["systems"]}
NAMING = DATA["systems"]["naming"]
CUDNN = DATA["cudnn"]["releases"]
NCCL = DATA["nccl"]["releases"]
TORCH = DATA["torch"]["releases"]
TENSORFLOW = DATA["tensorflow"]["releases"]
HOROVOD = DATA["horovod"]["releases"]
OPENMPI = DATA["openmpi"]
PYTHON = DATA["python"]["releases"]

RELEASES = [
    *((name, data["releases"]) for name, data in DATA.items() if "releases" in data),
    ("drivers", BRANCHES),
    ("capabilities", CAPABILITIES),
]


def every(entries: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make a check of one entry one test of them all, which names each entry that fails."""

    def test(check: Callable[..., None]) -> Callable[[], None]:
        def all_of_them() -> None:
            wrong = []
            for entry in entries:
                try:
                    check(*entry if isinstance(entry, tuple) else [entry])
                except AssertionError as error:
                    name = entry.get("name", entry.get("match")) if isinstance(entry, dict) else entry
                    wrong.append(f"{name}: {error}")
            assert not wrong, "\n".join(wrong)

        return all_of_them

    return test


def branch_of(driver: str) -> str:
    return driver.split(".", 1)[0]


def ends(limits: list[str | None], known: list[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a range's ends as numbers; an open end is the newest known."""
    first, last = limits
    return numbers(first or known[0]), numbers(last or known[-1])


def inside(version: str, limits: list[str | None], known: list[str]) -> bool:
    first, last = ends(limits, known)
    own = numbers(version)
    return first[: len(own)] <= own and own[: len(last)] <= last


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(key)
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def sources(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "source":
                yield item
            elif key != "sources":
                yield from sources(item)
    elif isinstance(value, list):
        for item in value:
            yield from sources(item)


# Files


def test_every_file_the_loader_wants_is_there() -> None:
    assert set(catalogue.FILES) <= set(DATA)


@every(DATA)
def test_every_file_names_its_sources_and_every_entry_points_to_one(name: str) -> None:
    named = DATA[name]["sources"]
    assert named["default"]
    assert all(isinstance(value, str) and value for value in named.values())
    assert set(sources(DATA[name])) <= set(named)


@every(FILES)
def test_no_entry_is_written_twice(path: Path) -> None:
    class Strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        pass

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{path.name}, line {node.start_mark.line + 1}"
        return loader.construct_mapping(node, deep=True)

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    yaml.load(path.read_text(encoding="utf-8"), Strict)  # noqa: S506 - a safe loader


@every(DATA)
def test_no_version_has_become_a_number(name: str) -> None:
    """10.0 without quotes is a float, and 3.10 is 3.1."""
    assert not list(floats(DATA[name]))


def floats(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        yield from (item for key in value if isinstance(key, float) for item in [key])
        for item in value.values():
            yield from floats(item)
    elif isinstance(value, list):
        for item in value:
            yield from floats(item)


@every(RELEASES)
def test_versions_parse_and_stand_in_order(name: str, releases: dict[str, Any]) -> None:
    names = list(releases)
    assert all(re.fullmatch(r"\d+(\.\d+)*", version) for version in names), name
    assert names == sorted(names, key=numbers)


def test_the_loader_takes_it() -> None:
    known = catalogue.load()
    assert set(known.torch) == set(TORCH)
    assert set(known.cuda) == set(CUDA)
    assert {system.name for system in known.systems} == set(SYSTEMS)


# CUDA


def test_cuda_has_no_gap() -> None:
    """12.7 was never released to the public."""
    minors = {"9": 2, "10": 2, "11": 8, "12": 9}
    wanted = {f"{first}.{last}" for first, top in minors.items() for last in range(top + 1)} - {"12.7"}
    assert wanted <= set(CUDA)
    thirteen = [numbers(release)[1] for release in CUDA if major(release) == 13]
    assert thirteen == list(range(len(thirteen)))


@every(CUDA)
def test_cuda_release(release: str) -> None:
    entry = CUDA[release]
    assert entry["gcc_min"] < entry["gcc"]
    assert entry["driver"] is None or branch_of(entry["driver"]) in BRANCHES
    assert any(inside(release, system["cuda"], list(CUDA)) for system in SYSTEMS.values()), "in no repository"
    points = list(entry["points"])
    assert points == sorted(points, key=numbers)
    assert all(minor(point) == release and len(numbers(point)) == 3 for point in points)
    assert all(branch_of(driver) in BRANCHES for driver in entry["points"].values() if driver)


@every(CUDA)
def test_some_listed_driver_runs_each_cuda_release(release: str) -> None:
    if CUDA[release]["driver"] is None:
        assert str(major(release)) in DATA["cuda"]["minor_compatibility"]["majors"]
        return
    needed = numbers(CUDA[release]["driver"])
    assert any(numbers(branch["latest"]) >= needed for branch in BRANCHES.values())
    own = BRANCHES[branch_of(CUDA[release]["driver"])]
    assert numbers(own["latest"]) >= needed


def test_newer_cuda_wants_newer_drivers_and_takes_newer_compilers() -> None:
    drivers = [numbers(entry["driver"]) for entry in CUDA.values() if entry["driver"]]
    compilers = [entry["gcc"] for entry in CUDA.values()]
    assert drivers == sorted(drivers)
    assert compilers == sorted(compilers)


def test_minor_compatibility_starts_no_later_than_the_major_itself() -> None:
    floors = DATA["cuda"]["minor_compatibility"]["majors"]
    assert set(floors) == {str(major(release)) for release in CUDA if major(release) >= 11}
    for name, floor in floors.items():
        first = next(release for release in CUDA if major(release) == int(name))
        assert int(branch_of(floor)) <= int(branch_of(CUDA[first]["driver"]))
        assert branch_of(floor) in BRANCHES


@every(WHEELS["releases"])
def test_cuda_wheels(release: str) -> None:
    entry = WHEELS["releases"][release]
    assert release in CUDA
    assert entry["family"] == f"cu{major(release)}"
    assert entry["family"] in WHEELS["packages"]
    assert minor(entry["runtime"]) == release
    assert entry["nvcc"] is (entry["family"] == "cu13")


def test_there_are_wheels_of_the_toolkits_that_can_be_chosen() -> None:
    has = DATA["wheels"]
    assert set(has["toolkits"]) == set(catalogue.load().cuda_wheels)
    for release, entry in has["toolkits"].items():
        made = dict(wheel.split("==") for wheel in entry["wheels"])
        known, names = WHEELS["releases"][release], WHEELS["packages"][f"cu{major(release)}"]
        assert minor(entry["release"]) == release
        assert made[names["runtime"]] == known["runtime"]
        assert made[names["nvcc"]] == known["nvcc_version"]
        assert set(entry["wheels"]) <= set(has["sha256"])


def test_the_role_python_env_has_packages_for_the_pythons_that_can_be_chosen() -> None:
    files = (ROLES / "python_env/files").glob("torch-cpu-*.txt")
    has = {path.stem.split("-")[2] for path in files}
    assert has == set(catalogue.load().pythons)
    assert has <= set(PYTHON)


# Capabilities and drivers


@every(CAPABILITIES)
def test_capability(name: str) -> None:
    entry = CAPABILITIES[name]
    first, last = entry["cuda"]
    assert last is None or last in CUDA
    assert first in CUDA or numbers(first) < numbers(next(iter(CUDA)))
    oldest, branch = entry["driver"]
    assert branch is None or branch in BRANCHES
    assert entry["open_modules"] in {"no", "allowed", "required"}
    assert set(entry.get("platforms", {}).values()) <= {"no", "allowed", "required"}
    assert branch is None or numbers(oldest) < numbers(branch + ".9999")


@every(CAPABILITIES)
def test_some_driver_of_a_capability_runs_some_cuda_that_has_code_for_it(name: str) -> None:
    entry = CAPABILITIES[name]
    usable = [branch for branch in BRANCHES if runs(branch, name)]
    codes = [release for release in CUDA if inside(release, entry["cuda"], list(CUDA))]
    assert any(
        numbers(BRANCHES[branch]["latest"]) >= numbers(CUDA[code]["driver"])
        for branch in usable
        for code in codes
    )


def runs(branch: str, capability: str) -> bool:
    oldest, last = CAPABILITIES[capability]["driver"]
    new_enough = numbers(BRANCHES[branch]["latest"]) >= numbers(oldest)
    return new_enough and (last is None or int(branch) <= int(last))


# Within the branch's range and yet not run by it.
HOLES = {("570", "10.3")}


@every(product(BRANCHES, CAPABILITIES))
def test_branches_and_capabilities_agree(branch: str, capability: str) -> None:
    lowest, highest = map(numbers, BRANCHES[branch]["capabilities"])
    listed = lowest <= numbers(capability) <= highest
    if CAPABILITIES[capability].get("tegra"):
        return
    if (branch, capability) in HOLES:
        assert listed
        assert not runs(branch, capability)
    else:
        assert listed == runs(branch, capability)


@every(BRANCHES)
def test_driver_branch(branch: str) -> None:
    entry = BRANCHES[branch]
    assert branch_of(entry["first"]) == branch_of(entry["latest"]) == branch
    assert numbers(entry["first"]) <= numbers(entry["latest"])
    assert entry["kind"] in {"production", "long-term", "new-feature", "developer", "legacy"}
    assert ("open" in entry["modules"]) == (int(branch) >= 515)
    assert set(entry["modules"]) <= {"open", "proprietary"}
    low, high = entry["capabilities"]
    assert low in CAPABILITIES
    assert high in CAPABILITIES


def test_a_capability_that_needs_open_modules_has_branches_with_them() -> None:
    for name, entry in CAPABILITIES.items():
        if entry["open_modules"] == "required" and not entry.get("tegra"):
            assert all("open" in BRANCHES[branch]["modules"] for branch in BRANCHES if runs(branch, name))
        if entry["open_modules"] == "no":
            assert numbers(name) < numbers("7.5")


def test_a_driver_that_is_cared_for_runs_every_generation_from_maxwell_on() -> None:
    kept = [branch for branch, entry in BRANCHES.items() if entry["kind"] in {"production", "long-term"}]
    for name in CAPABILITIES:
        if numbers(name) >= numbers("5.0"):
            assert any(runs(branch, name) for branch in kept), name


# GPUs

NAMES = read_shipped(ROOT / "tests/data/gpu-names.yml")


@every(NAMES["capabilities"].items())
def test_a_name_tells_of_the_gpu_whose_words_it_has(name: str, capability: str | None) -> None:
    assert facts.capability_of(facts.Gpu(name), catalogue.load()) == capability


def test_an_unknown_gpu_is_not_guessed() -> None:
    assert facts.capability_of(facts.Gpu("NVIDIA R100"), catalogue.load()) is None


@every(MODELS)
def test_gpu_model(model: dict[str, Any]) -> None:
    assert model["capability"] in CAPABILITIES
    assert model["memory"] == sorted(model["memory"])
    assert facts.capability_of(facts.Gpu(f"NVIDIA {model['match']}"), catalogue.load()) == model["capability"]


def test_enough_gpus_no_name_and_no_pci_id_twice() -> None:
    matches = [model["match"] for model in MODELS]
    ids = [device for model in MODELS for device in model.get("pci", ())]
    assert len(matches) >= 120
    assert len(matches) == len(set(matches))
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[0-9a-f]{4}", device) for device in ids)
    assert not set(ids) & set(GPUS["nvswitches"])


def test_families_do_not_overlap_and_agree_with_their_models() -> None:
    families = GPUS["families"]
    spans = [(int(item["from"], 16), int(item["to"], 16), item["capability"]) for item in families]
    assert spans == sorted(spans)
    assert all(first <= last for first, last, _ in spans)
    assert all(one[1] < other[0] for one, other in pairwise(spans))
    for item in families:
        assert CAPABILITIES[item["capability"]]["architecture"] == item["architecture"]
    for model in MODELS:
        for device in model.get("pci", ()):
            found = [capability for first, last, capability in spans if first <= int(device, 16) <= last]
            assert found == [model["capability"]], (model["match"], device)
    for device in GPUS["nvswitches"]:
        assert not [1 for first, last, _ in spans if first <= int(device, 16) <= last]


def test_every_capability_has_a_gpu() -> None:
    without = {"3.2", "10.1"}  # Jetson TK1; the name of Thor up to CUDA 12.9
    assert set(CAPABILITIES) - {model["capability"] for model in MODELS} == without


# Systems


@every(SYSTEMS.values())
def test_system(system: dict[str, Any]) -> None:
    assert system["distributions"]
    assert system["family"] in {"Debian", "RedHat"}
    assert (system["manager"] == "apt") == (system["family"] == "Debian")
    assert system["naming"] in NAMING
    assert "x86_64" in system["repository"]
    assert all("/" in folder for folder in system["repository"].values())
    assert set(system["python"]) <= set(PYTHON)
    assert system["python"]
    assert system["gcc"]
    assert all(isinstance(item, int) for item in system["gcc"])
    assert system["cuda"][0] in CUDA
    assert system["cuda"][1] is None or system["cuda"][1] in CUDA
    assert system["headers"]
    assert numbers(system["glibc"]) >= numbers("2.17")


@every(SYSTEMS.values())
def test_every_python_and_gcc_of_a_system_has_packages(system: dict[str, Any]) -> None:
    for field, values in (("python_packages", system["python"]), ("gcc_packages", system["gcc"])):
        templates = system[field]
        assert all("default" in templates or str(value) in templates for value in values)
        assert set(templates) - {"default"} <= {str(value) for value in values}
    paths = system["gcc_path"]
    assert all(paths.get(str(value), paths.get("default", "")).startswith("/") for value in system["gcc"])
    assert set(strings_between_braces(system["python_packages"])) <= {"minor"}
    assert set(strings_between_braces(system["gcc_packages"])) <= {"major"}
    assert set(strings_between_braces(system["headers"])) == {"kernel"}


def strings_between_braces(value: object) -> list[str]:
    return [found for text in strings(value) for found in re.findall(r"\{(\w+)\}", text)]


@every(SYSTEMS.values())
def test_a_system_has_drivers_and_compilers_for_its_cuda(system: dict[str, Any]) -> None:
    assert set(system["drivers"]) <= set(BRANCHES)
    rules = NAMING[system["naming"]]["driver"]
    for branch in system["drivers"]:
        assert any(covers(rule, branch) for rule in rules), branch
    floors = DATA["cuda"]["minor_compatibility"]["majors"]
    newest = max(numbers(BRANCHES[branch]["latest"]) for branch in system["drivers"])
    for release, entry in CUDA.items():
        if inside(release, system["cuda"], list(CUDA)):
            assert newest >= numbers(floors.get(str(major(release)), entry["driver"])), release
            assert any(entry["gcc_min"] <= gcc <= entry["gcc"] for gcc in system["gcc"]), release


def covers(rule: dict[str, Any], branch: str) -> bool:
    return is_within(branch, (rule["from"], rule["to"]))


@every(SYSTEMS.values())
def test_a_system_can_name_the_libraries_it_has(system: dict[str, Any]) -> None:
    naming = NAMING[system["naming"]]
    for version in CUDNN:
        if system["cudnn"] and inside(version, system["cudnn"], list(CUDNN)):
            assert any(covers(rule, minor(version)) for rule in naming["cudnn"]), version
    if system["nccl"]:
        first, last = system["nccl"]
        assert first in NCCL
        assert last is None or last in NCCL


def test_no_system_stands_twice() -> None:
    keys = [(name, system["version"]) for system in SYSTEMS.values() for name in system["distributions"]]
    assert len(keys) == len(set(keys))
    wanted = {
        *("debian11", "debian12", "debian13", "ubuntu1804", "ubuntu2004", "ubuntu2204", "ubuntu2404"),
        *("ubuntu2604", "rhel7", "rhel8", "rhel9", "rhel10", "amzn2", "amzn2023"),
    }
    assert wanted <= set(SYSTEMS)


@every(SYSTEMS.values())
def test_what_the_distribution_has_of_its_own(system: dict[str, Any]) -> None:
    own = system["distro"]
    assert set(own) == {"driver", "cuda", "cudnn", "nccl", "openmpi"}
    assert {branch_of(driver) for driver in own["driver"]} <= set(BRANCHES)
    assert own["cuda"] is None or own["cuda"] in CUDA
    for field in ("driver", "cuda", "cudnn"):
        assert bool(own[field]) == (field in system.get("distro_packages", {})), field
    assert {branch_of(branch) for branch in system.get("elrepo", {}).get("branches", ())} <= set(BRANCHES)


@every(NAMING)
def test_naming_rules_do_not_overlap(naming: str) -> None:
    rules = NAMING[naming]["driver"]
    for kind in ("open", "proprietary"):
        own = [rule for rule in rules if rule["modules"] == kind]
        for branch in BRANCHES:
            assert sum(covers(rule, branch) for rule in own) <= 1
    known = {"branch", "version", "major", "minor", "cuda"}
    assert set(strings_between_braces(NAMING[naming])) <= known


def test_proprietary_rules_end_where_the_branches_stop_having_them() -> None:
    for naming in NAMING.values():
        for branch, entry in BRANCHES.items():
            for rule in naming["driver"]:
                if covers(rule, branch):
                    assert rule["modules"] in entry["modules"], (branch, rule)


# Libraries


@every(CUDNN)
def test_cudnn(version: str) -> None:
    entry = CUDNN[version]
    assert all(any(major(release) == number for release in CUDA) for number in entry["cuda"])
    assert ("builds" in entry) == (major(version) < 9)
    for build in entry.get("builds", ()):
        assert build in CUDA
        assert major(build) in entry["cuda"]
    assert entry["capability"] in CAPABILITIES
    assert set(entry.get("wheels", ())) <= {f"cu{number}" for number in entry["cuda"]}
    assert major(version) < 9 or entry["wheels"]


def test_every_cuda_from_nine_on_has_a_cudnn() -> None:
    for release in CUDA:
        exact = [v for v, entry in CUDNN.items() if release in entry.get("builds", ())]
        by_major = [v for v, entry in CUDNN.items() if major(release) in entry["cuda"]]
        assert exact if major(release) < 11 else by_major, release


@every(NCCL)
def test_nccl(version: str) -> None:
    entry = NCCL[version]
    assert entry["builds"] or entry["wheels"]
    assert set(entry["builds"]) <= set(CUDA)
    assert entry["builds"] == sorted(entry["builds"], key=numbers)
    assert entry["capability"] in CAPABILITIES
    majors = {f"cu{major(build)}" for build in entry["builds"]} | {
        f"cu{cuda}" for cuda in entry.get("cuda", ())
    }
    assert set(entry.get("wheels", ())) <= majors


def test_every_cuda_has_an_nccl_that_its_driver_runs() -> None:
    """Up to CUDA 10 the very release, from 11 on one of the same major."""
    builds = {build for entry in NCCL.values() for build in entry["builds"]}
    for release in CUDA:
        if major(release) < 11:
            assert release in builds
        else:
            assert major(release) in set(map(major, builds))


# Frameworks


def installable(limits: list[str | None]) -> bool:
    """Whether some system has a Python within these limits."""
    return any(
        inside(python, limits, list(PYTHON)) for system in SYSTEMS.values() for python in system["python"]
    )


@every(TORCH)
def test_torch(version: str) -> None:
    entry = TORCH[version]
    assert set(entry["cuda"]) <= set(CUDA)
    assert entry["index"] in entry["cuda"]
    assert list(entry["capabilities"]) == entry["cuda"]
    for release, codes in entry["capabilities"].items():
        assert codes == sorted(codes, key=numbers)
        for code in codes:
            assert inside(release, CAPABILITIES[code]["cuda"], list(CUDA)), (release, code)
    assert set(entry.get("ptx", ())) <= set(entry["cuda"])
    for release, cudnn in entry.get("cudnn", {}).items():
        assert release in entry["cuda"]
        assert major(release) in CUDNN[cudnn]["cuda"]
        lowest = entry["capabilities"][release][0]
        assert numbers(CUDNN[cudnn]["capability"]) <= numbers(lowest), (release, cudnn)
    for release, nccl in entry.get("nccl", {}).items():
        assert release in entry["cuda"]
        assert any(major(build) == major(release) for build in NCCL[nccl]["builds"]), (release, nccl)
    assert set(entry["python"]) <= set(PYTHON)
    assert numbers(entry["python"][0]) <= numbers(entry["python"][1])
    assert installable(entry["python"])


def test_every_torch_from_2_6_on_tells_its_glibc() -> None:
    """CentOS 7 and Amazon Linux 2 are too old for it."""
    for version, entry in TORCH.items():
        assert entry.get("glibc", "2.17") == ("2.28" if numbers(version) >= (2, 6) else "2.17")
    assert numbers(SYSTEMS["rhel8"]["glibc"]) >= numbers("2.28")
    assert numbers(SYSTEMS["amzn2"]["glibc"]) < numbers("2.28")


def test_newer_torch_never_wants_less() -> None:
    for field in ("cxx", "gcc"):
        values = [entry[field] for entry in TORCH.values()]
        assert values == sorted(values)
    for end in (0, 1):
        limits = [numbers(entry["python"][end]) for entry in TORCH.values()]
        assert limits == sorted(limits)


@every(TENSORFLOW)
def test_tensorflow(version: str) -> None:
    entry = TENSORFLOW[version]
    assert entry["cuda"] in CUDA
    series = {v: lib for v, lib in CUDNN.items() if minor(v) == minor(entry["cudnn"])}
    fits = [v for v, lib in series.items() if major(entry["cuda"]) in lib["cuda"]]
    assert fits, "no such cuDNN for its CUDA"
    if major(entry["cuda"]) < 11:
        assert any(entry["cuda"] in CUDNN[v].get("builds", ()) for v in fits)
    assert set(entry["python"]) <= set(PYTHON)
    assert (entry.get("keras") == 3) == (numbers(version) >= numbers("2.16"))
    assert installable(entry["python"])


@every(HOROVOD)
def test_horovod(version: str) -> None:
    entry = HOROVOD[version]
    assert re.fullmatch(r"[0-9a-f]{64}", entry["sha256"])
    for ranges in (entry, entry.get("patched", entry)):
        torches = [v for v in TORCH if inside(minor(v), ranges["torch"], list(TORCH))]
        assert torches
        assert ranges["torch"][1] in set(map(minor, torches))
        assert ranges["tensorflow"][1] in set(map(minor, TENSORFLOW))
        assert set(ranges["python"]) <= set(PYTHON)
        low, high = map(numbers, ranges["python"])
        assert any(
            low <= numbers(TORCH[v]["python"][1]) and numbers(TORCH[v]["python"][0]) <= high for v in torches
        )


def test_patches_only_widen_what_a_horovod_release_builds_with() -> None:
    for entry in HOROVOD.values():
        patched = entry.get("patched", {})
        for field in {"torch", "tensorflow", "python"} & set(patched):
            assert numbers(patched[field][0]) <= numbers(entry[field][0])
            assert numbers(patched[field][1]) >= numbers(entry[field][1])


def test_the_default_horovod_builds_with_todays_torch_on_todays_systems() -> None:
    ranges = HOROVOD[DATA["horovod"]["default"]]["patched"]
    newest = [v for v in TORCH if inside(minor(v), ranges["torch"], list(TORCH))][-1]
    for name in ("debian12", "ubuntu2204", "ubuntu2404", "rhel9", "rhel10", "amzn2023"):
        system = SYSTEMS[name]
        assert any(inside(python, TORCH[newest]["python"], list(PYTHON)) for python in system["python"]), name
        assert any(gcc >= TORCH[newest]["gcc"] for gcc in system["gcc"]), name


def test_openmpi() -> None:
    releases, avoid = OPENMPI["releases"], OPENMPI["avoid"]
    assert OPENMPI["default"] in releases
    assert OPENMPI["default"] not in avoid
    for version, entry in releases.items():
        assert re.fullmatch(r"[0-9a-f]{64}", entry["sha256"]), version
        assert avoid.get(version, {}).get("severity") != "error", f"{version} is refused and has a source"
    sums = [entry["sha256"] for entry in releases.values()]
    assert len(sums) == len(set(sums))
    for entry in [*avoid.values(), *OPENMPI["notes"]]:
        assert entry["reason"]
        assert entry["severity"] in {"warning", "error"}
    loaded = catalogue.load().openmpi
    assert loaded["3.1.3"].avoid
    assert any("CVE-2023-41915" in text for text in loaded["4.1.4"].warnings)
    assert not loaded["4.1.8"].warnings


# The environments of the accounts this was written for


@pytest.mark.parametrize(
    ("system", "cuda", "nccl", "mpi"),
    [
        ("ubuntu2004", "11.0", "2.10.3", "4.0.0"),
        ("rhel7", "9.0", "2.5.6", "4.0.2"),
        ("ubuntu1804", "11.0", "2.8.4", "4.1.2"),
        ("ubuntu1804", "10.0", "2.6.4", "4.1.1"),
    ],
)
def test_versions_people_used_are_known(system: str, cuda: str, nccl: str, mpi: str) -> None:
    assert inside(cuda, SYSTEMS[system]["cuda"], list(CUDA))
    assert cuda in NCCL[nccl]["builds"]
    assert inside(nccl, SYSTEMS[system]["nccl"], list(NCCL))
    assert mpi in OPENMPI["releases"]


def test_no_nccl_2_10_was_built_for_cuda_11_1() -> None:
    assert NCCL["2.10.3"]["builds"] == ["10.2", "11.0", "11.4"]


def test_frameworks_people_used_are_known() -> None:
    assert TENSORFLOW["1.12.0"]["cuda"] == "9.0"
    assert "1.5.0" in TORCH
    assert inside("1.5", HOROVOD["0.19.4"]["torch"], list(TORCH))
    assert "11.0" not in TORCH["1.5.0"]["cuda"]
    assert "7.5" in TORCH["1.5.0"]["capabilities"]["10.2"]
