"""What a report says first: which backend is best, by how much, how surely, or how many repeats decide."""

import math
import statistics
from dataclasses import replace

import pytest

from hvlab.report import answer, collectives, verdicts
from hvlab.report.data import Head, ReportData
from hvlab.report.trainings import studies
from hvlab.report.words import load
from hvlab.results.configurations import gather
from hvlab.statistics.interval import Interval
from hvlab.statistics.verdict import Pair, Verdict
from tests.unit import runs, test_sides
from tests.unit.reports import lab, made, plot, report

ENGLISH = load("en")


def over(factors, make, *, repeats, noise, scaled):
    """A run whose launches ``make`` adds for each backend; figures in ``scaled`` times (factor ** power)."""
    records = []
    for seed, (backend, factor) in enumerate(factors.items(), 1):
        maker = runs.Maker("r", seed=seed, noise=noise)
        for repeat in range(1, repeats + 1):
            make(maker, repeat)
        records += [
            replace(
                record, backend=backend, case_id=f"{backend}-{record.case_id}",
                value=record.value * factor ** scaled.get(record.metric, 0),
            )
            for record in maker.records
        ]  # fmt: skip
    head = Head("r", "lab", "2026-11-20T15:53:01.000Z", "finished", len(records), len(records), 0, 0)
    return ReportData(head, records, gather(records), runs.FACTS)


def trained(factors, *, repeats=8, noise=0.02, names=("mnist", "rnn")):
    """A run of trainings across servers, the steps of each backend longer by its factor."""

    def make(maker, repeat):
        for name in names:
            maker.train(name, runs.Place("mpi", runs.HOSTS, 1, repeat))

    return over(factors, make, repeats=repeats, noise=noise, scaled={"step_time": 1})


def full(servers=2, slots=8, *shapes):
    """A run over MPI and NCCL on one rank and on all of several servers, NCCL 1.5 times as fast."""

    def make(maker, repeat):
        for count, ranks in ((1, 1), (servers, slots), *shapes):
            maker.train("mnist", runs.Place("mpi", runs.HOSTS[:count], ranks, repeat))

    scaled = {"step_time": 1, "throughput": -1}
    return over({"mpi": 1.5, "nccl": 1.0}, make, repeats=7, noise=0.01, scaled=scaled)


def answers(data):
    return answer.answers(data, verdicts.judge(data, studies(data), collectives.sweeps(data)))


def test_the_fastest_backend_is_told_with_ratio_interval_and_chance():
    (found,) = answers(trained({"mpi": 1.0, "gloo": 1.3}))
    assert (found.place, found.best, found.other, found.faster) == ("across", "mpi", "gloo", True)
    assert found.cells == 2
    text = found.sentence(ENGLISH).replace("\N{NO-BREAK SPACE}", " ")
    assert text.startswith("The fastest backend across servers is MPI: 1.3")
    assert "as fast as Gloo, over 2 trainings" in text
    assert found.verdict.chance <= 0.01
    assert 1 / found.verdict.ratio.high > 1.2


def test_the_ratio_is_the_geometric_mean_of_what_both_measured():
    data = trained({"mpi": 1.0, "gloo": 1.3})
    means = {}
    for backend in ("mpi", "gloo"):
        steps = {}
        for record in data.records:
            if (record.metric, record.backend) == ("step_time", backend):
                steps.setdefault(record.repeat, []).append(record.value)
        means[backend] = statistics.median(math.prod(pair) ** 0.5 for pair in steps.values())
    assert answers(data)[0].verdict.ratio.mid == pytest.approx(means["mpi"] / means["gloo"])


def test_of_three_backends_the_best_is_set_against_the_next():
    (found,) = answers(trained({"mpi": 1.1, "gloo": 1.9, "nccl": 1.0}))
    assert (found.best, found.other) == ("nccl", "mpi")


def test_what_is_open_says_how_many_repeats_would_decide():
    (found,) = answers(trained({"mpi": 1.0, "gloo": 1.05}, repeats=5, noise=0.08))
    assert found.verdict.kind == "unclear"
    assert found.needed > 5
    text = found.sentence(ENGLISH)
    assert text.startswith("Which backend is best across servers is open")
    assert f"about {found.needed} of each would decide" in text


def test_too_few_repeats_say_how_many_a_verdict_needs():
    (found,) = answers(trained({"mpi": 1.0, "gloo": 1.3}, repeats=2))
    assert found.verdict.kind == "too_few"
    assert "a verdict needs 5 of each" in found.sentence(ENGLISH)


def test_a_repeat_that_lacks_a_training_does_not_count():
    data = trained({"mpi": 1.0, "gloo": 1.3})
    kept = [
        record
        for record in data.records
        if (record.backend, record.repeat, record.workload) != ("gloo", 3, "rnn")
    ]
    assert answers(replace(data, records=kept, configurations=gather(kept)))[0].repeats == 7


def test_imported_figures_make_no_backend_the_fastest():
    data = trained({"mpi": 1.0, "gloo": 1.3})
    records = [replace(record, launcher="unknown") for record in data.records]
    (found,) = answers(replace(data, records=records, configurations=gather(records)))
    assert found.verdict.kind == "differs"
    assert "perhaps only because they were measured at different times" in found.sentence(ENGLISH)


def test_collectives_answer_where_nothing_was_trained():
    data = lab("lab7")
    (inside, across) = sorted(
        answers(replace(data, configurations=data.collectives)), key=lambda one: one.place, reverse=True
    )
    assert inside.collective
    assert across.cells == len(runs.SIZES)


def test_the_report_begins_with_the_answer():
    found = made("lab7")
    assert found.findings()[0].startswith("The fastest backend across servers is MPI")
    assert [*found.edition("en").opening.cards[0][:2]] == ["Fastest backend across servers", "MPI"]


def test_one_backend_alone_is_said_first():
    alone = [record for record in lab("lab7").records if record.backend == "mpi"]
    found = report(replace(lab("lab7"), records=alone, configurations=gather(alone)))
    assert found.findings()[0] == "Only MPI has figures, so no backends are compared."


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_kind_of_answer_can_be_said(lang):
    words = load(lang)
    (found,) = answers(trained({"mpi": 1.0, "gloo": 1.3}))
    for kind in ("faster", "same", "unclear", "too_few", "differs"):
        one = replace(found, verdict=replace(found.verdict, kind=kind))
        assert "MPI" in one.sentence(words)
        assert all(one.card(words))


def test_without_figures_nothing_is_answered():
    maker = runs.Maker("r")
    maker.failed("mnist", runs.Place("mpi", runs.HOSTS), "lost")
    data = ReportData(Head("r", "lab", "2026", "finished", 1, 0, 1, 0), maker.records, gather(maker.records))
    assert report(data).edition("en").opening.cards == []


def sided(factor):
    """A run of A and B: mnist and rnn with two fusion thresholds, B's steps longer by the factor."""
    data = trained({"mpi": 1.0, "gloo": factor})
    records = []
    for record in data.records:
        side, threshold = ("A", 0) if record.backend == "mpi" else ("B", 2**26)
        params = {**record.params, "side": side, "fusion_threshold": threshold}
        records.append(replace(record, backend="mpi", params=params))
    sides = {"A": {"fusion_threshold": 0}, "B": {"fusion_threshold": 2**26}}
    return replace(data, records=records, configurations=gather(records), sides=sides)


def test_a_run_of_two_sides_answers_which_of_them_is_faster():
    data = sided(1.3)
    (found,) = answers(data)
    assert (found.best, found.other, found.faster, found.cells) == ("A", "B", True, 2)
    assert found.sentence(ENGLISH).startswith("The fastest setting across servers is A: 1.3")
    head = dict(report(data).edition("en").opening.head)
    assert head["B"] == ("fusion_threshold=67108864",)


def test_a_run_that_was_looked_at_spends_its_chance_over_the_looks():
    data = trained({"mpi": 1.0, "gloo": 1.3}, repeats=5)
    assert answers(data)[0].faster
    assert not answers(replace(data, auto=True))[0].faster


def test_figures_of_a_larger_batch_are_told_by_the_time_of_a_sample():
    slow, fast = {"step_time": 1.0, "throughput": 32.0}, {"step_time": 1.8, "throughput": 35.6}
    sides, measured = test_sides.sided("mnist", slow, fast)
    data = ReportData(trained({"mpi": 1.0}, repeats=1).head, (), measured, {}, sides=sides)
    (judged,) = verdicts.judge(data, [], [])
    assert judged.winner == "B"
    assert judged.verdict.ratio.mid == pytest.approx(35.6 / 32)


def test_two_sides_of_one_backend_are_not_a_backend_alone():
    assert answer.find_only_backend(sided(1.3)) is None


def pool(other, ratio):
    return answer._Pool("mpi", other, Pair({1: 1.0}, {1: ratio}), 1, collective=False, left_out=0)


def test_a_backend_that_may_be_as_fast_comes_before_one_that_is_nearer():
    near, far = pool("nccl", 1.1), pool("gloo", 1.2)
    faster = Verdict("faster", Interval(0.8, 0.85, 0.9), "")
    open_ = replace(faster, kind="unclear")
    assert answer._deciding([near, far], {id(near): faster, id(far): open_}) is far
    assert answer._deciding([near, far], {id(near): faster, id(far): faster}) is near


def test_pools_of_a_backend_share_its_launches():
    data = trained({"mpi": 1.0, "gloo": 1.3, "nccl": 1.1})
    judged = verdicts.judge(data, studies(data), collectives.sweeps(data))
    pools = answer._pool_places(judged, "across", auto=False)
    assert len(pools) == len({launch for one in pools for launch in one.pair.launches}) == 3


def test_a_training_that_mostly_failed_is_left_out_and_told():
    data = trained({"mpi": 1.0, "gloo": 1.3})
    kept = [
        record
        for record in data.records
        if (record.backend, record.workload) != ("gloo", "rnn") or record.repeat > 6
    ]
    (found,) = answers(replace(data, records=kept, configurations=gather(kept)))
    assert (found.cells, found.left_out, found.repeats, found.faster) == (1, 1, 8, True)
    assert "in the training (1 with few repeats left out)" in found.sentence(ENGLISH)


def test_a_run_whose_repeats_were_chosen_promises_no_number_of_them():
    data = replace(trained({"mpi": 1.0, "gloo": 1.05}, repeats=6, noise=0.08), auto=True)
    (found,) = answers(data)
    assert (found.verdict.kind, found.needed) == ("unclear", None)
    assert "repeats were added only where a single comparison was open" in found.sentence(ENGLISH)


def test_figures_of_a_place_that_is_not_known_make_no_answer():
    figures = {repeat: 1.0 + repeat / 100 for repeat in range(1, 9)}
    place = verdicts.BackendPair("allreduce", (0, 0), "mpi", "gloo", Pair(figures, figures), collective=True)
    judged = [verdicts.BackendVerdict(place, Verdict("same", None, ""))]
    assert answer.answers(trained({"mpi": 1.0}, repeats=1), judged) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "same"}, "perhaps only because they were measured at different times"),
        ({"kind": "slower"}, "the first repeats decided, but all 8 do not show it"),
    ],
)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_figures_do_not_bear_out_is_hedged(changes, told, lang):
    (found,) = answers(trained({"mpi": 1.0, "gloo": 1.3}))
    found = replace(found, imported=True, verdict=replace(found.verdict, **changes))
    words = load(lang)
    assert told in found.sentence(words) or lang == "zh"
    assert all(found.card(words))


def test_what_all_repeats_do_not_show_is_no_claim_of_the_report():
    data = replace(trained({"mpi": 1.0, "gloo": 1.3}, repeats=16), auto=True)
    later = [
        replace(record, value=record.value / 1.6)
        if (record.backend, record.metric) == ("gloo", "step_time") and record.repeat > 6
        else record
        for record in data.records
    ]
    data = replace(data, records=later, configurations=gather(later))
    judged = verdicts.judge(data, studies(data), collectives.sweeps(data))
    assert {one.verdict.kind for one in judged} == {"unclear"}
    assert "the first repeats decided, but all 16 do not show it" in answers(data)[0].sentence(ENGLISH)


def test_several_servers_with_several_ranks_each_are_across_servers():
    data = full()
    (found,) = answers(data)
    assert (found.place, found.best, found.other, found.faster) == ("across", "nccl", "mpi", True)
    assert 1 / found.verdict.ratio.mid == pytest.approx(1.5, rel=0.05)
    page = report(data)
    assert any(text.startswith("Highest speed-up across servers") for text in page.findings())
    curve = plot(page, "speedup-1")
    assert [line.x for line in curve.series[1:]] == [(1.0, 16.0)] * 2
    said = [[line.name for line in plot(page, "speedup-1", lang).series[1:]] for lang in ("en", "zh")]
    assert said == [
        ["MPI, across, 8 ranks each", "NCCL, across, 8 ranks each"],
        ["MPI\uff0c服务器间\uff0c每台 8 个进程", "NCCL\uff0c服务器间\uff0c每台 8 个进程"],
    ]


def test_layouts_of_as_many_ranks_are_not_compared_with_one_another():
    # Three servers with a rank each, and one more layout of three ranks that is no other backend's.
    data = full(2, 2, (2, 1), (3, 1), (1, 3))
    judged = verdicts.judge(data, studies(data), [])
    assert [(one.backends.layout, one.backends.one, one.backends.other) for one in judged] == [
        ((1, 3), "mpi", "nccl"),
        ((2, 2), "mpi", "nccl"),
    ]


def test_of_layouts_that_one_backend_alone_has_there_is_no_verdict():
    data = full(2, 2, (2, 1))
    large = [one for one in data.configurations if one.ranks == 4 and one.backend == "nccl"]
    kept = {one: repeats for one, repeats in data.configurations.items() if one not in large}
    data = replace(data, configurations=kept)
    (found,) = verdicts.judge(data, studies(data), [])
    assert found.backends.layout == (2, 1)
