"""Sources: which files count, which checksums stop, and what the distribution's package says."""

import os
import runpy
import time
from pathlib import Path
from types import SimpleNamespace

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


def test_a_new_source_keeps_the_cache_below_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HVLAB_CACHE_LIMIT", "10K")
    monkeypatch.setattr(action.ActionBase, "run", lambda *_: {})
    old = tmp_path / "cache/sources/tool-0.tar.gz"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x" * 20_000)
    os.utime(old, (time.time() - 3 * 86_400,) * 2)
    new = tmp_path / "tool-1.tar.gz"
    new.write_bytes(b"x" * 5000)
    said: list[str] = []
    plugin = object.__new__(action.ActionModule)
    plugin._task = SimpleNamespace(check_mode=False)
    plugin._display = SimpleNamespace(display=said.append)
    args = {
        "name": "tool", "version": "1", "ways": ["url"], "url": new.as_uri(), "folder": None, "avoid": {},
        "checksum": action.file_sha256(new), "platform": "", "at_least": "0", "below": "9", "refresh": False,
    }  # fmt: skip
    plugin.validate_argument_spec = lambda **_: (None, args)
    for _ in range(2):
        source = Path(plugin.run(None, {"inventory_hostname": "n1"})["path"])
        assert source.read_bytes() == new.read_bytes()
    assert not old.exists()
    assert [line.split()[0] for line in said] == [old.name]
