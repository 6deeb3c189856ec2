"""What is made of a host before its driver is touched, and afterwards."""

from dataclasses import asdict, replace

import pytest

from hvlab.ansible.action.hvlab_driver import as_wish
from hvlab.provision.driver.host import Host, Wish, installed_version
from hvlab.provision.driver.loading import loading
from hvlab.provision.driver.plan import plan
from hvlab.provision.driver.sources import pin, sources

KERNEL = "6.1.0-9-amd64"
OLD = ("cuda-drivers*", "nvidia-*", "libnvidia-*", "libcuda1*")
KEEP = ("nvidia-container-*", "libnvidia-container*", "nvidia-cu*")
WISH = Wish(
    method="repo",
    version="550",
    packages=({"name": "cuda-drivers-550", "version": None},),
    headers_packages=({"name": f"linux-headers-{KERNEL}", "version": None},),
    build_packages=("gcc",),
    kernel=KERNEL,
    fabric_manager_package="nvidia-fabricmanager-550",
    old=OLD,
    keep=KEEP,
)
SOURCE = {
    "file": "/etc/apt/sources.list",
    "uris": ["http://mirror.test/debian"],
    "suites": ["bookworm", "bookworm-updates"],
    "components": ["main"],
    "signed_by": "/usr/share/keyrings/debian-archive-keyring.gpg",
}


def make(own=(), packages=(), **seen):
    """A machine with one GPU, headers and a repository; `own` goes into the facts of our own."""
    facts = {
        "distribution": "Debian",
        "distribution_version": "12.5",
        "distribution_release": "bookworm",
        "os_family": "Debian",
        "pkg_mgr": "apt",
        "kernel": KERNEL,
        "hvlab": {"gpus": [{"name": "A100"}], "gcc": "12.2.0", "packages": dict(packages), **dict(own)},
    }
    there = {
        "headers": [KERNEL],
        "kernels": [KERNEL],
        "dkms": [],
        "loaded": None,
        "nouveau": False,
        "library": None,
        "uninstaller": False,
        "users": [],
        "versions": {
            "cuda-drivers-550": ["550.90.07-1", "550.54.14-1"],
            "nvidia-fabricmanager-550": ["550.90.07-1"],
        },
        "sources": [SOURCE],
    }
    return Host("g1", facts, {**there, **seen})


def told(host, wish=WISH, ready=True):
    """All problems as one text."""
    return "\n".join(
        f"{p.host}: {p.seen} -> {p.remedy}" for p in plan(host, wish, repository_ready=ready).problems
    )


def test_a_bare_machine_gets_the_driver():
    found = plan(make(), WISH, repository_ready=True)
    assert not found.problems
    assert [package["name"] for package in found.install] == ["cuda-drivers-550"]


def test_what_is_there_is_left():
    host = make(packages={"cuda-drivers-550": "550.90.07-1"}, library="550.90.07", loaded="550.90.07")
    assert not plan(host, WISH, repository_ready=True).changes


def test_headers_that_can_be_had_are_installed():
    versions = make().seen["versions"] | {f"linux-headers-{KERNEL}": ["6.1.27-1"]}
    found = plan(make(headers=[], versions=versions), WISH, repository_ready=True)
    assert found.prepare[0]["name"] == f"linux-headers-{KERNEL}"
    assert not found.problems


def test_an_updated_kernel_that_was_not_booted_is_named():
    host = make(headers=["6.1.0-10-amd64"], kernels=[KERNEL, "6.1.0-10-amd64"])
    assert told(host) == (
        f"g1: it runs kernel {KERNEL}, whose headers are neither installed nor to be had; "
        f"headers there are for 6.1.0-10-amd64 -> install linux-headers-{KERNEL}, "
        "or reboot into 6.1.0-10-amd64, which is installed"
    )


def test_headers_of_an_image_are_those_of_its_kernel():
    wish = replace(WISH, kernel="5.5.5", load="never")
    assert "the driver is wanted for kernel 5.5.5" in told(make(), wish)
    assert "reboot" not in told(make(), wish)


@pytest.mark.parametrize("packages", ["linux-modules-nvidia-550-generic"])
def test_prebuilt_modules_need_no_headers(packages):
    wish = replace(WISH, packages=({"name": packages, "version": None},))
    host = make(headers=[], own={"secure_boot": True}, versions={packages: ["6.8.0-1"]})
    assert not told(host, wish)


def test_secure_boot():
    host = make(own={"secure_boot": True})
    assert "Secure Boot is on" in told(host)
    assert "mokutil --import" in told(host)
    assert not told(host, replace(WISH, secure_boot="allow"))
    assert not told(make(own={"secure_boot": True}, loaded="550.54.14"))
    assert not told(make(own={"secure_boot": None}))


def test_a_container_takes_only_none():
    host = make(own={"container": True})
    assert "it is a container" in told(host)
    assert not told(host, replace(WISH, load="never"))
    assert "install the driver on the machine below" in told(host, replace(WISH, method="none"))
    assert not told(make(own={"container": True}, loaded="550.54.14"), replace(WISH, method="none"))
    assert not told(make(own={"container": True, "gpus": []}), replace(WISH, method="none"))


def test_a_method_the_system_does_not_have():
    wish = replace(WISH, method="elrepo", methods=("repo", "none"))
    assert "there is no method elrepo for Debian 12.5 -> set lab_driver_method to one of repo, none" in told(
        make(), wish
    )


def test_a_version_that_vanished():
    wish = replace(WISH, packages=({"name": "cuda-drivers-550", "version": "550.1.1-1"},))
    assert "package cuda-drivers-550 550.1.1-1 cannot be had; there is 550.90.07-1, 550.54.14-1" in told(
        make(), wish
    )
    assert not told(make(), wish, ready=False)
    assert "no repository has it. The package lists could not be fetched: no route" in told(
        make(versions={}, trouble="no route")
    )


def test_in_check_mode_what_is_not_known_is_no_problem():
    assert not told(make(versions={}, headers=[], unsure=True))
    wish = replace(WISH, packages=({"name": "cuda-drivers-550", "version": "550.1.1-1"},))
    assert "cannot be had" in told(make(unsure=True), wish)


def test_a_held_package_is_in_the_way_unless_it_is_held_by_us():
    wish = replace(WISH, packages=({"name": "cuda-drivers-550", "version": "550.54.14-1"},))
    packages, held = {"cuda-drivers-550": "550.90.07-1"}, {"held": ["cuda-drivers-550"]}
    assert "apt-mark unhold cuda-drivers-550" in told(make(own=held, packages=packages), wish)
    assert not told(make(own=held, packages=packages))
    ours = held | {"held_own": ["cuda-drivers-550"]}
    assert not told(make(own=ours, packages=packages), wish)


def test_another_gcc_than_the_kernels_is_a_note():
    found = plan(make(compiler="11"), WISH, repository_ready=True)
    assert "install gcc-11" in found.notes[0]
    assert not plan(make(compiler="12"), WISH, repository_ready=True).notes


def test_old_versions_go_and_nothing_else():
    packages = {
        "nvidia-driver-535": "535.183.01-1",
        "libcuda1": "535.183.01-1",
        "nvidia-kernel-dkms": "535.183.01-1",
        "nvidia-support": "20220217+3",
        "nvidia-container-toolkit": "1.17.8-1",
        "nvidia-cuda-toolkit": "11.8.89~11.8.0-5",
        "libnvidia-container1": "1.17.8-1",
        "python3": "3.11.2-1",
    }
    versions = make().seen["versions"] | {"libcuda1": ["550.90.07-1"], "nvidia-kernel-dkms": ["550.90.07-1"]}
    host = make(packages=packages, versions=versions)
    assert not plan(host, WISH, repository_ready=True).remove
    found = plan(host, replace(WISH, remove_old=True), repository_ready=True)
    assert found.remove == ["nvidia-driver-535"]
    assert found.may_go == ["libcuda1", "nvidia-driver-535", "nvidia-kernel-dkms"]
    assert [p["name"] for p in found.install] == ["cuda-drivers-550", "libcuda1"]
    wish = replace(WISH, method="runfile", version="550.54.14", remove_old=True, checksum="sha256:0")
    assert plan(host, wish, repository_ready=True).remove == found.may_go


def test_what_came_along_follows_an_exact_version():
    packages = {"cuda-drivers-550": "550.90.07-1", "libcuda1": "550.90.07-1", "nvidia-settings": "550.1-1"}
    wish = replace(WISH, packages=({"name": "cuda-drivers-550", "version": "550.54.14-1"},))
    versions = make().seen["versions"] | {"libcuda1": ["550.90.07-1", "550.54.14-1"]}
    follower = {"name": "libcuda1", "version": "550.54.14-*"}
    found = plan(make(packages=packages, versions=versions), wish, repository_ready=True)
    assert found.install == [*wish.packages, follower]
    assert not found.remove
    half = packages | {"cuda-drivers-550": "550.54.14-1"}
    found = plan(make(packages=half, versions=versions, library="550.90.07"), wish, repository_ready=True)
    assert found.install == [follower]


def test_nothing_goes_before_the_new_one_can_be_had():
    host = make(packages={"nvidia-driver": "535.183.01-1"}, versions={})
    assert "cannot be had" in told(host, replace(WISH, remove_old=True))


def test_a_runfile_is_in_the_way_of_packages():
    host = make(uninstaller=True, library="535.54.03")
    assert "was installed by NVIDIA's runfile" in told(host)
    found = plan(host, replace(WISH, remove_old=True), repository_ready=True)
    assert found.run_uninstaller
    assert not found.problems


def test_runfile():
    wish = replace(WISH, method="runfile", version="550.54.14", packages=(), checksum="sha256:00")
    host = make(packages={"gcc": "12.2"})
    assert plan(host, wish, repository_ready=True).runfile
    assert "checksum is not set" in told(host, replace(wish, checksum=""))
    assert "give the whole version" in told(host, replace(wish, version="550"))
    assert "write over it" in told(make(packages={"gcc": "12.2", "nvidia-driver": "535.1-1"}), wish)
    done = make(packages={"gcc": "12.2"}, uninstaller=True, library="550.54.14")
    assert not plan(done, wish, repository_ready=True).changes
    busy = make(packages={"gcc": "12.2"}, loaded="535.54.03", users=[{"pid": "7", "name": "python"}])
    assert "in use by python[7]" in told(busy, wish)


RHEL = {"os_family": "RedHat", "distribution": "Rocky", "distribution_major_version": "9", "pkg_mgr": "dnf"}
STREAM = replace(
    WISH, packages=({"name": "nvidia-open", "version": "550.*"},), stream="nvidia-driver:550-open"
)


def rhel(facts=(), packages=(), versions=(), **seen):
    known = {"nvidia-open": ["3:550.90.07-1.el9"]} | dict(versions)
    host = make(packages=packages, versions=known, **seen)
    return replace(host, facts={**host.facts, **RHEL, **dict(facts)})


@pytest.mark.parametrize("stream", ["nvidia-driver:550-open", "nvidia-driver:550-dkms", ""])
def test_dkms_is_missed_before_anything_is_changed(stream):
    assert told(rhel(), replace(STREAM, stream=stream)) == (
        "g1: the driver's modules are built by dkms, which is not installed, and no repository has it "
        "-> enable EPEL there, which has it: dnf install epel-release"
    )


@pytest.mark.parametrize(
    "host",
    [
        rhel(packages={"dkms": "3.0.13-1.el9"}),
        rhel(versions={"dkms": ["3.0.13-1.el9"]}),
        rhel({"distribution": "Amazon"}),
        rhel(unsure=True),
        rhel(packages={"nvidia-open": "550.90.07-1.el9"}),
    ],
)
def test_dkms_is_there_or_can_be_had_or_is_not_needed(host):
    assert not told(host, STREAM)


def test_modules_that_are_built_already_need_no_dkms():
    assert not told(rhel(), replace(STREAM, stream="nvidia-driver:550"))
    assert not told(rhel(), replace(STREAM, method="elrepo"))
    assert not told(rhel(), STREAM, ready=False)


def test_a_runfile_misses_dkms_too():
    wish = replace(WISH, method="runfile", version="550.54.14", packages=(), checksum="sha256:00")
    said = told(rhel(), replace(wish, build_packages=("dkms",)))
    assert "package dkms cannot be had; no repository has it -> enable EPEL there" in said


@pytest.mark.parametrize(
    ("setting", "switches", "fabric", "wanted"),
    [
        ("auto", 6, False, True),
        ("auto", 0, False, False),
        ("auto", None, False, False),
        ("auto", 0, True, True),
        ("true", 0, False, True),
        ("false", 6, True, False),
    ],
)
def test_fabric_manager_exactly_where_there_is_an_nvswitch(setting, switches, fabric, wanted):
    wish = as_wish({**asdict(WISH), "fabric_manager": setting, "fabric": fabric})
    found = plan(make(own={"nvswitches": switches}), wish, repository_ready=True)
    assert found.fabric_manager is wanted
    assert ({"name": "nvidia-fabricmanager-550", "version": "550.90.07*"} in found.install) is wanted
    assert not found.problems


def test_the_fabric_manager_has_to_be_of_the_drivers_version():
    wish = replace(WISH, packages=({"name": "cuda-drivers-550", "version": "550.54.14-1"},))
    assert "package nvidia-fabricmanager-550 550.54.14* cannot be had" in told(
        make(own={"nvswitches": 6}), wish
    )


def test_components_come_from_the_hosts_own_mirror():
    wish = replace(WISH, method="distro", components=("contrib", "non-free"))
    foreign = {**SOURCE, "uris": ["http://other.test/x"], "signed_by": "/usr/share/keyrings/other.gpg"}
    assert sources(make(sources=[SOURCE, foreign]), wish) == (
        "Types: deb\nURIs: http://mirror.test/debian/\nSuites: bookworm bookworm-updates\n"
        "Components: contrib non-free\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    assert not sources(make(sources=[{**SOURCE, "components": ["main", "contrib", "non-free"]}]), wish)
    assert not sources(make(), WISH)


def test_a_version_is_pinned_for_all_parts():
    wish = replace(WISH, packages=({"name": "cuda-drivers-550", "version": "550.54.14-1"},))
    assert pin(wish).splitlines()[1:] == ["Pin: version 550.54.14-*", "Pin-Priority: 1001"]
    assert "Pin: version 550.*" in pin(WISH)
    assert "590.44.01-*" in pin(replace(WISH, packages=({"name": "nvidia-open", "version": "3:590.44.01*"},)))
    assert not pin(replace(WISH, version=""))


def test_a_package_left_open_is_of_the_branch_wished_for():
    wish = replace(WISH, version="580.65.06", packages=({"name": "nvidia-open", "version": None},))
    host = make(
        versions={"nvidia-open": ["590.44.01-1", "580.95.05-1"]}, packages={"nvidia-open": "590.44.01-1"}
    )
    assert plan(host, wish, repository_ready=True).install == [{"name": "nvidia-open", "version": "580.*"}]
    assert not plan(
        make(versions={}, packages={"nvidia-open": "580.95.05-1"}), wish, repository_ready=True
    ).install


BUILT = {"name": "nvidia", "version": "550.54.14", "kernel": KERNEL, "state": "installed"}
PYTHON = [{"pid": "7", "name": "python"}]
DAEMON = [{"pid": "8", "name": "nvidia-persiste"}]


@pytest.mark.parametrize(
    ("seen", "changes", "action", "loaded"),
    [
        ({}, {}, "load", False),
        ({"loaded": "550.54.14"}, {}, "nothing", True),
        ({"loaded": "535.54.03"}, {}, "reload", False),
        ({"loaded": "535.54.03", "users": DAEMON}, {}, "reload", False),
        ({"loaded": "535.54.03", "users": PYTHON}, {}, "reboot", False),
        ({"loaded": "535.54.03", "users": PYTHON}, {"reboot": "never"}, "nothing", False),
        ({"nouveau": True}, {}, "reboot", False),
        ({"nouveau": True}, {"reboot": "never"}, "nothing", False),
        ({}, {"load": "never"}, "nothing", False),
        ({"loaded": "535.54.03"}, {"method": "none"}, "nothing", True),
    ],
)
def test_how_the_driver_comes_into_use(seen, changes, action, loaded):
    step = loading(make(dkms=[BUILT], **seen), replace(WISH, **changes))
    assert (step.action, step.loaded) == (action, loaded)
    assert (step.problem is not None) == (changes == {"reboot": "never"})


def test_where_no_reboot_is_allowed_the_host_and_the_remedy_are_named():
    host = make(dkms=[BUILT], library="550.54.14", loaded="535.54.03", users=PYTHON)
    problem = loading(host, replace(WISH, reboot="never")).problem
    assert problem.host == "g1"
    assert problem.seen == "driver 550.54.14 is installed and 535.54.03 is loaded; python[7] use it"
    assert problem.remedy.startswith("end these processes and run again, or reboot it")
    assert loading(host, WISH, local=True).problem


def test_modules_that_would_not_unload_ask_for_a_reboot():
    assert loading(make(dkms=[BUILT], loaded="535.54.03"), WISH, stuck="nvidia is in use").action == "reboot"


def test_without_a_gpu_or_for_another_kernel_nothing_is_loaded():
    assert loading(make(own={"gpus": []}), WISH).reason == "there is no NVIDIA GPU on the PCI bus"
    step = loading(make(), replace(WISH, kernel="6.1.0-10-amd64"))
    assert (step.action, step.loaded) == ("nothing", False)
    assert step.reason == f"it is built for kernel 6.1.0-10-amd64, and {KERNEL} runs"


def test_the_library_tells_the_installed_version_before_the_module_does():
    assert installed_version(make(dkms=[BUILT], library="570.86.15"), KERNEL) == "570.86.15"
    assert installed_version(make(dkms=[BUILT]), KERNEL) == "550.54.14"
    assert installed_version(make(dkms=[BUILT]), "other") is None
    assert installed_version(make(packages={"kmod-nvidia": "470.256.02-1.el8"}), KERNEL) == "470.256.02"
