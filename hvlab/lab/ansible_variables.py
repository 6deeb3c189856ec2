"""Which of the user's ANSIBLE_* variables hold where hvlab itself runs Ansible, and reads what it says.

What says how hosts are reached, where secrets and plugins are, and how much is done at a time, does. The rest
is for a person at a terminal: it would stop Ansible at a question, choose other tasks, or change its answers.
`hvlab provision`, which runs on the user's terminal, keeps all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_KEPT = re.compile(
    r"ANSIBLE_(?:HOME|VAULT_\w+|REMOTE_\w+|PRIVATE_KEY_FILE|SSH_\w+|SCP_\w+|SFTP_\w+|PARAMIKO_\w+|TRANSPORT"
    r"|PIPELINING|PYTHON_INTERPRETER|INTERPRETER_PYTHON\w*|BECOME_(?:EXE|FLAGS|METHOD|USER|PASSWORD_FILE)"
    r"|(?:(?:BECOME|SUDO|CONNECTION)_)?PASS(?:WORD)?"
    r"|CONNECTION_PASSWORD_FILE|TIMEOUT|FORKS|LOCAL_TEMP|INVENTORY|ROLES_PATH|COLLECTIONS_PATHS?"
    r"|(?:CONNECTION|LOOKUP|INVENTORY|FILTER|BECOME|VARS)_PLUGINS)"
)


def dropped(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that do not hold."""
    return [name for name in environment if name.startswith("ANSIBLE_") and not _KEPT.fullmatch(name)]


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without them."""
    names = set(dropped(environment))
    return {name: value for name, value in environment.items() if name not in names}
