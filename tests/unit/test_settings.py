"""Settings files: what they may hold, what they become, and rules files of Open MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvlab import workloads
from hvlab.base.errors import UsageError
from hvlab.bench import settings, sides
from hvlab.bench.matrix import Block, Spec, expand
from hvlab.bench.settings import SettingsFile
from hvlab.workloads import launchers
from hvlab.workloads.datasets import rules
from hvlab.workloads.datasets.shelf import key_in
from tests.unit import labs

TABLE = "1 2 1 2 2 0 3 0 0 65536 4 0 0"


def test_settings_become_parameters_that_hvlab_knows() -> None:
    chosen = SettingsFile(
        env={"HOROVOD_FUSION_THRESHOLD": 1048576, "OMP_NUM_THREADS": 2, "NCCL_ALGO": "Ring", "A": "x y"},
        mpirun="--bind-to  core",
        rules="1 # allreduce\n2\n1\n2\n2\n0 3 0 0\n65536 4 0 0 # ring\n",
    )
    assert chosen.parameters == {
        "fusion_threshold": "1048576", "threads": "2", "env": "'A=x y' NCCL_ALGO=Ring",
        "mpirun": "--bind-to core", "rules": TABLE,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        ("environment: {}", "environment: unknown name"),
        ("env: [A=1]", "env: Input should be a valid dictionary"),
        ("env: {HVLAB_CASE: x}", "HVLAB_CASE is hvlab's own"),
        ("env: {A: [1]}", "env.A"),
        ('env: {A: "x\\ny"}', "line break"),
        ("env: {HOROVOD_CYCLE_TIME: soon}", "cycle_time=soon"),
        ("mpirun: python", "no option of mpirun"),
        ("mpirun: --bind-to core -np 4", "-np is hvlab's own"),
        ("mpirun: --hostfile=x", "hvlab's own"),
        ('mpirun: "\'"', "No closing quotation"),
        ("rules: 1 2 x", "'x' is no number"),
        ("rules: 1 2 1 2 2 0 3 0 0", "end too early"),
        (f"rules: {TABLE} 7", "have 7 after their end"),
        ("- 1", "the file"),
        ("env: {A: 1", "cannot be read"),
    ],
)
def test_a_bad_settings_file_is_refused_with_what_is_wrong(tmp_path: Path, text: str, observed: str) -> None:
    (tmp_path / "bad.yml").write_text(text)
    with pytest.raises(UsageError) as raised:
        settings.load(tmp_path / "bad.yml")
    assert observed in str(raised.value)
    assert "Value error" not in str(raised.value)
    assert raised.value.remedy


def test_a_file_is_read_as_it_was_written_and_says_what_a_job_needs(tmp_path: Path) -> None:
    chosen = SettingsFile(about="a: b", env={"A": "x y", "B": 1}, mpirun="--bind-to core", rules=TABLE)
    lines = [
        "export A='x y'",
        f"export FILE={launchers.RULES_FILE}",
        "mpirun --bind-to core -x A -x FILE ...",
    ]
    path = settings.save(chosen, tmp_path / "best.yml", recipe=lines)
    assert settings.load(path) == chosen
    assert (tmp_path / "best.rules").read_text() == f"{TABLE}\n"
    text = path.read_text()
    assert "#   export A='x y'\n#   export FILE=best.rules\n#   mpirun --bind-to core -x A" in text
    assert "job of your own" not in settings.save(chosen, tmp_path / "plain.yml").read_text()


def test_rules_go_to_the_hosts_by_their_content(tmp_path: Path) -> None:
    key, folder = rules.place(TABLE, cache=tmp_path)
    assert key == rules.key(TABLE) == key_in(folder)
    assert (folder / "rules.conf").read_text() == f"{TABLE}\n"
    assert rules.place(TABLE, cache=tmp_path) == (key, folder)


def _argv(axes: dict[str, tuple[str, ...]], backend: str = "mpi") -> str:
    lab = labs.lab(2)
    spec = Spec((Block("allreduce", (backend,), (2,), (1,), axes),))
    [case], infeasible = expand(spec, lab)
    assert not infeasible
    return launchers.command(case, lab, "RUN", workloads.argv(case)).line()


def test_a_case_is_started_with_its_settings() -> None:
    plain, chosen = _argv({}), _argv({"mpirun": ("--bind-to core",), "rules": (TABLE,)})
    assert "--bind-to none --map-by slot" in plain
    assert "OMPI_MCA_coll_tuned" not in plain
    assert "--bind-to core -mca" in chosen
    assert "--map-by" not in chosen
    assert "-x OMPI_MCA_coll_tuned_use_dynamic_rules=1" in chosen
    file = f"/.hvlab/data/{rules.key(TABLE)}/rules.conf"
    assert f"OMPI_MCA_coll_tuned_dynamic_rules_filename=~{file}" in chosen.replace("'", "")


@pytest.mark.parametrize("axes", [{"mpirun": ("--bind-to core",)}, {"rules": (TABLE,)}])
def test_settings_that_a_launcher_or_backend_does_not_take_are_infeasible(
    axes: dict[str, tuple[str, ...]],
) -> None:
    spec = Spec((Block("allreduce", ("gloo",), (2,), (1,), axes),))
    cases, [item] = expand(spec, labs.lab(2))
    assert not cases
    assert "--set" in item.reason


def test_a_case_without_settings_has_no_such_parameters() -> None:
    [case], _ = expand(Spec((Block("allreduce", ("mpi",), (2,), (1,)),)), labs.lab(2))
    assert not {"env", "mpirun", "rules"} & case.params.keys()


def test_a_side_takes_a_settings_file(tmp_path: Path) -> None:
    path = settings.save(SettingsFile(env={"HOROVOD_CYCLE_TIME": 5, "A": 1}), tmp_path / "best.yml")
    assert sides.read(f"settings={path} B=2") == {"cycle_time": "5", "env": "A=1 B=2"}
