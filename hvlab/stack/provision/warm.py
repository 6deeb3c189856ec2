"""Byte code for users who cannot write it."""

from __future__ import annotations

from collections.abc import Sequence

_IMPORT = """
import sys, {}
print('', *(m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)), sep='\\n')
"""
_COMPILE = """
import compileall, os, subprocess, sys, tempfile

def become_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)

with tempfile.TemporaryDirectory() as home:
    os.chown(home, 65534, 65534)
    done = subprocess.run(
        [sys.executable, '-B', '-c', sys.argv[1]],
        preexec_fn=become_nobody, cwd='/', env=dict(os.environ, HOME=home), stdout=subprocess.PIPE,
    )
if done.returncode:
    sys.exit(1)
for file in map(os.path.realpath, os.fsdecode(done.stdout).splitlines()):
    if file.endswith('.py') and file.startswith(os.path.join(os.path.realpath(sys.argv[2]), '')):
        compileall.compile_file(file, quiet=1)
"""


def warm(modules: Sequence[str], python: str, folder: str) -> list[str]:
    """Return the command that writes the byte code of the modules and everything they import.

    The modules are imported as user nobody; root only compiles their files below ``folder``.
    """
    # Without -I and -S, root would run code from packages' .pth files.
    return [python, "-I", "-S", "-c", _COMPILE, _IMPORT.format(", ".join(modules)), folder]
