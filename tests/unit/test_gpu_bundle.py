"""What the bundle for GPUs holds, and what its `run` says and does, as far as that shows without a GPU."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from hvlab.base.errors import UsageError
from tests.contract.tree import ROOT
from tests.gpu.bundle import manifest, parts, root
from tests.gpu.bundle.manifest import MIB, Packed
from tests.gpu.conftest import too_late

SCRIPTS = ROOT / "tests/gpu/bundle"


def packed(name: str, mib: int) -> Packed:
    return Packed(name, f"what {name} is", "0" * 64, mib * MIB, 3 * mib * MIB)


PARTS = [packed("torch", 1900), packed("system", 300), packed("project", 2)]


@pytest.mark.parametrize(
    ("limit", "left_out"),
    [(2201, "torch"), (302, "torch"), (301, "torch,system"), (1, "torch,system,project")],
)
def test_what_is_over_the_limit_is_named_with_what_to_leave_out(limit, left_out):
    with pytest.raises(
        UsageError, match=f"2202 MiB.* is {limit}: torch 1900, system 300, project 2"
    ) as caught:
        manifest.check_limit(PARTS, limit)
    assert f"--without {left_out};" in caught.value.remedy


def test_within_the_limit_nothing_is_said():
    manifest.check_limit(PARTS, 2202)
    manifest.check_limit(PARTS, None)


def test_a_part_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="no part torhc"):
        manifest.check_names(["torhc"], ["torch", "system"])


def test_the_manifest_says_all_and_sha256sum_reads_it(tmp_path):
    content = b"of a part"
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/project.tar.gz").write_bytes(content)
    part = Packed("project", "the source", hashlib.sha256(content).hexdigest(), len(content), 5 * MIB + 1)
    text = manifest.render([part], {"torch": "torch itself"}, ["hvlab 1 for x86-64"])
    assert text.splitlines()[:3] == [
        "# hvlab 1 for x86-64",
        "# unpacked 6 MiB",
        "# left out torch: torch itself",
    ]
    (tmp_path / manifest.NAME).write_text(text, "utf-8")

    def check() -> int:
        return subprocess.run(["sha256sum", "--check", manifest.NAME], cwd=tmp_path, check=False).returncode

    assert check() == 0
    (tmp_path / "parts/project.tar.gz").write_bytes(b"of another")
    assert check() == 1


def test_every_file_is_in_one_part_and_none_of_this_machine_in_any(tmp_path):
    tree = tmp_path / "root"
    kept = {
        "hvlab/site.yml": "project",
        "hvlab/.venv/bin/pytest": "packages",
        "opt/hvlab/cuda/13.0/bin/nvcc": "cuda",
        "opt/hvlab/python/lib/torch.so": "torch",
        "opt/hvlab/horovod/nccl/bin/horovodrun": "system",
        "usr/bin/gcc": "system",
        "root/.cache/hvlab/sources/openmpi-4.1.8.tar.bz2": "system",
        "var/lib/apt/lists/partial/.keep": "system",
    }
    left = (
        "etc/pip.conf", "etc/apt/sources.list.d/hvlab.sources", "etc/ssl/certs/ca-certificates.crt",
        "root/.local/share/hvlab/trust/gpu-test/user_ca", "etc/ssh/ssh_host_rsa_key", "home/hvlab/.ssh/id",
        "var/lib/apt/lists/mirror_dists_InRelease", "root/.cache/pip/x", "var/tmp/hvlab-build/log",
    )  # fmt: skip
    for name in (*kept, *left):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name, "utf-8")
    found = {}
    for part in parts.PARTS:
        made = parts.pack(part, tree, tmp_path)
        file = tmp_path / made.file
        assert made.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
        assert made.size == file.stat().st_size < made.unpacked
        with tarfile.open(file) as archive:
            names = [member.name.removeprefix("./") for member in archive if member.isfile()]
        assert not set(names) & set(found)
        found |= dict.fromkeys(names, part.name)
    assert found == kept


def test_the_machine_that_measures_asks_for_what_was_built(tmp_path):
    (tmp_path / "hvlab" / root.HOST_VARS).mkdir(parents=True)
    stack = {
        "versions": {"driver": "580.178.04", "cuda": "13.0", "torch": "2.12.1", "tensorflow": None},
        "compute_capabilities": ["8.0", "9.0"],
    }
    assert root.pin(tmp_path, {"hosts": {"this-machine": stack}}) == {"cuda": "13.0", "torch": "2.12.1"}
    pins = yaml.safe_load((tmp_path / "hvlab" / root.HOST_VARS / "pins.yml").read_text("utf-8"))
    assert pins == {"lab_cuda": "13.0", "lab_torch": "2.12.1", "horovod_cuda_capabilities": ["8.0", "9.0"]}


def run(bundle: Path, *words: str, smi: str = "") -> subprocess.CompletedProcess[str]:
    """Run a bundle's `run` where nvidia-smi is this text, or is not there."""
    programs = bundle.parent / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "nvidia-smi").write_text(f"#!/bin/sh\n{smi or 'exec nvidia-smi-is-not-here'}\n", "utf-8")
    (programs / "nvidia-smi").chmod(0o755)
    return subprocess.run(
        [bundle / "run", "--output", bundle.parent / "output", "--work", f"{bundle.parent}/work", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )


@pytest.fixture
def bundle(tmp_path):
    folder = tmp_path / "bundle"
    (folder / "parts").mkdir(parents=True)
    for name in ("run", "enter"):
        shutil.copy(SCRIPTS / name, folder / name)
    file = folder / "parts/project.tar.gz"
    with tarfile.open(file, "w:gz", compresslevel=1) as archive:
        archive.add(ROOT / "hvlab/__init__.py", "./hvlab/hvlab/__init__.py")
        archive.add(ROOT / "hvlab/checks", "./hvlab/hvlab/checks")
    part = Packed("project", "the source", hashlib.sha256(file.read_bytes()).hexdigest(), 1, 1)
    (folder / manifest.NAME).write_text(manifest.render([part], {"torch": "torch itself"}, []), "utf-8")
    return folder


SMI = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="`run` works as root only")


@as_root
@pytest.mark.parametrize(
    ("smi", "reason"),
    [
        ("", "nvidia-smi-is-not-here"),
        ("echo 'No devices were found'; exit 6", "No devices were found"),
    ],
)
def test_without_a_gpu_it_says_so_before_anything_else(bundle, smi, reason):
    done = run(bundle, smi=smi)
    assert done.returncode == 2
    assert "nvidia-smi shows no GPU" in done.stderr
    assert reason in done.stderr
    assert "--rehearse" in done.stderr
    assert not (bundle.parent / "output").exists()


@as_root
def test_without_a_part_the_machines_own_outputs_are_kept(bundle):
    done = run(bundle, smi=SMI)
    assert done.returncode == 2
    assert "the bundle was made without torch" in done.stderr
    machine = bundle.parent / "output/machine"
    assert "GPU 0: NVIDIA H200" in (machine / "nvidia-smi-q.xml").read_text("utf-8")
    assert (machine / "uname").read_text("utf-8").startswith("Linux")
    checks = json.loads((machine / "node-health.json").read_text("utf-8").partition("]\n")[0] + "]")
    assert {"gpu driver", "memory size"} <= {check["check"] for check in checks}


@as_root
def test_a_part_that_was_damaged_on_the_way_is_named(bundle):
    (bundle / "parts/project.tar.gz").write_bytes(b"cut")
    done = run(bundle, smi=SMI)
    assert done.returncode == 2
    assert "parts/project.tar.gz: FAILED" in done.stdout
    assert "differ from its MANIFEST" in done.stderr


def others_folder(work: Path) -> None:
    work.mkdir(mode=0o700)
    os.chown(work, 12345, 12345)


def open_folder(work: Path) -> None:
    work.mkdir()
    work.chmod(0o777)


def link(work: Path) -> None:
    (work.parent / "target").mkdir(mode=0o700)
    work.symlink_to("target")


def others_root(work: Path) -> None:
    work.mkdir(mode=0o700)
    (work / "hvlab-root").mkdir()


@as_root
@pytest.mark.parametrize("prepare", [others_folder, open_folder, link, Path.touch, others_root])
@pytest.mark.parametrize("end", ["", "/"])
def test_a_work_folder_that_others_may_have_filled_is_refused(bundle, prepare, end):
    work = bundle.parent / "work"
    prepare(work)
    before = sorted(bundle.parent.rglob("*"))
    done = run(bundle, "--work", f"{work}{end}", smi=SMI)
    assert done.returncode == 2
    assert "--work FOLDER" in done.stderr
    assert sorted(path for path in bundle.parent.rglob("*") if "programs" not in str(path)) == before


@as_root
@pytest.mark.parametrize("root", ["/", "//", "/.", "/tmp/.."])
def test_the_root_is_no_work_folder(bundle, root):
    done = run(bundle, "--work", root, smi=SMI)
    assert done.returncode == 2
    assert "--work FOLDER" in done.stderr
    assert not list(Path("/").glob("hvlab-*"))


@as_root
def test_what_is_not_its_own_in_the_work_folder_stays(bundle):
    work = bundle.parent / "work"
    work.mkdir(mode=0o700)
    for name in ("root", "project"):
        (work / name).mkdir()
        (work / name / "kept").touch()
    for _ in range(2):
        assert "was made without torch" in run(bundle, smi=SMI).stderr
    assert (work / "root/kept").exists()
    assert (work / "project/kept").exists()
    assert (work / "hvlab-project/hvlab").is_dir()


@as_root
def test_a_wrong_option_is_refused(bundle):
    done = run(bundle, "--hours", "1")
    assert (done.returncode, "--hours is no option" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("needs", "budget", "passed", "reason"),
    [
        (90, "", 10_000, ""),
        (90, "500", 410, ""),
        (90, "500", 411, "it takes up to 90 s, and 89 s of 500 s are left"),
    ],
)
def test_what_no_longer_fits_into_the_time_is_skipped(needs, budget, passed, reason):
    assert too_late(needs, budget, passed) == reason
