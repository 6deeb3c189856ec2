"""A folder shaped like a toolkit comes out of wheels."""

import ctypes
import io
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hvlab.ansible.modules.hvlab_toolkit import place, stub_source

MODULE = Path(__file__).parents[2] / "hvlab/ansible/modules/hvlab_toolkit.py"
HEADER = """\
#define cuDeviceTotalMem  cuDeviceTotalMem_v2
#define cuMemAlloc                          cuMemAlloc_v2
#define CUDA_VERSION 13000
CUresult CUDAAPI cuInit(unsigned int Flags);
CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize);
"""
FILES = {
    "nvidia/cu13/bin/nvcc": "#!/bin/sh\necho release\n",
    "nvidia/cu13/nvvm/bin/cicc": "x",
    "nvidia/cu13/include/cuda.h": HEADER,
    "nvidia/cu13/lib/libcudart.so.13": "x",
    "nvidia/cu13/lib/libcudart_static.a": "x",
    "nvidia/cu13/lib/libnvvm.so.4": "x",
    "nvidia/cu13/.metadata/words.txt": "x",
    "nvidia_cuda_nvcc-13.0.88.dist-info/licenses/License.txt": "terms",
    "nvidia_cuda_nvcc-13.0.88.dist-info/RECORD": "x",
}


def wheels(path: Path, files: dict[str, str]) -> Path:
    """Write one wheel with these files into a tar file."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("a-1-py3-none-any.whl")
        member.size = len(data.getvalue())
        tar.addfile(member, io.BytesIO(data.getvalue()))
    return path


def make(folder: Path, files: dict[str, str] = FILES, **more: Any) -> dict[str, Any]:
    """Run the module as a host would."""
    arguments = {
        "src": str(wheels(folder / "wheels.tar", files)),
        "path": str(folder / "cuda"),
        "name": "cuda",
        "version": "13.0.2",
        **more,
    }
    done = subprocess.run(
        [sys.executable, str(MODULE)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("nvidia/nccl/lib/libnccl.so.2", "lib64/libnccl.so.2"),
        ("nvidia/cuda_runtime/include/cuda.h", "include/cuda.h"),
        ("nvidia/cu13/lib/libnvvm.so.4", "nvvm/lib64/libnvvm.so.4"),
        ("nvidia/cu13/lib/cmake/", None),
        ("nvidia/__init__.py", None),
        ("torch/lib/libtorch.so", None),
        ("a-1.dist-info/License.txt", "share/doc/a-1/License.txt"),
    ],
)
def test_where_a_file_belongs(name: str, where: str | None) -> None:
    assert place(name) == where


def test_the_folder_is_whole(tmp_path: Path) -> None:
    (tmp_path / "cuda/old").mkdir(parents=True)
    assert make(tmp_path)["changed"]
    home = tmp_path / "cuda"
    assert not (home / "old").exists()
    assert (home / "bin/nvcc").stat().st_mode & 0o777 == 0o755
    assert (home / "nvvm/bin/cicc").stat().st_mode & 0o777 == 0o755
    assert (home / "lib64/libcudart.so").readlink() == Path("libcudart.so.13")
    assert (home / "nvvm/lib64/libnvvm.so").readlink() == Path("libnvvm.so.4")
    assert (home / "lib/libcudart_static.a").is_file()
    assert (home / "share/doc/nvidia_cuda_nvcc-13.0.88/License.txt").read_text() == "terms"
    assert json.loads((home / "version.json").read_text()) == {"cuda": {"version": "13.0.2"}}
    assert not (home / "lib64/stubs").exists()
    assert not list(home.rglob("words.txt"))


def test_the_stub_has_every_function_and_tells_what_it_is(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    make(tmp_path, stubs=True)
    stub = ctypes.CDLL(str(tmp_path / "cuda/lib64/stubs/libcuda.so"))
    assert stub.cuInit(0) == stub.cuMemAlloc_v2(None, 1) == stub.cuDeviceTotalMem_v2(None, 0) == 34


def test_a_function_stands_once() -> None:
    assert stub_source(HEADER).count("cuMemAlloc_v2(") == 1


def test_check_mode_changes_nothing(tmp_path: Path) -> None:
    assert make(tmp_path, _ansible_check_mode=True)["changed"]
    assert not (tmp_path / "cuda").exists()


def test_what_was_there_stays_when_it_fails(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda/kept").touch()
    said = make(tmp_path, {"torch/lib/libtorch.so": "x"})
    assert f"{tmp_path}/cuda: the wheels hold no toolkit files" in said["msg"]
    assert (tmp_path / "cuda/kept").exists()


def test_no_file_leaves_the_folder(tmp_path: Path) -> None:
    make(tmp_path, FILES | {"nvidia/cu13/lib/../../../outside": "x"})
    assert not (tmp_path / "outside").exists()
    assert not list(tmp_path.rglob("outside"))


def test_a_broken_wheel_is_told(tmp_path: Path) -> None:
    (tmp_path / "wheels.tar").write_bytes(b"no tar")
    arguments = {
        "src": str(tmp_path / "wheels.tar"),
        "path": str(tmp_path / "x"),
        "name": "a",
        "version": "1",
    }
    done = subprocess.run(
        [sys.executable, str(MODULE)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "What to do: " in json.loads(done.stdout)["msg"]
