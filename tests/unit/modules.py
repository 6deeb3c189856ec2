"""Ansible's modules on this machine, in forks of a process that has imported what most of them import.

A module comes as a script with a zip, and imports from there Ansible's helpers: that takes longer than most
tasks. Here they are imported once, in a process that knows nothing else of Ansible, as on a host; what is
not among them comes from the zip.
"""

import atexit
import gc
import json
import os
import shlex
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import time
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from tests.unit.forks import become, forked

ROOT = Path(__file__).parents[2]
IMPORTED = ("basic", "_internal._ansiballz._loader", "common.process", "facts.ansible_collector", "urls")
# What Ansible has each shell do at last.
LAST = ["&&", "sleep", "0"]


class Packed:
    """Finds what is in the module's zip."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return where a part of Ansible is in the zips that are searched."""
        package, _, _ = name.rpartition(".")
        places = [f"{place}/{package.replace('.', '/')}" for place in sys.path if place.endswith(".zip")]
        return PathFinder.find_spec(name, places) if name.startswith("ansible.") else None


def import_helpers():
    """Import Ansible's helpers for modules, and nothing of the rest, as from a module's zip."""
    [whole] = find_spec("ansible").submodule_search_locations
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(f"{whole}/module_utils", f"{folder}/ansible/module_utils")
        shutil.copy(f"{whole}/release.py", f"{folder}/ansible/__init__.py")
        sys.path.insert(0, folder)
        for name in IMPORTED:
            __import__(f"ansible.module_utils.{name}")
        sys.path.remove(folder)
    sys.path[:] = [place for place in sys.path if place not in ("", str(ROOT))]
    sys.meta_path.insert(0, Packed)


def run(cwd, env, folder):
    """Become the Python that runs a module's script."""

    def script():
        atexit._clear()
        sys.argv = [""]
        try:
            exec(compile(Path(folder, "script").read_bytes(), "<stdin>", "exec"), {"__name__": "__main__"})  # noqa: S102
        finally:
            # Modules have their folders removed in this way.
            atexit._run_exitfuncs()

    become(script, cwd, env, folder)


class Asked(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"%d\n" % forked(run, self.rfile.readline()))


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    request_queue_size = max_children = 64


def start(folder):
    """Start the process; return how a connection runs a command line, where that is Python with a module."""
    place = Path(folder, "modules")
    server = subprocess.Popen([sys.executable, "-m", "tests.unit.modules", place], cwd=ROOT)
    atexit.register(server.terminate)
    # It ends where Ansible's helpers have other names: then each module is run as on a host.
    while server.poll() is None and not place.exists():
        time.sleep(0.01)

    def run_module(command, script):
        """Return status, output and errors; None for any other command."""
        if not script or not place.exists():
            return None
        shell = shlex.split(command)
        words = shlex.split(shell[2]) if shell[:2] == ["/bin/sh", "-c"] and len(shell) == 3 else []
        words = words[: -len(LAST)] if words[-len(LAST) :] == LAST else words
        if words[-1:] != [sys.executable] or not all("=" in word for word in words[:-1]):
            return None
        env = os.environ | dict(word.split("=", 1) for word in words[:-1])
        given = {"cwd": str(Path.cwd()), "env": dict(env)}
        with tempfile.TemporaryDirectory() as own, socket.socket(socket.AF_UNIX) as asked:
            Path(own, "script").write_bytes(script)
            asked.connect(str(place))
            asked.sendall(f"{json.dumps(given | {'folder': own})}\n".encode())
            status = int(asked.makefile().readline())
            return status, *(Path(own, name).read_bytes() for name in ("stdout", "stderr"))

    return run_module


def main():
    import_helpers()
    gc.freeze()
    with Server(sys.argv[1], Asked) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
