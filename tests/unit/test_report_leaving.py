"""Whether Horovod can be left, and what it costs: one answer from a run of the same data plane."""

import json
from dataclasses import replace

import pytest

from hvlab.cli import run as hvlab
from hvlab.report.leaving import leavings
from hvlab.report.words import load
from hvlab.results.configurations import gather
from hvlab.results.store import Store
from tests.unit import runs
from tests.unit.test_report_answer import over, trained

SHIM = "horovod-on-ddp-gloo"


def left(data):
    return leavings(data.configurations, data.compare)


@pytest.mark.parametrize(
    ("factor", "kind", "said"),
    [
        (
            0.8,
            "faster",
            "Leaving Horovod over Gloo, with scripts as they are: no cost",
        ),
        (1.0, "within", "costs at most "),
        (1.2, "slower", "costs "),
    ],
)
def test_the_cost_of_leaving_is_the_ratio_of_steps(factor, kind, said):
    data = trained({"gloo": 1.0, SHIM: factor, "ddp-gloo": factor}, noise=0.01)
    first, second = left(data)
    assert [(one.before, one.after) for one in (first, second)] == [("gloo", SHIM), (SHIM, "ddp-gloo")]
    assert (first.kind, first.cells, first.across) == (kind, 2, True)
    assert first.verdict.ratio.mid == pytest.approx(factor, rel=0.03)
    assert said in first.sentence(load("en")).replace("\N{NO-BREAK SPACE}", " ")
    assert second.kind == "within"


def test_other_backends_take_no_part():
    """MPI and oneCCL are another question: they must not take the verdict from this one."""
    alone = {"gloo": 1.0, SHIM: 1.1, "ddp-gloo": 1.1}
    more = {**alone, "mpi": 1.3, "ccl": 2.0}
    first, second = left(trained(alone, repeats=6)), left(trained(more, repeats=6))
    assert [one.verdict for one in first] == [one.verdict for one in second]


def test_the_question_is_open_with_few_or_noisy_repeats():
    for repeats, noise, asked in (
        (2, 0.01, "about 5 of each would decide"),
        (6, 0.1, "of each would decide"),
    ):
        (one,) = left(trained({"gloo": 1.0, SHIM: 1.0}, repeats=repeats, noise=noise))
        assert one.kind == "open"
        assert asked in one.sentence(load("en"))


def test_one_rank_tells_nothing_and_a_single_host_only_without_several():
    def make(maker, repeat):
        for hosts, slots in ((1, 1), (1, 2), (2, 1)):
            maker.train("mnist", runs.Place("mpi", runs.HOSTS[:hosts], slots, repeat))

    data = over({"gloo": 1.0, SHIM: 1.3}, make, repeats=6, noise=0.01, scaled={"step_time": 1})
    (one,) = left(data)
    assert (one.across, one.cells) == (True, 1)
    kept = [record for record in data.records if len(record.hosts) == 1]
    (one,) = left(replace(data, configurations=gather(kept)))
    assert (one.across, one.cells) == (False, 1)


def test_without_the_shim_nobody_leaves():
    assert left(trained({"gloo": 1.0, "ddp-gloo": 1.2})) == []


def test_compare_and_report_say_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path))
    data = trained({"gloo": 1.0, SHIM: 1.2, "ddp-gloo": 1.2}, noise=0.01)
    store = Store(tmp_path)
    store.create("r", lab="t", spec_key="k", spec={}, cases=[])
    store.add(data.records)
    store.enter("r", "finished")
    assert hvlab(["compare", "r"]) == 0
    compared = capsys.readouterr().out
    assert hvlab(["compare", "r", "--format", "json"]) == 0
    answers = json.loads(capsys.readouterr().out)["leaving"]
    assert [(one["before"], one["after"], one["kind"]) for one in answers] == [
        (one.before, one.after, one.kind) for one in left(data)
    ]
    assert hvlab(["report", "r", "--format", "md", "--output", str(tmp_path / "r.md")]) == 0
    report = (tmp_path / "r.md").read_text("utf-8")
    for one in left(data):
        assert one.sentence(load("en")) in compared
        assert one.sentence(load("en")) in report
        assert one.card(load("en"))[1] in report
