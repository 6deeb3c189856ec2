"""hvlab's own YAML files, and users': files that would take forever to read are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pydantic import ValidationError

# Bytes, and values once its aliases are written out.
_BYTES, _VALUES = 2**20, 100_000
# The fast one is missing where PyYAML was built without libyaml.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_shipped(path: Path) -> Any:
    """Load a YAML file shipped with hvlab."""
    return load_shipped(path.read_text("utf-8"))


def load_shipped(text: str) -> Any:
    """Load the text of such a file."""
    return yaml.load(text, _LOADER)  # noqa: S506 - a safe loader


class _OnceLoader(yaml.SafeLoader):
    """Reads what is safe, and refuses a key that stands twice in one mapping."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._flat: set[yaml.MappingNode] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Take over the merged keys, after the mapping's own were looked at; some may then stand twice."""
        if node in self._flat:
            return
        self._flat.add(node)
        own: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if name in own:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{name[1]!r} stands twice", key.start_mark
                )
            own.add(name)
        super().flatten_mapping(node)


def read_yaml(path: Path) -> Any:
    """Load a user's YAML file. Raises ValueError naming the mistake.

    Refuses duplicate keys, of which YAML would keep the last, and files that would take forever: over 1 MiB,
    deep nesting, aliases of aliases.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES + 1)
    except OSError as error:
        raise ValueError(error.strerror) from error
    if len(content) > _BYTES:
        raise ValueError("it is larger than 1 MiB")
    try:
        return expand(lambda: yaml.load(content.decode("utf-8"), _OnceLoader))  # noqa: S506 - it is a safe one
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def expand(load: Callable[[], Any]) -> Any:
    """Return the result of ``load``. Raises ValueError if aliases or depth have no end."""
    try:
        value = load()
        size = _values(value, {})
    except RecursionError as error:
        raise ValueError("it is nested too deeply, or an alias contains itself") from error
    if size > _VALUES:
        raise ValueError(f"its aliases stand for more than {_VALUES} values")
    return value


def mistake(error: ValidationError) -> str:
    """Return the first mistake in a file, with its place in it."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "the file"
    unknown = first["type"] == "extra_forbidden"
    return f"{where}: {'unknown name' if unknown else first['msg'].removeprefix('Value error, ')}"


def _values(value: Any, known: dict[int, int]) -> int:
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(value)]
