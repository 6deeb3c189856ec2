"""Run a playbook through ansible-runner, from its own private folder. The only importer of ansible_runner."""

from __future__ import annotations

import json
import os
import queue
import re
import shlex
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import ansible_runner

from hvlab.base import process
from hvlab.base.answers import clean
from hvlab.base.errors import LEAVE_OUT, CheckError, HvlabError, UnreachableError, unusable
from hvlab.base.paths import project_dir
from hvlab.base.temporary import temporary_folder
from hvlab.doctor import reading
from hvlab.doctor.cause import Cause
from hvlab.lab.inventory import Lab, dropped_variables, folders
from hvlab.remote.probe import probe
from hvlab.remote.trust import USER_LIFE, Trust, check_keys, lab_trust

# Regardless of ~/.ssh/config.
SSH_OPTIONS = (
    *(
        "StrictHostKeyChecking=yes",
        "PasswordAuthentication=no",
        "IdentitiesOnly=yes",
        "ServerAliveInterval=5",
    ),
    *(
        "ServerAliveCountMax=3",
        "RequestTTY=no",
        "RemoteCommand=none",
        "PermitLocalCommand=no",
        "ForwardAgent=no",
    ),
)
_SHARED_CONNECTION = ("ControlMaster=auto", "ControlPersist=60s")
# As in ansible.cfg.
_FORKS = 32
_SET = {
    "ANSIBLE_CONFIG": str(project_dir() / "ansible.cfg"),
    "ANSIBLE_HOST_KEY_CHECKING": "True",
    "ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.minimal,hvlab_lock",
    "ANSIBLE_CALLBACK_PLUGINS": str(project_dir() / "hvlab/ansible/callback"),
    "ANSIBLE_NOCOLOR": "1",
}
# What ansible-runner sets itself (its config/_base.py), and the callback of the user that it then loads.
_RUNNERS = {
    f"ANSIBLE_{name}"
    for name in (
        *("STDOUT_CALLBACK", "CALLBACK_PLUGINS", "LOAD_CALLBACK_PLUGINS", "RETRY_FILES_ENABLED"),
        *("CACHE_PLUGIN", "CACHE_PLUGIN_CONNECTION"),
    )
}
_USERS_CALLBACK = "ORIGINAL_STDOUT_CALLBACK"
_STOP_S = 10.0
_TICK_S = 0.2
# Time limit for a host to end leftovers of a run; its program needs at most 6 s.
_REAP_S = 60
# Maximum length of a failure's message; its end is kept.
_MESSAGE = 10_000
# Ansible's `command` says only this of a program that cannot be started; its status is the errno.
_NOT_STARTED = "Error executing command."
# Errors by which one side refuses the other: such a host is up.
_REFUSED = (
    *("host-key", "host-key-changed", "host-certificate-name", "host-certificate-time", "ssh-denied"),
    *("account-refused", "ssh-closed", "ssh-config", "too-many-processes"),
)
# Faults that a shared connection keeps from its login, even if fixed since.
_AT_LOGIN = ("account-refused", "too-many-processes", "open-files")
_WAIT = " Then wait a minute: until then the open connection of ssh keeps what held when it was made."
# Ansible's words where ssh itself said none.
_WORDLESS = re.compile(r"(?:via ssh|Make sure this host can be reached over ssh): *\Z")
# What Ansible puts before ssh's own words.
_SAYS_LITTLE = re.compile(r"\A(Task failed: )?Failed to connect to the host via ssh: ")
_AGAIN = (
    "run the same command again; if that is its answer again, look at this machine's memory (dmesg) and disks"
)
RESUMES = "bring it back; the same command resumes from there"


@dataclass(frozen=True)
class HostFailure:
    """A failure on a host, in Ansible's words; ``held``: another run has it."""

    host: str
    message: str
    unreachable: bool
    held: bool = False


def explain(failures: Sequence[HostFailure], every: int, failed: str, *, remedy: str) -> HvlabError:
    """Return the error of hosts that are unreachable, or where a task failed, out of how many."""
    lines = "\n".join(f"  {each.host}: {each.message.strip()}" for each in failures)
    if gone := [each.host for each in failures if each.unreachable]:
        return UnreachableError(f"{unusable(gone, every)}:\n{lines}", remedy=LEAVE_OUT)
    return CheckError(f"{failed}:\n{lines}", remedy="" if _say_what_to_do(failures) else remedy)


def _say_what_to_do(failures: Sequence[HostFailure]) -> bool:
    return all("what to do:" in each.message.lower() for each in failures)


@dataclass(frozen=True)
class Login:
    """How the driver reaches a lab: as the unprivileged user that runs the ranks.

    ``trust`` is None where the lab is this machine alone, or hosts that hvlab did not set up; then that user
    is the caller, unless that is root on a machine that it did. ``port`` is that of the ranks' containers; 0
    is each host's own.
    """

    lab: Lab
    trust: Trust | None
    user: str
    port: int = 0

    @property
    def certificate(self) -> str:
        """Return the certificate of the key that reaches the hosts; empty if none is needed."""
        return self.trust.certificate.read_text("utf-8") if self.trust else ""

    @property
    def other_user(self) -> str:
        """Return the user that root becomes here to run ranks; empty if none."""
        return self.user if self.trust is None and os.geteuid() == 0 and self.lab.prepared else ""

    def variables(self) -> dict[str, Any]:
        """Return the connection variables, which go before the inventory's."""
        if self.trust is None:
            become = {"ansible_become_user": self.user, "ansible_become_method": "ansible.builtin.su"}
            return {"ansible_become": True, **become} if self.other_user else {"ansible_become": False}
        return {
            "ansible_connection": "ssh",
            "ansible_user": self.user,
            "ansible_become": False,
            "ansible_ssh_private_key_file": str(self.trust.identity),
            "ansible_ssh_args": " ".join(
                f"-o {shlex.quote(option)}"
                for option in (*_SHARED_CONNECTION, *SSH_OPTIONS, *self.trust.ssh_options)
            ),
            **({"ansible_port": self.port} if self.port else {}),
        }


def login_of(lab: Lab) -> Login:
    """Return the keys that the driver logs in with; the certificate is valid for days."""
    user = str(lab.vars.get("lab_user_name", "hvlab"))
    if lab.local or not lab.prepared:
        return Login(lab, None, user)
    trust = lab_trust(lab.name)
    if trust is None or not trust.known_hosts.is_file():
        probe(lab.hosts)  # an unreachable host is the more likely reason
        problem = f"the hosts of lab {lab.name} do not trust this machine yet"
        raise CheckError(problem, remedy="run `hvlab provision` first")
    check_keys(trust)
    days = lab.vars.get("ssh_trust_user_certificate_days", USER_LIFE.days)
    trust.renew_user_certificate(user, life=timedelta(days=int(days)))
    return Login(lab, trust, user)


@dataclass(frozen=True)
class Owner:
    """How the inventory itself reaches a lab, with the rights that provisioning has."""

    lab: Lab

    def variables(self) -> dict[str, Any]:
        """Return no connection variables: the inventory's apply."""
        return {}


class Play:
    """One run of a playbook, in the background; a context manager.

    ``failures`` grows as they happen; ``rc`` is None until the end. The private folder, which holds the whole
    environment in clear, is gone afterwards. ``at_once`` hosts are served at the same time if that is more
    than Ansible's settings say.
    """

    def __init__(
        self, playbook: str, login: Login | Owner, variables: Mapping[str, Any], *, at_once: int = 0
    ) -> None:
        self.failures: list[HostFailure] = []
        self.rc: int | None = None
        self._playbook = playbook
        self._forks = ["--forks", str(at_once)] if at_once > _FORKS else []
        self._source = login.lab.source
        self._variables = {**variables, **login.variables()}
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._pid: int | None = None
        self._cancelled = False
        self._error: Exception | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Play:
        with ExitStack() as stack:
            self._folder = stack.enter_context(temporary_folder())
            self._write_settings()
            self._stack = stack.pop_all()
        threading.Thread(target=self._work, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._ended.is_set():
            self.stop()
        if self.rc != 0:
            _end_workers(self._folder)
        self._stack.close()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, up to the given time; return whether it came."""
        ended = self._ended.wait(seconds)
        self._drain()
        return ended

    def finish(self) -> None:
        """Wait for the end."""
        while not self.wait(_TICK_S):
            pass

    def check(self, failed: str, *, remedy: str, lost: str = RESUMES) -> None:
        """Raise what ended the playbook too early; ``failed`` names it, ``lost`` is a lost host's remedy.

        Raises UnreachableError, CheckError (a task failed) or HvlabError (Ansible itself failed).
        """
        text = "\n".join(f"  {failure.host}: {failure.message.strip()}" for failure in self.failures)
        if any(failure.unreachable for failure in self.failures):
            cause = reading.root(text.splitlines())
            if cause and cause.cause.id in _REFUSED:
                raise UnreachableError(f"{cause.cause.title}:\n{text}", remedy=_remedy(cause.cause))
            wordless = [each.host for each in self.failures if _WORDLESS.search(each.message)]
            look = f"; if it is up, `hvlab doctor -l {','.join(wordless)}` shows why a login ends there"
            raise UnreachableError(f"a host was lost:\n{text}", remedy=lost + look * bool(wordless))
        if self.failures:
            known = reading.cause_of(text)
            if known:
                raise CheckError(f"{failed}: {known.cause.title}:\n{text}", remedy=_remedy(known.cause))
            said = _say_what_to_do(self.failures)
            raise CheckError(f"{failed}:\n{text}", remedy="" if said else remedy)
        if self._error:
            words = f"{type(self._error).__name__}: {self._error}"
            raise HvlabError(f"{failed}: Ansible could not be run: {words}", remedy=_AGAIN) from self._error
        if self.rc is None or self.rc < 0:
            raise HvlabError(f"{failed}: Ansible was killed:\n{self.last_words()}", remedy=_AGAIN)
        if self.rc:
            raise HvlabError(f"{failed}:\n{self.last_words()}")

    def stop(self) -> None:
        """End Ansible and its workers. Processes on the hosts continue: reap them."""
        self._drain()
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)
            self._ended.wait(_STOP_S)
        self._cancelled = True
        self._ended.wait(_STOP_S)

    def _work(self) -> None:
        try:
            command, *arguments = self._command()
            _, _, self.rc = ansible_runner.run_command(
                command,
                arguments,
                private_data_dir=str(self._folder),
                ident="run",
                host_cwd=str(project_dir()),
                quiet=True,
                # The runner's own choice is a file for each host.
                fact_cache_type="memory",
                event_handler=self._enqueue,
                cancel_callback=lambda: self._cancelled,
            )
        except Exception as error:  # its libraries' too; check() raises it in the caller's thread
            self._error = error
        finally:
            self._ended.set()

    def last_words(self, lines: int = 15) -> str:
        """Return the end of what Ansible printed."""
        file = self._folder / "artifacts/run/stdout"
        text = clean(file.read_text("utf-8", errors="replace")) if file.is_file() else ""
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])

    def _command(self) -> list[str]:
        """Return Ansible's argv; it ends with us, even when we are killed."""
        program = str(Path(sys.executable).parent / "ansible-playbook")
        variables = f"@{self._folder}/env/extravars"
        inventory = ["-i", str(self._source), *self._forks]
        argv = process.bound([program, *inventory, "-e", variables, f"playbooks/{self._playbook}"])
        # The runner starts from this process's environment, and sets some itself.
        unset = set(dropped_variables(os.environ)) - _SET.keys() - _RUNNERS
        return ["env", *(f"--unset={name}" for name in sorted({*unset, _USERS_CALLBACK})), *argv]

    def _write_settings(self) -> None:
        env = self._folder / "env"
        env.mkdir(mode=0o700)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        python = [str(project_dir()), *filter(None, [os.environ.get("PYTHONPATH")])]
        files = {
            "settings": {"pexpect_timeout": 1, "suppress_ansible_output": True},
            "envvars": {
                "PATH": path,
                "PYTHONPATH": os.pathsep.join(python),
                **_SET,
                "ANSIBLE_LOCAL_TEMP": str(self._folder),
                "TMPDIR": str(self._folder),
            },
            "extravars": self._variables,
        }
        for name, data in files.items():
            descriptor = os.open(env / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(data, file)

    def _enqueue(self, event: dict[str, Any]) -> bool:
        """Take an event from the runner's thread; False keeps no file of it."""
        self._events.put(event)
        return False

    def _drain(self) -> None:
        while not self._events.empty():
            event = self._events.get()
            # Later events may come from a worker.
            self._pid = self._pid or event.get("pid")
            data = event.get("event_data") or {}
            result = data.get("res")
            unreachable = event.get("event") == "runner_on_unreachable"
            failed = event.get("event") in ("runner_on_failed", "runner_item_on_failed")
            if not (unreachable or failed) or data.get("ignore_errors") or not isinstance(result, dict):
                continue
            message = _SAYS_LITTLE.sub("", clean(_failure_text(result)))[-_MESSAGE:]
            if not (result.get("results") and self.failures):
                lost = unreachable or bool(result.get("lost"))
                host = str(data.get("host"))
                # Messages of roles begin with their host, as do lists of failures.
                words, held = message.removeprefix(f"{host}: "), "holder" in result
                self.failures.append(HostFailure(host, words, lost, held))


def _remedy(cause: Cause) -> str:
    return cause.remedy + _WAIT * (cause.id in _AT_LOGIN)


def _failure_text(result: Mapping[str, Any]) -> str:
    """Return a failed task's message; for a program that could not start, its name and why.

    For modules without an answer, the last line that each printed.
    """
    modules = result.get("failed_modules")
    if isinstance(modules, Mapping) and modules:
        return "\n".join(f"{name}: {_explain_silence(each)}" for name, each in modules.items())
    if "module_stdout" in result:
        return _explain_silence(result)
    said = str(result.get("msg") or result.get("stderr") or result)
    if said != _NOT_STARTED or not result.get("cmd") or not isinstance(result.get("rc"), int):
        return said
    return f"{str(result['cmd']).split()[0]}: {os.strerror(result['rc'])}"


def _explain_silence(result: Mapping[str, Any]) -> str:
    """Explain why a module gave no answer, with the line of a known cause, or the last, that was printed."""
    msg = str(result.get("msg", ""))
    if "module_stdout" not in result:
        return msg
    printed = f"{result.get('module_stdout', '')}\n{result.get('module_stderr', '')}".strip().splitlines()
    root = reading.root(printed)
    telling = root.lines[0][1] if root else printed[-1] if printed else "nothing"
    return f"{msg}; it ended with {result.get('rc')} and printed {telling}"


def _end_workers(folder: Path) -> None:
    """End Ansible's leftover workers after it was killed: they are sessions of their own."""
    mark = f"ANSIBLE_LOCAL_TEMP={folder}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = mark in (entry / "environ").read_bytes().split(b"\0")
            # The connections, which outlast a play, also have that variable.
            if ours and b"ansible-playbook" in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


def reap(login: Login, run_id: str, hosts: Sequence[str]) -> list[HostFailure]:
    """End the leftovers of ``run_id`` on these hosts; return the failures."""
    program = f"{folders(login.lab).workloads}/reap.py"
    variables = {
        "hvlab_run": run_id,
        "hvlab_hosts": ",".join(hosts),
        "hvlab_reap": [login.lab.python, program],
        "hvlab_seconds": _REAP_S,
    }
    with Play("reap-cases.yml", login, variables) as play:
        play.finish()
        if not play.failures:
            play.check("the run's processes could not be ended", remedy="")
        return play.failures
