"""No value that a host returned reaches a connection or a file name of the controller."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvlab.base.paths import project_dir

# What a host says comes out of these.
SOURCES = {"_execute_module", "_on_host", "_low_level_execute_command", "exec_command"}
# These end where the controller acts: on a path of the host that the connection quotes, or on a path here.
SINKS = {"fetch_file", "put_file", "_transfer_file", "exec_command", "Path", "join_path"}
# What they return is a number, or was checked.
SAFE = {"int", "float", "bool", "len", "_acceptable", "file_sha256", "checked", "load", "isinstance"}
PLUGINS = sorted((project_dir() / "hvlab/ansible/action").glob("hvlab_*.py"))


def called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


class Flow:
    """Which functions of a module return, and which of their names hold, what a host said."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self.returning = set(SOURCES)
        self.names: dict[str, set[str]] = {name: set() for name in self.functions}
        before = -1
        while before != (before := len(self.returning) + sum(map(len, self.names.values()))):
            for name, function in self.functions.items():
                self.follow(name, function)

    def follow(self, name: str, function: ast.FunctionDef) -> None:
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and self.said(name, node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                held = (part for target in targets for part in ast.walk(target))
                self.names[name] |= {part.id for part in held if isinstance(part, ast.Name)}
            elif isinstance(node, ast.Return) and self.said(name, node.value):
                self.returning.add(name)
            elif isinstance(node, ast.Call) and called(node.func) in self.functions:
                callee = self.functions[called(node.func)]
                parameters = [part.arg for part in callee.args.args if part.arg != "self"]
                given = [*zip(parameters, node.args, strict=False)]
                given += [(word.arg, word.value) for word in node.keywords if word.arg]
                self.names[callee.name] |= {place for place, value in given if self.said(name, value)}

    def said(self, function: str, value: ast.AST | None) -> bool:
        """Whether an expression holds what a host said; a comparison of it does not."""
        match value:
            case None | ast.Compare():
                return False
            case ast.Name():
                return value.id in self.names[function]
            case ast.Call() if called(value.func) in SAFE | self.functions.keys() | self.returning:
                return called(value.func) in self.returning - SAFE
            case ast.IfExp():
                return any(self.said(function, part) for part in (value.body, value.orelse))
        return any(self.said(function, part) for part in ast.iter_child_nodes(value))


def reached(source: str) -> Iterator[str]:
    flow = Flow(ast.parse(source))
    for name, function in flow.functions.items():
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and called(node.func) in SINKS:
                given = [*node.args, *(word.value for word in node.keywords)]
                if any(flow.said(name, value) for value in given):
                    yield f"{name}: {ast.unparse(node)}"


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.stem)
def test_no_answer_of_a_host_reaches_a_connection_or_a_path(plugin: Path) -> None:
    assert list(reached(plugin.read_text("utf-8"))) == []


def test_what_reaches_one_is_noticed() -> None:
    source = """
def ask(self):
    result = self._execute_module(module_name="x")
    return result

def take(self):
    answer = self.ask()
    if answer["ok"] == 1:
        self.fetch(place=answer["archive"])
    Path(int(answer["size"]))

def fetch(self, place):
    self._connection.fetch_file(place, "here")
"""
    assert list(reached(source)) == ["fetch: self._connection.fetch_file(place, 'here')"]
