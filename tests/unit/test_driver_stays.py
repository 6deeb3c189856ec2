"""A driver that is there already and fits is left as it is, wherever it came from."""

from dataclasses import replace

import pytest

from hvlab.stack.provision.driver.plan import pin, plan
from hvlab.stack.resolver import plan as resolved
from tests.unit.test_driver import KERNEL, REQUEST, make
from tests.unit.test_resolver import lab

OPEN = replace(REQUEST, packages=({"name": "nvidia-open-550", "version": None},))
OTHER = {"cuda-drivers-550": "550.54.14-1", "nvidia-kernel-dkms": "550.54.14-1"}
UBUNTUS = {"nvidia-driver-550": "550.54.14-0ubuntu0.22.04.1"}
BUILT = {"name": "nvidia", "version": "550.54.14", "kernel": KERNEL, "state": "installed"}
LOADED = {"library": "550.54.14", "loaded": "550.54.14"}


def planned(request=OPEN, own=(), packages=(), **observed):
    known = ["550.90.07-1", "550.54.14-1"]
    versions = {"nvidia-open-550": known, "nvidia-fabricmanager-550": known}
    host = make(own=own, packages=packages, versions=versions, **observed)
    return plan(host, request, repository_ready=True)


@pytest.mark.parametrize("packages", [OTHER, UBUNTUS, {}])
@pytest.mark.parametrize("observed", [LOADED, {"library": "550.54.14", "dkms": [BUILT]}])
@pytest.mark.parametrize("remove_old", [False, True])
def test_a_driver_that_fits_stays(packages, observed, remove_old):
    result = planned(replace(OPEN, remove_old=remove_old), packages=packages, **observed)
    assert not result.problems
    assert not result.changes
    assert not result.requested
    assert result.pin == pin(OPEN, "550.54.14")


@pytest.mark.parametrize("method", ["repo", "runfile", "distro"])
def test_so_does_one_by_another_method(method):
    request = replace(OPEN, method=method, version="550.54.14", components=("contrib",))
    result = planned(request, packages=UBUNTUS, uninstaller=True, **LOADED)
    assert not result.problems
    assert not result.changes


def test_beside_it_nvidias_pinning_package_counts_for_no_driver():
    packages = ({"name": "nvidia-driver-pinning-550", "version": None}, *OPEN.packages)
    there = OTHER | {"nvidia-driver-pinning-550": "550-1"}
    assert not planned(replace(OPEN, packages=packages), packages=there, **LOADED).requested


def test_one_that_does_not_fit_is_in_the_way_as_before():
    exact = replace(OPEN, packages=({"name": "nvidia-open-550", "version": "550.90.07*"},))
    assert planned(exact, packages=OTHER, **LOADED).install
    assert planned(exact, uninstaller=True, **LOADED).problems
    assert planned(replace(OPEN, version="580"), packages=OTHER, **LOADED).install


@pytest.mark.parametrize("observed", [{"library": "550.54.14"}, {"dkms": [BUILT]}])
def test_half_a_driver_is_made_whole(observed):
    assert [package["name"] for package in planned(**observed).install] == ["nvidia-open-550"]


def test_the_fabric_manager_is_of_its_version():
    result = planned(own={"nvswitches": 6}, uninstaller=True, **LOADED)
    assert result.install == [{"name": "nvidia-fabricmanager-550", "version": "550.54.14*"}]
    assert not result.problems
    assert not result.run_uninstaller


@pytest.mark.parametrize("manager", ["nvidia-fabricmanager-550", "nvidia-fabricmanager"])
@pytest.mark.parametrize("name", ["nvidia-fabricmanager-550", "nvidia-fabricmanager"])
def test_a_fabric_manager_of_its_version_is_taken_under_either_name(manager, name):
    request = replace(OPEN, fabric_manager_package=name)
    there = UBUNTUS | {manager: "550.54.14-0ubuntu0.22.04.1"}
    assert not planned(request, own={"nvswitches": 4}, packages=there, **LOADED).changes
    other = UBUNTUS | {manager: "550.90.07-1"}
    assert planned(request, own={"nvswitches": 4}, packages=other, **LOADED).install[0]["name"] == name


def test_a_fabric_manager_that_runs_with_it_is_left_wherever_it_came_from():
    runs = {"services": {"nvidia-fabricmanager": {"there": True, "active": True}}}
    assert not planned(own={"nvswitches": 6}, uninstaller=True, **LOADED, **runs).changes
    assert planned(own={"nvswitches": 6}, loaded="535.54.03", **runs).install


def test_one_whose_modules_the_distribution_builds_follows_its_kernels():
    """Pinned, it would keep the modules of the next kernel from being installed."""
    modules = {"linux-modules-nvidia-550-server-open-6.8.0-85-generic": "6.8.0-85.85"}
    result = planned(packages=UBUNTUS | modules, **LOADED)
    assert not result.changes
    assert not result.pin
    assert planned(packages=modules).pin


def test_its_stream_stays_too():
    request = replace(OPEN, stream="nvidia-driver:550-open")
    streams = {"module_streams": {"nvidia-driver": "550-dkms"}, "nvswitches": 6}
    assert not planned(request, own=streams, packages=OTHER, **LOADED).stream
    assert not planned(request, packages=OTHER, **LOADED).stream
    assert planned(request, own={"nvswitches": 6}, **LOADED).stream == request.stream
    assert planned(request).stream == request.stream


def test_headers_are_not_needed_where_nothing_is_built():
    assert not planned(packages=OTHER, headers=[], **LOADED).problems
    other = BUILT | {"kernel": "6.1.0-8-amd64"}
    assert planned(packages=OTHER, headers=[], library="550.54.14", dkms=[other]).problems


@pytest.mark.parametrize("driver", [None, "595.91.07"])
def test_the_version_of_the_plan_is_the_one_installed(driver):
    stack = resolved(lab("n1", **({"driver": driver} if driver else {}))).hosts["n1"]
    assert stack["versions"]["driver"] == stack["driver_requested"] == "595.91.07"
    assert stack["packages"]["driver"] == [
        {"name": "nvidia-driver-pinning-595", "version": None},
        {"name": "nvidia-open", "version": "595.91.07*"},
    ]


def test_an_installed_version_is_the_plans():
    stack = resolved(lab("n1", driver="570.133.20")).hosts["n1"]
    assert stack["versions"]["driver"] == "570.133.20"
    assert stack["packages"]["driver"] == [{"name": "nvidia-open-570", "version": "570.133.20*"}]


def test_on_dnf_nvidia_modprobe_has_the_version_too():
    """Nothing else asks for more than any version of it."""
    rocky = lab("n1", distribution="Rocky", distribution_version="9.4", python="3.9")
    packages = resolved(rocky).hosts["n1"]["packages"]["driver"]
    assert [package["name"] for package in packages] == ["nvidia-open", "nvidia-modprobe"]
    assert {package["version"] for package in packages} == {"595.*"}
