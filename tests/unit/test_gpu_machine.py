"""What `make test-gpu` asks of the roles, as far as that shows without a GPU."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.tree import ROOT
from tests.gpu.test_gpu import INVENTORY, NCCL_TESTS

ASK = ("this-machine", "-m", "ansible.builtin.debug", "-a", "msg={{ nccl_tests_enabled }}")


def test_it_runs_the_program_that_the_role_installs():
    text = (ROOT / "roles/nccl_tests/tasks/build.yml").read_text("utf-8")
    assert f'/{NCCL_TESTS.parent.name}/{NCCL_TESTS.name}"' in text


@pytest.mark.slow
def test_nccls_tests_are_built_where_their_source_is_at_hand(tmp_path):
    inventory = tmp_path / INVENTORY
    (inventory / "group_vars").mkdir(parents=True)
    for name in ("hosts.yml", "group_vars/gpu.yml"):
        shutil.copy(ROOT / INVENTORY / name, inventory / name)

    def enabled():
        argv = [Path(sys.executable).parent / "ansible", "-i", inventory, *ASK]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT)
        assert "WARNING" not in done.stderr
        return "msg: true" in done.stdout

    assert not enabled()
    (tmp_path / "sources").mkdir()
    assert not enabled()
    (tmp_path / "sources/nccl-tests-2.19.6.tar.gz").touch()
    assert enabled()
