"""A process that imports once what takes long, and runs what it is asked for in forks."""

import gc
import json
import os
import sys
import traceback
from functools import cache
from importlib import import_module
from importlib.resources import files


def become(run, cwd, env, folder):
    """End as ``run`` does, in ``cwd`` and ``env``; it prints into the files stdout and stderr of a folder."""
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - until the end of the process
    os.dup2(sys.stdin.fileno(), 0)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    status = 1
    try:
        run()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit, which does what the parent's end is to do: remove its folder of packed modules.
        os._exit(status)


def warm(*names):
    """Import modules that each fork would import for itself; and have Ansible read once what it routes."""
    from ansible.utils.collection_loader import _collection_finder as finder  # noqa: PLC0415 - not on a host

    for name in names:
        import_module(name)
    finder._meta_yml_to_dict = cache(finder._meta_yml_to_dict)
    routing = files("ansible.config").joinpath("ansible_builtin_runtime.yml").read_bytes()
    finder._meta_yml_to_dict(routing, ("ansible.builtin", "runtime.yml"))


def forked(fork, line):
    """Call ``fork`` with what a line says, in a process of its own; return its exit status."""
    given = json.loads(line)
    pid = os.fork()
    if not pid:
        fork(**given)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def serve(fork):
    """Call ``fork`` with what each line of the input says, one after the other; print its exit status."""
    gc.freeze()
    for line in sys.stdin:
        print(forked(fork, line), flush=True)
