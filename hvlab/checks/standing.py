"""Ask hosts where the ranks of a job stand; :mod:`hvlab.doctor.standing` judges their answers."""

from __future__ import annotations

from typing import Any

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.checks.ask import put
from hvlab.doctor.places import HostStanding
from hvlab.lab.inventory import Lab
from hvlab.workloads import PROGRAMS

_LOOKS = 5
# Beside the looks themselves: stacks, RAS and the kernel's log.
_MORE_S = 60


def ask(lab: Lab, *, seconds: int) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the answers of hosts that look for ``seconds``, and the silent hosts with the reason.

    Raises CheckError where Ansible itself fails.
    """
    program = (PROGRAMS / "standing.py").read_text("utf-8")
    argv = ["python3", "-c", program, str(seconds), str(_LOOKS)]
    question = {"run": argv, "timeout": seconds + _MORE_S}
    answered = put(lab, {"standing": question}, at_once=len(lab.hosts))
    seen, silent = {}, {**answered.silent, **answered.broken}
    for host, reading in answered.readings.items():
        said = reading["standing"]
        try:
            seen[host] = answers.load(said["out"], f"{host}: standing.py", HostStanding)
        except AnswerError as error:
            silent[host] = said["err"].strip().rpartition("\n")[2] or error.observed
    return seen, silent
