"""The part of hvlab_driver that runs on a host, with recorded output of DKMS."""

import sys
from pathlib import Path
from typing import Any

import pytest

from hvlab.ansible.modules import hvlab_driver

KERNEL = "5.15.0-113-generic"


class Module:
    """The module's options."""

    def __init__(self, **params: Any) -> None:
        self.params = {"kernel": KERNEL, "also": [], **params}
        self.check_mode = False


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the commands that a host was given; each succeeds."""
    given: list[list[str]] = []

    def run(_module: Module, *argv: str) -> tuple[int, str, str]:
        given.append(list(argv))
        return 0, STATUS if argv == ("dkms", "status") else "", ""

    monkeypatch.setattr(hvlab_driver, "run", run)
    return given


# What an earlier driver left, the driver, and GPUDirect Storage, in the form of DKMS 2.8 and later.
STATUS = f"""nvidia-fs/2.17.5: added
nvidia/535.183.01: added
nvidia/570.133.20, {KERNEL}, x86_64: installed
"""


def test_what_an_earlier_driver_left_is_not_built_over_the_driver(monkeypatch, commands):
    monkeypatch.setattr(hvlab_driver, "library", lambda: "570.133.20")
    done = hvlab_driver.build(Module(also=["5.15.0-118-generic"]))
    assert done == ["nvidia/570.133.20 for 5.15.0-118-generic"]
    assert [argv for argv in commands if "install" in argv] == [
        ["dkms", "install", "--force", "nvidia/570.133.20", "-k", "5.15.0-118-generic"]
    ]


def test_without_a_library_the_driver_is_whatever_dkms_knows_of_it(monkeypatch, commands):
    monkeypatch.setattr(hvlab_driver, "library", lambda: None)
    assert [entry["version"] for entry in hvlab_driver.dkms(Module())] == ["535.183.01", "570.133.20"]
    assert commands == [["dkms", "status"]]


def test_a_reload_brings_back_every_module_that_was_loaded(monkeypatch, commands):
    """Without nvidia_peermem, RDMA goes through the host's memory from then on, and nothing says so."""
    present = ["/sys/module/nvidia", "/sys/module/nvidia_uvm", "/sys/module/nvidia_peermem"]
    monkeypatch.setattr(hvlab_driver.os.path, "isdir", lambda path: path in present)
    hvlab_driver.load(Module())
    assert commands == [
        ["modprobe", "-r", "nvidia_uvm", "nvidia_peermem", "nvidia"],
        ["modprobe", "nvidia"],
        ["modprobe", "nvidia_uvm"],
        ["modprobe", "nvidia_peermem"],
    ]


@pytest.mark.parametrize("code", [0, 10])
def test_a_driver_is_tried_in_a_folder_of_its_own(code, monkeypatch, tmp_path):
    """Only what belongs to the requested version is unpacked; the error is that of the compiler."""
    for name in (
        "nvidia-kernel-open-dkms_570.86.15-1",
        "nvidia-kernel-dkms_550.1-1",
        "nvidia-smi_570.86.15-1",
    ):
        (tmp_path / f"{name}_amd64.deb").touch()
    given = []

    def run(_module, *argv):
        given.append(argv)
        if argv[0] == "dpkg-deb":
            sources = Path(argv[3]) / "usr/src/nvidia-570.86.15"
            sources.mkdir(parents=True)
            (sources / "dkms.conf").write_text('PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="570.86.15"\n')
            return 0, "", ""
        log = Path(argv[argv.index("--dkmstree") + 1]) / "nvidia/570.86.15/build/make.log"
        log.parent.mkdir(parents=True)
        log.write_text("nv.c:1: error: too few arguments\n")
        return code, "", "bad exit status"

    module = Module(version="570")
    module.get_bin_path = lambda name: name
    module.fail_json = lambda *, msg: sys.exit(msg)
    monkeypatch.setattr(hvlab_driver, "run", run)
    monkeypatch.setattr(hvlab_driver, "FETCHED", (f"{tmp_path}/*.deb",))
    if code:
        with pytest.raises(
            SystemExit, match=f"nvidia/570.86.15 does not build for kernel {KERNEL}:\n  nv.c:1: error"
        ):
            hvlab_driver.attempt(module)
    else:
        assert hvlab_driver.attempt(module) == ["nvidia/570.86.15"]
    assert [argv[0] for argv in given] == ["dpkg-deb", "nice"]
    assert not Path(given[0][3]).exists()


def test_sources_that_cannot_be_unpacked_are_told(monkeypatch, tmp_path):
    """Otherwise the old driver would go without a trial, and without a word."""
    (tmp_path / "kmod-nvidia-open-dkms-580.95.05-1.el9.x86_64.rpm").touch()
    module, told = Module(version="580.95.05"), []
    module.get_bin_path, module.warn = lambda name: name, told.append
    monkeypatch.setattr(hvlab_driver, "run", lambda *_: (127, "", "sh: 1: cpio: not found\n"))
    monkeypatch.setattr(hvlab_driver, "FETCHED", (f"{tmp_path}/*.rpm",))
    assert hvlab_driver.attempt(module) == []
    assert "cannot be unpacked: sh: 1: cpio: not found" in told[0]
    assert "was not tried" in told[1]
