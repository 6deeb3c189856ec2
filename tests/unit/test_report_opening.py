"""The first lines of a report: whose it is, what failed, and the answer."""

from dataclasses import replace

import pytest

from hvlab.report import sections
from hvlab.report.page import Opening, edition, markdown
from hvlab.report.report import SIGNATURE, analyse
from hvlab.report.words import load
from hvlab.results.configurations import gather
from hvlab.workloads.training import TRAININGS
from tests.unit import runs
from tests.unit.reports import lab, made


def opening(data, lang="en", **given) -> Opening:
    """The opening of the report on a run."""
    return edition(sections.document(analyse(data, **given)), lang).opening


@pytest.mark.parametrize(
    ("lang", "alert"),
    [
        ("en", f"oneCCL has no figures: all 15 cases failed, the first because: {runs.UNPROVED}"),
        (
            "zh",
            "oneCCL 没有数据：15 个用例全部失败，第一个的原因："
            "要求用 ccl，实际由 mpi 传输（Horovod timeline 显示 MPI_ALLREDUCE）",
        ),
    ],
)
def test_a_backend_of_which_all_failed_comes_first(lang, alert):
    document = sections.document(analyse(lab("lab7")))
    assert edition(document, lang).opening.alerts == [alert]
    first = markdown(document, lang).splitlines()[2].replace("\\", "")
    assert first == f"> {alert}"
    assert not opening(lab("lab4"), lang).alerts


@pytest.mark.parametrize(("lang", "names"), [("en", "Student number"), ("zh", "学号")])
def test_a_report_is_signed(lang, names):
    signature = dict(zip(SIGNATURE, ("张三", "2021001", "3", "2026-11-28"), strict=True))
    found = opening(lab("lab4"), lang, signature=signature).signature
    assert [value for _, value in found] == [*signature.values()]
    assert found[1][0] == names


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_first_tiles_of_lab4_are_time_and_accuracy_by_compression(lang):
    found = edition(sections.document(analyse(lab("lab4"))), lang)
    repeats = gather(lab("lab4").records)
    assert len(found.opening.cards[:6]) == len({one.get("compression") for one in repeats}) + 1
    for _, time, accuracy in found.opening.cards[:6]:
        assert time.endswith("s") or time.endswith("秒")
        assert "%" in accuracy
    assert found.sections[0].key == "compression"
    text = found.opening.findings[0].replace("\N{NO-BREAK SPACE}", " ")
    assert "−89" in text
    assert "×" in text


def test_what_is_slower_than_one_rank_is_no_headline():
    halved = [
        replace(record, value=record.value / 10)
        if record.metric == "throughput" and (record.world_size or 0) > 1
        else record
        for record in lab("lab7").records
    ]
    found = opening(replace(lab("lab7"), records=halved, configurations=gather(halved)))
    assert not [title for title, *_ in found.cards if "speed-up" in title]
    slow = [text for text in found.findings if text.startswith("More ranks")]
    assert len(slow) == 2
    assert "0.5" in slow[1]
    assert len([title for title, *_ in made("lab7").edition("en").opening.cards if "speed-up" in title]) == 2


@pytest.mark.parametrize(
    ("lang", "tile", "figure", "detail", "asked"),
    [
        ("en", "Faster: ", "MPI", "as fast as Gloo, ", "Fastest backend across servers"),
        ("zh", "更快：", "MPI", "速度是 Gloo 的 ", "服务器间最快的后端"),
    ],
)
def test_the_first_tile_answers_where_backends_are_open(lang, tile, figure, detail, asked):
    """Three repeats decide no training; the collectives have all of theirs."""
    data, names = lab("lab7"), [each.name for each in TRAININGS]
    kept = [record for record in data.records if record.workload not in names or record.repeat < 4]
    open_ = replace(data, records=kept, configurations=gather(kept))
    report = analyse(open_)
    assert [one.open for one in report.answers] == [True, True]
    found = edition(sections.document(report), lang).opening
    first, *others = found.cards
    assert first[0].startswith(tile)
    assert first[1] == figure
    assert detail in first[2]
    assert [title for title, *_ in others][-2:][0] == asked
    assert found.findings[-3:-1] == [one.sentence(load(lang)) for one in report.answers]


@pytest.mark.parametrize(
    ("lang", "recorded", "wanted"),
    [
        ("zh", "2 ranks on 1 core (n1, n2)", "1 个核上 2 个进程：n1、n2"),
        ("en", "2 ranks on 1 core (n1, n2)", "2 ranks on 1 core (n1, n2)"),
        ("en", "3 ranks on 2 cores (n1)", "3 ranks on 2 cores (n1)"),
    ],
)
def test_too_few_cores_are_told_in_the_report_s_language(lang, recorded, wanted):
    crowded = [
        replace(record, stack={**record.stack, "oversubscribed": recorded}) for record in lab("lab4").records
    ]
    (warning,) = opening(replace(lab("lab4"), records=crowded), lang).warnings
    assert wanted in warning
