"""cuDNN matches the inventory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hvlab.checks.provisioned import Question, Role, RoleHost, expect_request, read, run


def asks(node: RoleHost) -> dict[str, Question]:
    prefix = node.variables["cudnn_prefix"]
    return {
        "cudnn_version.h": read(f"{prefix}/current/include/cudnn_version.h"),
        "cudnn.h": read(f"{prefix}/current/include/cudnn.h"),
        "cudnn library": run(
            ["find", "-L", f"{prefix}/current/lib/", "-maxdepth", "1", "-name", "libcudnn.so*"]
        ),
    }


ROLE = Role("cudnn", asks, without="this host gets no cuDNN")


@ROLE.check
def version_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    expect_request(node, fact)
    text = "".join([*node["cudnn_version.h"].values(), *node["cudnn.h"].values()])
    numbers = re.findall(r"#define CUDNN_(?:MAJOR|MINOR|PATCHLEVEL) (\d+)", text)
    node.expect(
        numbers[:3] == fact["version"].split(".")[:3],
        f"the header says {'.'.join(numbers) or 'nothing'}, not {fact['version']}",
    )


@ROLE.check
def library_is_installed(node: RoleHost, fact: Mapping[str, Any]) -> None:
    output = node.output("cudnn library")
    library = f"libcudnn.so.{fact['version'].partition('.')[0]}"
    node.expect(library in output, f"there is no {library} in {fact['lib']}")
