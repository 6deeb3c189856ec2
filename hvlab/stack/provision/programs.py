"""The programs that roles copy from the controller's folders to hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hvlab.base.yaml_files import read_shipped, read_yaml


def programs(*, folder: str, target: str) -> dict[str, Any]:
    """Return the ``files`` of a folder of programs for hvlab_files, and ``hashes``: name -> sha256."""
    own = sorted(file for file in Path(folder).iterdir() if file.suffix in (".py", ".json"))
    texts = {file.name: file.read_text("utf-8") for file in own}
    return {
        "files": [{"path": f"{target}/{name}", "content": text} for name, text in texts.items()],
        "hashes": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
    }


def node_health(
    *, folder: str, target: str, machine_type: str, interfaces: Sequence[str], types: Sequence[str]
) -> Mapping[str, Any]:
    """Return the programs of the node's health check, and the machine ``types`` it chooses from."""
    own = programs(folder=f"{folder}/node", target=f"{target}/hvlab/checks/node")
    main = Path(folder, "node/__main__.py").read_text("utf-8")
    return {
        "files": [*own["files"], {"path": f"{target}/__main__.py", "content": main}],
        "hashes": own["hashes"],
        "types": {
            "type": machine_type,
            "expect": {"network_interfaces": interfaces},
            "own": {Path(file).stem: read_yaml(Path(file)) for file in types},
            "known": {
                file.stem: read_shipped(file) for file in sorted(Path(folder, "machines").glob("*.yml"))
            },
        },
    }
