"""How causes are put into a fresh lab of two virtual hosts, p1 and p2, to show the failure and its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hvlab.base.yaml_files import read_shipped


@dataclass(frozen=True)
class CauseProof:
    """One cause (its id), and what shows it.

    ``put_in`` is a line for the shell of root on ``host``. ``command``, words of hvlab, meets the cause then,
    and meets nothing without it. ``remedy`` is a command of hvlab that fixes it; where hvlab does not,
    ``by_hand`` is a line for the shell on that host.
    """

    cause: str
    host: str
    put_in: str
    command: tuple[str, ...]
    remedy: tuple[str, ...] = ()
    by_hand: str = ""


def _read() -> Iterator[CauseProof]:
    content = read_shipped(Path(__file__).with_suffix(".yml"))
    for entry in content["proofs"]:
        command, remedy = content["commands"][entry["command"]], entry.get("remedy", "")
        yield CauseProof(**{**entry, "command": tuple(command.split()), "remedy": tuple(remedy.split())})


PROOFS = tuple(_read())
OF_CAUSE = {proof.cause: proof for proof in PROOFS}
