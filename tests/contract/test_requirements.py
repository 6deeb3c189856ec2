"""The package asks for ranges; developers have one release of each, which is in its range."""

import ast
import os
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement

from hvlab.__main__ import EXTRAS
from tests.contract import tree
from tests.contract.test_imports import MODULES, NODE_PROGRAMS, imports


def named(name):
    """A constant of setup.py."""
    body = ast.parse((tree.ROOT / "setup.py").read_text("utf-8")).body
    (given,) = (
        node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return ast.literal_eval(given)


def ranges():
    """The requirements of the package, its extras' included."""
    every = [*named("REQUIRES"), *(one for extra in named("EXTRAS").values() for one in extra)]
    return {one.name: one.specifier for one in map(Requirement, every)}


def test_what_hvlab_imports_comes_with_it_or_with_the_extra_that_is_told():
    """Programs of hosts have other packages."""
    given = {Requirement(one).name: "" for one in named("REQUIRES")}
    given |= {Requirement(one).name: extra for extra, every in named("EXTRAS").items() for one in every}
    brings = {
        module: {name.lower().replace("_", "-") for name in names}
        for module, names in packages_distributions().items()
    }
    # jinja2 brings markupsafe, ansible-core packaging.
    there = sys.stdlib_module_names | {"hvlab", "markupsafe", "packaging"}
    there |= {path.stem for path in NODE_PROGRAMS}
    apart = {"programs", "modules", "module_utils", "node"}
    imported = {
        name.partition(".")[0]
        for path in MODULES
        if not apart & {*path.parts}
        for name in imports(path)
    } - there  # fmt: skip
    assert {"ansible", "numpy", "optuna"} <= imported
    extras = {module: [given[name] for name in brings[module] & given.keys()] for module in imported}
    assert not [module for module, found in extras.items() if not found]
    told = {module: found[0] for module, found in extras.items() if found[0]}
    # These are run as programs.
    assert told | dict.fromkeys(("pip", "pytest", "testinfra"), "hosts") == EXTRAS


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


@pytest.fixture
def make(tmp_path):
    """The Makefile in a folder of its own, on a machine that writes down what apt-get is asked for."""
    for name in ("Makefile", "setup.py"):
        shutil.copy(tree.ROOT / name, tmp_path)
    shutil.copytree(tree.ROOT / "requirements", tmp_path / "requirements")
    programs = {
        "apt-get": f'echo "$@" >> {tmp_path}/apt.log',
        "python3.10": 'test "$1" = --version && echo Python 3.10.12',
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    def run(*words):
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["make", "SUDO=", *words], cwd=tmp_path, env=os.environ | {"PATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        log = tmp_path / "apt.log"
        return done, log.read_text() if log.exists() else ""

    return run


def test_an_old_python_ends_make_before_anything_is_installed(make):
    done, asked = make("install", "PYTHON=python3.10", "DEBIAN_KEYS=/nowhere")
    assert done.returncode
    assert "needs Python 3.11 or later; here is Python 3.10.12" in done.stdout
    assert "make install PYTHON=$(uv python find" in done.stdout
    assert asked == ""


def test_a_machine_without_debian_s_keys_gets_them(make):
    done, asked = make("system", f"PYTHON={sys.executable}", "DEBIAN_KEYS=/nowhere")
    assert done.returncode == 0, done.stderr
    assert "debian-archive-keyring" in asked.split()
    assert "debian-archive-keyring" in done.stdout
