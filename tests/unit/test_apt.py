"""What apt itself makes of the requests: on the lists of the test repository, without installing anything."""

import email.utils
import hashlib
import shutil
import subprocess
from dataclasses import replace

import pytest

from hvlab.ansible.action.hvlab_driver import as_request
from hvlab.stack.provision.driver.plan import pin
from hvlab.stack.provision.repository import repository
from tests.vlab.repository import deb, spec

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="there is no apt here")
DKMS = spec.Package("dkms", "3.0.10-8", {}, {}, [], None, [])
SYSTEMS = {"debian12": "Debian", "ubuntu2204": "Ubuntu"}


class Apt:
    """apt with a folder of its own for everything, where nothing is installed."""

    def __init__(self, folder, system):
        self.folder, self.system = folder, system
        for name in (
            "lists/partial",
            "etc/preferences.d",
            "etc/apt.conf.d",
            "cache/archives/partial",
            "site",
        ):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "etc/sources.list").write_text(f"deb [trusted=yes] file:{folder}/site ./\n")
        digest = hashlib.sha256(b"").hexdigest()
        stanzas = [
            f"{deb._control(package)}Filename: ./{package.name}.deb\nSize: 1\nSHA256: {digest}\n"
            for package in [*spec.packages(system, "deb"), DKMS]
        ]
        (folder / "site/Packages").write_text("\n".join(stanzas))
        assert self.run("update").returncode == 0

    def run(self, *words):
        places = {
            "Dir::State": "",
            "Dir::State::status": "status",
            "Dir::Etc": "etc",
            "Dir::Cache": "cache",
        }
        settings = {name: f"{self.folder}/{place}" for name, place in places.items()}
        settings |= {"APT::Architecture": "amd64", "APT::Sandbox::User": "root"}
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        return subprocess.run(["apt-get", *options, *words], capture_output=True, text=True, check=False)

    def versions(self, *requested):
        """Return name and version of all that would be installed; None where apt refuses."""
        done = self.run("--simulate", "--no-install-recommends", "install", *requested)
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith("Inst ")]
        return None if done.returncode else {words[1]: words[2].lstrip("(") for words in lines}

    def pin(self, version):
        """Pin the driver as the role does."""
        facts = {"distribution": SYSTEMS[self.system], "os_family": "Debian"}
        options = {"method": "repo", "packages": [{"name": "nvidia-open", "version": f"{version}*"}]}
        request = as_request(options, facts)
        (self.folder / "etc/preferences.d/hvlab-nvidia-driver").write_text(pin(request))


@pytest.fixture
def apt(tmp_path, request):
    return Apt(tmp_path, request.param)


@pytest.mark.parametrize(
    ("apt", "version", "newest", "requested"),
    [
        ("debian12", "580.82.07", "590.44.01", ["nvidia-driver-pinning-580"]),
        ("debian12", "570.86.15", "590.44.01", []),
        ("ubuntu2204", "590.44.01", "610.43.02", []),
    ],
    indirect=["apt"],
)
def test_all_packages_of_the_driver_come_in_one_version(apt, version, newest, requested):
    top = f"nvidia-open-570={version}*" if version.startswith("570") else f"nvidia-open={version}*"
    loose = apt.versions(*requested, top)
    assert any(text.startswith(newest) for text in loose.values())
    apt.pin(version)
    pinned = apt.versions(*requested, top)
    assert {pinned.pop(name) for name in [*requested, "dkms"]} <= {"580-5", DKMS.version}
    assert {text.partition("-")[0] for text in pinned.values()} == {version}


@pytest.mark.parametrize("apt", ["debian12"], indirect=True)
def test_open_modules_of_branch_550_are_no_metapackage(apt):
    assert apt.versions("nvidia-open-550") is None
    apt.pin("550.54.15")
    chosen = apt.versions("cuda-drivers-550=550.54.15-*", "nvidia-kernel-open-dkms=550.54.15-*")
    assert chosen["nvidia-kernel-open-dkms"] == "550.54.15-1"
    assert "nvidia-kernel-dkms" not in chosen


@pytest.mark.parametrize("apt", ["debian12"], indirect=True)
def test_a_pinning_package_is_not_of_the_drivers_version(apt):
    assert apt.versions("nvidia-driver-pinning-580=580.*") is None
    assert apt.versions("nvidia-driver-pinning-580") == {"nvidia-driver-pinning-580": "580-5"}


@pytest.mark.parametrize("apt", ["debian12", "ubuntu2204"], indirect=True)
def test_a_cudnn_that_is_not_the_newest_needs_its_headers_named(apt):
    packages = [f"libcudnn9{kind}-cuda-13=9.13.0.50-1" for kind in ("", "-dev", "-headers")]
    assert apt.versions(*packages[:2]) is None
    assert set(apt.versions(*packages).values()) == {"9.13.0.50-1"}


def test_the_priority_is_that_of_nvidias_packages_alone(tmp_path):
    """A mirror has both repositories: NVIDIA's, and backports, which apt does not take unasked."""
    apt = Apt(tmp_path, "debian12")
    nothing = spec.Package("", "", {}, {}, [], None, [])
    sites = {
        "nvidia": ("Label: NVIDIA CUDA\n", {"cuda-keyring": "1.0"}),
        "backports": ("Label: Debian Backports\nNotAutomatic: yes\n", {"dkms": "4.0"}),
        "distribution": ("Label: Debian\n", {"cuda-keyring": "2.0"}),
    }
    for name, (label, packages) in sites.items():
        folder = tmp_path / "mirror" / name
        folder.mkdir(parents=True)
        stanzas = [
            f"{deb._control(replace(nothing, name=package, version=version))}Filename: ./x.deb\nSize: 1\n"
            f"SHA256: {hashlib.sha256(b'').hexdigest()}\n"
            for package, version in packages.items()
        ]
        lists = "\n".join(stanzas).encode()
        (folder / "Packages").write_bytes(lists)
        sums = f" {hashlib.sha256(lists).hexdigest()} {len(lists)} Packages\n"
        date = email.utils.formatdate(usegmt=True).replace("GMT", "UTC")
        (folder / "Release").write_text(f"{label}Date: {date}\nSHA256:\n{sums}")
        with (tmp_path / "etc/sources.list").open("a") as sources:
            sources.write(f"deb [trusted=yes] file:{folder} ./\n")
    assert apt.run("update").returncode == 0
    assert apt.versions("cuda-keyring") == {"cuda-keyring": "2.0"}
    options = {"name": "nvidia-cuda", "url": f"file:{tmp_path}/mirror/nvidia", "suite": "/", "components": []}
    source = repository("apt", options | {"enabled": True, "priority": 600, "label": "NVIDIA CUDA"})
    text = source.files["/etc/apt/preferences.d/nvidia-cuda"]
    (tmp_path / "etc/preferences.d/nvidia-cuda").write_text(text)
    assert apt.versions("cuda-keyring", "dkms") == {"cuda-keyring": "1.0", "dkms": DKMS.version}
