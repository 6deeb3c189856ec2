"""`hvlab doctor --prove`: every cause that virtual hosts can show is shown, and its remedy helps.

The command comes first: it waits for a lab that another one holds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvlab.cli import doctor_prove
from hvlab.doctor.proofs import PROOFS

pytestmark = pytest.mark.doctor
ROOT = Path(__file__).parents[2]


def test_from_a_log_to_its_proof(tmp_path):
    log = tmp_path / "log"
    log.write_text("mpirun was started\nHost key verification failed.\n")
    done = subprocess.run(
        [sys.executable, "-m", "hvlab", "doctor", "--log", str(log), "--prove"],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same failure: " in done.stdout
    assert done.stdout.splitlines()[-1].strip().startswith("gone: ")
    assert not Path("/var/lib/hvlab/prove").exists()


@pytest.fixture(scope="module")
def lab():
    with doctor_prove.boot_fresh_lab() as lab:
        yield lab


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.cause)
def test_a_cause_is_shown_and_its_remedy_helps(lab, proof, capsys):
    doctor_prove.show(lab, proof)
    steps = [line.split(":")[0].strip() for line in capsys.readouterr().out.splitlines()]
    assert steps == ["before", "put in", "the same failure", "remedy", "gone"]
