"""Run one case of a benchmark on its first host and fetch its files, over one connection."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import socket
import tarfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure

from hvlab.ansible.plugin import HvlabAction
from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.files import sync, write_file, write_files
from hvlab.base.masking import mask, mask_argv
from hvlab.base.paths import lab_runtime_dir
from hvlab.lab.environment import of_stack
from hvlab.lab.facts_shape import Facts
from hvlab.lab.variants import refusal
from hvlab.remote.ssh_client import has_detour, responds
from hvlab.vlab import boot
from hvlab.workloads.answered import Ended

# Per case; case.py sends at most answers.LIMIT of each file.
_MOST_FILES, _MOST_BYTES = 1000, 256 * 2**20
_ANSWER_S = 8.0
_RESULTS = "check that the folder exists, is writable and has space, or name another with --results"
# The magic of a POSIX tar's first block, and its offset.
_MAGIC, _MAGIC_AT = b"ustar", 257
# No paths, and no leading dot: the controller's own files and those of NFS begin with one.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@:+-]{0,199}")


class ActionModule(HvlabAction):
    """See the module of the same name for its options and results."""

    def act(self) -> dict[str, Any]:
        """Return the task's result."""
        path = Path(self.args["plan"])
        plan = json.loads(path.read_text("utf-8"))
        return self._reach_state(self.args, plan, path.parent, self.vars)

    def _reach_state(
        self, args: Mapping[str, Any], plan: dict[str, Any], folder: Path, task_vars: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            if args["state"] == "checked":
                return self._check(plan, folder, task_vars)
            return self._run_case(plan, plan["cases"][args["case"]], folder, task_vars)
        except OSError as error:
            # The files of hosts come over the connection, which has errors of its own.
            msg = f"this machine: {error.filename or folder}: {error.strerror}; what to do: {_RESULTS}"
            return {"failed": True, "stop": True, "msg": msg}

    def _check(self, plan: dict[str, Any], folder: Path, task_vars: dict[str, Any]) -> dict[str, Any]:
        hostvars = task_vars["hostvars"]
        try:
            facts = {
                host: answers.check(_to_plain(_facts(hostvars[host])), f"the facts of {host}", Facts)
                for host in plan["hosts"]
            }
        except AnswerError as error:
            return {"failed": True, "msg": f"{error}; what to do: {error.remedy}"}
        for host, limits in boot.read_settings(lab_runtime_dir(plan["lab"])).items():
            if host in facts:
                link = {name: limits.get(name) for name in ("up", "down", "rack", "uplink")}
                facts[host]["virtual_link"] = link
        _write(folder / "facts.json", _read_facts(folder) | facts)
        cases, refused = [], {}
        for name, case in plan["cases"].items():
            host_facts = {host: of_stack(facts[host], case["stack"]) for host in case["hosts"]}
            reason = refusal(case, host_facts)
            if reason is None:
                cases.append(name)
            elif case["asked"]:
                refused[case["backend"]] = {"observed": reason.observed, "remedy": reason.remedy}
            else:
                skipped = {"skipped": reason.observed, "started_at": time.time()}
                _keep({"case.json": json.dumps(skipped).encode()}, folder / name)
        if refused:
            _write(folder / "refused.json", refused)
            return {"failed": True, "msg": "; ".join(reason["observed"] for reason in refused.values())}
        return {"cases": cases, "heads": {name: _head(plan, plan["cases"][name]) for name in cases}}

    def _run_case(
        self, plan: dict[str, Any], case: dict[str, Any], folder: Path, task_vars: dict[str, Any]
    ) -> dict[str, Any]:
        host = _head(plan, case)
        program = f"{plan['programs']}/case.py"
        job = {
            "case": case["mark"],
            "argv": case["argv"],
            "env": case["env"] | (plan["allocation"] if case["step"] else {}),
            "after": [plan["python"], f"{plan['programs']}/steps.py", case["step"]] if case["step"] else [],
            "hosts": case["hosts"],
            "self": host,
            "timeout": case["timeout"],
            "certificate": plan["certificate"],
            "python": plan["python"],
            "reach": [*plan["reach"], *(["-p", str(case["ssh_port"])] if case["ssh_port"] else [])],
        }
        job["shown"] = {"argv": mask_argv(job["argv"]), "env": mask(job["env"])}
        words = ["env", f"HVLAB_CASE={case['mark']}", plan["python"], program]
        if plan["as_user"]:
            words = ["runuser", "--login", plan["as_user"], "--command", shlex.join(words)]
        command = f"exec {shlex.join(words)}"
        try:
            status, out, err = self._connection.exec_command(
                command, in_data=json.dumps(job).encode(), sudoable=False
            )
        except AnsibleConnectionFailure as error:
            lost = bool(_find_unreachable([host], case["ssh_port"], task_vars["hostvars"]))
            return {
                "failed": True,
                "stop": True,
                "lost": lost,
                "msg": _explain_lost(host, program, error, lost),
            }
        if status:
            lines = answers.clean(err.decode(errors="replace")).strip().splitlines()
            msg = lines[-1] if lines else f"{program} ended with exit status {status} and no output"
            return {"failed": True, "stop": True, "msg": msg}
        if not Path("/proc", str(plan["driver"])).exists():
            return {"failed": True, "stop": True, "msg": "hvlab bench is gone: nobody takes the files in"}
        try:
            files = _files(out, host)
            ended = answers.load(files["case.json"], f"{host}: its case.json", Ended)
        except AnswerError as error:
            return {"failed": True, "stop": True, "msg": f"{error}; what to do: {error.remedy}"}
        step = ended.get("step", {})
        # Slurm itself reports lost nodes.
        gone = (
            {} if case["step"] else _find_unreachable(_silent(ended), case["ssh_port"], task_vars["hostvars"])
        )
        lost = bool(gone) or step.get("state", "RUNNING") != "RUNNING"
        if lost:
            # The case will be repeated once the host is back, or in another allocation; its files are kept.
            _write(folder / "lost.json", {"case": case["id"], "hosts": gone, **step})
        _keep(files, folder / (f".{case['id']}.lost" if lost else case["id"]))
        return {"changed": True, "stop": lost}


def _explain_lost(host: str, program: str, error: object, lost: bool) -> str:
    """Explain why a case ended without its files. For ssh, a program killed by a signal looks the same."""
    if lost:
        return f"the connection to {host} broke: {error}"
    return (
        f"{program} was ended there, or its connection was cut: {host} itself answers.\n"
        f"What to do: `dmesg -T | grep -i -e killed -e oom` on {host} shows what the kernel ended for "
        f"want of memory; ssh said: {error}"
    )


def _head(plan: Mapping[str, Any], case: Mapping[str, Any]) -> str:
    return str(plan["head"] or case["hosts"][0])


def _facts(hostvars: Mapping[str, Any]) -> dict[str, Any]:
    """Return a host's facts; the inventory may supply records that the roles lack."""
    facts = dict(hostvars.get("ansible_facts", {}))
    recorded = hostvars.get("hvlab_recorded")
    return facts | {"ansible_local": recorded} if recorded else facts


def _silent(ended: Mapping[str, Any]) -> list[str]:
    return [host for host, left in (ended.get("reaped") or {}).items() if isinstance(left, str)]


def _find_unreachable(hosts: Iterable[str], port: int, hostvars: Mapping[str, Any]) -> dict[str, str]:
    """Return the hosts that this machine cannot reach either, each with the error seen."""
    gone = {}
    for host in hosts:
        own = hostvars[host]
        place = (str(own.get("ansible_host") or host), int(port or own.get("ansible_port") or 22))
        try:
            socket.create_connection(place, timeout=_ANSWER_S).close()
        except OSError as error:
            kinds = ("ssh_args", "ssh_common_args", "ssh_extra_args")
            options = " ".join(str(own.get(f"ansible_{kind}") or "") for kind in kinds)
            login = {"user": own.get("ansible_user"), "key": own.get("ansible_ssh_private_key_file")}
            detour = has_detour(*place, options)
            if detour and responds(*place, options, **login):
                continue
            # By another way, its name or port here says nothing.
            refusal = f"{place[0]}:{place[1]}: {error.strerror or 'no answer'}"
            gone[host] = f"`ssh {place[0]}` gets no answer" if detour else refusal
    return gone


def _read_facts(folder: Path) -> dict[str, Any]:
    file = folder / "facts.json"
    return dict(json.loads(file.read_text("utf-8"))) if file.is_file() else {}


def _files(data: bytes, host: str) -> dict[str, bytes]:
    """Return the files of a flat tar by name. Raises AnswerError if it is no tar or too large.

    Output of ~/.bashrc may precede it.
    """
    if len(data) > _MOST_BYTES:
        raise AnswerError(host, f"it sent {len(data) // 2**20} MiB of files: no case has that many")
    files: dict[str, bytes] = {}
    sent = io.BytesIO(data[max(0, data.find(_MAGIC) - _MAGIC_AT) :])
    try:
        # Uncompressed: its size in memory is the sent size.
        with tarfile.open(fileobj=sent, mode="r:") as tar:
            for entry in tar:
                if entry.sparse or not entry.isreg():
                    raise AnswerError(host, f"it sent {entry.name[:80]!r}, which is no plain file")
                if not _NAME.fullmatch(entry.name):
                    continue
                if len(files) >= _MOST_FILES or entry.size > answers.LIMIT:
                    raise AnswerError(
                        host, f"it sent over {_MOST_FILES} files, or one of over {answers.LIMIT // 2**20} MiB"
                    )
                content = tar.extractfile(entry)
                files[entry.name] = content.read() if content else b""
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise AnswerError(host, f"it sent no whole tar of the case's files ({error})") from error
    if "case.json" not in files:
        raise AnswerError(host, "it did not send the case's case.json")
    return files


def _keep(files: Mapping[str, bytes], folder: Path) -> None:
    """Write ``folder`` completely or not at all, and to disk before a record refers to it."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    write_files(part, files)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    sync(folder.parent)


def _write(path: Path, data: object) -> None:
    write_file(path, json.dumps(data, indent=1, default=str))


def _to_plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
