"""What went over a host's devices, and through which libraries, where these say a release and no more."""

import os
import platform
import subprocess
import sys

import pytest

from tests.unit.programs import PROGRAMS
from tests.unit.programs import program as imported


@pytest.fixture
def wire(monkeypatch):
    return imported(monkeypatch, "evidence")


def write(root, path, value):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{value}\n")


def host(root, *, eth0=0, ib0=0, port=0):
    for name, value in {"eth0": eth0, "ib0": ib0, "lo": 10**9}.items():
        write(root, f"sys/class/net/{name}/statistics/tx_bytes", value)
    write(root, "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", port)


def test_a_port_counts_words_and_the_loopback_does_not_count(wire, tmp_path):
    host(tmp_path, eth0=1000, port=250)
    assert wire.read_sent(str(tmp_path)) == {"eth0": 1000, "ib0": 0, "mlx5_0:1": 1000}


def test_only_what_grew_is_shown(wire, tmp_path):
    host(tmp_path, eth0=1000, port=10)
    before = wire.read_sent(str(tmp_path))
    host(tmp_path, eth0=1500, port=10)
    assert wire.since(before, str(tmp_path)) == {"eth0": 500}


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        (
            {"n1": {"eth0": 4000, "mlx5_0:1": 10**7}, "n2": {"eth0": 5000, "mlx5_1:1": 10**7}},
            ["mlx5_0:1", "mlx5_1:1"],
        ),
        ({"n1": {"ib0": 10**7, "mlx5_0:1": 10**7 + 900}}, ["ib0", "mlx5_0:1"]),
        ({"n1": {"eth0": 10**6, "docker0": 90}}, ["eth0"]),
        ({"n1": {}}, []),
    ],
)
def test_the_bulk_names_the_carriers(wire, counts, names):
    assert wire.carriers(counts) == names


def test_open_mpis_layer_is_the_one_that_is_loaded(wire, tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 00:2b 12 /opt/hvlab/openmpi/4.1.8/lib/openmpi/mca_pml_ucx.so\n"
        "7f01-7f02 r--p 00000000 00:2b 12 /opt/hvlab/openmpi/4.1.8/lib/openmpi/mca_pml_ucx.so\n"
        "7f02-7f03 r-xp 00000000 00:2b 13 /opt/hvlab/openmpi/4.1.8/lib/openmpi/mca_btl_tcp.so\n"
    )
    assert wire.pml(str(maps)) == "ucx"
    assert wire.pml(str(tmp_path / "none")) == ""


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


def maps(tmp_path, *paths):
    text = "".join(f"7f00-7f01 r-xp 00000000 00:2b 12                 {path}\n" for path in paths)
    (tmp_path / "maps").write_text(text)
    return str(tmp_path / "maps")


@pytest.mark.parametrize(
    ("number", "release"), [(22907, "2.29.7"), (22803, "2.28.3"), (2708, "2.7.8"), (30100, "3.1.0")]
)
def test_the_library_itself_is_asked(wire, library, tmp_path, number, release):
    path = library("libnccl.so.2", NCCL % (number, 0))
    assert wire.nccl(maps(tmp_path, "/usr/lib/libc.so.6", path)) == release


def test_without_nccl_there_is_none(wire, library, tmp_path):
    broken = library("libnccl.so.2", NCCL % (22907, 1))
    plugin = library("libnccl-net.so", NCCL % (22907, 0))
    assert wire.nccl(maps(tmp_path, "/usr/lib/libc.so.6", plugin, broken)) == ""
    assert wire.nccl(str(tmp_path / "none")) == ""


# What a process with Horovod does: torch's NCCL is there first, and a library linked with another comes.
PROCESS = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import evidence
for path in sys.argv[2:]:
    ctypes.CDLL(path)
print(evidence.nccl())
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
    assert imported(monkeypatch, "evidence").describe_nccl(Several(*answers)) == text
