"""Two settings measured in turn: what is switched, in which order, and what is decided."""

import json
from dataclasses import asdict, replace

import pytest

from hvlab.analysis.compare import measurements
from hvlab.analysis.compare.comparison import Measurements
from hvlab.analysis.compare.decision_rows import as_json, sentences, table
from hvlab.analysis.compare.decisions import decide, questions
from hvlab.base.errors import UsageError
from hvlab.bench import sides
from hvlab.bench.matrix import Spec, expand
from hvlab.bench.resume import against
from hvlab.cli import run
from hvlab.results.configurations import Configuration, Repeats
from hvlab.results.store import Store
from hvlab.workloads.launchers import job
from tests.unit.labs import block, case, lab, spec
from tests.unit.test_cli import inventory, known  # noqa: F401 - a fixture
from tests.unit.test_results import RECORD


def two(a, b, *blocks, **changes):
    """The specification of both sides."""
    texts = {"A": sides.read(a), "B": sides.read(b)}
    chosen = blocks or (block("mpi"),)
    return Spec(sides.with_sides(chosen, texts, lab()), sides=sides.values(texts, chosen), **changes)


def test_each_case_is_measured_with_both_one_after_the_other():
    asked = two(
        "fusion_threshold=1M", "fusion_threshold=64M", block("mpi", "gloo", hosts=(1, 2, 3)), repeats=4
    )
    cases, infeasible = expand(asked, lab())
    assert (len(cases), infeasible) == (2 * 6 * 4, [])
    firsts: dict[tuple, list[str]] = {}
    for one, other in zip(cases[::2], cases[1::2], strict=True):
        assert {one.params["side"], other.params["side"]} == {"A", "B"}
        assert (one.backend, one.hosts, one.repeat) == (other.backend, other.hosts, other.repeat)
        firsts.setdefault((one.backend, one.hosts), []).append(one.params["side"])
    # They take turns in being first.
    assert all(sorted(order) == ["A", "A", "B", "B"] for order in firsts.values())
    assert all(order[::2] in (["A", "A"], ["B", "B"]) for order in firsts.values())


@pytest.mark.parametrize(
    ("a", "b", "differ"),
    [
        ("backend=mpi", "backend=gloo", ("backend", {"mpi", "gloo"})),
        ("op=sum", "op=average", ("id", {"allreduce-mpi-2x1-A-r1", "allreduce-mpi-2x1-op=average-B-r1"})),
    ],
)
def test_what_can_be_switched(a, b, differ):
    name, both = differ
    cases, _ = expand(two(a, b, block("mpi")), lab())
    assert {getattr(one, name) for one in cases} == both


def test_environment_variables_reach_the_ranks():
    cases, _ = expand(two("NCCL_ALGO=Ring NCCL_IB_HCA=mlx5_0,mlx5_1", ""), lab())
    with_, without = sorted(cases, key=lambda one: one.params["side"])
    env = job(with_, lab(), "r", ("x.py",)).env
    assert (env["NCCL_ALGO"], env["NCCL_IB_HCA"]) == ("Ring", "mlx5_0,mlx5_1")
    assert "NCCL_ALGO" not in job(without, lab(), "r", ("x.py",)).env
    assert "env" not in without.params


def test_a_case_without_variables_is_as_it_was():
    assert "env" not in case().params


@pytest.mark.parametrize(
    ("a", "b", "blocks", "told"),
    [
        ("", "", (), "A and B are the same"),
        ("fusion_threshold=128M", "", (), "what one sets, the other has anyway"),
        ("fusion=1M", "", (), "unknown setting of A or B 'fusion'"),
        ("fusion_threshold", "", (), "sets nothing"),
        ("backend=mpi,gloo", "backend=mpi", (), "several values of backend"),
        ("", "backend=gloo", (block("mpi", "gloo"),), "side A has several values of backend"),
        ("cycle_time=1", "", (block("mpi", cycle_time=(1, 5)),), "side B has several values of cycle_time"),
        ("launcher=srrun", "", (), "unknown launcher"),
        ("HVLAB_CASE=1", "", (), "hvlab's own"),
        ("fusion_threshold=x", "", (), "fusion_threshold=x"),
        ("model=vgg16", "", (block("mpi", workload="synthetic"),), "model changes what a step does"),
    ],
)
def test_what_cannot_be_switched_is_refused(a, b, blocks, told):
    with pytest.raises(UsageError, match=told):
        two(a, b, *blocks)


@pytest.mark.parametrize("side", ["HF_TOKEN=hf-aaaa NCCL_ALGO='Ring", "HF_TOKEN=hf-aaaa HVLAB_CASE=1"])
def test_a_refusal_shows_no_secret(side):
    with pytest.raises(UsageError, match=r"HF_TOKEN=\*\*\*") as refused:
        two(side, "")
    assert "hf-aaaa" not in str(refused.value)


def test_hvlabs_default_differs_from_nothing_where_the_lab_sets_another():
    there = lab(lab_rank_env={"HOROVOD_CYCLE_TIME": 5})
    asked = [block("mpi")]
    texts = {"A": sides.read("cycle_time=1"), "B": sides.read("")}
    a, b = sides.with_sides(asked, texts, there)
    assert (a.axes["cycle_time"], b.axes.get("cycle_time")) == ((1.0,), None)
    with pytest.raises(UsageError, match="A and B are the same"):
        sides.with_sides(asked, texts | {"A": sides.read("cycle_time=5")}, there)


def test_a_side_without_its_counterpart_is_not_measured():
    cases, infeasible = expand(two("op=sum", "op=adasum", block("mpi", hosts=(2, 3))), lab())
    assert {len(one.hosts) for one in cases} == {2}
    assert {one.case: one.reason.split(",")[0] for one in infeasible} == {
        "allreduce-mpi-3x1-A-r1": "its counterpart on the other side is infeasible",
        "allreduce-mpi-3x1-op=adasum-B-r1": "Adasum needs a power of two of ranks",
    }


def test_buffers_are_whole_in_elements_of_both_sides():
    gathered = block("mpi", workload="allgather", hosts=(3,))
    cases, infeasible = expand(two("dtype=float32", "dtype=float64", gathered), lab())
    assert infeasible == []
    assert [one.params["sizes"] for one in cases] == [[1008, 4080]] * 2


def test_a_size_that_suits_one_side_alone_is_infeasible():
    grouped = ("form=grouped tensors=2", "form=grouped tensors=3")
    cases, infeasible = expand(two(*grouped, block("mpi", sizes=(16,))), lab())
    assert cases == []
    assert [one.reason for one in infeasible] == [
        "one of the sizes is too small for whole elements of both A and B"
    ] * 2


def test_older_requests_keep_their_key():
    """A run that an earlier hvlab began can be resumed."""
    plain = spec("mpi", repeats=3)
    stored = asdict(plain)
    for name in ("auto", "time_limit", "sides", "against"):
        del stored[name]
    for one in stored["blocks"]:
        del one["launcher"], one["side"]
    restored = Spec.restore(json.loads(json.dumps(stored)))
    assert restored.key(lab()) == plain.key(lab()) == "5943ed5072a13524"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def put(store, asked, figure, run_id="r1"):
    """Store a run of all cases, with what ``figure`` gives for each."""
    cases, _ = expand(asked, lab())
    store.create(
        run_id, lab="t", spec_key=asked.key(lab()), spec=asdict(asked), cases=[one.id for one in cases]
    )
    for one in cases:
        params = {name: value for name, value in one.params.items() if name != "sizes"}
        store.add(
            replace(
                RECORD, run_id=run_id, case_id=one.id, repeat=one.repeat, backend=one.backend,
                launcher=one.launcher, hosts=one.hosts, params={**params, "size_bytes": size},
                value=figure(one, size),
            )
            for size in one.params["sizes"]
        )  # fmt: skip
    store.enter(run_id, "finished")
    return store.run(run_id)


def noisy(one, size, slow=1.5):
    side = slow if one.params.get("side") == "B" else 1.0
    return size * side * (1 + 0.01 * ((one.repeat * 7 + size) % 5))


def decided(store, run):
    return decide(measurements(run, store.records(run.run_id)), store.spec(run.run_id)[1])


def test_the_run_says_which_side_is_faster(store):
    answer = decided(store, put(store, two("", "cycle_time=5", repeats=6, auto=True), noisy))
    assert [each.row.verdict.kind for each in answer.rows] == ["faster", "faster"]
    assert [each.row.verdict.ratio.mid for each in answer.rows] == [pytest.approx(1 / 1.5)] * 2
    first, second = table(answer)
    assert (first["A"], first["B"], first["verdict"]) == ("cycle_time=1", "cycle_time=5", "A is better")
    assert (first["case"], second["case"]) == ("1K", "4K")
    assert sentences(answer)[0] == "2 comparisons: A better in 2."


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"status": "failed"}, "B failed in 6 of 6 cases: no route to host"),
        ({"status": "skipped"}, "B was skipped in 6 of 6 cases: no route to host"),
    ],
)
def test_a_side_that_always_failed_is_named_with_its_reason(store, changes, told):
    kept = put(store, two("", "cycle_time=5", repeats=6), noisy)
    lost = [record for record in store.records(kept.run_id) if record.params["side"] == "B"]
    others = [record for record in store.records(kept.run_id) if record.params["side"] == "A"]
    # It failed before its first size: a record for each case, without one.
    firsts = {record.case_id: record for record in lost}.values()
    without = [
        replace(
            record, metric=None, value=None, error="no route\nto host", **changes,
            params={name: value for name, value in record.params.items() if name != "size_bytes"},
        )
        for record in firsts
    ]  # fmt: skip
    answer = decide(measurements(kept, [*others, *without]), store.spec(kept.run_id)[1])
    assert (answer.rows, sentences(answer)) == ((), [told])
    assert as_json(answer)["unmeasured"][0]["reasons"] == ("no route\nto host",)


def test_a_backend_that_failed_on_some_hosts_is_told_beside_what_was_decided(store):
    kept = put(store, spec("mpi", "gloo", hosts=(2, 3), repeats=6), noisy)
    records = [
        replace(record, status="failed", metric=None, value=None, error="no route to host")
        if (record.backend, len(record.hosts)) == ("gloo", 3)
        else record
        for record in store.records(kept.run_id)
    ]
    answer = decide(measurements(kept, records), store.spec(kept.run_id)[1])
    assert len(answer.rows) == 2
    assert sentences(answer)[-1] == "gloo failed in 6 of 12 cases: no route to host"


def test_two_backends_are_two_sides(store):
    answer = decided(store, put(store, two("backend=mpi", "backend=gloo", repeats=6, auto=True), noisy))
    assert {each.names for each in answer.rows} == {("mpi", "gloo")}
    assert {each.row.verdict.kind for each in answer.rows} == {"faster"}


def test_what_is_open_is_told_with_the_repeats_that_it_needs(store):
    def figure(one, size):
        return size * (1.04 if one.params["side"] == "B" else 1) * (1 + 0.05 * ((one.repeat * 7) % 5))

    answer = decided(store, put(store, two("", "cycle_time=5", repeats=6, auto=True), figure))
    assert {each.row.verdict.kind for each in answer.rows} == {"unclear"}
    assert all(each.needed and each.needed > 6 for each in answer.rows)
    assert "would probably decide" in " ".join(sentences(answer))


def test_one_repeat_each_answers_nothing(store):
    answer = decided(store, put(store, two("", "cycle_time=5"), lambda _, size: size))
    assert sentences(answer)[0] == "2 comparisons: open in 2."


@pytest.mark.parametrize(
    ("workload", "a", "b", "kind"),
    [
        # Twice the work in 1.8 times the time.
        ("mnist", {"step_time": 1.0, "throughput": 32.0}, {"step_time": 1.8, "throughput": 35.6}, "slower"),
        ("command", {"real": 9.0, "throughput": 100.0}, {"real": 8.0, "throughput": 80.0}, "faster"),
        ("command", {"real": 9.0, "throughput": 100.0}, {"real": 8.0}, "slower"),
    ],
)
def test_what_decides_where_steps_or_launches_do_not_do_the_same(workload, a, b, kind):
    sides, measured = sided(workload, a, b)
    (each,) = decide(measurements_of(measured), {"auto": True, "sides": sides}).rows
    assert each.row.verdict.kind == kind
    assert (each.row.unit == "images/s") is ("throughput" in b)


def measurements_of(measured):
    return Measurements("r", "t", "", {}, measured)


def sided(workload, a, b):
    """What A and B set, and six repeats of both: 32 and 64 samples a step, with these metrics."""
    sides, measured = {}, {}
    for side, batch, metrics in (("A", 32, a), ("B", 64, b)):
        sides[side] = {"batch": batch} if workload == "mnist" else {"cycle_time": batch}
        params = {**sides[side], "side": side, "unit": "images/s"}
        values = {
            metric: {repeat: value * (1 + 0.01 * (repeat % 3)) for repeat in range(1, 7)}
            for metric, value in metrics.items()
        }
        key = Configuration(workload, "mpi", "mpirun", ("n1", "n2"), 1, tuple(sorted(params.items())))
        measured[key] = Repeats(values, ok=set(range(1, 7)))
    return sides, measured


def test_an_ordinary_run_is_compared_by_its_backends_and_settings(store):
    run_ = put(store, spec("mpi", "gloo", cycle_time=(1, 5), repeats=2), noisy)
    pairs = list(questions(measurements(run_, store.records("r1")).configurations))
    # For each size: mpi with gloo at each cycle time, and both cycle times over each backend.
    assert len(pairs) == 2 * 4
    assert all((a.backend != b.backend) != (a.get("cycle_time") != b.get("cycle_time")) for a, b in pairs)


def test_settings_that_change_the_work_are_no_question(store):
    run_ = put(store, spec("mpi", dtype=("float32", "float64"), repeats=2), noisy)
    assert list(questions(measurements(run_, store.records("r1")).configurations)) == []


def test_an_earlier_run_is_measured_again_beside_a_change(store):
    put(store, spec("mpi", hosts=(1, 2), repeats=2), noisy)
    again = against(store, "r1", {"cycle_time": "5"}, lab())
    cases, _ = expand(replace(again, repeats=1), lab())
    assert sorted(one.id for one in cases) == [
        *("allreduce-mpi-1x1-A-r1", "allreduce-mpi-1x1-cycle_time=5-B-r1"),
        *("allreduce-mpi-2x1-A-r1", "allreduce-mpi-2x1-cycle_time=5-B-r1"),
    ]


@pytest.mark.parametrize(
    ("changes", "there", "told"),
    [
        ({}, lab(), "nothing differs between run r1 and this command"),
        ({"cycle_time": "1"}, lab(), "what one sets, the other has anyway"),
        ({"cycle_time": "5"}, lab(2), "was measured on other hosts"),
    ],
)
def test_what_cannot_be_measured_again_is_refused(store, changes, there, told):
    put(store, spec("mpi", hosts=(1, 2)), noisy)
    with pytest.raises(UsageError, match=told) as caught:
        against(store, "r1", changes, there)
    assert caught.value.remedy


def test_an_imported_run_cannot_be_measured_again(store):
    store.put("r1", [RECORD], lab="t", spec_key="import", spec={"files": ["a.log"]}, cases=["c1"])
    with pytest.raises(UsageError, match="was imported"):
        against(store, "r1", {"cycle_time": "5"}, lab())


def test_compare_of_one_run_prints_its_decision(store, capsys):
    put(store, two("", "cycle_time=5", repeats=6, auto=True), noisy)
    assert run(["compare", "r1", "--results", str(store.folder)]) == 0
    assert "A better in 2" in capsys.readouterr().out
    assert run(["compare", "r1", "--results", str(store.folder), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["sides"] == {"A": {}, "B": {"cycle_time": 5.0}}
    assert {row["figures"]["verdict"]["kind"] for row in answer["rows"]} == {"faster"}


@pytest.mark.parametrize(("slow", "code"), [(1.5, 1), (0.7, 0)])
def test_a_change_that_is_slower_is_exit_code_1(store, monkeypatch, capsys, inventory, *, slow, code):  # noqa: F811
    monkeypatch.setattr("hvlab.cli.bench.load", lambda *_, **__: lab())
    put(store, spec("mpi", repeats=2), noisy)

    def measure(schedule, there, **_):
        put(there, schedule.spec, lambda one, size: noisy(one, size, slow), "r2")
        there.run_folder("r2").mkdir(parents=True, exist_ok=True)
        return "r2"

    monkeypatch.setattr("hvlab.bench.measure.measure", measure)
    words = [
        "bench",
        "-i",
        inventory,
        "--results",
        str(store.folder),
        "--against",
        "r1",
        "--set",
        "cycle_time=5",
    ]
    assert run(words) == code
    assert ("A better in 2" if code else "B better in 2") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--ab", "cycle_time=1", "cycle_time=5", "--against", "r1"], "takes no --ab"),
        (["--against", "r1", "--hosts", "2"], "takes no --hosts"),
        (["--repeats", "5", "--time-limit", "5m"], "--time-limit is for --repeats auto"),
        (["--repeats", "often"], "often"),
        (["--repeats", "auto", "--time-limit", "soon"], "soon is not a time such as 90s, 20m or 2h"),
    ],
)
def test_options_that_do_not_go_together(inventory, capsys, tmp_path, monkeypatch, *, words, told):  # noqa: F811
    monkeypatch.setattr("hvlab.cli.bench.load", lambda *_, **__: lab())
    assert run(["bench", "-i", inventory, "--results", str(tmp_path), *words]) == 2
    assert told in capsys.readouterr().err
