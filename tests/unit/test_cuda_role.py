"""Role cuda: what it does with an nvcc that does not compile."""

import json
import stat
from pathlib import Path

import pytest

from tests.contract.tree import ROOT
from tests.unit.plays import play, program

pytestmark = pytest.mark.slow

BOOK = """
- hosts: localhost
  gather_facts: false
  vars_files: [{role}/defaults/main.yml, {role}/vars/main.yml]
  tasks:
    - ansible.builtin.import_tasks: "{role}/tasks/main.yml"
  handlers:
    - ansible.builtin.import_tasks: "{role}/handlers/main.yml"
"""


def test_an_nvcc_that_does_not_compile_fails_until_it_does(tmp_path: Path) -> None:
    """What failed once was in the record of facts and never tried again."""
    book, programs, record = tmp_path / "play.yml", tmp_path / "cuda/bin", tmp_path / "record.fact"
    book.write_text(BOOK.format(role=ROOT / "roles/cuda"))
    programs.mkdir(parents=True)
    given = {
        "cuda_method": "none",
        "cuda_version": "13.0.3",
        "cuda_prefix": str(tmp_path / "cuda"),
        "cuda_build_dir": str(tmp_path / "build"),
        "__cuda_files": [{"path": str(tmp_path / "profile.sh"), "content": ""}],
        "__cuda_record": [{"path": str(record), "content": "{{ __cuda_plan.fact | to_nice_json }}"}],
    }

    def use(*words: str, expect: int = 0) -> str:
        local = {"hvlab_cuda": json.loads(record.read_text())} if record.exists() else {}
        variables = given | {"ansible_facts": {"ansible_local": local}}
        start = ("--start-at-task", "Put CUDA into use")
        return play(book, programs, variables, *start, *words, expect=expect)

    says = "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n"
    program(
        programs, "nvcc", f"{says}case $1 in --cubin) echo 'unsupported GNU version' >&2; exit 1;; esac\n"
    )
    assert "changed=2" in use("--check")
    for _ in "ab":
        assert "localhost: nvcc 13.0 does not compile: unsupported GNU version" in use(expect=2)
    assert not record.exists()
    program(programs, "nvcc", f"{says}case $1 in --cubin) echo >> {tmp_path}/compiled;; esac\n")
    use()
    assert json.loads(record.read_text())["version"] == "13.0"
    assert "changed=0" in use()
    assert (tmp_path / "compiled").read_text() == "\n"
    assert stat.S_IMODE((tmp_path / "build").stat().st_mode) == 0o700
    assert list((tmp_path / "build").iterdir()) == []
    older = json.loads(record.read_text())
    older["wanted"] = older.pop("requested")
    record.write_text(json.dumps(older))
    use()
    assert json.loads(record.read_text())["requested"] == "13.0.3", (
        "a record of an earlier version is replaced"
    )
    assert "changed=0" in use()
