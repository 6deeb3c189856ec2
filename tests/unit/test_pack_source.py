"""Sources: which files count, which checksums stop, and what the distribution's package says."""

import runpy
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail

from hvlab.ansible.action import hvlab_source as action

MODULE = Path(__file__).parents[2] / "hvlab/ansible/modules/hvlab_source.py"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_local_file_is_known_by_its_name(tmp_path: Path) -> None:
    for name in (
        "openmpi-4.1.8.tar.bz2",
        "openmpi_4.1.8.orig.tar.xz",
        "openmpi-4.1.80.tar.gz",
        "openmpi-4.1.8.zip",
    ):
        (tmp_path / name).touch()
    found = [path.name for path in action.local_archives(tmp_path, "openmpi", "4.1.8")]
    assert found == ["openmpi-4.1.8.tar.bz2", "openmpi_4.1.8.orig.tar.xz"]


def test_a_wrong_checksum_stops_with_both(tmp_path: Path) -> None:
    path = tmp_path / "openmpi-4.1.8.tar.bz2"
    path.touch()
    assert action.check_sum(path, "") == action.check_sum(path, EMPTY) == EMPTY
    with pytest.raises(AnsibleActionFail, match=rf"{path}.*{EMPTY}, expected 1234"):
        action.check_sum(path, "1234")


@pytest.mark.parametrize(
    ("package", "version"),
    [("4.1.4-3+b1", "4.1.4"), ("1:4.1.2-2ubuntu1", "4.1.2"), ("5.0.7+dfsg-1", "5.0.7"), ("4.1.4", "4.1.4")],
)
def test_upstream_version_of_a_source_package(tmp_path: Path, package: str, version: str) -> None:
    (tmp_path / "x.dsc").write_text(f"Format: 3.0 (quilt)\nVersion: {package}\n")
    (tmp_path / "x_1.orig.tar.xz").touch()
    (tmp_path / "x_1.orig.tar.xz.asc").touch()
    found = runpy.run_path(str(MODULE))["describe"](str(tmp_path))
    assert found == {"archive": str(tmp_path / "x_1.orig.tar.xz"), "version": version, "sha256": EMPTY}
