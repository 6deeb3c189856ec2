"""What root writes, and where another person could turn it elsewhere."""

import json
import os
import stat

import pytest
from ansible.module_utils.testing import patch_module_args

from hvlab.ansible.module_utils import hvlab_managed
from hvlab.ansible.modules import hvlab_build, hvlab_files

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to another user")


@pytest.fixture
def room(tmp_path):
    """A folder that everybody can reach."""
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(0o755)
    return tmp_path


@pytest.fixture
def home(room):
    folder = room / "home"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    return folder


def run(module, arguments, capsys):
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


@as_root
def test_in_a_persons_folder_only_with_that_persons_rights(room, home):
    assert hvlab_managed.writer(str(home / ".ssh/config"), NOBODY) == NOBODY
    assert hvlab_managed.writer(str(room / "etc/config"), NOBODY) == 0
    with pytest.raises(PermissionError, match=f"{home} belongs to UID {NOBODY}"):
        hvlab_managed.writer(str(home / "log"), 0)


@as_root
@pytest.mark.parametrize("uid", [999, 60000, 64030, 65519])
def test_a_services_folder_is_the_systems(home, uid):
    """Debian's slurm has the UID 64030."""
    os.chown(home, uid, uid)
    assert hvlab_managed.writer(str(home / "log"), 0) == 0


@as_root
@pytest.mark.parametrize(
    ("settings", "first"),
    [("UID_MIN\t\t  500\n", 500), ("#UID_MIN 500\n", 1000), ("UID_MIN 70000\n", 1000), (None, 1000)],
)
def test_the_systems_accounts_end_where_the_host_says(home, room, monkeypatch, settings, first):
    """People of a directory may have UIDs below a large UID_MIN, which is that of the host's own users."""
    file = room / "login.defs"
    if settings is not None:
        file.write_text(settings)
    monkeypatch.setattr(hvlab_managed, "LOGIN_SETTINGS", str(file))
    os.chown(home, first - 1, 0)
    assert hvlab_managed.writer(str(home / "log"), 0) == 0
    os.chown(home, first, 0)
    with pytest.raises(PermissionError, match=f"belongs to UID {first}"):
        hvlab_managed.writer(str(home / "log"), 0)


@as_root
@pytest.mark.parametrize("uid", [900, 1500, 61234, NOBODY])
def test_a_persons_rights_are_those_of_the_owner_whatever_the_uid(home, uid):
    """Directories of universities give people UIDs above 60000, older ones from 500."""
    os.chown(home, uid, uid)
    assert hvlab_managed.writer(str(home / ".ssh/config"), uid) == uid


@as_root
def test_a_folder_of_everybodys_is_refused_but_with_the_sticky_bit(room):
    shared = room / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(PermissionError, match="everybody may write to"):
        hvlab_managed.writer(str(shared / "file"), 0)
    shared.chmod(0o1777)
    assert hvlab_managed.writer(str(shared / "file"), 0) == 0


@as_root
def test_a_link_is_followed_to_where_it_leads(room, home):
    (home / "real").mkdir()
    os.chown(home / "real", NOBODY, NOBODY)
    (room / "link").symlink_to(home / "real")
    with pytest.raises(PermissionError, match=f"{home} belongs to"):
        hvlab_managed.writer(str(room / "link/file"), 0)
    (room / "round").symlink_to(room / "round")
    hvlab_managed.writer(str(room / "round/file"), 0)


@as_root
def test_files_of_a_home_cannot_be_turned_to_roots(room, home, capsys, monkeypatch):
    """The lab user puts a link in the place of .ssh between the look and the write."""
    monkeypatch.setattr(hvlab_files.Change, "_owner", lambda self, name: (NOBODY, NOBODY))
    roots = room / "root"
    roots.mkdir(mode=0o700)
    apply = hvlab_files.Change.apply

    def late(change):
        if not (home / ".ssh").is_symlink():
            (home / ".ssh").rmdir()
            (home / ".ssh").symlink_to(roots)
        apply(change)

    (home / ".ssh").mkdir()
    os.chown(home / ".ssh", NOBODY, NOBODY)
    monkeypatch.setattr(hvlab_files.Change, "apply", late)
    keys = {"path": str(home / ".ssh/authorized_keys"), "content": "a key", "owner": "nobody"}
    done = run(hvlab_files, {"files": [keys]}, capsys)
    assert "Permission denied" in done["msg"]
    assert list(roots.iterdir()) == []


@as_root
def test_files_of_a_home_are_their_owners(home, capsys, monkeypatch):
    monkeypatch.setattr(hvlab_files.Change, "_owner", lambda self, name: (NOBODY, NOBODY))
    keys = {"path": str(home / ".ssh/authorized_keys"), "content": "a key", "owner": "nobody", "mode": "0600"}
    assert run(hvlab_files, {"files": [keys]}, capsys)["changed"]
    assert not run(hvlab_files, {"files": [keys]}, capsys)["changed"]
    info = (home / ".ssh/authorized_keys").stat()
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (NOBODY, NOBODY, 0o600)
    assert os.geteuid() == 0


@as_root
def test_root_does_not_build_in_a_folder_that_another_put_there(home, capsys):
    stages = [{"name": "make", "argv": ["true"]}]
    done = run(hvlab_build, {"path": str(home / "thing"), "stages": stages}, capsys)
    assert f"{home} belongs to UID {NOBODY}" in done["msg"]
    assert "name a folder that only root can write to" in done["msg"]
    assert list(home.iterdir()) == []


def test_a_build_folder_is_made_for_its_user_alone(room, capsys):
    stages = [{"name": "make", "argv": ["true"]}]
    assert run(hvlab_build, {"path": str(room / "hvlab/build/thing"), "stages": stages}, capsys)["changed"]
    assert stat.S_IMODE((room / "hvlab/build").stat().st_mode) == 0o700
    (room / "hvlab/build").chmod(0o1777)
    done = run(hvlab_build, {"path": str(room / "hvlab/build/other"), "stages": stages}, capsys)
    assert "everybody may make files in" in done["msg"]


@as_root
@pytest.mark.parametrize(("call", "path"), [("mkdir", "tmp/a"), ("makedirs", "tmp/a/b")])
def test_a_build_folder_or_its_parent_that_another_makes_meanwhile_is_refused(room, monkeypatch, call, path):
    """As in /var/tmp, where everybody may make one."""
    usual, mkdir = getattr(os, call), os.mkdir

    def late(*args, **options):
        mkdir(room / "tmp/a", 0o755)
        os.chown(room / "tmp/a", NOBODY, NOBODY)
        usual(*args, **options)

    (room / "tmp").mkdir()
    (room / "tmp").chmod(0o1777)
    monkeypatch.setattr(os, call, late)
    with pytest.raises(PermissionError, match=f"{room}/tmp/a belongs to UID {NOBODY}"):
        hvlab_managed.make_private(str(room / path))


@pytest.mark.parametrize("umask", [0o077, 0])
def test_what_is_installed_can_be_read_by_the_labs_users_and_written_by_root(room, capsys, umask):
    """Some hosts give root a umask of 077 (UMASK in login.defs)."""
    before = os.umask(umask)
    try:
        small = room / "opt/lab/etc/settings"
        assert run(hvlab_files, {"files": [{"path": str(small), "content": "x"}]}, capsys)["changed"]
        os.umask(umask)
        pack = room / "pack"
        stages = [{"name": "install", "argv": ["sh", "-c", f"mkdir {pack}; touch {pack}/file"]}]
        run(hvlab_build, {"path": str(room / "build/pack"), "stages": stages}, capsys)
    finally:
        os.umask(before)
    folders = [room / "opt", room / "opt/lab", small.parent, pack]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o755}
    assert stat.S_IMODE((pack / "file").stat().st_mode) == 0o644
