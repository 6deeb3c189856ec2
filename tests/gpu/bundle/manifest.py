"""What a bundle holds: sizes, sums, and what was left out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hvlab.base.errors import UsageError

NAME = "MANIFEST"
MIB = 2**20


@dataclass(frozen=True)
class Packed:
    """One part: ``name`` and what it is; its file, in bytes; ``unpacked`` in bytes."""

    name: str
    what: str
    sha256: str
    size: int
    unpacked: int

    @property
    def file(self) -> str:
        return f"parts/{self.name}.tar.gz"


def mib(size: int) -> int:
    """Return bytes as MiB, rounded up."""
    return -(-size // MIB)


def check_names(without: Iterable[str], names: Iterable[str]) -> None:
    """Raise UsageError for a part that does not exist."""
    known = list(names)
    for name in without:
        if name not in known:
            raise UsageError(f"there is no part {name}", remedy=f"the parts are {', '.join(known)}")


def check_limit(parts: Iterable[Packed], limit: int | None) -> None:
    """Raise UsageError where the parts are larger than ``limit`` MiB; it names those to leave out."""
    by_size = sorted(parts, key=lambda part: part.size, reverse=True)
    total = sum(part.size for part in by_size)
    if limit is None or total <= limit * MIB:
        return
    too_many, rest = [], total
    for part in by_size:
        if rest > limit * MIB:
            too_many.append(part.name)
            rest -= part.size
    sizes = ", ".join(f"{part.name} {mib(part.size)}" for part in by_size)
    raise UsageError(
        f"the bundle has {mib(total)} MiB, and --limit-mib is {limit}: {sizes}",
        remedy=f"add --without {','.join(too_many)}; `run` then measures nothing",
    )


def render(parts: Iterable[Packed], left_out: Mapping[str, str], notes: Iterable[str]) -> str:
    """Return the manifest: comments for people, and the lines that `sha256sum --check` reads."""
    listed = list(parts)
    lines = [f"# {note}" for note in notes]
    lines.append(f"# unpacked {mib(sum(part.unpacked for part in listed))} MiB")
    lines += [f"# left out {name}: {what}" for name, what in left_out.items()]
    for part in listed:
        lines += ["", f"# {part.name}: {part.what}; {mib(part.size)} MiB", f"{part.sha256}  {part.file}"]
    return "\n".join(lines) + "\n"
