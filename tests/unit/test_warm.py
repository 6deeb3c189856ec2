"""Byte code for users who cannot write it, of packages that root never imports."""

import os
import subprocess

import pytest

from hvlab.stack.provision.python_env import warm

# A package of whoever serves the index: it says who runs it, and would have root compile what is not its own.
IMPORTED = """
import os, package.part
open(os.path.expanduser('~/tried'), 'w').close()
print(f'{os.getuid()} {os.getgroups()}', file=open(%r, 'a'))
print(%r)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes nobody")
@pytest.mark.parametrize("broken", [False, True])
def test_packages_are_imported_as_nobody_and_compiled_by_root(tmp_path, broken):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("test_", "pytest-", "popen-")):
            folder.chmod(0o711)
    log, others = tmp_path / "log", tmp_path / "others.py"
    log.touch()
    log.chmod(0o666)
    others.write_text("")
    root = tmp_path / "environment"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(root)], check=True)
    (site,) = root.glob("lib/python*/site-packages")
    package = site / "package"
    package.mkdir()
    (package / "part.py").write_text("raise ValueError('broken')" if broken else "")
    (package / "unused.py").write_text("")
    (package / "__init__.py").write_text(IMPORTED % (str(log), f"{root}/../others.py\n{others}"))
    (site / "begin.pth").write_text(f"import os; print(os.getuid(), file=open({str(log)!r}, 'a'))\n")
    argv = warm("package, json; import package.part", str(root / "bin/python"), str(root))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) is broken, done.stderr
    assert set(log.read_text().splitlines()) == {"65534"} | (set() if broken else {"65534 []"})
    compiled = {path.name.split(".")[0] for path in tmp_path.rglob("*.pyc")}
    assert compiled == (set() if broken else {"__init__", "part"})
    assert ("ValueError: broken" in done.stderr) is broken
