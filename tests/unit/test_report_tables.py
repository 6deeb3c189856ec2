"""The tables of a report: the lab sheets' rows and words, and figures that are those of the records."""

import statistics
from dataclasses import replace

import pytest

from hvlab.report import collectives, compression
from hvlab.report import verdicts as verdict_rows
from hvlab.report.data import Head, ReportData
from hvlab.report.words import load
from hvlab.results.configurations import Configuration, Repeats, gather
from tests.unit import runs
from tests.unit.reports import lab, made, plot, report, said, table, tables

HEAD = Head("r1", "lab", "2026-11-20T15:53:01.000Z", "finished", 1, 1, 0, 0)


def environment(data, lang="zh"):
    """The environment table of a run, which has no heads."""
    return said(table(report(data), "environment"), lang)


def values(metric, **wanted):
    """The values of a metric in lab7, one a repeat, of the records with these attributes or parameters."""
    return [
        record.value
        for record in lab("lab7").records
        if record.metric == metric
        and all(getattr(record, name, record.params.get(name)) == value for name, value in wanted.items())
    ]


def test_the_environment_table_is_that_of_the_lab_sheet():
    assert environment(lab("lab7")) == [
        ["硬件环境", "服务器数目", "3（n1、n2、n3）"],
        ["硬件环境", "网卡型号、数目", "1 x veth, 10 Gbit/s"],
        ["硬件环境", "GPU型号、数目", "无"],
        ["硬件环境", "GPU连接方式", "无"],
        ["软件环境", "OS版本", "Debian 12.11, Linux 6.1.0-37-amd64"],
        ["软件环境", "GPU driver、(opt. NIC driver)", "GPU：无；NIC：veth"],
        ["软件环境", "深度学习框架 python包名称及版本", "torch 2.12.0 (cpu); Python 3.11.2"],
        ["软件环境", "CUDA版本", "无"],
        ["软件环境", "NCCL版本", "无"],
    ]


def test_hosts_that_differ_are_named_in_the_environment_table():
    gpu = {"name": "Tesla T4", "memory_mib": 15360, "uuid": "1"}
    observed = {
        "gpus": [gpu] * 4,
        "topology": {"link": "PCIe"},
        "driver": "450.80",
        "cuda": "11.0",
        "nccl": "2.7",
    }
    facts = {"a": runs.facts(observed), "b": runs.facts(observed), "c": runs.facts()}
    rows = {row[1]: row[2] for row in environment(ReportData(HEAD, (), {}, facts))}
    assert rows["GPU型号、数目"] == "4 x Tesla T4, 15 GiB（a、b）；无（c）"
    assert rows["GPU连接方式"] == "PCIe（a、b）；无（c）"
    assert rows["CUDA版本"] == "11.0（a、b）；无（c）"


def test_the_nccl_that_ranks_loaded_is_shown_before_the_installed_one():
    lab7 = lab("lab7")
    facts = {"a": runs.facts({"nccl": "2.28.3"})}
    for loaded, shown in (({}, "2.28.3"), ({"nccl": "2.29.7"}, "2.29.7")):
        records = tuple(replace(record, stack={**record.stack, **loaded}) for record in lab7.records)
        data = replace(lab7, facts=facts, records=records)
        rows = {row[1]: row[2] for row in environment(data, "en")}
        assert rows["NCCL version"] == shown


def test_of_many_hosts_only_the_first_are_named():
    facts = {f"n{number}": runs.facts() for number in range(1, 101)}
    rows = environment(ReportData(HEAD, (), {}, facts), "en")
    names = ", ".join(f"n{number}" for number in range(1, 13))
    assert rows[0][2] == f"100 ({names}, and 88 more)"


def test_an_environment_that_was_not_recorded_says_so():
    rows = environment(ReportData(HEAD, (), {}))
    assert {row[2] for row in rows[:-1] if "driver" not in row[1]} == {"无记录"}


def test_without_facts_the_records_tell_what_they_know():
    rows = {row[1]: row[2] for row in environment(replace(lab("lab7"), facts={}), "en")}
    assert rows["NIC model and number"] == "1 x veth, 10 Gbit/s"
    assert rows["OS version"] == "Debian 12.11"
    assert rows["CUDA version"] == "not recorded"


def test_what_differs_in_a_parameter_only_is_told_apart():
    maker = runs.Maker("r")
    for threshold in (0, 2**26):
        for hosts in (runs.HOSTS[:1], runs.HOSTS[:2]):
            maker.train("mnist", runs.Place("mpi", hosts), fusion_threshold=threshold)
    found = report(data_of(maker))
    assert [row[0] for row in said(table(found, "steps-table"), "en")[1:]] == [
        "mnist · digits, fusion_threshold=0, MPI, across servers",
        "mnist · digits, fusion_threshold=67108864, MPI, across servers",
    ]
    captions = [each.caption() for each in tables(found)]
    assert "mnist · digits, fusion_threshold=0, weak scaling" in captions


def test_the_columns_of_the_lab_sheet_come_first():
    heads = said(table(made("lab7"), "speedup-table-1"))[0]
    assert heads[:6] == [
        "通信后端",
        "服务器数量",
        "每台服务器显卡数量",
        "平均每步耗时",
        "平均吞吐率",
        "加速比",
    ]
    assert heads[6:] == ["效率", "每步耗时 95% 区间", "加速比 95% 区间", "n / N"]


def test_a_row_holds_the_medians_of_its_records():
    wanted = {"workload": "mnist", "scaling": "weak", "slots_per_host": 1}
    steps, rates = (values(m, backend="mpi", hosts=runs.HOSTS, **wanted) for m in ("step_time", "throughput"))
    base = values("throughput", backend="mpi", hosts=("n1",), **wanted)
    row = next(row for row in said(table(made("lab7"), "speedup-table-1")) if row[:3] == ["MPI", "3", "1"])
    speedup = statistics.median(rates) / statistics.median(base)
    assert row[3] == f"{statistics.median(steps) * 1e3:.1f} ms"
    assert row[4] == f"{statistics.median(rates):.0f} 样本/s"
    assert row[5] == f"{speedup:.2f}"
    assert row[6] == f"{speedup / 3 * 100:.1f}%"
    low, high = row[7].removesuffix(" ms").split(" – ")
    assert min(steps) * 1e3 - 0.06 <= float(low) <= float(high) <= max(steps) * 1e3 + 0.06
    assert row[9] == "5 / 5"


def test_what_failed_is_counted_and_never_averaged():
    rows = said(table(made("lab7"), "speedup-table-1"))
    late = next(row for row in rows if row[:3] == ["Gloo", "3", "2"])
    assert late[-1] == "4 / 5"
    steps = values("step_time", workload="mnist", backend="gloo", hosts=runs.HOSTS, slots_per_host=2)
    assert len(steps) == 4
    assert late[3] == f"{statistics.median(steps) * 1e3:.1f} ms"


def test_a_backend_without_any_figure_keeps_its_rows():
    found = table(made("lab7"), "speedup-table-1")
    rows = [row for row in said(found)[1:] if row[0] == "oneCCL"]
    assert [row[1] for row in rows] == ["1", "2", "3"]
    assert all(row[3:9] == ["–"] * 6 and row[9] == "0 / 5" for row in rows)
    assert found.kinds().count("faint") == len(rows)


def test_weak_and_strong_scaling_stand_apart():
    captions = [table(made("lab7"), f"speedup-table-{number}").caption("zh") for number in (1, 2)]
    assert captions[0] == "mnist · digits，弱扩展"
    assert captions[1] == "mnist · digits，强扩展"
    assert [row[0] for row in said(table(made("lab7"), "speedup-table-2"))[1:]] == ["MPI"] * 3


def test_hosts_measured_alone_do_not_crowd_the_tables():
    ones = [row for row in said(table(made("lab7"), "speedup-table-1")) if row[:3] == ["MPI", "1", "1"]]
    assert len(ones) == 1


def test_the_compression_table_is_that_of_the_lab_sheet():
    rows = said(table(made("lab4"), "compression-1"))
    assert rows[0][:1] + rows[0][2:4] == ["训练算法", "训练时间", "结果正确率"]
    assert [row[:2] for row in rows[1:8]] == [
        ["串行训练", ""],
        ["用Horovod并行", "Device# == 2"],
        ["用Horovod并行", "Device# == 4"],
        ["float8(8bit)压缩", "Device# == 2"],
        ["float8(8bit)压缩", "Device# == 4"],
        ["8bit压缩（共享尺度、误差反馈）", "Device# == 2"],
        ["8bit压缩（共享尺度、误差反馈）", "Device# == 4"],
    ]
    assert [row[0] for row in rows[8:]] == ["float16(16bit)压缩"] * 2 + ["bfloat16(16bit)压缩"] * 2
    assert rows[4][3] == "9.58%"
    real, user, sys = rows[2][2].split("；")
    assert (real.split()[0], user.split()[0], sys.split()[0]) == ("real", "user", "sys")
    seconds = statistics.median(
        record.value
        for record in lab("lab4").records
        if (record.metric, record.params["compression"], record.slots_per_host) == ("real", "none", 2)
        and len(record.hosts) == 1
    )
    assert real == f"real 0m{seconds:.3f}s"


def test_the_compression_table_tells_the_epochs():
    assert table(made("lab4"), "compression-1").caption("zh").endswith("Epoch size: 10")


def test_lost_accuracy_is_a_warning_and_kept_accuracy_is_told():
    warnings = made("lab4").texts("compression", style="warning")
    assert any(text.startswith("float8 (8 bit), plain cast loses accuracy: −89 points") for text in warnings)
    assert not any("shared scale" in text for text in warnings)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ((0.4, -0.2, 0.4, 0.0, -0.4), "kept"),
        ((-2.0, -1.8, -2.4, -1.6, -2.2), "lost"),
        ((2.0, 1.8, 2.4, 1.6, 2.2), "gained"),
        ((-2.0, 1.0, -3.0, 1.0, -2.0), "open"),
        ((-80.0,), "open"),
    ],
)
def test_accuracies_of_the_same_seed_are_compared(changes, verdict):
    before = {1: 90.0, 2: 96.0, 3: 92.0, 4: 94.0, 5: 98.0}
    configuration = Configuration("mnist", "mpi", "mpirun", ("n1", "n2"), 1, (("compression", "none"),))
    packed = replace(configuration, params=(("compression", "8bit"),))
    after = {repeat: before[repeat] + change for repeat, change in enumerate(changes, 1)}
    rows = tuple(
        (one, Repeats({"accuracy": values})) for one, values in ((configuration, before), (packed, after))
    )
    study = compression.CompressionStudy("mnist", (), rows)
    assert [found for found, _ in compression.remarks(study, load("en"))] == [verdict]


def test_a_run_without_compression_has_no_such_part():
    assert "compression" in [section.key for section in made("lab4").edition("en").sections]
    assert "compression" not in [section.key for section in made("lab7").edition("en").sections]


def test_the_proof_tells_what_carried_the_data():
    rows = said(table(made("lab7"), "proof"), "en")[1:]
    assert [row[:2] for row in rows] == [
        ["MPI", "MPI"],
        ["Gloo", "nothing"],
        ["Gloo", "Gloo"],
        ["oneCCL", "nothing"],
    ]
    assert {row[0]: row[3] for row in rows if row[1] != "nothing"} == {
        "MPI": "confirmed",
        "Gloo": "confirmed",
    }
    assert rows[-1][2:] == ["15", "no proof"]


def test_another_backend_than_asked_for_is_no_proof():
    records = [
        replace(record, proved_backend="mpi") for record in lab("lab7").records if record.backend == "gloo"
    ]
    rows = said(table(report(replace(lab("lab7"), records=records)), "proof"), "en")[1:]
    assert [row[:2] + row[3:] for row in rows] == [["Gloo", "MPI", "contradicted"]]


def test_failed_cases_stand_together_by_reason():
    rows = said(table(made("lab7"), "failures-failed"), "en")[1:]
    assert [row[:4] for row in rows] == [
        ["mnist", "oneCCL", "15", runs.UNPROVED],
        ["mnist", "Gloo", "1", runs.LATE],
    ]
    assert rows[0][4].endswith("and 3 more")
    assert rows[1][4] == "mnist-gloo-3x2-r2"


def test_impossible_cases_are_listed_with_their_reason():
    assert said(table(made("lab7"), "failures-infeasible"), "en")[1:] == [
        ["mnist-mpi-4x1-r1", "4 hosts asked for, the lab has 3"]
    ]


def test_a_sweep_counts_repeats_that_failed_before_any_size():
    maker = runs.Maker("r")
    for repeat in (1, 2, 3):
        maker.sweep(runs.Place("mpi", runs.HOSTS, 1, repeat))
        if repeat == 2:
            maker.failed("allreduce", runs.Place("gloo", runs.HOSTS, 1, repeat), "lost")
        else:
            maker.sweep(runs.Place("gloo", runs.HOSTS, 1, repeat))
    rows = said(table(report(data_of(maker)), "sweep-1"), "en")
    assert rows[0] == [
        "Servers × slots",
        "Size",
        "MPI: time",
        "MPI: bus bandwidth",
        "Gloo: time",
        "Gloo: bus bandwidth",
    ]
    assert all("2 / 3" in row[4] for row in rows[1:])
    assert not any(" / " in row[2] for row in rows[1:])


def test_the_slow_host_is_named():
    findings = made("lab7").findings()
    named = [text for text in findings if text.startswith("n3 is a straggler")]
    assert named
    assert "1.28×" in named[0]
    assert not [text for text in findings if text.startswith(("n1", "n2"))]


def test_in_weak_scaling_efficiency_is_the_inverse_of_the_slow_down():
    two = next(row for row in said(table(made("lab7"), "speedup-table-1")) if row[:3] == ["MPI", "1", "2"])
    alone, inside = (
        statistics.median(
            values(
                "step_time", workload="mnist", backend="mpi", hosts=("n1",), scaling="weak", slots_per_host=s
            )
        )
        for s in (1, 2)
    )
    assert two[6] == f"{100 * alone / inside:.1f}%"


def test_the_base_of_a_speed_up_has_its_own_interval():
    one = next(row for row in said(table(made("lab7"), "speedup-table-1")) if row[:3] == ["MPI", "1", "1"])
    rates = values(
        "throughput", workload="mnist", backend="mpi", hosts=("n1",), scaling="weak", slots_per_host=1
    )
    assert one[5] == "1.00"
    low, high = map(float, one[8].split(" – "))
    assert min(rates) / statistics.median(rates) - 0.01 <= low < 1 < high


def verdicts(found):
    """What the table of verdicts says: the size or training, servers and slots, ratio and verdict."""
    rows = said(table(found, "verdicts"), "en")[1:]
    return {(row[0], row[1]): row[3:] for row in rows}


def test_verdicts_are_given_only_where_they_are_significant():
    found = verdicts(made("lab7"))
    ratio, verdict = found["allreduce, 64 MiB", "3 × 1"]
    assert verdict == "MPI is faster"
    assert 0.55 < float(ratio.partition("×")[0]) < 0.75
    assert found["mnist · digits, weak scaling", "1 × 2"][1] == "not distinguishable"
    once = verdicts(report(data_of(runs.lab7(repeats=1))))
    assert {verdict for _, verdict in once.values()} == {"too few repeats: 5 each needed"}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_backend_of_an_imported_run_is_faster(lang):
    data = lab("lab7")
    records = [replace(record, launcher="unknown") for record in data.records]
    found = report(replace(data, records=records, configurations=gather(records)))
    words = {row[-1] for row in said(table(found, "verdicts"), lang)[1:]}
    differs = {
        "en": "different, perhaps only because of the time of measurement",
        "zh": "有差异，但可能只因测量时间不同",
    }
    faster = {"en": "faster", "zh": "更快"}
    assert differs[lang] in words
    assert not any(faster[lang] in word for word in words)
    text = " ".join(found.findings(lang))
    assert {"en": "as fast as", "zh": "的速度是"}[lang] not in text
    note = plot(found, "ratios", lang).note
    assert {"en": "backends did not take turns", "zh": "并未轮流运行"}[lang] in note


def test_all_sizes_of_a_case_are_of_one_launch():
    found = lab("lab7")
    pairs = [one.backends.pair for one in verdict_rows.judge(found, [], collectives.sweeps(found))]
    assert len(pairs) > 8
    assert len({pair.launches for pair in pairs}) == 2
    assert len({side for pair in pairs for side in pair.launches}) == 4


def test_every_size_that_both_backends_measured_is_judged():
    data = data_of(runs.lab7())
    sizes = {one.get("size_bytes") for one in data.configurations if one.workload == "allreduce"} - {None}
    assert len(sizes) > 2
    judged = [
        what for what, where in verdicts(report(data)) if what.startswith("allreduce") and where == "3 × 1"
    ]
    assert len(judged) == len(sizes)


def test_one_repeat_has_no_interval_and_its_mean_step_belongs_to_its_throughput():
    data = data_of(runs.lab7(repeats=1))
    row = said(table(report(data), "speedup-table-1"))[1]
    one = next(one for one in data.configurations if one.workload == "mnist" and one.backend == "mpi")
    (mean,) = data.configurations[one].of("step_time")
    assert (row[3], row[7], row[9]) == (f"{mean * 1e3:.1f} ms", "–", "1 / 1")


@pytest.mark.parametrize(("cuda", "noted"), [(False, True), (True, False)])
def test_without_a_gpu_slots_are_said_to_be_processes(cuda, noted):
    data = lab("lab4")
    if cuda:
        records = [replace(record, params={**record.params, "device": "cuda"}) for record in data.records]
        data = replace(data, records=records, configurations=gather(records))
    texts = report(data).texts("speedup")
    assert any(text.startswith("No GPU was used") for text in texts) is noted


def data_of(maker):
    """A maker's records as the report reads them."""
    records = maker.records
    head = replace(HEAD, planned=len(maker.cases), ok=len(maker.cases))
    return ReportData(head, records, gather(records), runs.FACTS)


def test_where_every_case_is_proved_a_sentence_says_so():
    kept = [record for record in lab("lab7").records if record.status == "ok"]
    found = report(replace(lab("lab7"), records=kept, configurations=gather(kept)))
    texts = found.texts("comparison")
    cases = len({record.case_id for record in kept})
    assert f"Proved for all {cases} cases: the requested backend carried the data (MPI, Gloo)." in texts
    assert "proof" not in [each.key for each in tables(found)]
