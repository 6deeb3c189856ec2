"""The programs of the nodes, imported here where there is no torch."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PROGRAMS = Path(__file__).parents[2] / "hvlab/workloads/programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))


def torch(**more: object) -> ModuleType:
    """Return a torch that knows no more than what programs name while they are imported."""
    made = ModuleType("torch")
    made.Tensor = object
    made.bfloat16, made.int8 = "bfloat16", "int8"
    made.__version__ = "2.12.0+cpu"
    made.version = SimpleNamespace(cuda=None)
    made.nn = ModuleType("torch.nn")
    made.nn.Module = object
    made.nn.functional = ModuleType("torch.nn.functional")
    made.nn.functional.cross_entropy = None
    vars(made).update(more)
    return made


def program(monkeypatch: pytest.MonkeyPatch, name: str, **more: object) -> ModuleType:
    """Return one of the programs, and forget it and its fellows after the test."""
    for known in NAMES:
        monkeypatch.delitem(sys.modules, known, raising=False)
    made = torch(**more)
    for module in (made, made.nn, made.nn.functional):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(PROGRAMS)
    imported = import_module(name)
    for known in NAMES:
        if known in sys.modules:
            # Undone in the end: then it was not there.
            monkeypatch.setitem(sys.modules, known, sys.modules.pop(known))
    return imported
