#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Remove from a host what hvlab installed, according to its records."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import shutil
import signal
import time
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hvlab_managed import (
    RECORD,
    acting_as,
    add_to_record,
    alternative,
    current,
    explain,
    read_replaced,
    record,
    restore,
    target,
    writer,
)
from ansible.module_utils.hvlab_probe import read
from ansible.module_utils.hvlab_processes import above, gpu_users, owner, processes
from ansible.module_utils.hvlab_system import ask_manager, entries, installed_own, list_held_own

FACTS = "/etc/ansible/facts.d"
SLURM = ("slurmrestd", "slurmctld", "slurmd", "slurmdbd")
TIMER = "hvlab-node-health.timer"
TIMER_UNIT = "/etc/systemd/system/" + TIMER
# Written by daemons and tools; hvlab compares their age with that of what they read.
NOT_OURS = ("/run/", "/boot/", "/etc/ld.so.cache")
BLOCK = re.compile(r"^# BEGIN hvlab\r?\n(?s:.*?)^# END hvlab\r?(?:\n|\Z)", re.MULTILINE)
LOGIN_SECONDS = 10
LAST_LINES = 15
SHARED = re.compile(r"(?:nfs|cifs|ceph|lustre|gpfs|beegfs|9p|fuse)")
# Part of the driver, which stays unless its packages go.
WITH_DRIVER = "/etc/modprobe.d/"
DRIVER = re.compile(r"nvidia-(driver|open|kernel|dkms|headless)|kmod-nvidia|cuda-drivers")
UNINSTALLER = "/usr/bin/nvidia-uninstall"
# Files of NVIDIA's package source and of pins on hosts that were provisioned before these were recorded.
SOURCES = (
    "/etc/apt/sources.list.d/nvidia-cuda.sources",
    "/etc/apt/keyrings/nvidia-cuda.gpg",
    "/etc/apt/preferences.d/nvidia-cuda",
    "/etc/apt/preferences.d/hvlab-*",
    "/etc/yum.repos.d/nvidia-cuda.repo",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-cuda",
)
# Folders, and the command that makes their reader reload the files.
READERS = (
    ("/etc/systemd/system/", ["systemctl", "daemon-reload"]),
    ("/etc/ld.so.conf.d/", ["ldconfig"]),
    ("/etc/munge/", ["systemctl", "try-restart", "munge"]),
    (WITH_DRIVER, ["dracut", "--force", "--regenerate-all"]),
    (WITH_DRIVER, ["update-initramfs", "-u", "-k", "all"]),
)
# Folders removed if empty; the last two are Ansible's for its modules.
EMPTY = (FACTS, "/etc/ansible", "~/.hvlab/tmp", "~/.hvlab")
LOGIN = ("sshd", "sshd-session", "systemd")
SSHD = ("/etc/ssh/sshd_config", "/etc/ssh/ssh_host_")


def fact(role: str) -> dict[str, Any]:
    """Return a role's record; an empty one without a record."""
    return dict(record("{}/hvlab_{}.fact".format(FACTS, role)))


def find_shared_type(path: str) -> str:
    """Return the type of a file system that other hosts may share, if ``path`` is on one; else nothing."""
    nearest, kind, path = "", "", os.path.realpath(path)
    for line in (read("/proc/self/mounts") or "").splitlines():
        place, own = line.split()[1:3]
        # The root of a host without disks is its own.
        inside = place != "/" and os.path.join(path, "").startswith(os.path.join(place, ""))
        if inside and len(place) >= len(nearest):
            nearest, kind = place, own
    return kind if SHARED.match(kind) else ""


def find_uid(user: str) -> int | None:
    """Return a user's UID, also one of a directory such as LDAP; None if there is no such user."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def running(user: str, folders: list[str]) -> list[str]:
    """Return the processes of the lab's user and those of programs in its folders, and Slurm's steps."""
    uid = find_uid(user)
    own = set(above(os.getpid()))
    running_here = []
    for pid in processes():
        try:
            program = os.readlink("/proc/{}/exe".format(pid))
        except OSError:
            continue
        below = any(program.startswith(folder + "/") for folder in folders)
        name = os.path.basename(program)
        # Remaining logins end with the user.
        own_program = owner(pid) == uid and name not in LOGIN
        if pid not in own and (own_program or below or name == "slurmstepd"):
            running_here.append("{} ({})".format(pid, program))
    return running_here


class Removal:
    """hvlab's things on one host, and their removal."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.record: str = module.params["record"]
        account = fact("lab_user")
        self.user = str(account.get("name", ""))
        self.home = str(account.get("home", ""))
        own_users = [name for name, *_ in entries("/etc/passwd", 7)]
        self.uid = find_uid(self.user)
        self.stays: list[str] = []
        self.packages: list[str] = list(module.params["packages"] or [])
        folders = [*module.params["folders"], *self._by_installers(module.params["packages"] is not None)]
        self.folders = [path for path in folders if os.path.isdir(path) and self._is_own(path)]
        driver_goes = self.uninstaller or any(map(DRIVER.match, self.packages))
        inside = tuple(folder + "/" for folder in self.folders)
        kept = inside if driver_goes else (*inside, WITH_DRIVER)
        self.before = read_replaced(self.record)
        # hvlab wanted these paths empty: a file there now is somebody else's.
        known = record(self.record).items()
        paths = {path for path, wanted in known if wanted is not None or not os.path.lexists(path)}
        if fact("nvidia_repository"):
            paths.update(path for pattern in SOURCES for path in glob.glob(pattern))
        # Contents first, so that a folder is empty when its turn comes.
        self.files = [
            path
            for path in sorted(paths, reverse=True)
            if not path.startswith(NOT_OURS)
            and (os.path.lexists(path) or path in self.before)
            and not self._is_as_before(path)
            and not (path + "/").startswith(kept)
            # Kept by update-alternatives, and never led elsewhere.
            and (path in self.before or not alternative(path))
        ]
        shared = [path for path in self.files if find_shared_type(path)]
        if shared:
            self.stays.append("what hosts share: {}".format(", ".join(shared)))
        self.files = [path for path in self.files if path not in shared]
        units = [*(SLURM if fact("slurm") else ()), *([TIMER] if TIMER_UNIT in self.files else [])]
        units += ["munge"] if "munge" in installed_own() else []
        self.services = [one for one in units if self._is_there(one)]
        if driver_goes:
            self.stays.append("modules of NVIDIA's driver that are loaded, until a reboot")
        elif fact("nvidia_driver"):
            self.stays.append("NVIDIA's driver, with {}".format(WITH_DRIVER))
        if fact("container_runtime"):
            self.stays.append("the container runtime and its settings, which other containers may use")
        slurm = fact("slurm")
        if slurm.get("accounting"):
            self.stays.append("the database slurm_acct_db, with the accounting of jobs")
        self.holds = list_held_own()
        self.manager = next((one for one in ("apt-get", "dnf", "yum") if shutil.which(one)), "apt-get")
        held = [name for name in self.holds if name not in self.packages]
        if held:
            verb = "purge" if self.manager == "apt-get" else "remove"
            words = " ".join([self.manager, verb, *held])
            self.stays.append("the packages that it held: `{}` there, if nobody needs them".format(words))
        purged = fact("hwloc_purge").get("removed", [])
        if purged:
            words = " ".join([self.manager, "install", *purged])
            self.stays.append("packages that it removed are not back: `{}` there".format(words))
        self.service_users = [name for name in slurm.get("users", []) if name in own_users]
        self.removed_user = self.user if self.user in own_users and self._is_ours(account) else ""

    def _by_installers(self, asked: bool) -> list[str]:
        """Return the folder of CUDA where NVIDIA's installer put it, and note the driver's uninstaller."""
        driver, cuda = fact("nvidia_driver"), fact("cuda")
        by_installer = driver.get("method") == "runfile" and os.path.exists(UNINSTALLER)
        self.uninstaller = [UNINSTALLER] if asked and by_installer else []
        if cuda.get("method") != "runfile":
            return []
        if not asked:
            self.stays.append("CUDA, which NVIDIA's installer put into {home}".format(**cuda))
        return [cuda["home"]] if asked else []

    def _is_as_before(self, path: str) -> bool:
        former = self.before.get(path)
        return former is not None and current(path) == {name: former[name] for name in current(path)}

    def _is_own(self, path: str) -> bool:
        kind = find_shared_type(path)
        if kind:
            self.stays.append("{}: it is shared between hosts ({})".format(path, kind))
        return not kind

    def _is_ours(self, account: dict[str, Any]) -> bool:
        if account.get("made") is not True:
            self.stays.append("user {}: hvlab did not make it, or did not record that".format(self.user))
            return False
        return True

    def _is_there(self, service: str) -> bool:
        return bool(self.module.run_command(["systemctl", "cat", service])[0] == 0)

    @property
    def gone(self) -> dict[str, list[str]]:
        """Return everything that will be removed, by kind."""
        user = [self.removed_user] if self.removed_user else []
        return {
            "services": self.services,
            "packages": self.packages,
            "programs": self.uninstaller,
            "holds": self.holds,
            "files": self.files,
            "folders": self.folders,
            "users": [*user, *self.service_users],
        }

    def apply(self) -> None:
        """Take all of it away."""
        for service in self.services:
            self._run("systemctl", "disable", "--now", service)
        kept = [path for path in self.files if not self._try(self._restore_file, path)]
        self._remove_packages()
        for folder in filter(os.path.isdir, self.folders):
            self._try(self._remove_tree, folder)
        for folder, command in READERS:
            there = self._is_there(command[-1]) if "try-restart" in command else shutil.which(command[0])
            if there and any(path.startswith(folder) for path in self.files):
                self._run(*command)
        self._remove_users()
        if any(path.startswith(SSHD) for path in self.files):
            self._run(shutil.which("sshd") or "/usr/sbin/sshd", "-t")
            unit = "ssh" if self._is_there("ssh") else "sshd"
            self._run("systemctl", "reload", unit)
        for path, entries_of in ((self.record, record(self.record)), (self.record + ".before", self.before)):
            if os.path.exists(path):
                os.unlink(path)
            # For another run.
            add_to_record(path, {each: entries_of[each] for each in kept if each in entries_of})
        for path in EMPTY:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.expanduser(path))

    def _try(self, change: Callable[[str], None], path: str) -> bool:
        try:
            change(path)
        except OSError as error:
            self.stays.append(explain(path, error))
            return False
        return True

    def _remove_tree(self, path: str) -> None:
        """Remove a folder; only its content where it is a link or a file system of its own."""
        if not os.path.islink(path) and not os.path.ismount(path):
            shutil.rmtree(path)
            return
        for entry in os.scandir(os.path.realpath(path)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)

    def _remove_packages(self) -> None:
        """Uninstall, and end the holds on what stays: a purged package has none with apt."""
        apt = self.manager == "apt-get"
        purge = ["--purge", "--allow-change-held-packages", "-o", "DPkg::Lock::Timeout=300"]
        options = purge if apt else ["--setopt=clean_requirements_on_remove=0"]
        if self.packages:
            status, text = ask_manager(self.module, [self.manager, "-y", *options, "remove", *self.packages])
            if status:
                self.module.fail_json(
                    msg="the packages could not be removed, and some of the lab is left; correct that, and "
                    "run it again:\n{}".format("\n".join(text.splitlines()[-LAST_LINES:]))
                )
        for program in self.uninstaller:
            self._run(program, "--silent")
        holds = [name for name in self.holds if not apt or name not in self.packages]
        if holds:
            self._run(*(["apt-mark", "unhold"] if apt else [self.manager, "versionlock", "delete"]), *holds)

    def _remove_users(self) -> None:
        if self.removed_user:
            self._end_logins()
            home = [] if find_shared_type(self.home) else ["--remove"]
            self._run("userdel", *home, self.removed_user)
        for name in self.service_users:
            self._run("userdel", name)

    def _end_logins(self) -> None:
        """End the user's remaining logins; userdel refuses a user with processes."""
        until = time.monotonic() + LOGIN_SECONDS
        while time.monotonic() < until:
            pids = [pid for pid in processes() if owner(pid) == self.uid]
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(0.2)

    def _run(self, *argv: str) -> None:
        self.module.run_command(list(argv), check_rc=True)

    def _restore_file(self, path: str) -> None:
        own = self.home and path.startswith(self.home + "/") and self.uid
        uid = writer(path, own or 0)
        with acting_as(uid, os.stat(path).st_gid if uid else 0):
            if os.path.isdir(path) and not os.path.islink(path):
                self._remove_folder(path)
            elif alternative(path):
                self._lead_back(path, self.before[path]["text"])
            else:
                left = (
                    self._without_block(path) if os.path.isfile(path) and not os.path.islink(path) else None
                )
                restore(path, left or self.before.get(path) or {"kind": None})

    def _lead_back(self, path: str, former: str) -> None:
        """Restore the choice of update-alternatives; remove the choices that hvlab added."""
        name, own = alternative(path), target(path)
        if (own + "/").startswith(tuple(folder + "/" for folder in self.folders)):
            self._run("update-alternatives", "--remove", name, own)
        self._run("update-alternatives", "--auto", name)
        if target(path) != former and os.path.exists(former):
            self._run("update-alternatives", "--set", name, former)

    def _remove_folder(self, path: str) -> None:
        former = self.before.get(path)
        if former:
            os.chown(path, former["uid"], former["gid"])
            os.chmod(path, former["mode"])
        elif os.listdir(path):
            self.stays.append("{}: others have files in it".format(path))
        else:
            os.rmdir(path)

    def _without_block(self, path: str) -> dict[str, Any] | None:
        """Return the other lines of a file with a block of hvlab's; None for hvlab's own file."""
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            info = os.fstat(file.fileno())
            text = file.read().decode("utf-8", "surrogateescape")
        rest, blocks = BLOCK.subn("", text)
        if not blocks:
            return None
        former: dict[str, Any] | None = self.before.get(path)
        if former:
            rest = self._with_dropped(rest, former)
            if rest.split() == former["text"].split():
                return former
        rights = {"mode": info.st_mode & 0o7777, "uid": info.st_uid, "gid": info.st_gid}
        return {"kind": "file", "text": rest, **rights} if rest.strip() or former else None

    def _with_dropped(self, text: str, former: dict[str, Any]) -> str:
        """Put back the lines that hvlab dropped; what others wrote or removed since stays so."""
        lines = text.split("\n")
        for number, line in enumerate(former["text"].split("\n")):
            if former.get("drop") and re.search(former["drop"], line) and line not in lines:
                lines.insert(min(number, len(lines)), line)
        return "\n".join(lines)


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "default": RECORD},
            "packages": {"type": "list", "elements": "str"},
            "folders": {
                "type": "list",
                "elements": "path",
                "default": ["/opt/hvlab", "/var/cache/hvlab", "/etc/hvlab"],
            },
        },
        supports_check_mode=True,
    )
    removal = Removal(module)
    gone = removal.gone
    busy = running(removal.user, removal.folders)
    if removal.packages or removal.uninstaller:
        busy += ["{pid} ({name}, which uses a GPU)".format(**user) for user in gpu_users()]
    if busy and not module.check_mode:
        module.fail_json(
            msg="processes use what would go: {}; nothing was removed. Wait for them, or end them".format(
                ", ".join(busy)
            )
        )
    if busy:
        removal.stays.append("all of it, until these have ended: {}".format(", ".join(busy)))
    if not module.check_mode:
        removal.apply()
    module.exit_json(changed=any(gone.values()), gone=gone, stays=removal.stays)


if __name__ == "__main__":
    main()
