"""A bench inside a Slurm job, with Slurm's commands replaced by ones that run everything on this machine."""

import os
import socket
import subprocess
import sys
import time

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader, init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

from hvlab.errors import CheckError, UsageError
from hvlab.lab.slurm_job import SlurmJob
from hvlab.remote import here
from tests.unit.test_slurm_job import installed

NODE = socket.gethostname().partition(".")[0]
SCONTROL = f"#!/bin/sh\necho {NODE}\n"
# Drops its options and the list of nodes.
SRUN = """#!/bin/sh
case "$1" in
  --version) echo "slurm-wlm 22.05.8"; exit;;
  --mpi=list) printf 'MPI plugin types are...\\n\\tnone\\n\\tpmi2\\n' >&2; exit;;
esac
while [ "$1" != --nodelist ]; do shift; done
shift 2
exec "$@"
"""
# As recorded of Slurm 22.05: what a command said that failed, and what srun says where it reaches no node.
FAILED = "srun: error: h2: task 0: Exited with exit code 3\n"
GONE = "srun: error: Unable to create step for job 4: Requested nodes are busy\n"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put Slurm's commands into PATH, and a job into the environment."""
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in (("JOB_ID", "4"), ("JOB_NODELIST", NODE), ("NTASKS", "2"), ("CLUSTER_NAME", "alps")):
        monkeypatch.setenv(f"SLURM_{name}", value)
    return tmp_path


def test_the_hosts_of_the_job_are_a_lab(slurm, monkeypatch):
    address = {"interfaces": {"eth0": {"up": True, "cidrs": ["10.1.0.7/24"]}}, "nics": [], "gpus": []}
    monkeypatch.setattr(here, "_installed", lambda *_: {NODE: installed()})
    monkeypatch.setattr(
        here, "first_facts", lambda hosts: ({host.name: {"hvlab": address} for host in hosts}, [])
    )
    with here.lab(None) as lab:
        assert [(host.name, host.address, host.slots) for host in lab.hosts] == [(NODE, "10.1.0.7", 1)]
        assert (lab.name, lab.network, lab.interface, lab.slurm) == ("alps", "10.1.0.0/24", "eth0", True)
        assert lab.vars["lab_slurm_mpi"] == "pmi2"
        assert lab.step[:3] == ("srun", "--jobid=4", "--overlap")
        assert not lab.local
        assert "SLURM_NTASKS" not in os.environ
        assert [path.name[:6] for path in (slurm / ".hvlab").iterdir()] == ["job-4-"]
    assert list((slurm / ".hvlab").iterdir()) == []


def probed(tmp_path, python):
    job = SlurmJob("4", "alps", NODE, (2,), 0, NODE)
    return here._installed(job, [NODE], [22, 5], python, tmp_path)


def test_a_python_without_torch_or_horovod_is_refused(slurm):
    python = slurm / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(python)], check=True)
    with pytest.raises(UsageError, match="has neither torch nor Horovod"):
        probed(slurm, str(python / "bin/python3"))


def test_a_python_that_is_not_there_is_named_with_what_was_said(slurm):
    with pytest.raises(CheckError, match="/nowhere/python") as raised:
        probed(slurm, "/nowhere/python")
    assert str(raised.value).startswith(f"{NODE}: ")
    assert "file systems that all hosts of the job share" in raised.value.remedy


def connection(*prefix):
    if not AnsibleCollectionConfig.collection_finder:
        init_plugin_loader()
    made = connection_loader.get("hvlab_prefix", PlayContext(), os.devnull)
    made.set_options(direct={"prefix": list(prefix)})
    return made


def test_commands_and_files_go_through_the_prefix(tmp_path):
    by_env = connection("env", "PLACE=there")
    assert by_env.exec_command("cat; echo $PLACE", in_data=b"given ") == (0, b"given there\n", b"")
    source, copy, back = (tmp_path / name for name in ("source", "a copy", "back"))
    source.write_bytes(bytes(range(256)))
    by_env.put_file(str(source), str(copy))
    by_env.fetch_file(str(copy), str(back))
    assert back.read_bytes() == source.read_bytes()


def test_a_failed_command_is_no_lost_host():
    prefix = ("sh", "-c", f"printf '{FAILED}' >&2; exit 3")
    assert connection(*prefix).exec_command("true") == (3, b"", FAILED.encode())
    with pytest.raises(AnsibleConnectionFailure, match="Requested nodes are busy"):
        connection("sh", "-c", f"printf '{GONE}' >&2; exit 1").exec_command("true")


def test_ended_before_the_first_case_it_says_so_and_leaves_nothing(slurm):
    (slurm / "bin/srun").write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit\ntouch "$HOME/asked"\nexec sleep 60\n'
    )
    bench = subprocess.Popen(
        [sys.executable, "-m", "hvlab", "bench", "--here"], stderr=subprocess.PIPE, text=True, cwd=slurm
    )
    deadline = time.monotonic() + 60
    while not (slurm / "asked").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    bench.terminate()
    _, said = bench.communicate(timeout=60)
    assert (bench.returncode, said.strip()) == (130, "hvlab: interrupted")
    assert list((slurm / ".hvlab").iterdir()) == []
