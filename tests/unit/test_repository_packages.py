"""The packages of the test repository fit together."""

import ctypes
import platform
import re

import pytest
import yaml

from tests.vlab.repository import deb, elf, rpm, spec

SYSTEMS = [("debian12", "deb"), ("ubuntu2204", "deb"), ("rhel9", "rpm"), ("libnvidia-container", "deb")]
# What the distribution has.
FOREIGN = {"dkms", *(f"nvidia-driver-{branch}-server-open" for branch in (570, 580))}


@pytest.mark.parametrize("name", spec.SOURCES)
def test_every_package_says_where_it_is_published(name):
    for block in yaml.safe_load((spec.FOLDER / name).read_text("utf-8")):
        assert block.get("source"), [package["name"] for package in block["packages"]]
        assert all(isinstance(source, str) for source in block["source"])


@pytest.mark.parametrize(
    ("system", "name", "version"),
    [
        ("debian12", "nvidia-driver-pinning-580", "580-5"),
        ("ubuntu2204", "nvidia-driver-pinning-610", "610-2ubuntu1"),
        ("ubuntu2204", "nvidia-driver-open", "610.43.02-1ubuntu1"),
        ("debian12", "libcudnn9-headers-cuda-13", "9.13.0.50-1"),
        ("debian12", "nvidia-fabricmanager", "580.95.05-1"),
        ("rhel9", "nvidia-fabric-manager", "570.124.06-1"),
        ("rhel9", "cuda-nvml-devel-13-0", "13.0.87-1"),
    ],
)
def test_versions_are_the_published_ones(system, name, version):
    kind = "rpm" if system.startswith("rhel") else "deb"
    assert (name, version) in {(p.name, p.version) for p in spec.packages(system, kind)}


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("ubuntu2204", "nvidia-open-590"),
        ("debian12", "nvidia-open-550"),
        ("debian12", "nvidia-fabricmanager-580"),
        ("debian12", "libcudnn9-headers-cuda-11"),
    ],
)
def test_what_is_published_under_no_such_name_is_not_here(system, name):
    assert name not in {package.name for package in spec.packages(system, "deb")}


@pytest.mark.parametrize(("system", "kind"), SYSTEMS)
def test_every_dependency_can_be_had(system, kind):
    packages = spec.packages(system, kind)
    names = {package.name for package in packages} | FOREIGN
    for package in packages:
        names |= {text.split()[0] for text in package.relations.get("provides", [])}
    for package in packages:
        for text in package.relations.get("depends", []):
            for choice in text.split(" | "):
                name = choice.split()[0]
                assert (spec.rpm_name(name) if kind == "rpm" else name) in names, f"{package.name}: {choice}"


@pytest.mark.parametrize(("system", "kind"), SYSTEMS)
def test_nothing_is_left_to_be_filled_in(system, kind):
    for package in spec.packages(system, kind):
        texts = [package.name, package.version, *package.files, *(w for a in package.alternatives for w in a)]
        texts += [text for listed in package.relations.values() for text in listed]
        assert not [text for text in texts if re.search(r"<\w+>", text)], package.name


def test_alternatives_lead_to_what_is_there():
    for package in spec.packages("debian12", "deb"):
        for _, _, path, _ in package.alternatives:
            assert path in package.files, f"{package.name}: {path}"


def test_no_part_holds_a_name_or_path_twice():
    for part in rpm._parts(spec.packages("rhel9", "rpm")):
        assert len({package.name for package in part}) == len(part)
        paths = [path for package in part for path in package.files]
        assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        ("libnccl2 (= 2.21.5-1+cuda12.4)", "libnccl = 2.21.5-1+cuda12.4"),
        ("cuda-cudart-dev-12-4 (>= 12.4.127)", "cuda-cudart-devel-12-4 >= 12.4.127"),
        ("libcudnn8 (= 8.9.7.29-1+cuda12.2)", "libcudnn8 = 8.9.7.29-1.cuda12.2"),
        ("dkms", "dkms"),
    ],
)
def test_relations_are_turned_into_those_of_rpm(text, turned):
    assert rpm._relation(text) == turned


def test_a_control_file_has_the_names_dpkg_reads():
    package = next(p for p in spec.packages("debian12", "deb") if p.name == "libnccl-dev")
    fields = dict(line.split(": ", 1) for line in deb._control(package).splitlines())
    assert (fields["Package"], fields["Version"]) == ("libnccl-dev", package.version)
    assert fields["Depends"] == f"libnccl2 (= {package.version})"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the libraries are for x86_64")
def test_a_library_answers(tmp_path):
    path = tmp_path / "libthing.so.2"
    functions = {"version": {"stores": "22105"}, "number": {"returns": "8907"}, "last": {"returns": "1"}}
    path.write_bytes(elf.library(path.name, functions))
    library, stored = ctypes.CDLL(str(path)), ctypes.c_int()
    assert (library.version(ctypes.byref(stored)), stored.value) == (0, 22105)
    assert (library.number(), library.last()) == (8907, 1)
