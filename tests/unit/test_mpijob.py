"""Cases as jobs for Kubernetes, and the logs of their launchers taken in again."""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from hvlab.base.errors import CheckError, HvlabError, UsageError
from hvlab.base.yaml_files import load_shipped
from hvlab.bench import manifests
from hvlab.bench.schedule import Schedule
from hvlab.cli import run as hvlab
from hvlab.results.formats import importing, pods
from hvlab.results.formats.records import LaunchOverrides
from hvlab.results.store import Store
from hvlab.workloads.launchers import kubernetes, mpijob
from tests.contract.tree import ROOT
from tests.unit.labs import VARIANTS, case, lab, spec
from tests.unit.programs import PROGRAMS, program
from tests.unit.test_answers import OWN
from tests.unit.test_workloads import RESULT

IMAGE = "registry.example/horovod:0.28.1"
# The fields of mpi-operator's API, and what its webhook asks for (pkg/apis/kubeflow/v2beta1/types.go and
# pkg/apis/kubeflow/validation/validation.go, July 2026). Pods are checked against Kubernetes' own schemas.
COUNT = {"type": "integer", "minimum": 0}
ANYTHING = {"type": "object"}


def only(*required, **properties):
    """The schema of an object with these fields and no other."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def replicas(number):
    return only(
        *("replicas", "template", "restartPolicy"),
        replicas=number,
        restartPolicy={"enum": ["Never", "OnFailure"]},
        template={"type": "object", "required": ["spec"]},
    )


SPEC = only(
    *("mpiReplicaSpecs", "slotsPerWorker"),
    slotsPerWorker=COUNT,
    runLauncherAsWorker={"type": "boolean"},
    sshAuthMountPath={"type": "string"},
    launcherCreationPolicy={"enum": ["AtStartup", "WaitForWorkersReady"]},
    mpiImplementation={"enum": ["OpenMPI", "Intel", "MPICH"]},
    runPolicy=only(
        "cleanPodPolicy",
        cleanPodPolicy={"enum": ["None", "Running", "All"]},
        ttlSecondsAfterFinished=COUNT,
        activeDeadlineSeconds=COUNT,
        backoffLimit=COUNT,
        schedulingPolicy=ANYTHING,
        suspend={"type": "boolean"},
        managedBy={"type": "string"},
    ),
    mpiReplicaSpecs=only(
        "Launcher", Launcher=replicas({"const": 1}), Worker=replicas({"type": "integer", "minimum": 1})
    ),
)
SCHEMA = only(
    *("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "kubeflow.org/v2beta1"},
    kind={"const": "MPIJob"},
    metadata=ANYTHING,
    spec=SPEC,
)


def schedule(*backends, gpu=(), variables=None, **changes):
    place = lab(gpu=gpu, horovod_variants=VARIANTS, **(variables or {}))
    return Schedule.of(spec(*backends, container=IMAGE, ssh_port=9435, **changes), place)


def written(*backends, **changes):
    """The files of a schedule, those of YAML read."""
    exported, _ = manifests.exportable(schedule(*backends, **changes))
    return {
        name: load_shipped(text) if name.endswith(".yml") else text
        for name, text in manifests.files(exported, "R")
    }


def jobs(*backends, **changes):
    return [content for name, content in written(*backends, **changes).items() if name[0].isdigit()]


def container(job, kind):
    return job["spec"]["mpiReplicaSpecs"][kind]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("backend", "more"),
    [
        ("mpi", {}),
        ("gloo", {}),
        ("ccl", {}),
        ("nccl", {"gpu": ("n1", "n2", "n3")}),
        ("ddp-gloo", {"workload": "synthetic", "steps": 5}),
    ],
)
def test_manifests_follow_the_schemas(backend, more):
    files = written(backend, hosts=(1, 3), slots=(2,), **more)
    kubernetes_validate.validate(files["programs.yml"], "1.34", strict=True)
    mpijobs = [content for name, content in files.items() if name[0].isdigit()]
    assert len(mpijobs) == 2
    for job in mpijobs:
        jsonschema.validate(job, SCHEMA)
        for pods_of_a_kind in job["spec"]["mpiReplicaSpecs"].values():
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **pods_of_a_kind["template"]}
            kubernetes_validate.validate(pod, "1.34", strict=True)
            assert pods_of_a_kind["template"]["spec"]["containers"][0]["image"] == IMAGE
    assert [job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] for job in mpijobs] in ([1, 3], [3, 1])


def test_the_command_of_the_manual_writes_jobs(tmp_path, monkeypatch):
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    inventory = page.split("```yaml\n")[1].split("```")[0]
    commands = re.findall(r"^hvlab (bench .*)$", page, re.MULTILINE)
    (tmp_path / "inventory/pods").mkdir(parents=True)
    (tmp_path / "inventory/pods/hosts.yml").write_text(inventory)
    monkeypatch.chdir(tmp_path)
    assert [hvlab(shlex.split(command)) for command in commands] == [0, 0]
    assert list((tmp_path / "mpijobs").glob("*-hvlab-allreduce-nccl-*.yml"))
    assert list((tmp_path / "trainjobs").glob("*-hvlab-allreduce-ddp-nccl-*.yml"))


def test_ranks_are_started_as_the_case_asks():
    (mpi,) = jobs("mpi", slots=(2,))
    argv = container(mpi, "Launcher")["args"]
    assert argv[:4] == ["mpirun", "--allow-run-as-root", "-np", "4"]
    assert argv[argv.index("btl_tcp_if_include") - 1 :][:3] == ["-mca", "btl_tcp_if_include", "eth0"]
    given = {item["name"] for item in container(mpi, "Launcher")["env"]}
    handed_on = {argv[at + 1] for at, word in enumerate(argv) if word == "-x"}
    assert given - handed_on == {"HVLAB_CASE_ID", "HVLAB_FIRST_LINE"} - handed_on
    assert "HOROVOD_CONTROLLER" in given
    (gloo,) = jobs("gloo", slots=(2,))
    argv = container(gloo, "Launcher")["args"]
    assert argv[0] == "horovodrun"
    assert argv[argv.index("--hostfile") + 1] == "/etc/mpi/hostfile"
    assert argv[-2:] == ["--output", "/tmp/hvlab/result.json"]


def test_settings_of_a_case_outrank_what_ranks_are_started_with():
    settings = {"mpirun": "--bind-to core", "env": "OMPI_MCA_pml=ucx"}
    argv = container(jobs("mpi", **settings)[0], "Launcher")["args"]
    assert argv[4:7] == ["--bind-to", "core", "-mca"]
    assert "pml" not in argv
    plain = container(jobs("mpi")[0], "Launcher")["args"]
    assert plain[4:8] == ["--bind-to", "none", "--map-by", "slot"]
    assert "pml" in plain


def test_ranks_of_ddp_meet_on_the_first_worker():
    (job,) = jobs("ddp-gloo", workload="synthetic", steps=5)
    given = {item["name"]: item["value"] for item in container(job, "Launcher")["env"]}
    assert "MASTER_PORT" in given
    assert "MASTER_ADDR" not in given
    assert "MASTER_ADDR=$(head -n 1 /etc/mpi/hostfile" in container(job, "Launcher")["command"][-2]


def test_the_launcher_requests_resources_too():
    (job,) = jobs("mpi", hosts=(2,))
    resources = container(job, "Launcher")["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": 1, "memory": "1056Mi"}


def test_resources():
    (job,) = jobs("mpi", slots=(2,))
    assert container(job, "Worker")["resources"]["limits"] == {"cpu": 2, "memory": "8Gi"}
    (job,) = jobs("nccl", slots=(2,), gpu=("n1", "n2", "n3"), variables={"lab_pod_resources": {"cpu": 16}})
    resources = container(job, "Worker")["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": 16, "memory": "8Gi", "nvidia.com/gpu": 2}
    with pytest.raises(UsageError, match="names no resources"):
        jobs("mpi", variables={"lab_pod_resources": "16"})


def test_names_are_labels_of_dns_and_differ():
    ids = [
        "allreduce-mpi-2x1-r1",
        "mnist-mpi-2x1-epochs=1,lr=0.1-" + "x" * 90 + "-r1",
        "A_b.C-r1",
        "a-b-c-r1",
    ]
    names = [kubernetes.name(each) for each in ids]
    assert len(set(names)) == len(ids)
    for name in names:
        assert len(f"{name}-worker-99999") <= 63
        # JobSet counts what Kubernetes adds, too (pkg/webhooks/jobset_webhook.go).
        assert len(f"{name}-node-0-99999-abcde") <= 63
        assert name.replace("-", "").isalnum()
        assert name == name.lower()


def test_all_programs_come_along():
    data = written("mpi")["programs.yml"]["data"]
    assert set(data) == {path.name for path in PROGRAMS.glob("*.py")}
    # A ConfigMap holds a MiB at most.
    assert sum(map(len, data.values())) < 2**20 * 0.9


def test_what_pods_cannot_do_is_refused():
    with pytest.raises(UsageError, match="pods need an image"):
        manifests.exportable(Schedule.of(spec("mpi"), lab(horovod_variants=VARIANTS)))
    with pytest.raises(UsageError, match="pods do not have digits") as caught:
        manifests.exportable(schedule("mpi", workload="mnist"))
    assert "--data synthetic" in caught.value.remedy
    with pytest.raises(UsageError, match="before anything is measured"):
        manifests.exportable(schedule("mpi", auto=True))
    with pytest.raises(UsageError, match="rules file"):
        manifests.exportable(schedule("mpi", rules="1 2 1 2 1 0 4 0 0"))
    assert len(jobs("mpi", workload="mnist", data="synthetic")) == 1


def test_the_script_is_one_of_a_shell():
    subprocess.run(["sh", "-n", Path(manifests.__file__).with_name("run.sh")], check=True)
    subprocess.run(["sh", "-n"], input=mpijob._LAUNCH, text=True, check=True)


def script(tmp_path, answers, *words, expect=0):
    """Run the script with a kubectl that keeps what it was asked for; ``answers`` are branches of a shell."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\ncase " $*" in {answers} esac\n')
    kubectl.chmod(0o755)
    (tmp_path / "sleep").symlink_to("/bin/true")
    done = subprocess.run(
        ["sh", "jobs/run.sh", *words],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == expect, done.stderr
    return done


def test_the_script_runs_one_job_after_another(tmp_path):
    """With a kubectl that keeps what it was asked for."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    exported, _ = manifests.exportable(schedule("mpi", "gloo"))
    for name, text in manifests.files(exported, "R"):
        (folder / name).write_text(text)
    done = script(
        tmp_path,
        '*" get "*) echo Created Running Succeeded;; *" logs "*) echo log of "$4";;',
        "--namespace=b",
    )
    names = [kubernetes.name(each.id) for each in exported.cases]
    assert [path.name for path in sorted((folder / "logs").iterdir())] == sorted(
        f"{name}.log" for name in names
    )
    asked = [line.removeprefix("--namespace=b ") for line in (tmp_path / "asked").read_text().splitlines()]
    assert [line.split()[0] for line in asked] == ["apply", *["apply", "get", "logs", "delete"] * 2]
    assert "hvlab results import" in done.stdout


def test_a_job_without_a_log_is_a_failure_with_what_kubernetes_says(tmp_path):
    exported, _ = manifests.exportable(schedule("mpi"))
    (tmp_path / "jobs").mkdir()
    for name, text in manifests.files(exported, "R"):
        (tmp_path / "jobs" / name).write_text(text)
    answers = '*" get "*) echo Created Failed;; *" logs "*) echo Error >&2; exit 1;; '
    answers += '*" describe pods "*) echo "Warning FailedScheduling Insufficient nvidia.com/gpu";;'
    done = script(tmp_path, answers)
    assert "left no log" in done.stderr
    (file,) = (tmp_path / "jobs/logs").iterdir()
    assert "FailedScheduling" in file.read_text()
    (record,) = imported(tmp_path, file.read_text())
    assert (record.status, record.case_id) == ("failed", exported.cases[0].id)


def test_the_script_waits_for_no_job_that_is_gone(tmp_path):
    exported, _ = manifests.exportable(schedule("mpi"))
    (tmp_path / "jobs").mkdir()
    for name, text in manifests.files(exported, "R"):
        (tmp_path / "jobs" / name).write_text(text)
    done = script(tmp_path, '*" get "*) echo NotFound >&2; exit 1;;', expect=1)
    assert "does its operator run" in done.stderr


def test_the_command_writes_a_new_folder(tmp_path, capsys):
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        yaml.safe_dump(
            {
                "all": {
                    "hosts": {"pod1": {}, "pod2": {}},
                    "vars": {"lab_name": "p", "lab_network": "10.0.0.0/24", "lab_interface": "eth0"},
                }
            }
        )
    )
    out = tmp_path / "out"
    words = ["bench", "-i", str(inventory), "--backend", "mpi,gloo", "--hosts", "2", "--slots", "1"]
    words += ["--export", "mpijob", "--output", str(out)]
    assert hvlab(words) == 2
    assert "--container" in capsys.readouterr().err
    assert hvlab(["bench", "-i", str(inventory), "--output", str(out)]) == 2
    assert "--output is for --export" in capsys.readouterr().err
    assert hvlab([*words, "--container", IMAGE]) == 0
    assert "2 jobs" in capsys.readouterr().out
    assert [path.name[:2] for path in sorted(out.iterdir())] == ["1-", "2-", "pr", "ru"]
    assert hvlab([*words, "--container", IMAGE]) == 2
    assert "has files in it" in capsys.readouterr().err


def test_a_secret_is_in_a_file_of_the_users_own_and_in_no_log(tmp_path, capsys):
    """The launcher prints its case, and whoever may read a namespace's logs reads that."""
    words = ["bench", "-i", str(ROOT / "inventory/gpu-example"), "--backend", "mpi", "--hosts", "1"]
    words += ["--slots", "2", "--set", "env=WANDB_API_KEY=s3cret", "--container", IMAGE]
    assert hvlab([*words, "--export", "mpijob", "--output", str(tmp_path / "out")]) == 0
    (file,) = (tmp_path / "out").glob("1-*.yml")
    env = {
        item["name"]: item["value"] for item in container(yaml.safe_load(file.read_text()), "Launcher")["env"]
    }
    assert env["WANDB_API_KEY"] == "s3cret"
    assert "s3cret" not in env["HVLAB_FIRST_LINE"]
    assert "s3cret" not in file.read_text().splitlines()[0]
    assert file.stat().st_mode & 0o777 == 0o600


# In several parts.
LONG = {**RESULT, "noise": "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(32))}


TAG = "2026-11-22T10:00:00Z [pod/x/launcher] "


@pytest.fixture
def log(monkeypatch):
    """The log of a launcher, with a tag before each line; changed and cut by its arguments."""
    logged = program(monkeypatch, "logged")

    def make(
        result=LONG, *, ended='{"rc": 0, "started_at": 100, "ended_at": 103}', output="", tag=TAG, **changes
    ):
        asked = case("mpi", **changes)
        lines = ["hvlab: case: " + json.dumps(asdict(asked)), "Warning: Permanently added n1"]
        lines += logged.lines(asked.id, "result.json", json.dumps(result).encode()) if result else []
        lines += logged.lines(asked.id, "output.txt", output.encode()) if output else []
        lines += [f"hvlab: ended: {asked.id} {ended}"] if ended else []
        return "".join(f"{tag}{line}\n" for line in lines)

    return make


def imported(tmp_path, *texts):
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{number}.log")
        files[-1].write_text(text)
    store = Store(tmp_path / "results")
    return importing.import_files(store, files, LaunchOverrides(), lab="pods")[1]


def test_a_log_becomes_the_case_that_it_was(tmp_path, log):
    records = imported(tmp_path, log(), log(dtype="float16"))
    assert len({record.case_id for record in records}) == 2
    assert {(record.status, record.proved_backend, record.launcher) for record in records} == {
        ("ok", "mpi", "mpirun")
    }
    times = [record.value for record in records if record.metric == "time"]
    assert times == pytest.approx([2000, 4000] * 2)
    assert (Path(tmp_path, "results", records[0].raw_path, "result.json")).is_file()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"result": None, "ended": '{"rc": 1, "started_at": 1, "ended_at": 2}'},
            "mpirun ended with exit status 1",
        ),
        ({"result": None, "ended": ""}, "the log stops before the launcher ended"),
        ({"result": {**RESULT, "checks": ["sum: wrong"]}}, "sum: wrong"),
        ({"ended": '{"rc": "x"}'}, "the launcher's end cannot be read"),
    ],
)
def test_a_case_that_did_not_end_well_is_a_failure(tmp_path, log, changes, error):
    (record,) = imported(tmp_path, log(**changes))
    assert record.status == "failed"
    assert error in record.error


def test_workers_that_do_not_answer_are_named(tmp_path, log):
    said = {"error": "no answer from a-worker-1: see kubectl describe pod x", "started_at": 1, "ended_at": 2}
    (record,) = imported(tmp_path, log(None, ended=json.dumps(said)))
    assert record.error == "no answer from a-worker-1: see kubectl describe pod x"


@pytest.mark.parametrize(
    "tags", [("", ""), ("\x1b[36mjob-a-x7 launcher\x1b[0m ", "\x1b[35mjob-b-k2 launcher\x1b[0m ")]
)
def test_jobs_of_one_time_keep_their_own_results(tmp_path, log, tags):
    def slower(result):
        return {
            **result,
            "sizes": [
                {**size, **{key: [9 * s for s in size[key]] for key in ("mean_s", "max_s")}}
                for size in result["sizes"]
            ],
        }

    first = log(slower(LONG), tag=tags[0]).splitlines(keepends=True)
    second = log(LONG, tag=tags[1], dtype="float16").splitlines(keepends=True)
    text = "".join([*first[:2], *second[:2], first[2], *second[2:], *first[3:]])
    records = [record for record in imported(tmp_path, text) if record.metric == "time"]
    assert [(record.case_id, round(record.value)) for record in records] == [
        (case("mpi").id, 18000),
        (case("mpi").id, 36000),
        (case("mpi", dtype="float16").id, 2000),
        (case("mpi", dtype="float16").id, 4000),
    ]


def test_a_killed_job_is_not_blamed_for_the_next_one(tmp_path, log):
    """A collector marks each stream; what comes after the next case is that one's."""
    killed = log(None, ended="", tag="2026-11-22T10:00:00.1Z stdout F ")
    killed += "2026-11-22T10:00:09.25Z stderr F RuntimeError: of the first\n"
    after = log(None, ended="", tag="2026-11-22T10:01:00Z stdout F ", dtype="float16")
    after += "2026-11-22T10:01:09Z stderr F RuntimeError: of the second\n"
    imported(tmp_path, killed + after)
    kept = {path.parent.name: path.read_text() for path in tmp_path.glob("results/runs/*/*/stdout")}
    assert "RuntimeError: of the first" in kept[case("mpi").id].splitlines()
    assert "second" not in kept[case("mpi").id]
    assert "RuntimeError: of the second" in kept[case("mpi", dtype="float16").id].splitlines()


def test_cases_on_chosen_hosts_are_read(tmp_path, log):
    exported, _ = manifests.exportable(schedule("mpi", hosts=("each",), slots=(2,)))
    assert any("@" in each.id for each in exported.cases)
    for each in exported.cases:
        (launch,) = pods.read(kubernetes.first_line(each), "x.log")
        assert launch.case == each


def test_a_training_of_ones_own_has_its_throughput(tmp_path, log):
    asked = {
        "workload": "command",
        "command": "python train.py",
        "copy": "",
        "pattern": "",
        "unit": "images/s",
    }
    records = imported(tmp_path, log(OWN, output="epoch 1\nimages/sec: 123.4\n", **asked))
    assert [record.value for record in records if record.metric == "throughput"] == [123.4]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            lambda text: text.replace('"workload": "allreduce"', '"workload": "x"'),
            "line 1: this is not a case",
        ),
        (lambda text: text.replace('"id": "', '"id": "../'), "line 1: this is not a case"),
        (lambda text: text.replace('"hosts": [', '"hosts": [1, '), "line 1: this is not a case"),
        (lambda text: text.replace("hvlab: case: {", "hvlab: case: {{"), "line 1: this is not a case"),
        (lambda text: text + text, "both have the case"),
    ],
)
def test_a_log_that_is_not_right_is_refused(tmp_path, log, change, error):
    with pytest.raises(CheckError, match=error):
        imported(tmp_path, change(log()))
    assert not list((tmp_path / "results/runs").glob("*"))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("result.json 2/", "x "), "result.json: the log has 1 of its 2 parts; fetch the log again, whole"),
        (("result.json 1/2 e", "result.json 1/2 f"), "result.json is damaged; fetch the log again"),
        (("result.json 2/2", "result.json 2/999999"), "the log has 2 of its 999999 parts"),
    ],
)
def test_a_damaged_log_is_a_failure_of_its_case_alone(tmp_path, log, change, error):
    records = imported(tmp_path, log().replace(*change) + log(dtype="float16"))
    (failure,) = (record for record in records if record.status == "failed")
    assert error in failure.error
    assert failure.case_id == case("mpi").id
    assert {record.case_id for record in records if record.status == "ok"} == {
        case("mpi", dtype="float16").id
    }


def test_a_log_may_have_the_name_of_its_case(tmp_path, log):
    store, file = Store(tmp_path / "results"), tmp_path / case("mpi").id
    file.write_text(log())
    run_id, records = importing.import_files(store, [file], LaunchOverrides(), lab="pods")
    assert (store.folder / records[0].raw_path / "result.json").is_file()
    assert (store.run_folder(run_id) / f"1-{file.name}").read_text() == log()


def test_files_that_cannot_be_kept_leave_nothing_behind(tmp_path, log):
    store = Store(tmp_path / "results")
    (tmp_path / "a.log").write_text(log())
    (tmp_path / "results").mkdir()
    # There is no folder to keep them in.
    (tmp_path / "results" / "runs").write_text("")
    with pytest.raises(HvlabError, match="cannot be kept"):
        importing.import_files(store, [tmp_path / "a.log"], LaunchOverrides(), lab="pods")
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["runs"]


def test_a_result_of_another_version_has_no_figures(tmp_path, log):
    (record,) = imported(tmp_path, log({**RESULT, "sizes": [{"size": 1}]}))
    assert (record.status, record.metric) == ("failed", None)
    assert "result.json: sizes" in record.error


def test_rank_0_prints_what_it_wrote(tmp_path):
    """A long result survives being cut into lines; without one, only the exit status is forwarded."""
    big = {"numbers": [number * 0.1234567 for number in range(5000)]}
    (tmp_path / "result.json").write_text(json.dumps(big))
    (tmp_path / "output.txt").write_text("x" * 300_000 + "the end")

    def ran(rank, code="print('a line')"):
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
        argv = [
            sys.executable,
            str(PROGRAMS / "logged.py"),
            "case-1@n2",
            str(tmp_path),
            sys.executable,
            "-c",
            code,
        ]
        env = os.environ | dict(zip(names, (rank, "2", rank), strict=True))
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=env)

    printed = ran("0").stdout.splitlines()
    assert max(map(len, printed)) < 1100
    files = pods._files(printed, "x")
    assert json.loads(files["result.json"]) == big
    assert files["output.txt"] == b"x" * (256 * 1024 - 7) + b"the end"
    assert files["stdout"] == b"a line"
    assert ran("1").stdout == "a line\n"
    for path in tmp_path.iterdir():
        path.unlink()
    done = ran("0", "import sys; sys.exit(3)")
    assert (done.returncode, done.stdout) == (3, "")


# Runs the program that prints the files of a rank, with a result in its folder and nothing to measure.
MPIRUN = """#!{python}
import os, subprocess, sys
# Open MPI 5 passes over the operator's OMPI_MCA_orte_default_hostfile: all ranks would run in the launcher.
assert open(os.environ["PRTE_MCA_prte_default_hostfile"]).read().split()[::2] == ["n1", "n2"]
at = next(at for at, word in enumerate(sys.argv) if word.endswith("/logged.py"))
os.environ |= dict.fromkeys(("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"), "0")
os.environ["OMPI_COMM_WORLD_SIZE"] = "2"
sys.exit(subprocess.call([sys.executable, "{logged}", sys.argv[at + 1], "{folder}", "true"]))
"""


def run_script(tmp_path, container, name, program, **env):
    """Run a container's script with another program of that name, ssh and getent, in folders of its own."""
    bin_ = tmp_path / "bin"
    bin_.mkdir(exist_ok=True)
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    text = program.format(python=sys.executable, logged=PROGRAMS / "logged.py", folder=tmp_path)
    for each, content in ((name, text), ("ssh", "#!/bin/sh\n"), ("getent", "#!/bin/sh\n")):
        (bin_ / each).write_text(content)
        (bin_ / each).chmod(0o755)
    for each, content in (("id_rsa.pub", "ssh-rsa x\n"), ("hostfile", "n1 slots=1\nn2 slots=1\n")):
        (tmp_path / each).write_text(content)
    body = container["command"][2]
    for folder in ("/root/.ssh", "/etc/mpi", "/etc/ssh", "/tmp/known"):
        body = body.replace(folder, str(tmp_path / "known" if folder.endswith("known") else tmp_path))
    env |= {item["name"]: item["value"].replace("$$", "$") for item in container["env"]}
    done = subprocess.run(
        [*container["command"][:2], body, "hvlab", *(word.replace("$$", "$") for word in container["args"])],
        env=env | {"PATH": f"{bin_}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_what_a_launcher_prints_is_the_case_that_was_exported(tmp_path):
    exported, _ = manifests.exportable(schedule("mpi"))
    (text,) = (text for name, text in manifests.files(exported, "R") if name[0].isdigit())
    printed = run_script(tmp_path, container(yaml.safe_load(text), "Launcher"), "mpirun", MPIRUN)
    records = imported(tmp_path, printed)
    assert {(record.case_id, record.status) for record in records} == {(exported.cases[0].id, "ok")}


def test_kubernetes_replaces_nothing_in_what_ranks_are_given():
    """The kubelet makes `$$` a `$`, and fills in `$(X)` (kubernetes/third_party/forked/golang/expansion)."""
    (job,) = jobs("mpi", env="X_NOTE=a$$b")
    values = {item["name"]: item["value"] for item in container(job, "Launcher")["env"]}
    assert values["X_NOTE"] == "a$$$$b"
