"""A bench inside a Slurm job, with Slurm's commands replaced by ones that run everything on this machine."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader, init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

from hvlab.ansible.action.hvlab_case import ActionModule
from hvlab.base.errors import CheckError, HvlabError, UnreachableError, UsageError
from hvlab.checks import ask
from hvlab.checks.node import burn
from hvlab.cli import run
from hvlab.lab.inventory import Host
from hvlab.lab.slurm_job import SlurmJob
from hvlab.remote import direct, gather, here, listed, ssh_client, verify
from hvlab.remote.playbook import HostFailure
from hvlab.results.store import Store
from tests.unit.labs import lab, spec
from tests.unit.programs import PROGRAMS
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
    monkeypatch.setattr(here, "_read_installed", lambda *_, inside: {NODE: installed()})
    monkeypatch.setattr(
        here, "first_facts", lambda hosts: ({host.name: {"hvlab": address} for host in hosts}, [])
    )
    with here.lab(None) as there:
        assert [(host.name, host.address, host.slots) for host in there.hosts] == [(NODE, "10.1.0.7", 1)]
        assert (there.name, there.network, there.interface, there.slurm) == (
            "alps",
            "10.1.0.0/24",
            "eth0",
            True,
        )
        assert there.vars["lab_slurm_mpi"] == "pmi2"
        assert there.step[:3] == ("srun", "--jobid=4", "--overlap")
        assert there.python == there.vars["ansible_python_interpreter"] == sys.executable
        assert "hvlab_step_options" in there.vars
        assert not there.local
        assert "SLURM_NTASKS" not in os.environ
        assert [path.name[:6] for path in (slurm / ".hvlab").iterdir()] == ["job-4-"]
    assert list((slurm / ".hvlab").iterdir()) == []


def test_what_slurm_warns_of_names_no_host(slurm, monkeypatch):
    """Such as of a setting in slurm.conf that this Slurm no longer knows."""
    warning = "scontrol: error: Ignoring obsolete FastSchedule=1 option. Please remove it."
    (slurm / "bin/scontrol").write_text(f"#!/bin/sh\necho '{warning}' >&2\necho {NODE}\n")
    asked = []

    def installed_on(job, nodes, *rest, inside):
        asked.extend(nodes)
        raise CheckError("that will do")

    monkeypatch.setattr(here, "_read_installed", installed_on)
    with pytest.raises(CheckError, match="that will do"), here.lab(None):
        pass
    assert asked == [NODE]


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        # 20.11 and 21.08, on the standard error; 22.05 and later, on the standard output.
        ("srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: cray_shasta\n", "pmi2"),
        ("srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: pmix\nsrun: pmix_v3\n", "pmix"),
        ("srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: pmix_v3\n", "pmix_v3"),
        (
            "MPI plugin types are...\n\tcray_shasta\n\tnone\n\tpmi2\n\tpmix\n"
            "specific pmix plugin versions available: pmix_v4\n",
            "pmix",
        ),
        ("MPI plugin types are...\n\tnone\n\tpmi2\n", "pmi2"),
        ("MPI plugin types are...\n\tnone\n", "pmix"),
    ],
)
def test_ranks_of_mpi_meet_as_srun_can(slurm, listed, chosen):
    stream = ">&2" if listed.startswith("srun") else ""
    (slurm / "list").write_text(listed)
    (slurm / "bin/srun").write_text(f"#!/bin/sh\ncat {slurm}/list {stream}\n")
    assert here._mpi() == chosen


def probed(tmp_path, python, inside=()):
    job = SlurmJob("4", "alps", NODE, (2,), (), 0, NODE)
    return here._read_installed(job, [NODE], [22, 5], python, tmp_path, inside=inside)


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


@pytest.mark.parametrize(
    ("said", "reason", "remedy"),
    [
        (
            '  File "installed.py", line 6\nSyntaxError: future feature annotations is not defined\n'
            "srun: error: h1: task 0: Exited with exit code 1\n",
            "SyntaxError: future feature annotations is not defined",
            "--python",
        ),
        (
            "srun: error: Unable to confirm allocation for job 4: Invalid job id specified\n"
            "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 4\n",
            "Expired or invalid job 4",
            "make a new allocation",
        ),
    ],
)
def test_why_a_python_gave_no_answer_is_said(slurm, said, reason, remedy):
    (slurm / "said").write_text(said)
    (slurm / "bin/srun").write_text(f"#!/bin/sh\ncat {slurm}/said >&2; exit 1\n")
    with pytest.raises(CheckError, match=reason) as raised:
        probed(slurm, "python3")
    assert remedy in raised.value.remedy


def test_a_python_of_this_folder_is_that_absolute(slurm, monkeypatch):
    """Ranks start in /tmp; a link of an environment stays, for what it leads to has other packages."""
    monkeypatch.chdir(slurm)
    (slurm / "env/bin").mkdir(parents=True)
    (slurm / "env/bin/python").symlink_to("/usr/bin/python3")
    assert here.absolute("env/bin/python", None) == str(slurm / "env/bin/python")
    assert here.absolute("~/env/bin/python", None) == str(slurm / "env/bin/python")
    assert here.absolute("python3", None) == "python3"
    assert here.absolute("env/bin/python", "a.sqsh") == "env/bin/python"


def test_a_node_may_have_a_name_that_is_not_in_dns(slurm, monkeypatch):
    address = {"interfaces": {"eth0": {"up": True, "cidrs": ["10.1.0.7/24"]}}, "nics": [], "gpus": []}
    (slurm / "bin/scontrol").write_text("#!/bin/sh\necho gpu_01\n")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu_01")
    monkeypatch.setattr(here, "_read_installed", lambda *_, inside: {"gpu_01": installed()})
    monkeypatch.setattr(
        here, "first_facts", lambda hosts: ({host.name: {"hvlab": address} for host in hosts}, [])
    )
    with here.lab(None) as there:
        assert [host.name for host in there.hosts] == ["gpu_01"]
        assert there.vars["hvlab_step_options"] == ["--overlap"]


IMAGE = ("--container-image=hvd.sqsh", "--container-workdir=/tmp")


def test_what_an_image_has_is_asked_inside(slurm):
    (slurm / "bin/srun").write_text('#!/bin/sh\necho "$@" >&2; exit 1\n')
    with pytest.raises(CheckError) as raised:
        probed(slurm, "python3", IMAGE)
    words = str(raised.value).split()
    assert words[words.index("--nodelist") - 2 :][:2] == list(IMAGE)
    assert words[words.index("--nodelist") + 2] == "python3"


def test_a_cluster_without_pyxis_is_named(slurm):
    # As glibc's getopt says it for srun.
    said = "srun: unrecognized option '--container-image=hvd.sqsh'"
    (slurm / "bin/srun").write_text(f'#!/bin/sh\necho "{said}" >&2; exit 1\n')
    with pytest.raises(UsageError, match="--container needs pyxis"):
        probed(slurm, "python3", IMAGE)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "Unable to create step for job 4: Invalid generic resource (gres) specification",
            "--gpus-per-node=4",
        ),
        ("/bin/sh: 1: /home/u/hvlab/bin/python: not found", "which runs hvlab, must be on a file system"),
    ],
)
def test_hosts_without_facts_are_named_with_what_to_do(monkeypatch, said, remedy):
    monkeypatch.setattr(here, "first_facts", lambda _: ({}, [HostFailure("h2", said, unreachable=True)]))
    job = SlurmJob("4", "alps", "h[1-2]", (2,), (), 4, "h1")
    with pytest.raises(HvlabError, match="h2: ") as raised:
        here._facts(job, ["h1", "h2"], {"h1": {}, "h2": {}})
    assert remedy in raised.value.remedy


def python_with_torch(folder):
    """Return a Python in which torch seems to be installed."""
    files = {
        "lib/torch-2.4.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0\n",
        "lib/torch/__init__.py": "",
        "lib/torch/version.py": "cuda = '12.4'\n",
        "python": f'#!/bin/sh\nPYTHONPATH={folder / "lib"} exec {sys.executable} "$@"\n',
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "python").chmod(0o755)
    return folder / "python"


@pytest.mark.slow
def test_one_machine_is_measured_without_inventory_ssh_and_network(tmp_path):
    """Offline, as on a train: in a network namespace that has the loopback interface alone."""
    own = ("--hosts", "localhost", "--backend", "serial", "--", "python", "-c", "print('1 samples/s')")
    bench = [sys.executable, "-m", "hvlab", "bench", "--python", str(python_with_torch(tmp_path)), *own]
    offline = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        'ip link set lo up; exec "$@"',
        "-",
    ]
    environment = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(
        [*offline, *bench], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    record = Store(tmp_path / "results").records(Store(tmp_path / "results").runs()[0].run_id)[0]
    assert (record.status, record.launcher, record.hosts) == ("ok", "local", ("localhost",))


@pytest.fixture
def in_a_job(monkeypatch, tmp_path):
    """Stand for the hosts of a job; the list says what they were asked for."""
    asked = []

    @contextmanager
    def hosts(python, **image):
        asked.append((python, image))
        yield lab(hvlab_step=["srun", "--nodelist"], lab_slurm=True)

    monkeypatch.setattr(here, "lab", hosts)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path / "results"))
    return asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--launcher", "mpirun"], "mpirun cannot start ranks on the hosts of a Slurm job"),
        (
            ["--ab", "launcher=srun", "launcher=mpirun"],
            "mpirun cannot start ranks on the hosts of a Slurm job",
        ),
        (["--container", "i", "--ssh-port", "2222"], "takes no --ssh-port"),
    ],
)
def test_what_needs_ssh_is_refused(in_a_job, capsys, words, said):
    assert run(["bench", "--here", "--backend", "mpi", "--dry-run", *words]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "leave" in shown.err
    assert shown.out == ""


def test_ranks_are_started_by_srun_in_the_image_that_was_asked_for(in_a_job, capsys):
    asked = ["--container", "i.sqsh", "--container-option=--container-name=hvd"]
    assert run(["bench", "--here", "--backend", "mpi", "--hosts", "1", "--dry-run", "-v", *asked]) == 0
    assert in_a_job == [(None, {"image": "i.sqsh", "options": ("--container-name=hvd",)})]
    out = capsys.readouterr().out
    assert "--container-image=i.sqsh" in out
    assert "--container-name=hvd" in out
    assert "docker" not in out


def test_a_resumed_run_has_its_image(in_a_job, tmp_path, capsys):
    store = Store(tmp_path / "results")
    kept = asdict(spec("mpi", container="i.sqsh", launcher="srun"))
    store.create("r1", lab="t", spec_key="k", spec=kept, cases=["c"])
    store.enter("r1", "interrupted")
    assert run(["bench", "--here", "--resume", "r1", "--dry-run"]) == 2  # It has another key.
    assert "sbatch --nodelist" in capsys.readouterr().err
    assert run(["bench", "--here", "--resume", "r7", "--dry-run"]) == 2
    assert "there is no run 'r7'" in capsys.readouterr().err
    assert in_a_job == [(None, {"image": "i.sqsh", "options": ()})]


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


def test_a_case_has_its_secrets_and_keeps_none(tmp_path):
    home, folder = tmp_path / "home", tmp_path / "run"
    (home / ".ssh").mkdir(parents=True)
    folder.mkdir()
    env = {"HF_TOKEN": "hf-aaaa", "NCCL_ALGO": "Ring", "PATH": os.environ["PATH"]}
    plan = {
        "programs": str(PROGRAMS), "python": sys.executable, "allocation": {}, "certificate": "c\n",
        "reach": ["ssh"], "as_user": "", "driver": os.getpid(), "head": "here",
    }  # fmt: skip
    asked = {
        "id": "one", "mark": "r1/one", "argv": ["sh", "-c", "echo $HF_TOKEN"], "env": env, "step": "",
        "hosts": ["here"], "timeout": 20, "ssh_port": 0,
    }  # fmt: skip
    action = object.__new__(ActionModule)
    action._connection = connection("env", f"HOME={home}")
    result = action._run_case(plan, asked, folder, {"hostvars": {"here": {}}})
    assert result == {"changed": True, "stop": False}
    assert (folder / "one/stdout").read_text() == "hf-aaaa\n"
    assert json.loads((folder / "one/env.json").read_text()) == {**env, "HF_TOKEN": "***"}
    kept = [*home.rglob("*.json"), *folder.rglob("*.json")]
    assert kept
    assert not [path for path in kept if "hf-aaaa" in path.read_text()]


@pytest.mark.parametrize(
    "end", ["Exited with exit code 3", "Segmentation fault (core dumped)", "Out Of Memory"]
)
def test_a_failed_command_is_no_lost_host(end):
    said = FAILED.replace("Exited with exit code 3", end)
    prefix = ("sh", "-c", f"printf '{said}' >&2; exit 3")
    assert connection(*prefix).exec_command("true") == (3, b"", said.encode())
    with pytest.raises(AnsibleConnectionFailure, match="Requested nodes are busy"):
        connection("sh", "-c", f"printf '{GONE}' >&2; exit 1").exec_command("true")


# Drops its options; inside an image there is another root, and with it another home and another python3.
PYXIS = """#!/bin/sh
case "$1" in
  --version) echo "slurm-wlm 23.11.4"; exit;;
  --mpi=list) printf 'MPI plugin types are...\\n\\tnone\\n\\tpmix\\n' >&2; exit;;
esac
echo "$@" >> {log}
while :; do
  case "$1" in
    --container-image=*) export HOME=/nowhere PATH={image}:/usr/bin:/bin; shift;;
    --nodelist) shift 2;;
    --*) shift;;
    *) break;;
  esac
done
export SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURMD_NODENAME={node}
exec "$@"
"""
RUNNING = f"#!/bin/sh\ncase $2 in show) echo JobState=RUNNING Reason=None;; *) echo {NODE};; esac\n"


@pytest.mark.slow
def test_a_case_runs_in_an_image_on_hosts_whose_own_python_is_too_old(slurm, monkeypatch):
    python = python_with_torch(slurm)
    log, image = slurm / "log", slurm / "image"
    image.mkdir()
    programs = {
        "bin/srun": PYXIS.format(log=log, image=image, node=NODE),
        "bin/scontrol": RUNNING,
        "bin/python3": "#!/bin/sh\necho Python 3.6.8 >&2; exit 9\n",
        "image/python3": python.read_text(),
    }
    for name, text in programs.items():
        (slurm / name).write_text(text)
        (slurm / name).chmod(0o755)
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "2")
    asked = ("--here", "--container", "hvd.sqsh", "--backend", "serial", "--", "python", "-c", "print(1)")
    argv = [sys.executable, "-m", "hvlab", "bench", *asked]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=slurm, timeout=300)
    assert done.returncode == 0, done.stderr
    store = Store(slurm / "results")
    record = store.records(store.runs()[0].run_id)[0]
    assert (record.status, record.launcher, record.stack["torch"]) == ("ok", "srun", "2.4.0")
    assert record.stack["image"] == "hvd.sqsh"
    asking, running = log.read_text().splitlines()
    assert "--container-image=hvd.sqsh" in asking
    assert "--gres=gpu:2 --container-image=hvd.sqsh" in running
    assert f"env HOME={slurm} " in running


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


# As recorded of Slurm 22.05 on three nodes: labelled, and broken after 1,024 characters.
STEP = """#!/bin/sh
case "$1" in --version) echo "slurm-wlm 22.05.8"; exit;; esac
while [ "$1" != --nodelist ]; do shift; done
shift 2
cat > "$0.input"
for task in 0 1 2; do
  SLURMD_NODENAME=h$((task + 1)) "$@" < "$0.input" > "$0.out" 2> "$0.err"; status=$?
  fold --width=1024 "$0.out" | sed -e "s/^/$task: /" -e '$a\\'
  sed "s/^/$task: /" "$0.err" >&2
  test $status = 0 || echo "srun: error: h$((task + 1)): task $task: Exited with exit code $status" >&2
done
echo "srun: cluster configuration lacks support for cpu binding" >&2
"""


@pytest.fixture
def three(slurm):
    (slurm / "bin/scontrol").write_text("#!/bin/sh\nprintf 'h1\\nh2\\nh3\\n'\n")
    (slurm / "bin/srun").write_text(STEP)
    return direct.lab_of_job(None)


def test_a_step_asks_all_hosts_of_the_job_without_ansible(three):
    assert three.listed
    assert [host.name for host in three.hosts] == ["h1", "h2", "h3"]
    words = {"long": {"run": ["python3", "-c", "print('x' * 5000)"]}, "own": {"run": ["echo", "@HOST@"]}}
    answered = ask.ask_hosts(three, words)
    assert (answered.silent, answered.broken) == ({}, {})
    for host, own in answered.readings.items():
        assert (own["long"]["out"].strip(), own["own"]["out"].strip()) == ("x" * 5000, host)


def test_a_host_that_fails_costs_no_other_its_answer(three):
    program = "import sys; sys.exit('no' if sys.argv[1] == 'h2' else 0)"
    printed, failures = direct.run(three, program, arguments=lambda host: [host], seconds=20)
    assert printed == {"h1": "", "h3": ""}
    assert failures == [HostFailure("h2", "no", unreachable=False)]


@pytest.mark.slow
def test_a_slow_host_costs_no_other_its_answer(three):
    program = "import sys, time; time.sleep(60 if sys.argv[1] == 'h3' else 0); print(1)"
    printed, failures = direct.run(three, program, arguments=lambda host: [host], seconds=2)
    assert printed == {"h1": "1", "h2": "1"}
    assert [failure.host for failure in failures] == ["h3"]


def test_a_host_that_slurm_cannot_reach_is_named_and_the_others_asked_again(slurm, three):
    """Slurm ends the step on all hosts then."""
    gone = "srun: error: Task launch for StepId=9.6 failed on node h3: Communication connection failure"
    again = STEP.replace("for task in 0 1 2", "for task in 0 1")
    (slurm / "bin/srun").write_text(
        f'#!/bin/sh\ncase "$*" in *h3*) echo "{gone}" >&2; exit 1;; esac\n{again.partition(chr(10))[2]}'
    )
    printed, failures = direct.run(three, "print(1)", seconds=20)
    assert list(printed) == ["h1", "h2"]
    assert [(failure.host, failure.unreachable) for failure in failures] == [("h3", True)]
    assert "Communication connection failure" in failures[0].message


SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
case "$2" in
gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255;;
mute) echo "ann@mute: Permission denied (publickey,password)." >&2; exit 255;;
odd) echo "ssh: Could not resolve hostname odd: Name or service not known" >&2; exit 255;;
esac
exec sh -c "$3"
"""


def test_a_list_of_hosts_is_asked_by_the_users_own_ssh(slurm, capsys):
    (slurm / "bin/ssh").write_text(SSH)
    (slurm / "bin/ssh").chmod(0o755)
    assert run(["health", "--hosts", "localhost,n1,gone", "--format", "json"]) == 3
    rows = json.loads(capsys.readouterr().out)
    assert {row["host"] for row in rows if row["check"] == "memory size"} == {"localhost", "n1"}
    (lost,) = (row for row in rows if row["host"] == "gone")
    assert (lost["outcome"], "No route to host" in lost["observed"]) == ("unreachable", True)
    for verb in ("health", "doctor", "verify", "find-slow"):
        assert run([verb, "--hosts", "localhost,mute,odd"]) == 3
        said = " ".join(capsys.readouterr())
        assert "`ssh HOST true`" in said
        assert "correct the name" in said
        assert "its power" not in said
        assert "lab status" not in said


def test_a_list_of_hosts_is_a_lab_that_its_ranks_can_use(slurm, monkeypatch):
    """This machine needs no ssh, by its own name neither, but a port is a tunnel; ranks log in by name."""
    (slurm / "bin/ssh").write_text("#!/bin/sh\necho 'connect to host x port 22: refused' >&2; exit 255")
    (slurm / "bin/ssh").chmod(0o755)
    there = direct.lab_of_list(f"n1,{NODE},localhost:2222,10.0.0.7", None)
    assert [host.local for host in there.hosts] == [False, True, False, False]
    assert there.name == f"n1-{NODE}-localhost-10-0-0-7"
    monkeypatch.setattr(direct, "refuse_silent", lambda _: None)
    for hosts, said in (
        ("n1,localhost:2222,10.0.0.7", r"^localhost, 10\.0\.0\.7: the ranks"),
        ("n1,n_2", "^n_2: not a valid host name"),
    ):
        with pytest.raises(UsageError, match=said), listed.lab(hosts, None, None):
            pass
    monkeypatch.undo()
    with (
        pytest.raises(UnreachableError, match="1 of 1 host") as caught,
        listed.lab("10.0.0.7", None, None),
    ):
        pass
    assert "-l" not in str(caught.value.remedy)


def test_a_port_that_nobody_named_is_left_to_the_users_ssh(monkeypatch):
    """It may be in ~/.ssh/config."""
    read = []
    monkeypatch.setattr(gather, "_gather", lambda there: read.append(json.loads(there.source.read_text())))
    for port in (22, 2222):
        gather.first_facts([Host("n1", "n1", port, None, 1, frozenset(), {})])
    assert [each["all"]["hosts"]["n1"].get("ansible_port") for each in read] == [None, 2222]
    monkeypatch.setattr(
        ssh_client.process, "run", lambda argv, **_: pytest.fail("a port") if "-p" in argv else done
    )
    done = subprocess.CompletedProcess([], 0, "", "")
    assert ssh_client.responds("n1", 22, "", user=None, key=None)


def test_a_burn_is_run_by_the_users_own_python(slurm, capsys, monkeypatch):
    monkeypatch.setattr(burn, "QUESTIONS", {})
    own = slurm / "python"
    own.write_text(f'#!/bin/sh\ntouch {slurm}/asked\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    words = ["health", "--hosts", "localhost", "--burn", "--python"]
    run([*words, str(own)])
    assert (slurm / "asked").exists()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ("/nowhere", "No such file or directory"),
        ("/etc", "it is a folder"),
        ("/bin/true", "it is no Python from 3.8 on"),
    ],
)
def test_a_host_without_the_python_that_was_named_is_not_judged(capsys, monkeypatch, python, reason):
    monkeypatch.setattr(burn, "QUESTIONS", {})
    assert run(["health", "--hosts", "localhost", "--burn", "--python", python]) == 2
    printed = "".join(capsys.readouterr())
    assert f"localhost: {python}: {reason}; no host was judged" in printed
    assert "unfit" not in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["health", "--hosts", "n1", "--here"], "each name the hosts"),
        (["health", "--hosts", "n1", "--python", "x"], "add --burn"),
        (["find-slow", "--hosts", "3"], "3 is a number"),
        (["health", "--hosts", "n1,n1"], "n1 twice"),
        (["health", "--hosts", f"{NODE},localhost"], f"this machine twice: {NODE}, localhost"),
        (["health", "--hosts", "ann@n1"], "name the user in ~/.ssh/config"),
        (["bench", "--python", "x"], "add --here or --hosts localhost"),
        (["health", "--hosts", "localhost", "--learn", "localhost"], "--learn writes beside an inventory"),
        (["doctor", "--hosts", "localhost", "--fix", "--yes"], "--fix changes hosts as root"),
        (["verify", "--hosts", "localhost", "--deep"], "need an inventory"),
        (["tune", "--here", "--host-settings"], "which need root"),
    ],
)
def test_what_needs_root_or_an_inventory_is_refused(words, said, capsys):
    assert run(words) == 2
    assert said in capsys.readouterr().err


def test_verify_compares_the_python_of_the_ranks(three, monkeypatch):
    def answer(version):
        environment = {"framework": "torch", "version": version, "build": "cpu"}
        recorded = {
            "hvlab_horovod": {"version": None, "variants": {}},
            "hvlab_python_env": {"environments": {"torch": environment}},
        }
        return json.dumps({"prefix": "/p", "recorded": recorded})

    texts = {"h1": answer("2.1"), "h2": answer("2.1"), "h3": answer("2.0")}
    monkeypatch.setattr(direct, "run", lambda *_, **__: (texts, []))
    wrong = [check for check in verify.compare(three, "/p/bin/python") if check.wrong]
    assert [(check.host, check.observed) for check in wrong] == [
        ("h3", "torch 2.0; most hosts have torch 2.1")
    ]
