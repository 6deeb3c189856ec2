"""Sources: which files count, which checksums stop, and what the distribution's package says."""

import hashlib
import os
import re
import runpy
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail

from hvlab.ansible import plugin as plugin_base
from hvlab.ansible.action import hvlab_source as action

# A path that, quoted as for a shell, has sftp run a command on the controller.
HOSTILE = '/srv/decoy\\\'" /dev/null\n!id > /tmp/PWNED\nget /srv/ok"'
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
    assert found == {"name": "x_1.orig.tar.xz", "version": version, "sha256": EMPTY}


def source_of_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: list[str], **more: object
) -> action.ActionModule:
    """Return the plugin for a task that asks for tool 1; what it displays goes to ``shown``."""
    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(plugin_base.ActionBase, "run", lambda *_: {})
    plugin = object.__new__(action.ActionModule)
    plugin._task = SimpleNamespace(check_mode=False)
    plugin._display = SimpleNamespace(display=shown.append, warning=shown.append)
    plugin._get_remote_user = lambda: "root"
    args = {
        "name": "tool", "version": "1", "url": "", "folder": None, "avoid": {}, "checksum": "",
        "platform": "", "at_least": "1", "below": "9", "refresh": False, **more,
    }  # fmt: skip
    plugin.validate_argument_spec = lambda **_: (None, args)
    return plugin


def test_a_new_source_keeps_the_cache_below_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVLAB_CACHE_LIMIT", "10K")
    old = tmp_path / "cache/sources/tool-0.tar.gz"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x" * 20_000)
    os.utime(old, (time.time() - 3 * 86_400,) * 2)
    new = tmp_path / "tool-1.tar.gz"
    new.write_bytes(b"x" * 5000)
    said: list[str] = []
    sum_ = action.file_sha256(new)
    plugin = source_of_tool(tmp_path, monkeypatch, said, ways=["url"], url=new.as_uri(), checksum=sum_)
    for _ in range(2):
        source = Path(plugin.run(None, {"inventory_hostname": "n1"})["path"])
        assert source.read_bytes() == new.read_bytes()
    assert not old.exists()
    assert [line.split()[0] for line in said] == [old.name]


def test_half_a_download_is_named_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = tmp_path / "tool-1.tar.gz"
    half.write_bytes(b"half")
    plugin = source_of_tool(tmp_path, monkeypatch, [], ways=["url"], url=half.as_uri(), checksum=EMPTY)
    with pytest.raises(AnsibleActionFail) as refused:
        plugin.run(None, {"inventory_hostname": "n1"})
    assert str(refused.value).startswith(f"{half.as_uri()} is not what it should be")
    assert "(4 bytes)" in str(refused.value)
    assert "What to do: run again, or correct the checksum" in str(refused.value)
    assert list((tmp_path / "cache/sources").iterdir()) == []


def distro(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    version: str = "1.2",
    suffix: str = "xz",
    name: str = "tool_1.orig",
    interrupted: bool = False,
    **more: object,
) -> Path:
    """Return where the cache has the source that a host offers; its connection copies from this machine."""

    def fetch(source: str, target: str) -> None:
        Path(target).write_bytes(b"wh")
        if interrupted:
            raise KeyboardInterrupt
        assert re.fullmatch(r"/var/tmp/hvlab-source-[0-9a-f]{16}/source", source)
        Path(target).write_bytes(b"whole")

    offered = {
        "archive": HOSTILE,
        "name": f"{name}.tar.{suffix}",
        "version": version,
        "sha256": hashlib.sha256(b"whole").hexdigest(),
    }
    plugin = source_of_tool(tmp_path, monkeypatch, [], ways=["distro"], **more)
    plugin._execute_module = lambda module_args, **_: offered if "package" in module_args else {}
    plugin._connection = SimpleNamespace(fetch_file=fetch)
    return Path(plugin.run(None, {"inventory_hostname": "n1"})["path"])


def test_a_distributions_source_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        distro(tmp_path, monkeypatch, interrupted=True)
    assert list((tmp_path / "cache/sources").iterdir()) == []
    path = distro(tmp_path, monkeypatch)
    assert (path.name, path.read_bytes()) == ("tool-1.2.tar.xz", b"whole")


@pytest.mark.parametrize(
    ("offered", "observed"),
    [
        ({"version": "0.9"}, "the source package is 0.9, supported are 1 up to below 9"),
        ({"version": "1.2.x~?"}, "the source package is '1.2.x~?', which is no version"),
        ({"version": "1.2\n"}, "the source package is '1.2\\n', which is no version"),
        ({"version": "../../1.2"}, "the source package is '../../1.2', which is no version"),
        ({"suffix": "zst"}, "tar.zst of n1 is no archive that is known (.tar.bz2, .tar.gz, .tar.xz)"),
    ],
)
def test_a_source_package_that_cannot_be_used_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: dict[str, str], observed: str
) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        distro(tmp_path, monkeypatch, **offered)
    assert f"{observed}\nWhat to do: put tool-1.tar.bz2 into" in str(refused.value)


@pytest.mark.parametrize("offered", [{"name": HOSTILE}, {"name": f"{HOSTILE}.orig"}])
def test_a_host_does_not_choose_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: dict[str, str]
) -> None:
    assert distro(tmp_path, monkeypatch, **offered).name == "tool-1.2.tar.xz"


def test_a_distributions_source_of_the_known_sum_has_that_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"version": "1", "url": "https://example.org/tool-1.tar.xz", "checksum": EMPTY}
    with pytest.raises(AnsibleActionFail, match=f"of n1 is not what it should be.*expected {EMPTY}"):
        distro(tmp_path, monkeypatch, **known)


@pytest.mark.parametrize("checksum", ["", EMPTY])
def test_no_source_of_an_unknown_sum_runs_on_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checksum: str
) -> None:
    """pip asks a source package for its metadata, which runs its setup.py, once its sum is right."""
    asked = []

    def pip_download(arguments: list[str]) -> str:
        asked.append(Path(arguments[-1]).read_text("utf-8"))
        return "ERROR: none"

    monkeypatch.setattr(action, "pip_download", pip_download)
    plugin = source_of_tool(tmp_path, monkeypatch, [], ways=["pip"], checksum=checksum)
    with pytest.raises(AnsibleActionFail, match="ERROR: none" if checksum else "no sha256 is known"):
        plugin.run(None, {"inventory_hostname": "n1"})
    assert asked == ([f"tool==1 --hash=sha256:{EMPTY}\n"] if checksum else [])
