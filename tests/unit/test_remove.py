"""The module hvlab_remove: what hvlab_files wrote goes, and what it replaced comes back."""

import base64
import errno
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.module_utils import hvlab_managed
from ansible.module_utils.testing import patch_module_args

from hvlab import cli
from hvlab.ansible.modules import hvlab_files, hvlab_remove, hvlab_repository
from hvlab.cli import remove as remove_command
from tests.unit import labs
from tests.unit.plays import program

HOSTS = "127.0.0.1 localhost\n127.0.1.1 n1\n"


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    record = tmp_path / "files.json"
    monkeypatch.setattr(hvlab_remove, "FACTS", str(tmp_path / "facts.d"))
    monkeypatch.setattr(hvlab_remove, "EMPTY", ())

    def run(module, check=False, **options):
        arguments = {"record": str(record), "_ansible_check_mode": check, **options}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    return run


def remove(call, tmp_path, **options):
    return call(hvlab_remove, folders=[str(tmp_path / "opt")], **options)


def test_what_was_replaced_comes_back_and_the_rest_goes(call, tmp_path):
    own, theirs, link, hosts = (tmp_path / name for name in ("own", "theirs", "link", "hosts"))
    theirs.write_bytes(b"caf\xe9\n")
    theirs.chmod(0o640)
    link.symlink_to("elsewhere")
    hosts.write_text(HOSTS)
    (tmp_path / "opt/pack").mkdir(parents=True)
    for text in ("first", "second"):
        files = [{"path": str(path), "content": text} for path in (own, theirs, link)]
        block = {"path": str(hosts), "block": f"10.0.0.1 {text}", "drop": "^127.0.1.1"}
        call(hvlab_files, files=[*files, block, {"path": str(tmp_path / "d/in"), "state": "directory"}])
    shown = remove(call, tmp_path, check=True)
    assert shown["changed"]
    assert own.exists()
    done = remove(call, tmp_path)
    assert done["gone"] == shown["gone"]
    assert (theirs.read_bytes(), theirs.stat().st_mode & 0o777) == (b"caf\xe9\n", 0o640)
    assert link.readlink().name == "elsewhere"
    assert hosts.read_text() == HOSTS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts", "link", "theirs"]
    assert not remove(call, tmp_path)["changed"]


def test_a_package_source_goes_and_an_entry_that_was_switched_off_is_on_again(call, tmp_path):
    entry, added = tmp_path / "cuda.list", tmp_path / "new/docker.sources"
    entry.write_text("deb http://x/ /\n")
    entry.chmod(0o640)
    files = {str(entry): "# switched off by hvlab: deb http://x/ /\n", str(added): "Types: deb\n"}
    encoded = {path: base64.b64encode(text.encode()).decode() for path, text in files.items()}
    call(hvlab_repository, step="apply", files=encoded, trouble="^E:")
    assert {path: Path(path).read_text() for path in files} == files
    assert remove(call, tmp_path)["gone"]["files"] == [str(added), str(entry)]
    assert (entry.read_text(), entry.stat().st_mode & 0o777) == ("deb http://x/ /\n", 0o640)
    assert not added.exists()


def test_a_package_source_that_was_refused_is_not_recorded(call, tmp_path):
    added = tmp_path / "x.sources"
    arguments = {"files": {str(added): ""}, "refresh": ["echo", "E: no"], "trouble": "^E:"}
    assert call(hvlab_repository, step="apply", **arguments)["refused"]
    assert not added.exists()
    assert remove(call, tmp_path)["gone"]["files"] == []


@pytest.mark.parametrize(
    ("before", "since", "after"),
    [
        (HOSTS, lambda text: text + "10.9.9.9 printer\n", HOSTS + "10.9.9.9 printer\n"),
        (HOSTS + "10.5.5.5 old\n", lambda text: text.replace("10.5.5.5 old\n", ""), HOSTS),
    ],
    ids=["wrote", "removed"],
)
def test_what_others_wrote_and_removed_since_stays_so(call, tmp_path, before, since, after):
    hosts = tmp_path / "hosts"
    hosts.write_text(before)
    call(hvlab_files, files=[{"path": str(hosts), "block": "10.0.0.1 n1", "drop": "^127.0.1.1"}])
    hosts.write_text(since(hosts.read_text()))
    remove(call, tmp_path)
    assert hosts.read_text() == after


@pytest.mark.parametrize("text", ["127.0.1.1 a", "", "a\r\n127.0.1.1 n1\r\n\r\n", "x\n\n\n127.0.1.1 a\n\n\n"])
def test_a_file_comes_back_to_the_byte(call, tmp_path, text):
    hosts = tmp_path / "hosts"
    hosts.write_bytes(text.encode())
    call(hvlab_files, files=[{"path": str(hosts), "block": "10.0.0.1 n1", "drop": "^127.0.1.1"}])
    remove(call, tmp_path)
    assert hosts.read_bytes() == text.encode()


def test_folders_and_links_that_were_there_stay_as_they_were(call, tmp_path):
    folder, link, right = tmp_path / "log", tmp_path / "slurm", tmp_path / "libpmix.so"
    folder.mkdir()
    folder.chmod(0o750)
    (tmp_path / "nfs").mkdir()
    (tmp_path / "nfs/slurm.conf").write_text("theirs\n")
    link.symlink_to("nfs")
    right.symlink_to("libpmix.so.2")
    call(
        hvlab_files,
        files=[
            {"path": str(folder), "state": "directory", "mode": "0755"},
            {"path": str(link), "state": "directory", "mode": "0755"},
            {"path": str(link / "slurm.conf"), "content": "hvlab's\n"},
            {"path": str(right), "state": "link", "src": "libpmix.so.2"},
            {"path": str(tmp_path / "systemd/slurmd.service.d/hvlab.conf"), "content": "x"},
        ],
    )
    remove(call, tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o750
    assert (link.readlink().name, right.readlink().name) == ("nfs", "libpmix.so.2")
    assert (link / "slurm.conf").read_text() == "theirs\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libpmix.so", "log", "nfs", "slurm"]


def test_what_others_put_where_hvlab_wants_nothing_stays(call, tmp_path):
    path = tmp_path / "mpi.conf"
    absent = {"path": str(path), "state": "absent"}
    call(hvlab_files, files=[absent])
    path.write_text("theirs\n")
    assert str(path) not in remove(call, tmp_path, check=True)["gone"]["files"]
    call(hvlab_files, files=[absent])
    remove(call, tmp_path)
    assert path.read_text() == "theirs\n"


def test_what_could_not_be_restored_is_left_to_another_run(call, tmp_path, monkeypatch):
    first, second = (tmp_path / name for name in ("first", "second"))
    for path in (first, second):
        path.write_text("theirs\n")
    call(hvlab_files, files=[{"path": str(path), "content": "x"} for path in (first, second)])
    replace = os.replace

    def refuse(one, other):
        if str(other) == str(second):
            raise OSError(errno.EPERM, "Operation not permitted")
        replace(one, other)

    monkeypatch.setattr(os, "replace", refuse)
    [stays] = remove(call, tmp_path)["stays"]
    assert f"{second}: cannot be written: Operation not permitted" in stays
    assert "lsattr" in stays
    monkeypatch.undo()
    monkeypatch.setattr(hvlab_remove, "FACTS", str(tmp_path / "facts.d"))
    monkeypatch.setattr(hvlab_remove, "EMPTY", ())
    assert remove(call, tmp_path)["gone"]["files"] == [str(second)]
    assert second.read_text() == "theirs\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]


@pytest.mark.parametrize("kind", ["link", "mount"])
def test_a_linked_or_mounted_folder_is_emptied_and_stays(call, tmp_path, monkeypatch, kind):
    disk = tmp_path / "disk" if kind == "link" else tmp_path / "opt"
    (disk / "pack/bin").mkdir(parents=True)
    (disk / "file").write_text("")
    if kind == "link":
        (tmp_path / "opt").symlink_to("disk")
    else:
        monkeypatch.setattr(os.path, "ismount", lambda path: path == str(disk))
    assert remove(call, tmp_path)["gone"]["folders"] == [str(tmp_path / "opt")]
    assert (tmp_path / "opt").is_dir()
    assert list(disk.iterdir()) == []


def test_files_that_hosts_share_stay(call, tmp_path, monkeypatch):
    key = tmp_path / "home/hvlab/.ssh/id_ed25519"
    call(hvlab_files, files=[{"path": str(key), "content": "KEY"}])
    mounts = f"overlay / nfs4 rw 0 0\nserver:/home {tmp_path}/home nfs4 rw 0 0\n"
    read = hvlab_remove.read
    monkeypatch.setattr(hvlab_remove, "read", lambda path: mounts if "mounts" in path else read(path))
    shown = remove(call, tmp_path)
    assert any(str(key) in words for words in shown["stays"])
    assert key.read_text() == "KEY"


def test_ranks_of_a_user_of_a_directory_are_found_and_the_user_stays(call, tmp_path, monkeypatch):
    (tmp_path / "facts.d").mkdir()
    record = {"name": "of-ldap", "home": str(tmp_path / "home"), "made": True}
    (tmp_path / "facts.d/hvlab_lab_user.fact").write_text(json.dumps(record))
    monkeypatch.setattr(hvlab_remove.pwd, "getpwnam", lambda name: SimpleNamespace(pw_uid=os.getuid()))
    monkeypatch.setattr(hvlab_remove, "processes", lambda: [1, 4711])
    monkeypatch.setattr(hvlab_remove, "above", lambda pid: [1])
    monkeypatch.setattr(hvlab_remove, "owner", lambda pid: os.getuid())
    monkeypatch.setattr(hvlab_remove.os, "readlink", lambda path: "/usr/bin/python3")
    shown = remove(call, tmp_path, check=True)
    assert any("4711 (/usr/bin/python3)" in words for words in shown["stays"])
    assert shown["gone"]["users"] == []


def test_a_package_source_keeps_its_rights_and_a_linked_one_comes_back_as_a_link(call, tmp_path):
    secret, link = tmp_path / "site.list", tmp_path / "cuda.list"
    secret.write_text("deb https://user:password@x/ /\n")
    secret.chmod(0o600)
    link.symlink_to("elsewhere.list")
    (tmp_path / "elsewhere.list").write_text("deb http://x/ /\n")
    files = {str(path): base64.b64encode(b"# switched off\n").decode() for path in (secret, link)}
    refused = {"files": files, "refresh": ["echo", "E: no"], "trouble": "^E:"}
    assert call(hvlab_repository, step="apply", **refused)["refused"]
    assert (secret.stat().st_mode & 0o777, link.is_symlink()) == (0o600, True)
    call(hvlab_repository, step="apply", files=files, trouble="^E:")
    assert secret.stat().st_mode & 0o777 == 0o600
    remove(call, tmp_path)
    assert link.readlink().name == "elsewhere.list"
    assert secret.read_text().startswith("deb https")


def test_a_host_with_ranks_is_left_alone(call, tmp_path, monkeypatch):
    (tmp_path / "opt").mkdir()
    monkeypatch.setattr(hvlab_remove, "running", lambda user, folders: ["1 (/opt/hvlab/bin/python)"])
    done = remove(call, tmp_path)
    assert done["failed"]
    assert "nothing was removed" in done["msg"]
    assert (tmp_path / "opt").exists()


def test_processes_of_the_labs_folders_are_found_but_not_those_above_this_one(tmp_path):
    program = tmp_path / "sleep"
    shutil.copy2(shutil.which("sleep"), program)
    with subprocess.Popen([program, "60"]) as process:
        try:
            assert hvlab_remove.running("", [str(tmp_path)]) == [f"{process.pid} ({program})"]
        finally:
            process.kill()
    above = str(Path("/proc/self/exe").readlink().parent)
    assert not [one for one in hvlab_remove.running("", [above]) if one.startswith(f"{os.getpid()} ")]


def test_packages_stay_with_the_words_that_remove_them(call, tmp_path, monkeypatch):
    monkeypatch.setattr(hvlab_remove, "list_held_own", lambda: ["cuda-toolkit-13-0", "nvidia-open"])
    shown = remove(call, tmp_path, check=True)
    assert shown["gone"]["holds"] == ["cuda-toolkit-13-0", "nvidia-open"]
    assert "`apt-get purge cuda-toolkit-13-0 nvidia-open` there" in shown["stays"][0]


@pytest.mark.parametrize(
    ("manager", "called"),
    [
        (
            "apt-get",
            "apt-get -y --purge --allow-change-held-packages -o DPkg::Lock::Timeout=300 remove nvidia-open\n"
            "nvidia-uninstall --silent\napt-mark unhold nvidia-container-toolkit\n"
            "update-initramfs -u -k all\n",
        ),
        (
            "dnf",
            "dnf -y --setopt=clean_requirements_on_remove=0 remove nvidia-open\nnvidia-uninstall --silent\n"
            "dnf versionlock delete nvidia-container-toolkit nvidia-open\ndracut --force --regenerate-all\n",
        ),
    ],
)
def test_the_driver_goes_where_it_is_asked_for(call, tmp_path, monkeypatch, manager, called):
    log, rebuilds = tmp_path / "log", {"apt-get": "update-initramfs", "dnf": "dracut"}
    for name in (manager, "apt-mark", "nvidia-uninstall", rebuilds[manager]):
        program(tmp_path / "bin", name, f'#!/bin/sh\necho "${{0##*/}} $*" >> {log}\n')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    blacklist = tmp_path / "modprobe.d/hvlab-nvidia.conf"
    monkeypatch.setattr(hvlab_remove, "UNINSTALLER", f"{tmp_path}/bin/nvidia-uninstall")
    monkeypatch.setattr(hvlab_remove, "WITH_DRIVER", f"{blacklist.parent}/")
    readers = [
        (f"{blacklist.parent}/", argv) for _, argv in hvlab_remove.READERS if argv[0] in rebuilds.values()
    ]
    monkeypatch.setattr(hvlab_remove, "READERS", readers)
    monkeypatch.setattr(hvlab_remove, "list_held_own", lambda: ["nvidia-container-toolkit", "nvidia-open"])
    (tmp_path / "facts.d").mkdir()
    (tmp_path / "facts.d/hvlab_nvidia_driver.fact").write_text(json.dumps({"method": "runfile"}))
    cuda = tmp_path / "cuda-12.6"
    cuda.mkdir()
    (tmp_path / "facts.d/hvlab_cuda.fact").write_text(json.dumps({"method": "runfile", "home": str(cuda)}))
    call(hvlab_files, files=[{"path": str(blacklist), "content": "blacklist nouveau\n"}])
    shown = remove(call, tmp_path, check=True)
    assert "CUDA, which" in shown["stays"][0]
    assert "NVIDIA's driver, with" in shown["stays"][1]
    assert shown["gone"]["files"] == shown["gone"]["programs"] == []
    shown = remove(call, tmp_path, check=True, packages=["nvidia-open"])
    assert not log.exists()
    monkeypatch.setattr(hvlab_remove, "gpu_users", lambda: [{"pid": "7", "name": "python"}])
    assert (
        "7 (python, which uses a GPU); nothing was" in remove(call, tmp_path, packages=["nvidia-open"])["msg"]
    )
    monkeypatch.setattr(hvlab_remove, "gpu_users", list)
    assert remove(call, tmp_path, packages=["nvidia-open"])["gone"] == shown["gone"]
    assert log.read_text() == called
    assert not blacklist.exists()
    assert not cuda.exists()


def test_packages_that_cannot_be_removed_leave_the_records(call, tmp_path, monkeypatch):
    program(
        tmp_path / "bin",
        "apt-get",
        "#!/bin/sh\necho 'E: Sub-process dpkg returned an error code (1)'\nexit 100\n",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.setattr(hvlab_remove, "list_held_own", list)
    (tmp_path / "opt/pack").mkdir(parents=True)
    done = remove(call, tmp_path, packages=["cuda"])
    assert "run it again:\nE: Sub-process" in done["msg"]
    assert (tmp_path / "opt/pack").exists()


def test_packages_that_were_removed_are_named(call, tmp_path):
    (tmp_path / "facts.d").mkdir()
    (tmp_path / "facts.d/hvlab_hwloc_purge.fact").write_text(json.dumps({"removed": ["hwloc", "libhwloc15"]}))
    [stays] = remove(call, tmp_path, check=True)["stays"]
    assert stays == "packages that it removed are not back: `apt-get install hwloc libhwloc15` there"


@pytest.mark.parametrize("own", ["munge", "slurmd"])
def test_daemons_of_slurm_stop_and_its_users_go_where_they_are_hvlabs(call, tmp_path, monkeypatch, own):
    (tmp_path / "facts.d").mkdir()
    program(tmp_path / "programs", "systemctl", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/programs:/usr/bin:/bin")
    monkeypatch.setattr(hvlab_remove, "installed_own", lambda: {own: True})
    record = {"users": ["daemon", "nobody-of-that-name"], "accounting": True}
    (tmp_path / "facts.d/hvlab_slurm.fact").write_text(json.dumps(record))
    shown = remove(call, tmp_path, check=True)
    assert shown["gone"]["users"] == ["daemon"]
    assert ("munge" in shown["gone"]["services"]) is (own == "munge")
    assert {*hvlab_remove.SLURM} <= {*shown["gone"]["services"]}
    assert shown["stays"] == ["the database slurm_acct_db, with the accounting of jobs"]


@pytest.mark.parametrize("made", [False, None])
def test_a_user_that_hvlab_did_not_make_stays(call, tmp_path, made):
    (tmp_path / "facts.d").mkdir()
    (tmp_path / "facts.d/hvlab_lab_user.fact").write_text(json.dumps({"name": "daemon", "made": made}))
    shown = remove(call, tmp_path, check=True)
    assert shown["gone"]["users"] == []
    assert shown["stays"] == ["user daemon: hvlab did not make it, or did not record that"]


def test_the_command_shows_what_goes_and_removes_it_once_asked_to(monkeypatch, tmp_path, capsys):
    asked = []

    def collected(lab, playbook, variables, shape):
        asked.append((playbook, variables["hvlab_look"], [host.name for host in lab.hosts]))
        gone = {"files": ["/etc/a", "/etc/b"], "users": []}
        return {"n1": {"gone": gone, "stays": ["user x"], "changed": True}}, []

    monkeypatch.setattr(remove_command, "load", lambda path, limit: labs.lab(1 if limit == "n1" else 2))
    monkeypatch.setattr(remove_command, "collect", collected)
    words = ["remove", "--results", str(tmp_path)]
    assert cli.run(words) == 0
    shown = capsys.readouterr()
    assert "/etc/a, /etc/b" in shown.out
    assert "nothing was removed; --yes removes it from n1" in shown.err
    assert cli.run([*words, "--yes", "--format", "json"]) == 0
    assert asked == [("remove.yml", True, ["n1", "n2"])] * 2 + [("remove.yml", False, ["n1"])]
    done = capsys.readouterr()
    assert json.loads(done.out)["n1"]["stays"] == ["user x"]
    assert "n1: stays: user x\nremoved from n1" in done.err


@pytest.mark.parametrize("chosen", ["opt/cuda/13.0", "opt", "cuda-13.0"])
def test_a_link_of_update_alternatives_stays_one(call, tmp_path, monkeypatch, chosen):
    """With the real update-alternatives, as NVIDIA's packages call it."""
    own = f"--altdir {tmp_path}/alternatives --admindir {tmp_path}/admin --log {tmp_path}/log"
    real = shutil.which("update-alternatives")
    program(tmp_path / "bin", "update-alternatives", f'#!/bin/sh\nexec {real} {own} "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(hvlab_managed, "ALTERNATIVES", f"{tmp_path}/alternatives/")
    for folder in ("alternatives", "admin", "opt/cuda/13.0", "cuda-13.0", "cuda-13.1"):
        (tmp_path / folder).mkdir(parents=True)
    link = tmp_path / "cuda"
    for release, rank in (("13.0", "130"), ("13.1", "131")):
        words = ("--install", link, "cuda", tmp_path / f"cuda-{release}", rank)
        subprocess.run(["update-alternatives", *words], check=True)
    wanted = {"path": str(link), "state": "link", "src": str(tmp_path / chosen)}
    assert call(hvlab_files, files=[wanted])["changed"]
    assert not call(hvlab_files, files=[wanted])["changed"]
    assert link.resolve() == tmp_path / chosen
    assert hvlab_managed.file_state(str(link), False)["target"] == wanted["src"]
    remove(call, tmp_path)
    assert link.resolve() == tmp_path / "cuda-13.1"
    assert link.readlink() == tmp_path / "alternatives/cuda"
    assert f"{tmp_path}/opt" not in (tmp_path / "admin/cuda").read_text()
    shown = subprocess.run(
        ["update-alternatives", "--query", "cuda"], capture_output=True, text=True, check=True
    )
    assert "Status: auto" in shown.stdout
    assert shown.stdout.count("Alternative: ") == 2
    assert "Priority: 130" in shown.stdout


def test_a_link_of_update_alternatives_that_led_there_already_stays(call, tmp_path, monkeypatch):
    monkeypatch.setattr(hvlab_managed, "ALTERNATIVES", f"{tmp_path}/alternatives/")
    for place, leads in (("alternatives/cuda", "cuda-13.0"), ("cuda", "alternatives/cuda")):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).symlink_to(tmp_path / leads)
    wanted = {"path": str(tmp_path / "cuda"), "state": "link", "src": str(tmp_path / "cuda-13.0")}
    assert not call(hvlab_files, files=[wanted])["changed"]
    assert remove(call, tmp_path)["gone"]["files"] == []
    assert (tmp_path / "cuda").is_symlink()
