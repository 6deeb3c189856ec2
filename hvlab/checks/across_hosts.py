"""Known causes seen across hosts: questions, and detectors over all answers. Pure.

Each subject has ``questions``, in the form that ``hvlab/checks/node/probe.py`` answers, and ``faults``. A
fault names an entry of ``hvlab/doctor/knowledge``. A missing answer is not a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hvlab.checks.registry import SUBJECTS
from hvlab.checks.site import HostFault, HostReplies, Site
from hvlab.doctor import knowledge, reading
from hvlab.doctor.cause import Cause

_SUBJECTS = [subject for subject in SUBJECTS if hasattr(subject, "faults")]
ENTRIES: Mapping[str, Cause] = {cause.id: cause for cause in (*knowledge.CAUSES, reading.STOPPED)}


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Return the questions to every host, by name; ``@HOST@`` in them stands for the host's own name."""
    return {name: question for subject in _SUBJECTS for name, question in subject.questions(site).items()}


def faults(site: Site, answered: Mapping[str, Mapping[str, Any]]) -> list[HostFault]:
    """Return the faults that the answers show, root causes first."""
    replies = {host.name: HostReplies(answered[host.name]) for host in site.hosts if host.name in answered}
    every = [fault for subject in _SUBJECTS for fault in subject.faults(site, replies)]
    return rank(every)


def rank(every: Sequence[HostFault]) -> list[HostFault]:
    """Return each fault once, root causes first."""
    return sorted(dict.fromkeys(every), key=lambda fault: ENTRIES[fault.id].weight)


def of_message(host: str, message: str) -> HostFault | None:
    """Return the fault that Ansible's message about a host shows; None if it is unknown."""
    root = reading.root(message.splitlines())
    return HostFault(root.cause.id, host, " ".join(message.split())[:300]) if root else None
