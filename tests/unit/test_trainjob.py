"""Cases as jobs for Kubeflow Trainer."""

import jsonschema
import kubernetes_validate
import pytest
import yaml

from hvlab.base.errors import UsageError
from hvlab.bench import manifests
from hvlab.workloads.launchers import kubernetes
from tests.unit.test_mpijob import ANYTHING, IMAGE, imported, only, run_script, schedule, script

# The fields that jobs may have (kubeflow/trainer v2.3.0, manifests/base/crds), those of its webhook and of
# JobSet's default included. What a Job of Kubernetes and its pods are, Kubernetes' own schemas say.
WORDS = {"type": "array", "maxItems": 128, "items": {"type": "string", "maxLength": 2**20}}
COUNT = {"type": "integer", "minimum": 1}
QUANTITIES = {"type": "object", "additionalProperties": {"type": ["integer", "string"]}}
VARIABLE = only("name", "value", name={"type": "string"}, value={"type": "string"})
API = {"const": "trainer.kubeflow.org/v1alpha1"}
NAME = only("name", name={"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}, labels=ANYTHING)
TRAINER = only(
    image={"type": "string", "maxLength": 500},
    command=WORDS,
    args=WORDS,
    env={"type": "array", "maxItems": 128, "items": VARIABLE},
    numNodes=COUNT,
    numProcPerNode=COUNT,
    resourcesPerNode=only(limits=QUANTITIES, requests=QUANTITIES),
)
TRAINJOB = only(
    *("apiVersion", "kind", "metadata", "spec"),
    apiVersion=API,
    kind={"const": "TrainJob"},
    metadata=NAME,
    spec=only(
        "runtimeRef",
        runtimeRef=only("name", name={"type": "string"}, kind={"const": "TrainingRuntime"}),
        activeDeadlineSeconds=COUNT,
        trainer=TRAINER,
    ),
)
JOBS = {
    "type": "array",
    "maxItems": 1,
    "items": only(
        "name", "template", name={"const": "node"}, template=only(metadata=ANYTHING, spec=ANYTHING)
    ),
}
RUNTIME = only(
    *("apiVersion", "kind", "metadata", "spec"),
    apiVersion=API,
    kind={"const": "TrainingRuntime"},
    metadata=NAME,
    spec=only(mlPolicy=only(torch=only()), template=only(spec=only(replicatedJobs=JOBS))),
)


def written(*backends, **changes):
    """The runtime and the jobs of a schedule."""
    exported, _ = manifests.exportable(schedule(*backends, launcher="torchrun", **changes), "trainjob")
    files = dict(manifests.files(exported, "R", "trainjob"))
    _, runtime = yaml.safe_load_all(files[manifests.PROGRAMS])
    return runtime, [yaml.safe_load(text) for name, text in files.items() if name[0].isdigit()]


@pytest.mark.parametrize(
    ("backend", "more"),
    [
        ("ddp-gloo", {}),
        ("fsdp-gloo", {"workload": "lm", "steps": 5}),
        ("ddp-nccl", {"workload": "synthetic", "steps": 5, "gpu": ("n1", "n2", "n3")}),
    ],
)
def test_manifests_follow_the_schemas(backend, more):
    runtime, jobs = written(backend, hosts=(1, 3), slots=(2,), **more)
    jsonschema.validate(runtime, RUNTIME)
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert node["template"]["metadata"]["labels"] == {
        "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"
    }
    (container,) = node["template"]["spec"]["template"]["spec"]["containers"]
    assert sorted(job["spec"]["trainer"]["numNodes"] for job in jobs) == [1, 3]
    for job in jobs:
        jsonschema.validate(job, TRAINJOB)
        assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
        trainer = job["spec"]["trainer"]
        assert trainer["image"] == IMAGE
        assert trainer["numProcPerNode"] == 2
        # As Trainer makes them of both.
        container |= {name: trainer[name] for name in ("image", "command", "args", "env")}
        container["resources"] = trainer["resourcesPerNode"]
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **node["template"]}
        kubernetes_validate.validate(made | {"metadata": {"name": "x"}}, "1.34", strict=True)


def test_what_trainer_and_torchrun_set_is_left_to_them():
    (job,) = written("ddp-gloo")[1]
    given = {item["name"] for item in job["spec"]["trainer"]["env"]}
    assert {"GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"} < given
    assert not {name for name in given if name.startswith(("PET_", "MASTER_"))}


# Runs the program that prints the files of a rank, with a result in its folder and nothing to measure.
PYTHON = """#!{python}
import os, subprocess, sys
at = next(at for at, word in enumerate(sys.argv) if word.endswith("/logged.py"))
assert sys.argv[1:3] == ["-m", "torch.distributed.run"]
os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), os.environ["PET_NODE_RANK"]) | dict(WORLD_SIZE="2")
sys.exit(subprocess.call([sys.executable, "{logged}", sys.argv[at + 1], "{folder}", "true"]))
"""


def test_the_first_pod_alone_prints_the_case_that_was_exported(tmp_path):
    (job,) = written("ddp-gloo")[1]
    trainer = job["spec"]["trainer"]
    assert run_script(tmp_path, trainer, "python3", PYTHON, PET_NODE_RANK="1") == ""
    printed = run_script(tmp_path, trainer, "python3", PYTHON, PET_NODE_RANK="0")
    (case_id,) = (item["value"] for item in trainer["env"] if item["name"] == "HVLAB_CASE_ID")
    assert {record.case_id for record in imported(tmp_path, printed)} == {case_id}


@pytest.mark.parametrize(
    ("log", "said"), [("echo log of the first pod", "log of the first pod"), ("true", "FailedScheduling")]
)
def test_the_script_keeps_the_log_of_the_first_pod(tmp_path, log, said):
    """A selector that finds no pod is no error to kubectl."""
    exported, _ = manifests.exportable(schedule("ddp-gloo", launcher="torchrun"), "trainjob")
    (tmp_path / "jobs").mkdir()
    for name, text in manifests.files(exported, "R", "trainjob"):
        (tmp_path / "jobs" / name).write_text(text)
    job = kubernetes.name(exported.cases[0].id)
    events = f'*" get events"*) echo "Warning FailedScheduling pod/{job}-node-0-0-x";;'
    script(tmp_path, f'{events} *" get "*) echo Completenode;; *" logs "*) {log};;')
    assert said in (tmp_path / "jobs/logs" / f"{job}.log").read_text()
    (asked,) = (line for line in (tmp_path / "asked").read_text().splitlines() if line.startswith("logs "))
    labels = f"jobset.sigs.k8s.io/jobset-name={job},batch.kubernetes.io/job-completion-index=0"
    assert asked == f"logs --tail=-1 --selector={labels}"


def test_cases_of_other_launchers_are_refused():
    with pytest.raises(UsageError, match="no case is for --export trainjob, which starts those of torchrun"):
        manifests.exportable(schedule("mpi"), "trainjob")
