"""Every host is as the inventory asks for: a test for each check of ``hvlab/checks`` on each host."""

from __future__ import annotations

import pytest
import testinfra

from hvlab.checks.provisioned import NotApplicable, RoleCheck
from tests.node.conftest import Asked


def test_host(
    host: testinfra.host.Host, check: RoleCheck, asked: Asked, request: pytest.FixtureRequest
) -> None:
    nodes, broken = asked
    node, role = nodes[host.backend.get_hostname()], check.role.name
    if node.silence and role != "host":
        pytest.skip(f"{node.name} did not answer")
    if error := broken.get((node.name, role)):
        raise error
    try:
        request.node.user_properties.append(("observed", check.run(node, nodes)))
    except NotApplicable as reason:
        pytest.skip(str(reason))
