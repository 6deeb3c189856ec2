"""Imports go down only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from hvlab.lab.backends import BACKENDS
from tests.contract import tree

# From the bottom to the top. A package imports itself and those of the lines above it here: no circles.
LEVELS = [
    {"base"},
    {"doctor", "statistics"},
    {"lab"},
    {"workloads"},
    {"remote", "results", "vlab"},
    {"analysis", "stack"},
    {"bench", "report"},
    {"checks"},
    {"searches"},
    {"ansible"},
    {"cli"},
]
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names}
# Words of other tools' files, or of Horovod's, that happen to be a backend's name.
SPELL_BACKENDS = {
    "checks/horovod.py": "what Horovod says that it was built with",
    "checks/horovod_ranks.py": "the same, and the launcher of each",
    "doctor/knowledge/__init__.py": "families of failures",
    "lab/variants.py": "the default variant of the role horovod, and what starts its ranks",
    "results/formats/records.py": "which backend a tool measures",
    "stack/provision/horovod.py": "what the variables of Horovod's build are called",
}
MODULES = sorted((tree.ROOT / "hvlab").rglob("*.py"))
NODE_PROGRAMS = [path for path in MODULES if "programs" in path.parts]


@cache
def nodes(path: Path) -> list[ast.AST]:
    """What a file is made of."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, in full."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(path: Path) -> str:
    """The part of hvlab a file belongs to."""
    return path.relative_to(tree.ROOT / "hvlab").with_suffix("").parts[0]


def test_imports_go_down() -> None:
    wrong = []
    for path in MODULES:
        own = part(path)
        if own in ("__init__", "__main__"):
            continue
        assert own in LEVEL, f"{path.name}: LEVELS does not say where {own} belongs"
        for name in imports(path):
            package, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if package == "hvlab" and target in LEVEL and target != own and LEVEL[target] >= LEVEL[own]:
                wrong.append(f"{path.relative_to(tree.ROOT)} imports {name}, which is above it")
    assert not wrong


def test_no_module_imports_itself_through_others() -> None:
    """Inside a room as well, and by what a function imports when it is called."""
    places = {path: path.relative_to(tree.ROOT).with_suffix("") for path in MODULES}
    names = {path: ".".join(place.parts).removesuffix(".__init__") for path, place in places.items()}
    known = set(names.values())
    imported: dict[str, set[str]] = {}
    for path, own in names.items():
        wanted = {name if name in known else name.rpartition(".")[0] for name in imports(path)}
        imported[own] = wanted & known
    # Raises CycleError, which names the modules of one circle.
    TopologicalSorter(imported).prepare()


def test_only_remote_imports_ansible_runner() -> None:
    users = {
        part(path) for path in MODULES for name in imports(path) if name.partition(".")[0] == "ansible_runner"
    }
    assert users == {"remote"}


def test_backends_are_spelt_in_their_table_alone() -> None:
    """Adding a backend is one row of lab/backends.yml: what sets it apart is a field of that row."""
    spelt = {}
    for path in MODULES:
        place = str(path.relative_to(tree.ROOT / "hvlab"))
        if place in ("lab/backends.py", *SPELL_BACKENDS) or path in NODE_PROGRAMS:
            continue
        names = {
            node.value for node in nodes(path) if isinstance(node, ast.Constant) and node.value in BACKENDS
        }
        if names - {"nccl"}:  # also a library, with versions and packages of its own
            spelt[place] = sorted(names)
    assert not spelt


def test_a_class_name_stands_for_one_concept() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES:
        if path in NODE_PROGRAMS:  # one program for each framework, with the same classes
            continue
        for node in nodes(path):
            if (
                isinstance(node, ast.ClassDef)
                and not node.name.startswith("_")
                and node.name not in ("ActionModule", "CallbackModule", "FilterModule")
            ):
                places.setdefault(node.name, []).append(str(path.relative_to(tree.ROOT)))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


def test_programs_of_the_nodes_import_nothing_of_ours() -> None:
    for path in NODE_PROGRAMS:
        assert not [name for name in imports(path) if name.partition(".")[0] == "hvlab"], path


def test_no_command_is_a_shell_string() -> None:
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                assert ast.unparse(node.value) == "False", f"{path}:{node.lineno}"


def test_every_call_of_a_program_has_a_time_limit() -> None:
    calls = []
    for path in MODULES:
        for node in nodes(path):
            if not isinstance(node, ast.Call):
                continue
            name, keys = ast.unparse(node.func), {keyword.arg for keyword in node.keywords}
            assert name not in ("os.system", "os.popen"), f"{path}:{node.lineno}"
            if name in (
                "subprocess.run",
                "subprocess.call",
                "subprocess.check_call",
                "subprocess.check_output",
            ):
                calls.append(name)
                assert "timeout" in keys, f"{path}:{node.lineno}: {name} may hang for ever"
            if name == "process.run":
                calls.append(name)
                assert "seconds" in keys, f"{path}:{node.lineno}"
    assert {"subprocess.run", "process.run"} <= set(calls)
