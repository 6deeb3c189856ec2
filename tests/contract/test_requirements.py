"""The package asks for ranges; developers have one release of each, which is in its range."""

import ast

from packaging.requirements import Requirement

from tests.contract import tree


def ranges():
    """The requirements of the package."""
    body = ast.parse((tree.ROOT / "setup.py").read_text("utf-8")).body
    (given,) = (
        node.value
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REQUIRES"
    )
    return {one.name: one.specifier for one in map(Requirement, ast.literal_eval(given))}


def test_each_requirement_is_pinned_within_its_range():
    lines = (tree.ROOT / "requirements/run.txt").read_text("utf-8").splitlines()
    pinned = {
        one.name: one.specifier for one in map(Requirement, (line for line in lines if line[:1] not in "#"))
    }
    assert pinned.keys() == ranges().keys()
    for name, wanted in ranges().items():
        (pin,) = pinned[name]
        assert pin.operator in ("==", ">=")
        assert pin.version in wanted, name
        assert not any(each.operator == "==" and pin.operator == "==" for each in wanted), (
            f"{name} is no range"
        )
