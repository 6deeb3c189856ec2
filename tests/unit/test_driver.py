"""What is made of a host before its driver is touched, and afterwards."""

from dataclasses import asdict, replace

import pytest

from hvlab.ansible.action.hvlab_driver import as_request
from hvlab.stack.provision.driver.host import DriverHost, DriverRequest, find_installed_version
from hvlab.stack.provision.driver.in_use import loading
from hvlab.stack.provision.driver.packages import packages_to_hold, with_signed_modules
from hvlab.stack.provision.driver.plan import pin, plan, sources
from hvlab.stack.provision.driver.system import bare_kernels, kernels_to_build

KERNEL = "6.1.0-9-amd64"
BUILT = {"name": "nvidia", "version": "550.54.14", "kernel": KERNEL, "state": "installed"}
OLD = ("cuda-drivers*", "nvidia-*", "libnvidia-*", "libcuda1*")
KEEP = ("nvidia-container-*", "libnvidia-container*", "nvidia-cu*")
REQUEST = DriverRequest(
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


def make(own=(), packages=(), **observed):
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
    return DriverHost("g1", facts, {**there, **observed})


def problems(host, request=REQUEST, ready=True):
    """All problems as one text."""
    return "\n".join(
        f"{p.host}: {p.observed} -> {p.remedy}" for p in plan(host, request, repository_ready=ready).problems
    )


def test_a_bare_machine_gets_the_driver():
    result = plan(make(), REQUEST, repository_ready=True)
    assert not result.problems
    assert [package["name"] for package in result.install] == ["cuda-drivers-550"]


def test_what_is_there_is_left():
    host = make(packages={"cuda-drivers-550": "550.90.07-1"}, library="550.90.07", loaded="550.90.07")
    assert not plan(host, REQUEST, repository_ready=True).changes


def test_headers_that_can_be_had_are_installed():
    versions = make().state["versions"] | {f"linux-headers-{KERNEL}": ["6.1.27-1"]}
    result = plan(make(headers=[], versions=versions), REQUEST, repository_ready=True)
    assert result.prepare[0]["name"] == f"linux-headers-{KERNEL}"
    assert not result.problems


FOLLOWING = replace(REQUEST, headers_following=({"name": "linux-headers-amd64", "version": None},))


def test_headers_follow_the_kernels_updates():
    host = make(versions=make().state["versions"] | {"linux-headers-amd64": ["6.1.27-1"]})
    result = plan(host, FOLLOWING, repository_ready=True)
    assert result.prepare == list(FOLLOWING.headers_following)
    assert not result.problems
    there = make(packages={"linux-headers-amd64": "6.1.27-1"})
    assert not plan(there, FOLLOWING, repository_ready=True).prepare


def test_a_kernel_from_backports_takes_its_headers_from_there():
    kernel = "6.12.9+bpo-amd64"
    versions = {"linux-headers-amd64": ["6.1.27-1", "6.12.9-1~bpo12+1"]}
    host = make(headers=[kernel], versions=make().state["versions"] | versions)
    result = plan(host, replace(FOLLOWING, kernel=kernel), repository_ready=True)
    assert result.prepare == [{"name": "linux-headers-amd64", "version": "6.12.9-1~bpo12+1"}]


def test_headers_that_no_repository_has_are_a_note():
    result = plan(make(), FOLLOWING, repository_ready=True)
    assert not result.prepare
    assert not result.problems
    assert "no repository has linux-headers-amd64: after the next kernel update" in result.notes[0]


BOTH = {"kernels": ["6.1.0-10-amd64", KERNEL], "headers": ["6.1.0-10-amd64", KERNEL]}


def test_a_kernel_that_boots_next_without_a_module_is_a_problem():
    done = {"library": "550.90.07", "dkms": [BUILT], "module_kernels": [KERNEL]}
    [problem] = bare_kernels(make(**BOTH | {"headers": [KERNEL]}, **done), REQUEST)
    assert "kernel 6.1.0-10-amd64 is installed and has no module of the driver" in problem.observed
    assert "install linux-headers-6.1.0-10-amd64" in problem.remedy
    [problem] = bare_kernels(make(**BOTH, **done), REQUEST)
    assert "why DKMS could not build it" in problem.remedy
    assert not bare_kernels(make(**BOTH, **done | {"module_kernels": BOTH["kernels"]}), REQUEST)
    # Older ones are not booted by themselves, and without a driver there is nothing to miss.
    older = {"kernels": ["6.1.0-8-amd64", KERNEL], "headers": [KERNEL]}
    assert not bare_kernels(make(**older, **done), REQUEST)
    assert not bare_kernels(make(**BOTH, module_kernels=[]), REQUEST)
    assert not bare_kernels(make(**BOTH, **done), replace(REQUEST, method="none"))


def test_headers_of_the_rhel_family_are_named_without_the_architecture():
    kernels = ["5.14.0-427.el9.x86_64", "5.14.0-503.el9.x86_64"]
    headers = ({"name": "kernel-devel-5.14.0-427.el9", "version": None},)
    host = make(kernels=kernels, headers=kernels[:1], module_kernels=kernels[:1], library="550.90.07")
    [problem] = bare_kernels(host, replace(REQUEST, kernel=kernels[0], headers_packages=headers))
    assert problem.remedy.startswith("install kernel-devel-5.14.0-503.el9 there")


@pytest.mark.parametrize(
    ("kernels", "headers", "built"),
    [
        (["6.1.0-10-amd64", KERNEL], ["6.1.0-10-amd64", KERNEL], [KERNEL, "6.1.0-10-amd64"]),
        (["6.1.0-10-amd64", KERNEL], [KERNEL], [KERNEL]),
        (["6.1.0-8-amd64", KERNEL], ["6.1.0-8-amd64", KERNEL], [KERNEL]),
        ([], [KERNEL], [KERNEL]),
    ],
)
def test_modules_are_built_for_the_kernels_that_may_boot(kernels, headers, built):
    assert kernels_to_build(make(kernels=kernels, headers=headers), REQUEST) == built


def test_an_updated_kernel_that_was_not_booted_is_named():
    host = make(headers=["6.1.0-10-amd64"], kernels=[KERNEL, "6.1.0-10-amd64"])
    assert problems(host) == (
        f"g1: it runs kernel {KERNEL}, whose headers are neither installed nor available; "
        f"headers are installed for 6.1.0-10-amd64 -> install linux-headers-{KERNEL}, "
        "or reboot into 6.1.0-10-amd64, which is installed"
    )


def test_headers_of_an_image_are_those_of_its_kernel():
    request = replace(REQUEST, kernel="5.5.5", load="never")
    assert "the driver is requested for kernel 5.5.5" in problems(make(), request)
    assert "reboot" not in problems(make(), request)


@pytest.mark.parametrize("packages", ["linux-modules-nvidia-550-generic"])
def test_prebuilt_modules_need_no_headers(packages):
    request = replace(REQUEST, packages=({"name": packages, "version": None},))
    host = make(headers=[], own={"secure_boot": True}, versions={packages: ["6.8.0-1"]})
    assert not problems(host, request)


def test_secure_boot():
    host = make(own={"secure_boot": True})
    assert "Secure Boot is on" in problems(host)
    assert "-> enroll the key they are signed with (mokutil --import" in problems(host)
    alma = replace(host, facts=host.facts | {"distribution": "AlmaLinux"})
    assert "dnf install almalinux-release-nvidia-driver" in problems(alma)
    assert not problems(host, replace(REQUEST, secure_boot="allow"))
    assert not problems(make(own={"secure_boot": True}, loaded="550.54.14"))
    assert not problems(make(own={"secure_boot": None}))


def test_with_secure_boot_ubuntus_signed_modules_are_taken():
    request = replace(
        REQUEST,
        method="distro",
        version="580",
        packages=({"name": "nvidia-headless-580-server-open"}, {"name": "nvidia-utils-580-server"}),
        headers_following=({"name": "linux-headers-generic-hwe-24.04", "version": None},),
    )
    on, off = make({"secure_boot": True}), make({"secure_boot": False})
    taken = with_signed_modules(on, request)
    assert [package["name"] for package in taken.packages] == [
        "linux-modules-nvidia-580-server-open-generic-hwe-24.04",
        "nvidia-headless-no-dkms-580-server-open",
        "nvidia-utils-580-server",
    ]
    assert not any("Secure Boot" in p.observed for p in plan(on, taken, repository_ready=False).problems)
    for host, other in ((off, request), (on, replace(request, secure_boot="allow")), (on, REQUEST)):
        assert with_signed_modules(host, other) is other
    ubuntu = replace(on, facts={**on.facts, "distribution": "Ubuntu"})
    (problem,) = (p for p in plan(ubuntu, REQUEST, repository_ready=False).problems if "Secure" in p.observed)
    assert problem.remedy.startswith("set lab_driver_method: distro")


@pytest.mark.parametrize(
    ("offered", "refused"), [("580.95.05-0ubuntu0.24.04.2", True), ("550.163.01-0ubuntu0.24.04.1", False)]
)
def test_a_transitional_package_does_not_bring_another_branch(offered, refused):
    name = "nvidia-headless-550-server"
    request = replace(REQUEST, method="distro", version="550", packages=({"name": name, "version": None},))
    found = plan(make(versions={name: [offered]}), request, repository_ready=False).problems
    assert any("would bring driver 580.95.05, not branch 550" in p.observed for p in found) is refused


def test_a_container_takes_only_none():
    host = make(own={"container": True})
    assert "it is a container" in problems(host)
    assert not problems(host, replace(REQUEST, load="never"))
    assert "install the driver on the machine below" in problems(host, replace(REQUEST, method="none"))
    assert not problems(make(own={"container": True}, loaded="550.54.14"), replace(REQUEST, method="none"))
    assert not problems(make(own={"container": True, "gpus": []}), replace(REQUEST, method="none"))


def test_a_method_the_system_does_not_have():
    request = replace(REQUEST, method="elrepo", methods=("repo", "none"))
    assert (
        "method elrepo is not available on Debian 12.5 -> set lab_driver_method to one of repo, none"
        in problems(make(), request)
    )


def test_a_version_that_vanished():
    request = replace(REQUEST, packages=({"name": "cuda-drivers-550", "version": "550.1.1-1"},))
    assert (
        "package cuda-drivers-550 550.1.1-1 is not available; the repositories have 550.90.07-1, 550.54.14-1"
        in problems(make(), request)
    )
    assert not problems(make(), request, ready=False)
    assert "no repository has it. The package lists could not be fetched: no route" in problems(
        make(versions={}, trouble="no route")
    )


def test_in_check_mode_what_is_not_known_is_no_problem():
    assert not problems(make(versions={}, headers=[], unsure=True))
    request = replace(REQUEST, packages=({"name": "cuda-drivers-550", "version": "550.1.1-1"},))
    assert "is not available" in problems(make(unsure=True), request)


def test_a_held_package_is_in_the_way_unless_it_is_held_by_us():
    request = replace(REQUEST, packages=({"name": "cuda-drivers-550", "version": "550.54.14-1"},))
    packages, held = {"cuda-drivers-550": "550.90.07-1"}, {"held": ["cuda-drivers-550"]}
    assert "apt-mark unhold cuda-drivers-550" in problems(make(own=held, packages=packages), request)
    assert not problems(make(own=held, packages=packages))
    ours = held | {"held_own": ["cuda-drivers-550"]}
    assert not problems(make(own=ours, packages=packages), request)


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
    versions = make().state["versions"] | {"libcuda1": ["550.90.07-1"], "nvidia-kernel-dkms": ["550.90.07-1"]}
    host = make(packages=packages, versions=versions)
    assert not plan(host, REQUEST, repository_ready=True).remove
    result = plan(host, replace(REQUEST, remove_old=True), repository_ready=True)
    assert result.remove == ["nvidia-driver-535"]
    assert result.may_go == ["libcuda1", "nvidia-driver-535", "nvidia-kernel-dkms"]
    assert [p["name"] for p in result.install] == ["cuda-drivers-550", "libcuda1", "nvidia-kernel-dkms"]
    request = replace(REQUEST, method="runfile", version="550.54.14", remove_old=True, checksum="sha256:0")
    assert plan(host, request, repository_ready=True).remove == result.may_go


def test_what_came_along_follows_an_exact_version():
    packages = {"cuda-drivers-550": "550.90.07-1", "libcuda1": "550.90.07-1", "nvidia-settings": "550.1-1"}
    request = replace(REQUEST, packages=({"name": "cuda-drivers-550", "version": "550.54.14-1"},))
    versions = make().state["versions"] | {"libcuda1": ["550.90.07-1", "550.54.14-1"]}
    follower = {"name": "libcuda1", "version": "550.54.14-*"}
    result = plan(make(packages=packages, versions=versions), request, repository_ready=True)
    assert result.install == [*request.packages, follower]
    assert not result.remove
    half = packages | {"cuda-drivers-550": "550.54.14-1"}
    result = plan(make(packages=half, versions=versions, library="550.90.07"), request, repository_ready=True)
    assert result.install == [follower]


OPENED = {"nvidia-kernel-open-dkms": "580.95.05-1", "nvidia-kernel-support": "580.95.05-1"}


def test_modules_change_along_where_they_are_of_the_requested_kind():
    """Debian's nvidia-open asks for modules of its version or newer: an older one needs them named."""
    exact = ({"name": "nvidia-open", "version": "580.82.07-*"},)
    request = replace(REQUEST, version="580.82.07", packages=exact)
    there = {"nvidia-open": "580.95.05-1", **OPENED, "nvidia-kernel-dkms": "580.95.05-1"}
    versions = {name: ["580.95.05-1", "580.82.07-1"] for name in there}
    result = plan(make(packages=there, versions=versions), request, repository_ready=True)
    assert [package["name"] for package in result.along] == list(OPENED)


def test_every_package_of_the_driver_is_held():
    there = {
        **OPENED,
        "libcuda1": "580.95.05-1",
        "nvidia-driver-pinning-580": "580-5",
        "nvidia-container-toolkit": "1.17.8-1",
        "nvidia-support": "20220217+3",
    }
    names = packages_to_hold(make(packages=there), REQUEST)
    assert names == ["libcuda1", *OPENED]


@pytest.mark.parametrize(
    "package",
    [
        "linux-modules-nvidia-580-server-open-generic",
        # https://forums.almalinux.org/t/7216
        "kmod-nvidia-open",
        "kmod-nvidia-open-580.178.04-6.12.0-211.51.1",
        "kmod-nvidia-5.14.0-570.12.1.el9_6.x86_64",
    ],
)
def test_a_driver_whose_modules_are_built_for_each_kernel_is_not_held(package):
    modules = {package: "580.95.05-1", "libnvidia-cfg1": "580.95.05-1"}
    assert not packages_to_hold(make(packages=modules), REQUEST)


@pytest.mark.parametrize("package", ["kmod-nvidia", "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"])
def test_others_are_held(package):
    request = replace(REQUEST, old=("kmod-nvidia*", "libnvidia-*"))
    assert packages_to_hold(make(packages={package: "580.95.05-1"}), request) == [package]


def test_a_version_that_is_not_there_names_the_pin_to_change():
    request = replace(REQUEST, packages=({"name": "cuda-drivers-550", "version": "550.99.99*"},))
    assert "550.54.14-1 -> set lab_driver to one of these versions" in problems(make(), request)


def test_nothing_goes_before_the_new_one_can_be_had():
    host = make(packages={"nvidia-driver": "535.183.01-1"}, versions={})
    assert "is not available" in problems(host, replace(REQUEST, remove_old=True))


def test_a_runfile_is_in_the_way_of_packages():
    host = make(uninstaller=True, library="535.54.03")
    assert "was installed by NVIDIA's runfile" in problems(host)
    result = plan(host, replace(REQUEST, remove_old=True), repository_ready=True)
    assert result.run_uninstaller
    assert not result.problems


def test_runfile():
    request = replace(REQUEST, method="runfile", version="550.54.14", packages=(), checksum="sha256:00")
    host = make(packages={"gcc": "12.2"})
    assert plan(host, request, repository_ready=True).runfile
    assert "checksum is not set" in problems(host, replace(request, checksum=""))
    assert "give the whole version" in problems(host, replace(request, version="550"))
    assert "write over it" in problems(make(packages={"gcc": "12.2", "nvidia-driver": "535.1-1"}), request)
    done = make(packages={"gcc": "12.2"}, uninstaller=True, library="550.54.14")
    assert not plan(done, request, repository_ready=True).changes
    busy = make(packages={"gcc": "12.2"}, loaded="535.54.03", users=[{"pid": "7", "name": "python"}])
    assert "in use by python[7]" in problems(busy, request)


RHEL = {"os_family": "RedHat", "distribution": "Rocky", "distribution_major_version": "9", "pkg_mgr": "dnf"}
STREAM = replace(
    REQUEST, packages=({"name": "nvidia-open", "version": "550.*"},), stream="nvidia-driver:550-open"
)


def rhel(facts=(), packages=(), versions=(), **observed):
    known = {"nvidia-open": ["3:550.90.07-1.el9"]} | dict(versions)
    host = make(packages=packages, versions=known, **observed)
    return replace(host, facts={**host.facts, **RHEL, **dict(facts)})


@pytest.mark.parametrize("stream", ["nvidia-driver:550-open", "nvidia-driver:550-dkms", ""])
def test_dkms_is_missed_before_anything_is_changed(stream):
    assert problems(rhel(), replace(STREAM, stream=stream)) == (
        "g1: the driver's modules are built by dkms, which is not installed, and no repository has it "
        "-> enable EPEL there, which has it: dnf install epel-release"
    )


@pytest.mark.parametrize(
    ("distribution", "package"),
    [
        ("RedHat", "https://dl.fedoraproject.org/pub/epel/epel-release-latest-9.noarch.rpm"),
        ("OracleLinux", "oracle-epel-release-el9"),
    ],
)
def test_epel_is_named_as_its_system_calls_it(distribution, package):
    refusal = problems(rhel({"distribution": distribution}), STREAM)
    assert refusal.endswith(f"dnf install {package}")


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
    assert not problems(host, STREAM)


def test_modules_that_are_built_already_need_no_dkms():
    assert not problems(rhel(), replace(STREAM, stream="nvidia-driver:550"))
    assert not problems(rhel(), replace(STREAM, method="elrepo"))
    uek = replace(STREAM, method="elrepo", kernel="5.15.0-306.177.4.el9uek.x86_64")
    assert "ELRepo's modules are built for RHEL's" in problems(rhel(), uek)
    assert not problems(rhel(), STREAM, ready=False)


def test_a_runfile_misses_dkms_too():
    request = replace(REQUEST, method="runfile", version="550.54.14", packages=(), checksum="sha256:00")
    said = problems(rhel(), replace(request, build_packages=("dkms",)))
    assert "package dkms is not available; no repository has it -> enable EPEL there" in said


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
    request = as_request(
        {**asdict(REQUEST), "fabric_manager": setting, "fabric": fabric},
        {"distribution": "Debian", "os_family": "Debian"},
    )
    result = plan(
        make(own={"nvswitches": switches}),
        replace(request, subnet_manager_packages=()),
        repository_ready=True,
    )
    assert result.fabric_manager is wanted
    assert ({"name": "nvidia-fabricmanager-550", "version": "550.90.07*"} in result.install) is wanted
    assert not result.problems


@pytest.mark.parametrize(
    ("active", "setting", "stays"), [(True, "auto", True), (False, "auto", False), (True, "false", False)]
)
def test_a_fabric_manager_that_runs_is_not_stopped(active, setting, stays):
    """As on boards whose GPUs the catalogue does not know, and whose NVSwitches no bus shows."""
    state = {"there": True, "enabled": True, "active": active}
    host = make(services={"nvidia-fabricmanager": state})
    assert plan(host, replace(REQUEST, fabric_manager=setting), repository_ready=True).fabric_manager is stays


def test_the_fabric_manager_has_to_be_of_the_drivers_version():
    request = replace(REQUEST, packages=({"name": "cuda-drivers-550", "version": "550.54.14-1"},))
    assert "package nvidia-fabricmanager-550 550.54.14* is not available" in problems(
        make(own={"nvswitches": 6}), request
    )


def test_components_come_from_the_hosts_own_mirror():
    request = replace(REQUEST, method="distro", components=("contrib", "non-free"))
    foreign = {**SOURCE, "uris": ["http://other.test/x"], "signed_by": "/usr/share/keyrings/other.gpg"}
    assert sources(make(sources=[SOURCE, foreign]), request) == (
        "Types: deb\nURIs: http://mirror.test/debian/\nSuites: bookworm bookworm-updates\n"
        "Components: contrib non-free\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    assert not sources(make(sources=[{**SOURCE, "components": ["main", "contrib", "non-free"]}]), request)
    assert not sources(make(), REQUEST)


def test_a_version_is_pinned_for_all_parts():
    request = replace(REQUEST, packages=({"name": "cuda-drivers-550", "version": "550.54.14-1"},))
    assert pin(request).splitlines()[1:] == ["Pin: version 550.54.14-*", "Pin-Priority: 1001"]
    assert "Pin: version 550.*" in pin(REQUEST)
    assert "590.44.01-*" in pin(
        replace(REQUEST, packages=({"name": "nvidia-open", "version": "3:590.44.01*"},))
    )
    assert not pin(replace(REQUEST, version=""))


def test_of_a_branch_the_version_that_comes_is_pinned():
    host = make(versions={"cuda-drivers-550": ["550.163.01-0ubuntu1", "550.54.14-1"]})
    assert "Pin: version 550.163.01-*" in plan(host, REQUEST, repository_ready=True).pin


def test_a_package_left_open_is_of_the_branch_requested():
    request = replace(REQUEST, version="580.65.06", packages=({"name": "nvidia-open", "version": None},))
    host = make(
        versions={"nvidia-open": ["590.44.01-1", "580.95.05-1"]}, packages={"nvidia-open": "590.44.01-1"}
    )
    assert plan(host, request, repository_ready=True).install == [{"name": "nvidia-open", "version": "580.*"}]
    assert not plan(
        make(versions={}, packages={"nvidia-open": "580.95.05-1"}), request, repository_ready=True
    ).install


PINNED = (
    {"name": "nvidia-driver-pinning-580", "version": None},
    {"name": "nvidia-open", "version": None},
)
# `apt-cache policy` on Debian 12: this package's version is the branch and a revision of its own.
PINNING = {"nvidia-driver-pinning-580": ["580-5", "580-1"], "nvidia-open": ["590.44.01-1", "580.95.05-1"]}


def test_nvidias_pinning_package_has_a_version_of_its_own():
    request = replace(REQUEST, version="580", packages=PINNED)
    host = make(versions=PINNING)
    assert not problems(host, request)
    assert plan(host, request, repository_ready=True).install == [
        {"name": "nvidia-driver-pinning-580", "version": None},
        {"name": "nvidia-open", "version": "580.*"},
    ]
    there = {"nvidia-driver-pinning-580": "580-5", "nvidia-open": "580.95.05-1", "libcuda1": "580.95.05-1"}
    assert not plan(make(packages=there, versions=PINNING), request, repository_ready=True).changes


def test_the_pinning_package_of_another_branch_makes_room():
    there = {"nvidia-driver-pinning-570": "570-1", "nvidia-open": "570.86.15-1"}
    result = plan(
        make(packages=there, versions=PINNING),
        replace(REQUEST, version="580", packages=PINNED),
        repository_ready=True,
    )
    assert result.may_go == ["nvidia-driver-pinning-570"]
    assert not result.remove


def test_a_runfile_leaves_no_pinning_package():
    request = replace(REQUEST, method="runfile", version="550.54.14", remove_old=True, checksum="sha256:0")
    there = {"nvidia-driver-pinning-580": "580-5", "nvidia-open": "580.95.05-1"}
    result = plan(make(packages=there), request, repository_ready=True)
    assert result.remove == ["nvidia-open", "nvidia-driver-pinning-580"]


PYTHON = [{"pid": "7", "name": "python"}]


@pytest.mark.parametrize(
    ("observed", "changes", "action", "loaded"),
    [
        ({}, {}, "load", False),
        ({"loaded": "550.54.14"}, {}, "nothing", True),
        ({"loaded": "535.54.03"}, {}, "reload", False),
        ({"loaded": "535.54.03", "users": PYTHON}, {"in_use": "allow"}, "reboot", False),
        ({"loaded": "535.54.03", "users": PYTHON}, {"reboot": "never"}, "nothing", False),
        ({"nouveau": True}, {}, "reboot", False),
        ({"nouveau": True}, {"reboot": "never"}, "nothing", False),
        ({}, {"load": "never"}, "nothing", False),
        ({"loaded": "535.54.03"}, {"method": "none"}, "nothing", True),
    ],
)
def test_how_the_driver_comes_into_use(observed, changes, action, loaded):
    step = loading(make(dkms=[BUILT], **observed), replace(REQUEST, **changes))
    assert (step.action, step.loaded) == (action, loaded)
    assert (step.problem is not None) == (changes == {"reboot": "never"})


def test_where_no_reboot_is_allowed_the_host_and_the_remedy_are_named():
    host = make(dkms=[BUILT], library="550.54.14", loaded="535.54.03", users=PYTHON)
    problem = loading(host, replace(REQUEST, reboot="never")).problem
    assert problem.host == "g1"
    assert problem.observed == "driver 550.54.14 is installed and 535.54.03 is loaded; python[7] use it"
    assert problem.remedy.startswith("end these processes and run again, or reboot it")
    assert loading(host, REQUEST, local=True).problem


def test_modules_that_would_not_unload_ask_for_a_reboot():
    assert (
        loading(make(dkms=[BUILT], loaded="535.54.03"), REQUEST, stuck="nvidia is in use").action == "reboot"
    )


def test_without_a_gpu_or_for_another_kernel_nothing_is_loaded():
    assert loading(make(own={"gpus": []}), REQUEST).reason == "there is no NVIDIA GPU on the PCI bus"
    step = loading(make(), replace(REQUEST, kernel="6.1.0-10-amd64"))
    assert (step.action, step.loaded) == ("nothing", False)
    assert step.reason == f"it is built for kernel 6.1.0-10-amd64, and {KERNEL} runs"


def test_a_driver_from_outside_needs_no_module():
    host, request = make(own={"driver": "581.29"}), replace(REQUEST, method="none")
    assert not problems(host, request)
    assert loading(host, request).reason == "its driver comes from outside"
    assert "no driver is loaded" in problems(make(), request)


def test_the_library_tells_the_installed_version_before_the_module_does():
    assert find_installed_version(make(dkms=[BUILT], library="570.86.15"), KERNEL) == "570.86.15"
    assert find_installed_version(make(dkms=[BUILT]), KERNEL) == "550.54.14"
    assert find_installed_version(make(dkms=[BUILT]), "other") is None
    assert find_installed_version(make(packages={"kmod-nvidia": "470.256.02-1.el8"}), KERNEL) == "470.256.02"
