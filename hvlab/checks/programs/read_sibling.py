"""Runs on a node as the user who runs the ranks: reads a sibling's memory, as MPI's ranks of one host do.

It prints the errno of process_vm_readv, 0 where it may. As Open MPI does, the process that is read allows
it first where Yama (kernel.yama.ptrace_scope=1) asks for that.
"""

import ctypes
import os
import sys
from typing import Tuple

# From sys/prctl.h: any process of the same user may read.
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)


class Piece(ctypes.Structure):
    """The C structure iovec."""

    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def begin(libc: ctypes.CDLL) -> Tuple[int, int]:
    """Start a process with the same memory; return its pid and the end of a pipe that it waits on."""
    ready_here, ready_there = os.pipe()
    wait_there, wait_here = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(wait_here)
        libc.prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0)
        os.write(ready_there, b"r")
        os.read(wait_there, 1)
        os._exit(0)
    os.close(ready_there)
    os.read(ready_here, 1)
    return pid, wait_here


def main() -> None:
    """Start two processes, the second of which reads the first, and print how it ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer, copy = ctypes.create_string_buffer(b"rank"), ctypes.create_string_buffer(8)
    there = Piece(ctypes.addressof(buffer), 4)
    here = Piece(ctypes.addressof(copy), 4)
    first, waits = begin(libc)
    second = os.fork()
    if second == 0:
        size = libc.process_vm_readv(first, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        os._exit(ctypes.get_errno() & 0xFF if size < 0 else 0)
    _, status = os.waitpid(second, 0)
    os.close(waits)
    os.waitpid(first, 0)
    if os.WIFEXITED(status):
        print(os.WEXITSTATUS(status))
    else:
        sys.exit(1)


main()
