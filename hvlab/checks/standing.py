"""Ask hosts where the ranks of a job stand; :mod:`hvlab.doctor.standing` judges their answers."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.checks.ask import ask_hosts
from hvlab.doctor.places import HostStanding
from hvlab.lab.inventory import ROOT, Lab
from hvlab.workloads import PROGRAMS

_LOOKS = 5
# Beside the looks themselves: stacks, RAS and the kernel's log.
_MORE_S = 60


def ask(lab: Lab, *, seconds: int) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the answers of hosts that look for ``seconds``, and the silent hosts with the reason.

    py-spy, which reads stacks, is brought to hosts of an inventory.
    Raises CheckError if Ansible itself fails.
    """
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or ""
    carried = {"hvlab_carried": spy, "hvlab_carried_to": f"{ROOT}/bin", "hvlab_machine": platform.machine()}
    program = (PROGRAMS / "standing.py").read_text("utf-8")
    argv = ["python3", "-c", program, str(seconds), str(_LOOKS), *([spy] if lab.listed else [])]
    question = {"run": argv, "timeout": seconds + _MORE_S}
    answered = ask_hosts(
        lab, {"standing": question}, at_once=len(lab.hosts), further=carried if spy else None
    )
    seen, silent = {}, {**answered.silent, **answered.broken}
    for host, reading in answered.readings.items():
        said = reading["standing"]
        try:
            seen[host] = answers.load(said["out"], f"{host}: standing.py", HostStanding)
        except AnswerError as error:
            silent[host] = said["err"].strip().rpartition("\n")[2] or error.observed
    return seen, silent
