"""Recorded reports of nvidia-smi, whole or with one value changed, as the answers of the probe."""

from __future__ import annotations

import re
from typing import Any

from hvlab.checks.node import smi
from tests.unit.health_answers import DATA, answers, outcomes

HEALTHY = "h100-8-driver-580"


def report(name: str = HEALTHY, *changes: tuple[str, str], gpu: int | None = 0) -> str:
    """Return a report; a GPU like the one before is recorded by what differs.

    Each change replaces a text, which has to be there, in one GPU's block or in all.
    """
    text = (DATA / f"gpu/{name}.xml").read_text("utf-8")
    head, *blocks = text.split("<gpu id=")
    for index, block in enumerate(blocks):
        values = re.findall(r' (\w+)="([^"]*)"', block)
        if values:
            blocks[index] = re.sub("^[^>]*", block.split()[0], blocks[index - 1])
        for tag, value in values:
            blocks[index] = re.sub(f"<{tag}>[^<]*", f"<{tag}>{value}", blocks[index], count=1)
    if values:
        blocks[-1] = f"{blocks[-1].rstrip()}\n</nvidia_smi_log>\n"
    for old, new in changes:
        for index, block in enumerate(blocks):
            if gpu in (None, index):
                assert old in block, f"{old} is not in {name}"
                blocks[index] = block.replace(old, new, 1)
    return "<gpu id=".join([head, *blocks])


def judged(subject: Any, text: str, expected: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    """Return the findings of one subject for one report and whatever else is recorded."""
    outputs = {smi.NAME: text, **more.pop("outputs", {})}
    values = subject.readings(answers(subject.QUESTIONS, outputs=outputs, **more))
    findings: list[Any] = subject.findings(values, expected or {})
    return findings


def faults(findings: list[Any]) -> dict[str, str]:
    """Return check -> hard or soft."""
    return {check: outcome for check, outcome in outcomes(findings).items() if outcome in ("hard", "soft")}


def devices(lspci: str, driver: str = "nvidia") -> dict[str, str]:
    """Return `lspci -nn` as the kernel's uevent files.

    Their form is that of drivers/pci/pci-driver.c (pci_uevent); lspci knows nothing of the driver.
    """
    files = {}
    for line in lspci.splitlines():
        address, _, rest = line.partition(" ")
        kind, identity = rest.split("[")[1].split("]")[0], rest.rsplit("[", 1)[1].split("]")[0]
        address = address if address.count(":") > 1 else f"0000:{address}"
        files[f"/sys/bus/pci/devices/{address}/uevent"] = (
            f"DRIVER={driver}\nPCI_CLASS={int(kind, 16):X}00\nPCI_ID={identity.upper()}\n"
            f"PCI_SUBSYS_ID=10DE:16C1\nPCI_SLOT_NAME={address}\n"
        )
    return files
