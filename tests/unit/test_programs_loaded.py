"""Which NCCL a process has loaded, with libraries that say a release and no more."""

import os
import platform
import subprocess
import sys

import pytest

from tests.unit.programs import PROGRAMS
from tests.unit.programs import program as imported

NCCL = "int ncclGetVersion(int *number) { *number = %d; return %d; }\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Compile a library from C; return its path."""

    def build(name, text, *words):
        path = tmp_path_factory.mktemp("lib") / name
        path.parent.joinpath("text.c").write_text(text)
        path.parent.joinpath(name).parent.mkdir(exist_ok=True, parents=True)
        argv = ["gcc", "-shared", "-fPIC", "-o", path, path.parent / "text.c", *words]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
        return path

    return build


@pytest.fixture
def loaded(monkeypatch):
    return imported(monkeypatch, "loaded")


def maps(tmp_path, *paths):
    text = "".join(f"7f00-7f01 r-xp 00000000 00:2b 12                 {path}\n" for path in paths)
    (tmp_path / "maps").write_text(text)
    return str(tmp_path / "maps")


@pytest.mark.parametrize(
    ("number", "release"), [(22907, "2.29.7"), (22803, "2.28.3"), (2708, "2.7.8"), (30100, "3.1.0")]
)
def test_the_library_itself_is_asked(loaded, library, tmp_path, number, release):
    path = library("libnccl.so.2", NCCL % (number, 0))
    assert loaded.nccl(maps(tmp_path, "/usr/lib/libc.so.6", path)) == release


def test_without_nccl_there_is_none(loaded, library, tmp_path):
    broken = library("libnccl.so.2", NCCL % (22907, 1))
    plugin = library("libnccl-net.so", NCCL % (22907, 0))
    assert loaded.nccl(maps(tmp_path, "/usr/lib/libc.so.6", plugin, broken)) == ""
    assert loaded.nccl(str(tmp_path / "none")) == ""


# What a process with Horovod does: torch's NCCL is there first, and a library linked with another comes.
PROCESS = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import loaded
for path in sys.argv[2:]:
    ctypes.CDLL(path)
print(loaded.nccl())
"""


@pytest.mark.parametrize(("first", "release"), [(["torch"], "2.29.7"), ([], "2.28.3")])
def test_in_a_process_the_nccl_that_came_first_counts(library, first, release):
    soname = "-Wl,-soname,libnccl.so.2"
    libraries = {
        "torch": library("libnccl.so.2", NCCL % (22907, 0), soname),
        "installed": library("libnccl.so.2", NCCL % (22803, 0), soname),
    }
    folder = libraries["installed"].parent
    text = "int ncclGetVersion(int *); int horovod(int *number) { return ncclGetVersion(number); }\n"
    horovod = library("mpi_lib.so", text, libraries["installed"], f"-Wl,-rpath,{folder}")
    nested = horovod.parent / "horovod/torch"
    nested.mkdir(parents=True)
    horovod = horovod.rename(nested / "mpi_lib.so")
    paths = [str(libraries[name]) for name in first] + [str(horovod)]
    argv = [sys.executable, "-c", PROCESS, str(PROGRAMS), *paths]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert done.stdout.strip() == release


class Several:
    def __init__(self, *answers):
        self.answers = answers

    def gather(self, data, name):
        assert (data[0], name) == (platform.node(), "nccl")
        return self.answers


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([("n1", "2.29.7"), ("n1", "2.29.7"), ("n2", "2.29.7")], "2.29.7"),
        ([("n1", "2.29.3"), ("n2", "2.29.7"), ("n2", "2.29.7")], "2.29.3 (n1), 2.29.7 (n2)"),
        ([("n1", ""), ("n2", "2.29.7")], "none (n1), 2.29.7 (n2)"),
        ([("n1", "")], ""),
    ],
)
def test_all_ranks_are_asked(monkeypatch, answers, text):
    assert imported(monkeypatch, "evidence").loaded_nccl(Several(*answers)) == text
