"""Values of environment variables that nobody else is to read: kept out of records, reports and output.

Which variables these are, their names say: HF_TOKEN, WANDB_API_KEY, AWS_SECRET_ACCESS_KEY. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# What stands in the place of a value.
HIDDEN = "***"
_WORDS = r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(?:API|ACCESS|PRIVATE)_KEY"
_NAME = re.compile(rf"(?:[A-Z0-9_]+_)?(?:{_WORDS})(?:_[A-Z0-9_]+)?")
_MAY_BE = re.compile(_WORDS)
# An assignment as a shell has it, perhaps quoted as a whole, as shlex.join does.
_PIECE = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s'"\\])"""
_ASSIGNED = re.compile(
    rf"""(?P<quote>['"])?(?<![A-Za-z0-9_])(?P<name>[A-Za-z_][A-Za-z0-9_]*)="""
    rf"""(?P<value>(?(quote)(?:(?!(?P=quote)).)*(?:(?P=quote){_PIECE}*)?|{_PIECE}*))""",
    re.DOTALL,
)


def hides(name: str) -> bool:
    """Return whether a variable of that name holds what is to be kept secret."""
    return bool(_NAME.fullmatch(name))


def masked_env(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment with the values of such variables masked."""
    return {name: HIDDEN if hides(name) else masked(value) for name, value in env.items()}


def masked(value: Any) -> Any:
    """Return a text, or what JSON holds, with the values of such variables masked where they are assigned."""
    if isinstance(value, str):
        return _ASSIGNED.sub(_mask, value) if _MAY_BE.search(value) else value
    if isinstance(value, Mapping):
        return {name: masked(inner) for name, inner in value.items()}
    return type(value)(map(masked, value)) if isinstance(value, list | tuple) else value


def masked_json(text: str) -> Any:
    """Return what a text of JSON holds, masked; one without such a name is not walked through."""
    value = json.loads(text)
    return masked(value) if _MAY_BE.search(text) else value


def is_masked(value: Any) -> bool:
    """Return whether a text, or what JSON holds, has lost the value of a variable."""
    if isinstance(value, str):
        assigned = [(found["name"], found["value"]) for found in _ASSIGNED.finditer(value)]
        return any(HIDDEN in text if hides(name) else is_masked(text) for name, text in assigned)
    if isinstance(value, Mapping):
        return any(map(is_masked, value.values()))
    return isinstance(value, list | tuple) and any(map(is_masked, value))


def _mask(found: re.Match[str]) -> str:
    quote, name, value = found["quote"] or "", found["name"], found["value"]
    if not hides(name):
        return f"{quote}{name}={masked(value)}"
    # An empty value says nothing.
    closing = quote if quote and value.find(quote) >= 0 else ""
    inner = value.removesuffix(closing) if closing else value
    return f"{quote}{name}={HIDDEN if inner else ''}{closing}"
