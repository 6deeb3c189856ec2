"""The module hvlab_files, run as Ansible runs it, on real files."""

import errno
import json
import os
import stat
import tempfile
from types import SimpleNamespace

import pytest
from ansible.module_utils import hvlab_managed
from ansible.module_utils.testing import patch_module_args

from hvlab.ansible.action.hvlab_trust import MATCH
from hvlab.ansible.modules import hvlab_files


@pytest.fixture
def bring(capsys):
    def run(*files, check=False, **options):
        arguments = {"files": list(files), "_ansible_check_mode": check, "_ansible_diff": True, **options}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            hvlab_files.main()
        return json.loads(capsys.readouterr().out)

    return run


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_all_kinds_at_once_and_then_nothing(bring, tmp_path):
    (tmp_path / "gone").mkdir()
    wanted = [
        {"path": str(tmp_path / "d"), "state": "directory", "mode": "0750"},
        {"path": str(tmp_path / "a/b/f"), "content": "text\n", "mode": "0640"},
        {"path": str(tmp_path / "l"), "state": "link", "src": "d"},
        {"path": str(tmp_path / "gone"), "state": "absent"},
    ]
    done = bring(*wanted)
    assert done["changed"]
    assert done["paths"] == [item["path"] for item in wanted]
    assert (tmp_path / "a/b/f").read_text() == "text\n"
    assert (mode(tmp_path / "d"), mode(tmp_path / "a/b/f")) == (0o750, 0o640)
    assert (tmp_path / "l").readlink().name == "d"
    assert not (tmp_path / "gone").exists()
    assert not bring(*wanted)["changed"]


def test_check_mode_says_the_same_and_writes_nothing(bring, tmp_path):
    item = {"path": str(tmp_path / "f"), "content": "x", "owner": "nobody-of-this-name"}
    done = bring(item, check=True)
    assert done["changed"]
    assert done["diff"][0]["after"] == "x"
    assert not (tmp_path / "f").exists()


def test_an_unknown_owner_fails(bring, tmp_path):
    done = bring({"path": str(tmp_path / "f"), "content": "x", "owner": "nobody-of-this-name"})
    assert "no user 'nobody-of-this-name'" in done["msg"]


@pytest.mark.parametrize(
    ("before", "given"),
    [(0o666, {"content": "x", "mode": "0600"}), (0o600, {"content": "y"}), (0o644, {"secret": "KEY"})],
    ids=["wrong", "not given", "a secret's"],
)
def test_a_mode_is_kept_unless_another_is_given_or_it_is_a_secrets(bring, tmp_path, before, given):
    (tmp_path / "f").write_text("x")
    (tmp_path / "f").chmod(before)
    for name in ("f", "new") if "secret" in given else ("f",):
        assert bring({"path": str(tmp_path / name), **given})["changed"]
        assert mode(tmp_path / name) == 0o600


def test_a_link_in_the_place_of_a_file_is_not_followed(bring, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / "f").symlink_to(victim)
    assert bring({"path": str(tmp_path / "f"), "content": "x", "mode": "0600"})["changed"]
    assert victim.read_text() == "untouched"
    assert not (tmp_path / "f").is_symlink()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\n", "a\n# BEGIN hvlab\nnew\n# END hvlab\n"),
        ("", "# BEGIN hvlab\nnew\n# END hvlab\n"),
        ("a\n\n\n", "a\n# BEGIN hvlab\nnew\n# END hvlab\n"),
        ("a\n# BEGIN hvlab\nold\n# END hvlab\nb\n", "a\n# BEGIN hvlab\nnew\n# END hvlab\nb\n"),
        ("127.0.1.1 n1\na\n", "a\n# BEGIN hvlab\nnew\n# END hvlab\n"),
        ("a\fb\u2028c\r\n\x85\rd", "a\fb\u2028c\r\n\x85\rd\n# BEGIN hvlab\nnew\n# END hvlab\n"),
        ("a\r\n# BEGIN hvlab\r\nold\r\n# END hvlab\r\nb\r\n", "a\r\n# BEGIN hvlab\nnew\n# END hvlab\nb\r\n"),
        ("a\n#Match c\nMatch b\n c\n", "a\n#Match c\n# BEGIN hvlab\nnew\n# END hvlab\nMatch b\n c\n"),
        ("match b\n c\n# BEGIN hvlab\n# END hvlab\nd\n", "# BEGIN hvlab\nnew\n# END hvlab\nmatch b\n c\nd\n"),
    ],
)
def test_a_block_leaves_the_other_lines(bring, tmp_path, before, after):
    file = tmp_path / "hosts"
    file.write_bytes(before.encode())
    item = {"path": str(file), "block": "new\n", "drop": r"^127\.0\.1\.1\s", "above": MATCH}
    assert bring(item)["changed"]
    assert file.read_bytes() == after.encode()
    assert not bring(item)["changed"]


@pytest.mark.parametrize(
    "text",
    [
        "a\n# BEGIN hvlab\nold\nnameserver of a person\n",
        "a\n# BEGIN hvlab\nb\n# BEGIN hvlab\nold\n# END hvlab\n",
    ],
)
def test_a_block_without_its_end_changes_nothing(bring, tmp_path, text):
    file = tmp_path / "hosts"
    file.write_text(text)
    done = bring({"path": str(tmp_path / "f"), "content": "x"}, {"path": str(file), "block": "new\n"})
    assert done["failed"]
    assert f"{file}: there is a line '# BEGIN hvlab', but no line '# END hvlab'" in done["msg"]
    assert "write that line" in done["msg"]
    assert [path.name for path in tmp_path.iterdir()] == ["hosts"]
    assert file.read_text() == text


def test_one_refused_text_stops_all(bring, tmp_path):
    done = bring(
        {"path": str(tmp_path / "a"), "content": "x"},
        {"path": str(tmp_path / "b"), "content": "x", "validate": ["false", "%s"]},
    )
    assert done["failed"]
    assert "refused by false" in done["msg"]
    assert list(tmp_path.iterdir()) == []


def test_the_tool_sees_the_new_text(bring, tmp_path):
    item = {"path": str(tmp_path / "a"), "content": "good", "validate": ["grep", "-q", "good", "%s"]}
    assert bring(item)["changed"]


def test_a_tool_that_reads_several_files_sees_the_new_ones_together(bring, tmp_path):
    validate = ["grep", "-q", "good", "%d/other"]
    items = [{"path": str(tmp_path / "a"), "content": "x", "validate": validate}]
    (tmp_path / "other").write_text("good")
    refused = bring(*items, {"path": str(tmp_path / "other"), "content": "bad"})
    assert "refused by grep" in refused["msg"]
    assert "What to do: " in refused["msg"]
    assert not (tmp_path / "a").exists()
    assert bring(*items, {"path": str(tmp_path / "other"), "content": "good"})["changed"]


def test_a_secret_shows_nowhere(bring, tmp_path):
    done = bring({"path": str(tmp_path / "k"), "secret": "TOPSECRET\nKEY", "mode": "0600"})
    assert "TOPSECRET" not in json.dumps(done)
    assert (tmp_path / "k").read_text() == "TOPSECRET\nKEY"


def test_a_text_to_validate_does_not_stay_where_the_tool_is_missing(bring, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    item = {"path": str(tmp_path / "a"), "secret": "KEY", "validate": ["no-such-tool", "%s"]}
    assert bring(item)["failed"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_nothing_is_left_beside_a_file_that_cannot_be_written(bring, tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f/x").write_text("")
    assert bring({"path": str(tmp_path / "f"), "content": "x"})["changed"]
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_folder_that_another_host_makes_meanwhile_is_no_error(bring, tmp_path, monkeypatch):
    monkeypatch.setattr(hvlab_files, "current", lambda _: hvlab_managed.current("/nowhere"))
    monkeypatch.setattr(hvlab_files.Change, "_follow", lambda change: change.path)
    (tmp_path / "shared").mkdir(mode=0o755)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    assert bring({"path": str(tmp_path / "shared"), "state": "directory", "mode": "0700"})["changed"]
    assert mode(tmp_path / "shared") == 0o700
    assert "cannot be written" in bring({"path": str(tmp_path / "link"), "state": "directory"})["msg"]


def test_a_link_to_a_folder_is_one_and_so_is_one_to_a_file_of_other_peoples_lines(bring, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "opt").symlink_to("disk")
    (tmp_path / "disk/hosts").write_text("127.0.0.1 localhost\n")
    (tmp_path / "hosts").symlink_to("disk/hosts")
    folder = {"path": str(tmp_path / "opt"), "state": "directory", "mode": "0750"}
    block = {"path": str(tmp_path / "hosts"), "block": "10.0.0.1 n1"}
    assert bring(folder, block)["changed"]
    assert (tmp_path / "opt").is_symlink()
    assert (tmp_path / "hosts").is_symlink()
    assert mode(tmp_path / "disk") == 0o750
    assert (tmp_path / "disk/hosts").read_text().startswith("127.0.0.1 localhost\n# BEGIN hvlab\n10.0.0.1")
    assert not bring(folder, block)["changed"]


@pytest.mark.parametrize("item", [{"state": "directory"}, {"block": "10.0.0.1 n1"}])
def test_a_link_that_leads_nowhere_is_refused(bring, tmp_path, item):
    (tmp_path / "l").symlink_to("unmounted/place")
    done = bring({"path": str(tmp_path / "l"), **item})
    assert f"{tmp_path}/l: is a link to {tmp_path}/unmounted/place" in done["msg"]
    assert [path.name for path in tmp_path.iterdir()] == ["l"]


def test_a_mount_point_is_written_in_place(bring, tmp_path, monkeypatch):
    replace, path = os.replace, tmp_path / "hosts"

    def refuse(one, other):
        raise OSError(errno.EBUSY, "busy")

    path.write_text("127.0.0.1 localhost\n")
    inode = path.stat().st_ino
    monkeypatch.setattr(os, "replace", refuse)
    assert bring({"path": str(path), "block": "10.0.0.1 n1", "mode": "0640"})["changed"]
    monkeypatch.setattr(os, "replace", replace)
    assert path.read_text() == "127.0.0.1 localhost\n# BEGIN hvlab\n10.0.0.1 n1\n# END hvlab\n"
    assert (path.stat().st_ino, mode(path)) == (inode, 0o640)
    assert [one.name for one in tmp_path.iterdir()] == ["hosts"]


def test_labels_of_a_file_stay(bring, tmp_path):
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n")
    try:
        os.setxattr(path, "user.site", b"x")
    except OSError:
        pytest.skip("no extended attributes here")
    bring({"path": str(path), "block": "10.0.0.1 n1"})
    assert os.getxattr(path, "user.site") == b"x"


@pytest.mark.parametrize(
    ("flag", "told"), [(0, "lsattr -d"), (os.ST_RDONLY, "mount that file system read-write")]
)
def test_a_path_that_not_even_root_can_write_is_refused_before_the_first_file(
    bring, tmp_path, monkeypatch, flag, told
):
    access, statvfs = os.access, os.statvfs
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda path, mode: "fixed" not in str(path) and access(path, mode))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flag))
    (tmp_path / "fixed").write_text("theirs")
    items = [{"path": str(tmp_path / name), "content": "x"} for name in ("a", "fixed")]
    done = [bring(*items, check=check)["msg"] for check in (True, False)]
    monkeypatch.setattr(os, "statvfs", statvfs)
    assert all(told in message for message in done)
    assert [path.name for path in tmp_path.iterdir()] == ["fixed"]


def test_a_disk_without_room_for_the_record_leaves_the_files(bring, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hvlab_files, "add_to_record", full)
    (tmp_path / "f").write_text("theirs")
    done = bring({"path": str(tmp_path / "f"), "content": "x"}, record=str(tmp_path / "files.json"))
    assert "What to do: free space" in done["msg"]
    assert (tmp_path / "f").read_text() == "theirs"
