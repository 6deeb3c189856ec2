"""Role container_runtime: what each system is told to install, and how docker's settings are changed."""

import json
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from hvlab.stack.provision.containers import plan, plan_settings
from tests.unit.plays import play, program

pytestmark = pytest.mark.slow

ROLE = Path(__file__).resolve().parents[2] / "roles/container_runtime"
DOCKER = "https://download.docker.com/linux"
TOOLKIT = "https://nvidia.github.io/libnvidia-container/stable"
SYSTEMS = {
    "debian12": ("Debian", "Debian", "12", "bookworm", "x86_64"),
    "debian13": ("Debian", "Debian", "13", "trixie", "aarch64"),
    "ubuntu2204": ("Debian", "Ubuntu", "22", "jammy", "x86_64"),
    "rocky9": ("RedHat", "Rocky", "9", "Blue Onyx", "x86_64"),
    "rhel10": ("RedHat", "RedHat", "10", "Coughlan", "aarch64"),
    "amazon2023": ("RedHat", "Amazon", "2023", "", "x86_64"),
}
# distribution's packages; Docker's repository; the toolkit's repository.
EXPECTED = {
    "debian12": (["docker.io"], f"{DOCKER}/debian", f"{TOOLKIT}/deb/amd64"),
    "debian13": (["docker.io", "docker-cli"], f"{DOCKER}/debian", f"{TOOLKIT}/deb/arm64"),
    "ubuntu2204": (["docker.io"], f"{DOCKER}/ubuntu", f"{TOOLKIT}/deb/amd64"),
    "rocky9": ([], f"{DOCKER}/centos/9/x86_64/stable", f"{TOOLKIT}/rpm/x86_64"),
    "rhel10": ([], f"{DOCKER}/rhel/10/aarch64/stable", f"{TOOLKIT}/rpm/aarch64"),
    "amazon2023": (["docker"], None, f"{TOOLKIT}/rpm/x86_64"),
}


def trusted(value):
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    return [trusted(item) for item in value] if isinstance(value, list) else value


def planned(system, method="distro", **changes):
    """Return the plan of the role on a system."""
    family, distribution, major, release, architecture = SYSTEMS[system]
    facts = {
        "os_family": family,
        "distribution": distribution,
        "distribution_major_version": major,
        "distribution_release": release,
        "architecture": architecture,
    }
    request = {
        "version": "",
        "urls": {"docker": DOCKER, "nvidia": TOOLKIT},
        "fingerprints": {"docker": "", "nvidia": ""},
        "toolkit": "1.17.8-1",
    }
    return plan(method=method, facts=facts | changes.pop("facts", {}), **request | changes)


def filled(name, **given):
    """Return a variable of the role."""
    variables = {}
    for path in (ROLE / "defaults/main.yml", ROLE / "vars/main.yml"):
        variables |= trusted(yaml.safe_load(path.read_text()))
    return Templar(loader=DataLoader(), variables=variables | given).template(variables[name])


@pytest.mark.parametrize("system", SYSTEMS)
def test_packages_and_repositories(system):
    packages, docker, toolkit = EXPECTED[system]
    found = planned(system, "repo")
    assert planned(system)["packages"] == packages
    assert found["repository"].get("url") == docker
    assert found["toolkit_repository"]["url"] == toolkit
    repo = [package["name"] for package in found["packages"]]
    assert repo == (["docker-ce", "docker-ce-cli", "containerd.io"] if docker else [])
    assert {package["version"] for package in found["toolkit"]} == {"1.17.8-1"}


@pytest.mark.parametrize(("system", "ending"), [("debian12", "CD88"), ("rocky9", "9F35")])
def test_each_family_has_its_key(system, ending):
    repository = planned(system)["repository"]
    assert repository["fingerprint"].endswith(ending)
    assert repository["key"].endswith("/gpg")
    own = planned(system, fingerprints={"docker": "AB", "nvidia": "CD"})
    assert [own[name]["fingerprint"] for name in ("repository", "toolkit_repository")] == ["AB", "CD"]


@pytest.mark.parametrize(("given", "version"), [("", None), ("5:27.5.1*", "5:27.5.1*")])
def test_docker_is_pinned_where_asked(given, version):
    packages = planned("debian12", "repo", version=given)["packages"]
    assert [package["version"] for package in packages] == [version, version, None]


@pytest.mark.parametrize(
    ("method", "other", "present"),
    [
        ("distro", "docker-ce", {"docker": "20.10.24+dfsg1", "toolkit": "1.17.8", "other": ["docker-ce"]}),
        ("repo", "docker.io", {"docker": "27.5.1", "toolkit": "1.17.8", "other": ["docker.io"]}),
    ],
)
def test_both_kinds_of_docker_are_known(method, other, present):
    installed = {
        "docker.io": "20.10.24+dfsg1-1",
        "docker-ce": "5:27.5.1-1~debian.12~bookworm",
        "nvidia-container-toolkit": "1.17.8-1",
    }
    found = planned("debian12", method, facts={"hvlab": {"packages": installed}})
    assert found["other"][0] == other
    assert found["present"] == present
    assert planned("debian12", method)["present"] == {"docker": "", "toolkit": "", "other": []}


def test_docker_has_no_repository_for_other_systems_of_debians_family():
    mint = {"distribution": "Linux Mint", "distribution_release": "wilma"}
    assert planned("ubuntu2204", "repo", facts=mint)["packages"] == []
    assert planned("ubuntu2204", facts=mint)["packages"][0] == "docker.io"


def test_a_system_without_docker_has_no_packages():
    assert planned("debian12", facts={"distribution": "SLES", "os_family": "Suse"})["packages"] == []


def test_settings_get_the_runtime_where_there_are_gpus():
    asked = {"runtimes": {"mine": {"path": "p"}}, "debug": True}
    request = {"old": {}, "asked": asked, "docker": "", "roots": {"docker": "/var/lib/docker"}}
    assert plan_settings(**request, nvidia=False)["new"] == asked
    both = plan_settings(**request, nvidia=True)["new"]
    assert set(both["runtimes"]) == {"mine", "nvidia"}
    assert both["features"] == {"cdi": True}


def test_the_toolkits_key_lies_beside_its_repositories():
    url = {"container_runtime_nvidia_repository_url": "http://mirror.example/libnvidia-container/stable"}
    assert filled("container_runtime_nvidia_repository_key", **url) == (
        "http://mirror.example/libnvidia-container/gpgkey"
    )


DOCKERD = """#!/usr/bin/python3
import json, sys
if "nonsense" in json.load(open(sys.argv[-1])):
    sys.exit("unable to configure the Docker daemon: nonsense")
if "--validate" not in sys.argv:
    sys.exit("dockerd needs to be started with root")
"""
PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: container_runtime, tasks_from: settings}
"""


SYSTEMCTL = """#!/bin/sh
echo "$@" >> "${0%/*}/systemctl.log"
test "$1" != show || printf 'LoadState=loaded\\nActiveState=active\\n'
"""


@pytest.fixture
def settle(tmp_path):
    """Return how the role changes docker's settings here, with a stand-in for dockerd of a version."""
    programs = tmp_path / "bin"
    program(programs, "dockerd", DOCKERD)
    program(programs, "systemctl", SYSTEMCTL)
    program(programs, "docker", "#!/bin/sh\nexit 1\n")
    program(programs, "setpriv", '#!/bin/sh\nshift 3; exec "$@"\n')
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    file = tmp_path / "docker/daemon.json"

    def run(config, *words, expect=0, **more):
        variables = {
            "container_runtime_daemon": config,
            "__container_runtime_settings_path": str(file),
            "__container_runtime_roots": {name: str(tmp_path / name) for name in ("docker", "containerd")},
            "__container_runtime_docker_version": "20.10.24+dfsg1",
        }
        return play(tmp_path / "play.yml", programs, variables | more, *words, expect=expect)

    run.file, run.log = file, programs / "systemctl.log"
    return run


def test_settings_are_merged_once_and_the_rest_stays(settle):
    settle.file.parent.mkdir()
    settle.file.write_text('{"default-runtime": "mine", "registry-mirrors": ["https://old.example"]}')
    config = {"registry-mirrors": ["https://new.example"], "log-opts": {"max-size": "10m"}}
    assert "changed=0" not in settle(config, "--check")
    assert "log-opts" not in settle.file.read_text()
    settle(config)
    assert json.loads(settle.file.read_text()) == {
        "default-runtime": "mine",
        "registry-mirrors": ["https://new.example", "https://old.example"],
        "log-opts": {"max-size": "10m"},
    }
    assert [path.name for path in settle.file.parent.iterdir()] == ["daemon.json"]
    assert "changed=0" in settle(config)
    assert settle.log.read_text().splitlines().count("restart docker") == 1


def test_a_settings_file_keeps_its_mode_and_a_linked_one_its_place(settle):
    kept = settle.file.parent.parent / "site.json"
    kept.write_text('{"proxies": {"http-proxy": "http://user:password@proxy"}}')
    kept.chmod(0o600)
    settle.file.parent.mkdir()
    settle.file.symlink_to(kept)
    settle({"debug": True})
    assert settle.file.is_symlink()
    assert json.loads(kept.read_text())["debug"] is True
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "27.5.1"])
def test_settings_that_dockerd_refuses_are_not_written(settle, version):
    told = settle({"nonsense": 1}, expect=2, __container_runtime_docker_version=version)
    assert f"localhost: dockerd refuses the settings for {settle.file}" in told
    assert "unable to configure the Docker daemon: nonsense" in told
    assert list(settle.file.parent.iterdir()) == []


@pytest.mark.parametrize("masked", ["", "docker.service masked enabled\ndocker.socket masked disabled\n"])
def test_a_masked_docker_is_refused_before_anything_is_changed(tmp_path, masked):
    program(tmp_path / "bin", "systemctl", f"#!/bin/sh\nprintf '%s' '{masked}'\n")
    (tmp_path / "play.yml").write_text(PLAYBOOK.replace("tasks_from: settings", "tasks_from: checks"))
    known = {"__container_runtime_plan": {"packages": ["docker.io"], "present": {"other": []}}}
    known["ansible_facts"] = {"distribution": "Debian", "distribution_version": "12"}
    output = play(tmp_path / "play.yml", tmp_path / "bin", known, expect=2 if masked else 0)
    assert ("`systemctl unmask docker.service docker.socket` there first" in output) is bool(masked)


def test_settings_that_are_no_json_are_refused_not_repaired(settle):
    settle.file.parent.mkdir()
    settle.file.write_text("{,")
    assert f"localhost: {settle.file} is not a JSON object" in settle({"debug": True}, expect=2)
    assert settle.file.read_text() == "{,"


def test_images_are_not_lost_without_a_word(settle):
    (settle.file.parents[1] / "docker/image/overlay2/imagedb/content/sha256" / ("0" * 64)).mkdir(parents=True)
    assert "container_runtime_data_root_move: leave" in settle({"data-root": "/data"}, expect=2)
    assert not settle.file.exists()
    settle({"data-root": "/data"}, container_runtime_data_root_move="leave")
    assert json.loads(settle.file.read_text()) == {"data-root": "/data"}


@pytest.mark.parametrize(
    ("version", "before", "features", "kept"),
    [
        ("29.0.1", {}, None, {"containerd-snapshotter": False}),
        ("28.5.2", {}, None, None),
        ("29.0.1", {}, {"containerd-snapshotter": True}, {"containerd-snapshotter": True}),
        ("29.0.1", {"features": {"containerd-snapshotter": True}}, None, {"containerd-snapshotter": True}),
    ],
)
def test_from_29_on_images_are_below_data_root_only_without_containerds_store(
    version, before, features, kept
):
    """Docker's own pages: a new installation keeps them in /var/lib/containerd, and ignores data-root."""
    asked = {"data-root": "/data"} | ({"features": features} if features else {})
    roots = {"docker": "/var/lib/docker", "containerd": "/var/lib/containerd"}
    decided = plan_settings(old=before, asked=asked, nvidia=False, docker=version, roots=roots)
    assert decided["new"].get("features") == kept


@pytest.mark.parametrize("root", ["lib", "/data"])
def test_images_in_containerds_store_are_not_lost_either(settle, tmp_path, root):
    (tmp_path / "containerd/io.containerd.content.v1.content/blobs/sha256" / ("0" * 64)).mkdir(parents=True)
    settle.file.parent.mkdir()
    settle.file.write_text(json.dumps({"data-root": "/data"} if root == "/data" else {}))
    newer = {"__container_runtime_docker_version": "29.0.1"}
    told = settle({"data-root": "/data"}, expect=2, **newer)
    assert f"{tmp_path}/containerd/io.containerd.content.v1.content/blobs/sha256" in told
    settle({"data-root": "/data", "features": {"containerd-snapshotter": True}}, **newer)


@pytest.mark.parametrize(
    ("status", "refused"),
    [('[["driver-type","io.containerd.snapshotter.v1"]]', True), ('[["Backing Filesystem","extfs"]]', False)],
)
def test_images_of_kubernetes_in_containerds_store_are_not_dockers(settle, tmp_path, status, refused):
    """A docker that was updated to 29 keeps its own store, and kubelet's images are in containerd's."""
    program(tmp_path / "bin", "docker", f"#!/bin/sh\necho '{status}'\n")
    (tmp_path / "containerd/io.containerd.content.v1.content/blobs/sha256" / ("0" * 64)).mkdir(parents=True)
    newer = {"__container_runtime_docker_version": "29.0.1"}
    settle({"data-root": "/data"}, expect=2 if refused else 0, **newer)
