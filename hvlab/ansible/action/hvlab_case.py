"""Run one case of a benchmark on its first host and fetch its files, over one connection."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hvlab.ansible.modules.hvlab_case import DOCUMENTATION
from hvlab.files import write_file
from hvlab.lab.capability import refusal
from hvlab.launchers.command import SSH_OPTIONS
from hvlab.provision.arguments import arguments


class ActionModule(ActionBase):  # type: ignore[misc]
    """See the module of the same name for what it takes and gives."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the task's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = arguments(self, DOCUMENTATION)
        path = Path(args["plan"])
        plan = json.loads(path.read_text("utf-8"))
        if args["state"] == "checked":
            return result | self._check(plan, path.parent, task_vars or {})
        return result | self._run_case(plan, plan["cases"][args["case"]], path.parent)

    def _check(self, plan: dict[str, Any], folder: Path, task_vars: dict[str, Any]) -> dict[str, Any]:
        hostvars = task_vars["hostvars"]
        facts = {host: _plain(hostvars[host].get("ansible_facts", {})) for host in plan["hosts"]}
        _write(folder / "facts.json", _known(folder) | facts)
        cases, refused = [], {}
        for name, case in plan["cases"].items():
            host_facts = {host: facts[host] for host in case["hosts"]}
            reason = refusal(case, host_facts)
            if reason is None:
                cases.append(name)
            elif case["asked"]:
                refused[case["backend"]] = {"seen": reason.seen, "remedy": reason.remedy}
            else:
                (folder / name).mkdir(exist_ok=True)
                _write(folder / name / "case.json", {"skipped": reason.seen, "started_at": time.time()})
        if refused:
            _write(folder / "refused.json", refused)
            return {"failed": True, "msg": "; ".join(reason["seen"] for reason in refused.values())}
        return {"cases": cases, "heads": {name: plan["cases"][name]["hosts"][0] for name in cases}}

    def _run_case(self, plan: dict[str, Any], case: dict[str, Any], folder: Path) -> dict[str, Any]:
        host = case["hosts"][0]
        program = f"{plan['programs']}/case.py"
        job = {
            "case": case["mark"],
            "argv": case["argv"],
            "env": case["env"] | (plan["allocation"] if case["step"] else {}),
            "after": ["python3", f"{plan['programs']}/steps.py", case["step"]] if case["step"] else [],
            "hosts": case["hosts"],
            "self": host,
            "timeout": case["timeout"],
            "certificate": plan["certificate"],
            "ssh": ["ssh", *shlex.split(SSH_OPTIONS), *_port(case["ssh_port"])],
        }
        words = ["env", f"HVLAB_CASE={case['mark']}", "python3", program]
        if plan["as_user"]:
            words = ["runuser", "--login", plan["as_user"], "--command", shlex.join(words)]
        command = f"exec {shlex.join(words)}"
        try:
            status, out, err = self._connection.exec_command(
                command, in_data=json.dumps(job).encode(), sudoable=False
            )
        except AnsibleConnectionFailure as error:
            return {
                "failed": True,
                "stop": True,
                "lost": True,
                "msg": f"the connection to {host} broke: {error}",
            }
        if status:
            lines = err.decode(errors="replace").strip().splitlines()
            msg = lines[-1] if lines else f"{program} ended with exit status {status} and no output"
            return {"failed": True, "stop": True, "msg": msg}
        if not Path("/proc", str(plan["driver"])).exists():
            return {"failed": True, "stop": True, "msg": "hvlab bench is gone: nobody takes the files in"}
        files = _files(out)
        step = json.loads(files["case.json"]).get("step", {})
        lost = step.get("state", "RUNNING") != "RUNNING"
        if lost:
            # The case is still to be measured, in another allocation; its files stay here to be looked at.
            _write(folder / "lost.json", {"case": case["id"], **step})
        _keep(files, folder / (f".{case['id']}.lost" if lost else case["id"]))
        return {"changed": True, "stop": lost}


def _known(folder: Path) -> dict[str, Any]:
    """Return the facts of hosts that took part earlier in this run."""
    file = folder / "facts.json"
    return dict(json.loads(file.read_text("utf-8"))) if file.is_file() else {}


def _port(number: int) -> list[str]:
    return ["-p", str(number)] if number else []


def _files(data: bytes) -> dict[str, bytes]:
    """Return the files of a flat tar by name."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        opened = {entry.name: tar.extractfile(entry) for entry in tar if Path(entry.name).name == entry.name}
        return {name: content.read() for name, content in opened.items() if content is not None}


def _keep(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files into ``folder``, which is whole or not there."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for name, content in files.items():
        (part / name).write_bytes(content)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _write(path: Path, data: object) -> None:
    write_file(path, json.dumps(data, indent=1, default=str))


def _plain(value: Any) -> Any:
    """Return a copy without Ansible's own types."""
    return json.loads(json.dumps(value, default=str))
