# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""How GPUs and network cards are connected: the text of ``nvidia-smi topo -m`` -> rows. Pure."""

from __future__ import annotations

import re
from typing import Any

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU\d+$")
_LINK = re.compile(r"NV\d+$")
_LEGEND = re.compile(r"\s*(NIC\d+):\s*(\S+)\s*$")
# From near to far; SOC is what old drivers call SYS.
_PCIE = ("PIX", "PXB", "PHB", "NODE")
_SOCKETS = ("SYS", "SOC")


def parse(text: str) -> dict[str, Any] | None:
    """Return ``{gpus, nics, link}``: for each GPU and NIC the link to every GPU, and their summary in words.

    None when the text holds no matrix, or not all of it: an error, or a line cut short.
    """
    lines = _ESCAPE.sub("", text).splitlines()
    head = next((number for number, line in enumerate(lines) if "GPU0" in line.split()), None)
    if head is None:
        return None
    columns = lines[head].split()
    if "CPU" in columns:
        columns = columns[: columns.index("CPU")]
    rows = {}
    for line in lines[head + 1 :]:
        name, *cells = line.split() or [""]
        if name in columns:
            links = [cell if _known(cell) else None for cell in cells]
            rows[name] = dict(zip(columns, links))  # noqa: B905
    gpus = [name for name in columns if _GPU.match(name)]
    if not set(gpus) <= set(rows):
        return None
    called = {match.group(1): match.group(2) for match in map(_LEGEND.match, lines) if match}
    matrix = {name: {other: rows[name].get(other) for other in gpus if other != name} for name in gpus}
    return {
        "gpus": matrix,
        "nics": {
            called.get(name, name): {gpu: rows[gpu].get(name) for gpu in gpus}
            for name in columns
            if name not in gpus
        },
        "link": summary(matrix),
    }


def summary(matrix: dict[str, dict[str, str | None]]) -> str | None:
    """Return how the GPUs of a host are connected, in words; None for one GPU and where a link is unknown."""
    links = {link for row in matrix.values() for link in row.values()}
    if not links or None in links:
        return None
    present = [link for link in links if link is not None]
    parts = (
        ("NVLink", sorted((link for link in present if _LINK.match(link)), key=lambda link: int(link[2:]))),
        ("PCIe", [link for link in _PCIE if link in present]),
        ("PCIe across sockets", [link for link in _SOCKETS if link in present]),
    )
    return " and ".join("{} ({})".format(name, ", ".join(kinds)) for name, kinds in parts if kinds)


def _known(cell: str) -> bool:
    return cell == "X" or cell in _PCIE or cell in _SOCKETS or bool(_LINK.match(cell))
