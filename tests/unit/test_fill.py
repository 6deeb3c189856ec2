"""A lab sheet filled in place: its tables, and nothing else of it."""

import difflib
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.base.errors import UsageError
from hvlab.report import analysis, fill
from hvlab.report import data as report_data
from hvlab.report.words import LANGUAGES, load
from hvlab.results.formats import lab_sheet, markdown, sheet_words
from hvlab.results.formats.lab_sheet import Sheet, SheetTraining
from tests.unit import runs

WIDE = "&nbsp; " * 20
TWO_TABLES = f"""# 实验报告

|||
|-|-|
|别的|表格 a\\|b|

### 实验环境

||||
|--------|--------------|--------------------------|
|硬件环境|服务器数目|{WIDE}|
||网卡型号、数目||
||**GPU型号、数目**||
||GPU连接方式||
|软件环境|OS版本||
||GPU driver、(opt. NIC driver)||
||深度学习框架<br>python包名称及版本||
||CUDA版本||
||NCCL版本||
||||

### 实验结果
1.\t测试服务器内多显卡加速比

    |||||||
    |-----|-----|-----|-----|------|------|
    | 通信后端 | 服务器数量 | 每台服务器显卡数量 | 平均每步耗时 | 平均吞吐率 | 加速比 |
    | MPI | 1 | | | | |
    | MPI | 1 | | | | |
    | ... | | | | | |
    | Gloo | 1 | | | | |
    | Gloo | 1 | | | | |
    | ... | | | | | |
    | NCCL | 1 | | | | |
    | NCCL |1  | | | | |
    | ... | | | | | |
    |||||||

2.\t测试服务器间加速比

    |||||||
    |-----|-----|-----|-----|------|------|
    | 通信后端 | 服务器数量 | 每台服务器显卡数量 | 平均每步耗时 | 平均吞吐率 | 加速比 |
    | MPI |  | 1 ||||
    | MPI |  | 1 ||||
    | Gloo |  | 1 ||||
    |||||||

3. 结论

```
| 通信后端 | 服务器数量 | 平均每步耗时 |
|---|---|---|
| MPI | 1 | |
```
"""
COMPRESSION = """Epoch size: 10

|                    |              |                                     |            |
| ------------------ | ------------ | ----------------------------------- | ---------- |
| 训练算法           |              | 训练时间                            | 结果正确率 |
| 串行训练           |              | real\t2m22.338s<br/>user\t3m10.260s | 98.35%     |
| 用Horovod并行      | Device# == 2 |                                     |            |
|                    | Device# == 4 |                                     |            |
| float8(8bit)压缩   | Device# == 2 |                                     |            |
| float16(16bit)压缩 | Device# == 2 |                                     |            |
|                    | Device# == 4 |                                     |            |
|                    |              |                                     |            |

## 思考
"""


def row(backend, servers, slots, **figures):
    """A row of a table of speed-up."""
    values = {"step": f"{servers}{slots} ms", "throughput": f"{servers}{slots} /s", "speedup": f"{slots}.0"}
    return {"backend": backend, "servers": str(servers), "slots": str(slots)} | values | figures


LABELS = {
    "serial": "Serial", "none": "Horovod", "naive8": "float8", "8bit": "8 bit, error feedback",
    "fp16": "fp16", "bf16": "bf16",
}  # fmt: skip


def compressed(algorithm, devices, time="1m", accuracy="98 %"):
    """A row of the table of compressions."""
    label = f"Device# == {devices}" if devices else ""
    return {"algorithm": algorithm, "devices": label, "time": time, "accuracy": accuracy}


SHEET = Sheet(
    environment={"servers": "3", "gpu": "4 x T4 \\| 2", "driver": "450<br>ena", "nccl": "无"},
    inside=[row("mpi", 1, 1), row("mpi", 1, 2), row("mpi", 1, 4), row("gloo", 1, 2), row("ccl", 1, 2)],
    across=[row("mpi", 1, 1), row("mpi", 2, 1), row("mpi", 3, 1), row("gloo", 2, 1)],
    names={"mpi": "MPI", "gloo": "Gloo", "ccl": "oneCCL"},
)


def changed(before, after):
    """The lines that went and those that came."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [f"{line[0]} {line[1:]}" for line in lines if line[:2] not in ("--", "++", "@@")]


def test_every_table_is_filled_and_nothing_else_changes():
    filled = lab_sheet.fill(TWO_TABLES, SHEET)
    assert (filled.tables, filled.missing) == (("environment", "inside", "across"), ())
    assert changed(TWO_TABLES, filled.text) == [
        f"- |硬件环境|服务器数目|{WIDE}|",
        "+ |硬件环境|服务器数目| 3 |",
        "- ||**GPU型号、数目**||",
        "+ ||**GPU型号、数目**| 4 x T4 \\| 2 |",
        "- ||GPU driver、(opt. NIC driver)||",
        "+ ||GPU driver、(opt. NIC driver)| 450<br>ena |",
        "- ||NCCL版本||",
        "+ ||NCCL版本| 无 |",
        "-     | MPI | 1 | | | | |",
        "-     | MPI | 1 | | | | |",
        "-     | ... | | | | | |",
        "-     | Gloo | 1 | | | | |",
        "-     | Gloo | 1 | | | | |",
        "-     | ... | | | | | |",
        "+     | MPI | 1 | 1 | 11 ms | 11 /s | 1.0 |",
        "+     | MPI | 1 | 2 | 12 ms | 12 /s | 2.0 |",
        "+     | MPI | 1 | 4 | 14 ms | 14 /s | 4.0 |",
        "+     | Gloo | 1 | 2 | 12 ms | 12 /s | 2.0 |",
        "+     | oneCCL | 1 | 2 | 12 ms | 12 /s | 2.0 |",
        "-     | MPI |  | 1 ||||",
        "-     | MPI |  | 1 ||||",
        "-     | Gloo |  | 1 ||||",
        "+     | MPI | 1 | 1 | 11 ms | 11 /s | 1.0 |",
        "+     | MPI | 2 | 1 | 21 ms | 21 /s | 1.0 |",
        "+     | MPI | 3 | 1 | 31 ms | 31 /s | 1.0 |",
        "+     | Gloo | 2 | 1 | 21 ms | 21 /s | 1.0 |",
    ]


def test_rows_of_a_backend_that_was_not_measured_stay():
    filled = lab_sheet.fill(TWO_TABLES, SHEET).text
    assert (
        "    | NCCL | 1 | | | | |\n    | NCCL |1  | | | | |\n    | ... | | | | | |\n    | oneCCL |" in filled
    )


@pytest.mark.parametrize(
    "text", [TWO_TABLES, COMPRESSION, TWO_TABLES.replace("\n", "\r\n"), TWO_TABLES.rstrip("\n`")]
)
def test_filling_again_changes_nothing(text):
    sheet = replace(SHEET, algorithms=LABELS, compression=[compressed("none", "2"), compressed("bf16", "8")])
    once = lab_sheet.fill(text, sheet)
    assert once.tables
    assert lab_sheet.fill(once.text, sheet) == once


def test_line_ends_are_kept():
    windows = TWO_TABLES.replace("\n", "\r\n")
    assert lab_sheet.fill(windows, SHEET).text == lab_sheet.fill(TWO_TABLES, SHEET).text.replace("\n", "\r\n")


def test_a_table_that_ends_the_text_without_a_line_end():
    text = "| Backend | Servers | Step time |\n|---|---|---|\n| MPI | | |"
    wanted = "| Backend | Servers | Step time |\n|---|---|---|\n| MPI | 1 | 11 ms |\n| MPI | 1 | 12 ms |"
    assert lab_sheet.fill(text, Sheet(inside=[row("mpi", 1, 1), row("mpi", 1, 2)])).text == wanted


def test_a_table_without_rows_gets_them():
    text = "across servers\n\n| Backend | Servers | Step time |\n|---|---|---|\n\nend\n"
    filled = lab_sheet.fill(text, Sheet(across=[row("mpi", 2, 1)], names={"mpi": "MPI"}))
    assert "|---|---|---|\n| MPI     | 2       | 21 ms     |\n\nend" in filled.text
    assert filled.tables == ("across",)


@pytest.mark.parametrize(
    ("head", "said", "kind"),
    [
        ("| 通信后端 | 服务器数量 | 每台服务器显卡数量 | 平均每步耗时 |", "服务器内", "inside"),
        ("| **通信 后端** | 服务器数目 | 每台服务器显卡数 | 平均每步耗时\uff08ms\uff09 |", "多机", "across"),
        ("| Backend | Servers | GPUs per server | Mean step time |", "Speed-up across servers", "across"),
        ("| __backend__ | hosts | slots | time per step |", "nothing", "inside"),
        ("|| 加速比 | Backend | Number of servers | Step time |", "Inside one server", "inside"),
    ],
)
def test_heads_are_known_by_their_words(head, said, kind):
    text = f"{said}\n\n{head}\n|-|-|-|-|-|\n"
    (table,) = markdown.tables(markdown.lines(text))
    filled = lab_sheet.fill(text, Sheet(inside=[row("mpi", 1, 2)], across=[row("mpi", 2, 1)]))
    assert filled.tables == (kind,)
    assert filled.missing == tuple({"inside", "across"} - {kind})
    assert table.title == said


def test_the_table_of_compressions():
    rows = [
        compressed("serial", ""), compressed("none", "2"), compressed("none", "8"),
        compressed("naive8", "2", accuracy="9.6 %"), compressed("8bit", "2"), compressed("8bit", "4"),
        compressed("fp16", "4"),
    ]  # fmt: skip
    filled = lab_sheet.fill(COMPRESSION, Sheet(compression=rows, algorithms=LABELS))
    assert filled.tables == ("compression",)
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in filled.text.splitlines()
        if line[:1] == "|"
    ]
    assert lines[2:] == [
        ["训练算法", "", "训练时间", "结果正确率"],
        ["串行训练", "", "1m", "98 %"],
        ["用Horovod并行", "Device# == 2", "1m", "98 %"],
        ["", "Device# == 4", "", ""],
        ["", "Device# == 8", "1m", "98 %"],
        ["float8(8bit)压缩", "Device# == 2", "1m", "9.6 %"],
        ["float16(16bit)压缩", "Device# == 2", "", ""],
        ["", "Device# == 4", "1m", "98 %"],
        [LABELS["8bit"], "Device# == 2", "1m", "98 %"],
        ["", "Device# == 4", "1m", "98 %"],
        ["", "", "", ""],
    ]
    assert changed(COMPRESSION, filled.text)[0].startswith("- | 串行训练")


def test_more_devices_stand_below_their_own_algorithm():
    text = COMPRESSION.replace(
        "|                    |              |                                     |            |\n\n##",
        "\n##",
    )
    rows = [compressed("bf16", "2"), compressed("fp16", "8")]
    lines = lab_sheet.fill(text, Sheet(compression=rows, algorithms=LABELS)).text.split("\n")
    places = {
        name: next(n for n, line in enumerate(lines) if name in line) for name in ("float16", "== 8", "bf16")
    }
    assert places["float16"] < places["== 8"] < places["bf16"]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", LABELS)
def test_algorithms_are_known_by_the_words_of_the_report(lang, name):
    assert sheet_words.algorithm(load(lang).phrases[f"compression.{name}"]) == name


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("float8(8bit)压缩", "naive8"),
        ("float16(16bit)压缩", "fp16"),
        ("8bit compression", "8bit"),
        ("别的", None),
    ],
)
def test_algorithms_are_known_by_other_words(word, name):
    assert sheet_words.algorithm(word) == name


def scaled(*lines, rows=SHEET.inside):
    """What becomes of the rows of a table inside one server."""
    text = "\n".join(["| Backend | Servers | Slots | Step time |", "|-|-|-|-|", *lines, ""])
    filled = lab_sheet.fill(text, Sheet(inside=rows, names=SHEET.names))
    return [" ".join(line.replace("|", " ").split()) for line in filled.text.splitlines()[2:]]


def test_rows_of_backends_that_take_turns_are_all_filled():
    rows = [row("mpi", 1, 1), row("mpi", 1, 2), row("gloo", 1, 1), row("gloo", 1, 2)]
    turns = ["| MPI | 1 | 1 | |", "| Gloo | 1 | 1 | |", "| MPI | 1 | 2 | |", "| Gloo | 1 | 2 | |"]
    wanted = ["MPI 1 1 11 ms", "Gloo 1 1 11 ms", "MPI 1 2 12 ms", "Gloo 1 2 12 ms"]
    assert scaled(*turns, rows=rows) == wanted
    assert scaled(*["| MPI |||", "| Gloo |||"] * 2, rows=rows) == wanted


def test_a_row_gets_the_figures_of_the_layout_it_gives():
    rows = [row("mpi", 1, 1), row("mpi", 1, 2)]
    assert scaled("| MPI | 1台 | **2** | |", "| MPI | 1 | | |", rows=rows) == [
        "MPI 1 2 12 ms",
        "MPI 1 1 11 ms",
    ]


def test_a_layout_that_was_asked_for_and_not_measured_stays():
    rows = [row("mpi", 1, 1), row("mpi", 1, 2)]
    assert scaled("| MPI | 1 | 4 | |", rows=rows) == ["MPI 1 4", "MPI 1 1 11 ms", "MPI 1 2 12 ms"]
    assert scaled("| MPI | 4 | | |", rows=rows[:1]) == ["MPI 4", "MPI 1 1 11 ms"]


def test_a_row_without_a_name_keeps_its_backend_when_those_above_go():
    rows = [row("gloo", 1, 1), row("mpi", 1, 2)]
    lines = "| Gloo | 1 | 1 | |", "| MPI | 1 | | |", "| | 1 | 2 | |"
    assert scaled(*lines, rows=rows) == ["Gloo 1 1 11 ms", "MPI 1 2 12 ms"]


def test_a_row_added_below_another_backend_has_its_name():
    rows = [row("gloo", 1, 4), row("gloo", 2, 1)]
    lines = "| Gloo | | | |", "| MPI | | | |", "| Gloo | | 4 | |", "| | 1 | | |"
    assert scaled(*lines, rows=rows) == ["Gloo 1 4 14 ms", "MPI", "Gloo 2 1 21 ms"]


def test_rows_below_an_unknown_backend_are_its_own():
    lines = "| MPI | 1 | 2 | |", "| UCX | 1 | 1 | |", "| | 1 | 2 | |"
    assert scaled(*lines, rows=[row("mpi", 1, 2)]) == ["MPI 1 2 12 ms", "UCX 1 1", "1 2"]


NUMBERS = st.sampled_from(["", "1", "2", "4"])
PLACES = st.lists(
    st.tuples(st.sampled_from(["mpi", "gloo"]), st.integers(1, 2), st.integers(1, 4)), unique=True, max_size=6
)


@given(st.lists(st.tuples(st.sampled_from(["MPI", "Gloo", "", "..."]), NUMBERS, NUMBERS), max_size=6), PLACES)
@pytest.mark.parametrize(
    "head", ["| Backend | Servers | Slots | Step time |", "| Backend | Servers | Step time |"]
)
def test_every_figure_has_one_row_and_stays_there(head, lines, places):
    cells = head.count("|") - 1
    text = "\n".join([head, "|-" * cells + "|", *("|".join(["", *line, "", ""]) for line in lines), ""])
    sheet = Sheet(inside=[row(*place, step=f"{place} ms") for place in places], names=SHEET.names)
    once = lab_sheet.fill(text, sheet).text
    assert all(once.count(f" {place} ms") == 1 for place in places)
    assert lab_sheet.fill(once, sheet).text == once


NAMES = st.sampled_from(["用Horovod并行", "float16", "别的", "...", ""])
DEVICES = st.sampled_from(["", "2", "Device# == 4"])
MEASURED = st.lists(
    st.tuples(st.sampled_from(["none", "fp16", "bf16"]), st.sampled_from("248")), unique=True, max_size=5
)


@given(st.lists(st.tuples(NAMES, DEVICES), max_size=6), MEASURED)
def test_every_compression_has_one_row_and_stays_there(lines, measured):
    rows = "".join(f"| {name} | {devices} | | |\n" for name, devices in lines)
    text = f"| 训练算法 | | 训练时间 | 正确率 |\n|-|-|-|-|\n{rows}"
    sheet = Sheet(
        compression=[compressed(*each, time=" ".join(each)) for each in measured], algorithms=LABELS
    )
    once = lab_sheet.fill(text, sheet).text
    assert all(once.count(f" {name} {devices} ") == 1 for name, devices in measured)
    assert lab_sheet.fill(once, sheet).text == once


HEAD = "\n| Backend | Servers | Slots | Step time |\n|-|-|-|-|\n| MPI | | | |\n\n"
NAMED = Sheet(
    inside=[row("mpi", 1, 1, step="mnist 1x1")],
    across=[row("mpi", 2, 1, step="mnist 2x1")],
    names=SHEET.names,
    trainings=[
        SheetTraining(
            words,
            inside=[row("mpi", 1, 1, step=f"{words[-1]} 1x1")],
            across=[row("mpi", 2, 1, step=f"{words[-1]} 2x1")],
        )
        for words in (("mnist",), ("synthetic", "resnet50"), ("synthetic", "vgg16"))
    ],
)


def steps(text, sheet=NAMED):
    """The step time of each row, and the tables that were left."""
    filled = lab_sheet.fill(text, sheet)
    lines = [line for line in filled.text.splitlines() if line.startswith("| MPI")]
    return [line.split("|")[4].strip() for line in lines], [left.kind for left in filled.left]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"## mnist, inside{HEAD}## ResNet, inside{HEAD}", ["mnist 1x1", "resnet50 1x1"]),
        (f"## ResNet-50{HEAD}## MNIST{HEAD}", ["resnet50 1x1", "mnist 1x1"]),
        (
            f"## VGG 16\n### Inside{HEAD}### Across{HEAD}## mnist\n### Inside{HEAD}### Across{HEAD}",
            ["vgg16 1x1", "vgg16 2x1", "mnist 1x1", "mnist 2x1"],
        ),
        (f"## Inside one server\n### mnist{HEAD}### VGG{HEAD}", ["mnist 1x1", "vgg16 1x1"]),
        (f"Inside:{HEAD}With vgg16 inside one server:{HEAD}", ["mnist 1x1", "vgg16 1x1"]),
        (f"## VGG\nUnlike mnist, VGG waits.{HEAD}", ["vgg16 1x1"]),
        (f"## mnist\n## Results{HEAD}across{HEAD}", ["mnist 1x1", "mnist 2x1"]),
    ],
)  # fmt: skip
def test_the_text_above_a_table_names_its_training(text, wanted):
    assert steps(text) == (wanted, [])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"inside{HEAD}inside, again{HEAD}", ["mnist 1x1", ""]),
        (f"# mnist\n## inside{HEAD}## ResNet-101 inside{HEAD}", ["mnist 1x1", ""]),
        (f"inside{HEAD}ResNet and VGG, inside{HEAD}", ["mnist 1x1", ""]),
        (f"inside{HEAD}## VGGs, inside{HEAD}", ["mnist 1x1", ""]),
    ],
)  # fmt: skip
def test_a_further_table_of_no_training_is_left_as_it_is(text, wanted):
    assert steps(text) == (wanted, ["inside"])


def test_both_halves_of_the_environment_are_filled():
    text = TWO_TABLES.partition("### 实验结果")[0]
    filled = lab_sheet.fill(text + text, SHEET)
    assert filled.text.count("| 450<br>ena |") == 2
    assert filled.left == ()


@given(st.text(alphabet="|-: \n\\`ab后端通信服务器数量步耗时", max_size=80))
def test_any_text_is_read_and_written_as_it_was(text):
    assert "".join(markdown.lines(text)) == text
    for line in markdown.lines(text):
        assert markdown.parse(line).line == line
    assert lab_sheet.fill(text, Sheet()).text == text
    once = lab_sheet.fill(text, SHEET)
    assert lab_sheet.fill(once.text, SHEET).text == once.text


def test_what_is_known_and_has_no_table_is_missing():
    filled = lab_sheet.fill("no table\n", SHEET)
    assert (filled.tables, filled.missing) == ((), ("environment", "inside", "across"))
    assert filled.text == "no table\n"


FACTS = {
    name: {
        "distribution": "Debian",
        "distribution_version": "12",
        "kernel": "6.1",
        "hvlab": {"nics": [{"model": "X|Y"}]},
    }
    for name in runs.HOSTS
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    makers = runs.lab7(repeats=2), runs.lab4(repeats=1)
    return runs.store(tmp_path_factory.mktemp("results"), *makers, facts=FACTS)


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_run_fills_the_sheet(store, lang):
    found = report_data.read(store, "20261120T155301Z-ab12")
    filled = fill.fill(TWO_TABLES, found, lang)
    assert filled.missing == ()
    lines = [line.strip() for line in filled.text.splitlines()]
    mpi = [line for line in lines if line.startswith("| MPI | 1 | 2 |")]
    assert len(mpi) == 1
    assert mpi[0].endswith("| 1.80 |")
    assert sum(line.startswith("| MPI | 3 | 1 |") for line in lines) == 1
    assert any("X\\|Y" in line for line in lines)
    assert fill.fill(filled.text, found, lang) == filled
    assert "| ... |" not in filled.text.split("Gloo")[0]


def test_tables_of_several_trainings_get_their_own_figures(store):
    found = report_data.read(store, "20261120T155301Z-ab12")
    text = f"## ResNet-50, inside{HEAD}## RNN, inside{HEAD}## inside{HEAD}"
    filled = fill.fill(text, found, "en")
    parts = filled.text.split("## ")
    assert [part.count("| MPI") for part in parts] == [0, 2, 2, 1]
    assert "ms" in parts[1]
    assert parts[1].splitlines()[3:] != parts[2].splitlines()[3:]
    line = filled.text.splitlines().index("## inside") + 2
    assert filled.left == (lab_sheet.Left(line, "inside", ("mnist", "rnn", "resnet50")),)


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_run_fills_the_table_of_compressions(store, lang):
    found = report_data.read(store, "20261121T090000Z-cd34")
    filled = fill.fill(COMPRESSION, found, lang)
    assert filled.tables == ("compression",)
    assert filled.missing == ("environment", "inside", "across")
    assert "2m22.338s" not in filled.text
    naive = next(line for line in filled.text.splitlines() if line.startswith("| float8"))
    assert naive.rstrip(" |").endswith("9.58%")
    assert "0m4." in naive
    assert fill.fill(filled.text, found, lang).text == filled.text


def test_a_sheet_without_tables_and_a_run_without_figures_are_errors(store):
    found = report_data.read(store, "20261120T155301Z-ab12")
    with pytest.raises(UsageError, match="none of the tables") as caught:
        fill.fill("# nothing\n", found, "en")
    assert "通信后端" in str(caught.value.remedy)
    with pytest.raises(UsageError, match="nothing that a lab sheet asks for"):
        fill.fill(TWO_TABLES, replace(found, records=(), configurations={}, facts={}), "en")


UNITS = """Inside one server

| Backend | Servers | Slots | Step time (s) | Throughput (images/s) | Speed-up | Efficiency (%) |
|---|---|---|---|---|---|---|
| Serial | 1 | 1 | | | | |
| MPI | 1 | 2 | 12 | | | |
| NCCL | 1 | 2 | | | | |
| MPI | 4 | 4 | | | | |
| Abacus | 1 | 2 | | | | |

1. Compare the backends and analyse the reasons

2. (optional) Compare how models speed up, analyse the reasons

   end
"""


def cells(text, name):
    """The cells of the row of that name."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.split("|")[1:-1]]


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """lab7 with a serial program, whose repeats over oneCCL all failed."""
    maker = runs.lab7(repeats=5)
    for repeat in range(1, 6):
        maker.train("mnist", runs.Place("serial", runs.HOSTS[:1], 1, repeat))
    return report_data.read(runs.store(tmp_path_factory.mktemp("results"), maker, facts=FACTS))


@pytest.mark.parametrize(
    ("head", "unit"),
    [
        ("平均每步耗时\uff08ms\uff09", "ms"),
        ("平均每步耗时/秒", "s"),
        ("Step time [µs]", "us"),
        ("step time, ms", "ms"),
        ("time per step in s", "s"),
        ("平均吞吐率（张/秒）", "samples/s"),
        ("Throughput images/s", "samples/s"),
        ("img / sec (img/sec)", "samples/s"),
        ("效率 (%)", "%"),
        ("平均每步耗时", None),
        ("Mean step time", None),
        ("Number of servers / hosts", None),
    ],
)
def test_the_unit_of_a_head(head, unit):
    assert sheet_words.unit_of(head) == unit


def test_a_column_gets_the_unit_of_its_head(serial):
    filled = fill.fill(UNITS, serial, "en").text
    step, rate, speedup, share = cells(filled, "MPI")[3:]
    plain = cells(fill.fill(UNITS.replace(" (s)", "").replace(" (images/s)", ""), serial, "en").text, "MPI")
    assert float(step) == pytest.approx(float(plain[3].removesuffix("ms").strip()) / 1e3, rel=0.01)
    assert rate == plain[4].removesuffix("samples/s").strip()
    assert float(share) == pytest.approx(100 * float(speedup) / 2, rel=0.01)


def test_a_serial_row_and_a_row_filled_in_part_are_completed(serial):
    filled = fill.fill(UNITS, serial, "en").text
    assert all(cells(filled, "Serial"))
    assert cells(filled, "Serial")[5] == "1.00"
    assert all(cells(filled, "MPI"))
    assert cells(filled, "MPI")[3] != "12"


def test_what_stays_empty_is_listed_with_its_reason(serial):
    filled = fill.fill(UNITS, serial, "en")
    lines = filled.text.splitlines()
    told = {lines[empty.line - 1]: analysis.why_empty(serial, empty) for empty in filled.empty}
    assert told == {
        "| NCCL | 1 | 2 | | | | |": "NCCL servers 1 slots 2: this backend was not measured in run "
        + runs.LAB7,
        "| MPI | 4 | 4 | | | | |": "MPI servers 4 slots 4: measured at servers x slots of "
        "1x1, 1x2, 2x1, 2x2, 3x1, 3x2",
        "| Abacus | 1 | 2 | | | | |": "Abacus servers 1 slots 2: this is no backend that hvlab knows",
    }


def test_a_backend_that_failed_says_with_what(serial):
    text = UNITS.replace("NCCL | 1 | 2", "oneCCL | 1 | 1")
    told = [analysis.why_empty(serial, empty) for empty in fill.fill(text, serial, "en").empty]
    assert f"oneCCL servers 1 slots 1: every repeat failed: {runs.UNPROVED}" in told


def test_a_task_of_analysis_gets_the_curve_and_two_sentences(serial):
    filled = fill.fill(UNITS, serial, "en", pictures="sheet_files")
    below = filled.text.partition("analyse the reasons\n")[2].partition("hvlab: end")[0]
    assert "![Speed-up: mnist · digits, weak scaling](sheet_files/speedup-1.png)" in below
    assert below.startswith("    <!-- hvlab: analysis")
    paragraph = below.strip().splitlines()[-3].strip()
    assert paragraph.startswith("The fastest backend across servers is MPI")
    assert "the largest part of a step of" in paragraph
    assert paragraph.count(". ") == 2
    assert "models, the one with more FLOP per byte" in filled.text.partition("2. (optional)")[2]
    again = fill.fill(filled.text, serial, "en", pictures="sheet_files")
    assert (again.text, again.overwritten) == (filled.text, ())


def test_a_task_without_an_answer_is_listed(store):
    found = report_data.read(store, "20261121T090000Z-cd34")
    text = f"{COMPRESSION}\n1. Analyse the backends' speed-up\n2. 分析压缩对正确率的影响\n"
    filled = fill.fill(text, found, "en")
    told = [analysis.why_empty(found, empty) for empty in filled.empty]
    assert told == ["a task about backends has no answer: no two backends were compared"]
    assert "loses accuracy" in filled.text or "too few repeats" in filled.text


def test_figures_that_are_overwritten_are_told(serial):
    filled = fill.fill(UNITS, serial, "en")
    step = cells(filled.text, "MPI")[3]
    (lost,) = filled.overwritten
    assert (lost.head, lost.old, lost.new) == ("Step time (s)", "12", step)
    assert f"| MPI | 1 | 2 | {step} |" in " ".join(filled.text.splitlines()[lost.line - 1].split())


def test_the_line_of_an_overwritten_figure_counts_what_was_added():
    text = TWO_TABLES.replace("| NCCL |1  | | | | |", "| NCCL | 1 | 9 | 5 ms | | |").replace(
        "||NCCL版本||", "||NCCL版本|2.9|"
    )
    sheet = replace(SHEET, inside=[*SHEET.inside, row("nccl", 1, 9), row("nccl", 1, 1)])
    filled = lab_sheet.fill(text, sheet)
    told = [(each.head, each.old, each.new) for each in filled.overwritten]
    assert told == [("NCCL版本", "2.9", "无"), ("平均每步耗时", "5 ms", "19 ms")]
    lines = filled.text.splitlines()
    assert "| 19 ms |" in lines[filled.overwritten[1].line - 1]
    assert "NCCL版本" in lines[filled.overwritten[0].line - 1]


ANSWERS = replace(SHEET, analyses={"backends": ["MPI is the fastest."], "models": ["VGG scales worst."]})
ONLY_MODELS = replace(SHEET, analyses={"models": ["VGG scales best."]})
TASKS = f"{HEAD}1. Compare the backends\n\nMy own words.\n\n2. Compare the models\n\nMore words.\n"


def test_an_answer_of_another_run_stays():
    first = lab_sheet.fill(TASKS, ANSWERS)
    assert first.answers == ("backends", "models")
    second = lab_sheet.fill(first.text, ONLY_MODELS)
    assert (second.answers, second.empty) == (("models",), ())
    assert second.text == first.text.replace("scales worst", "scales best")
    assert lab_sheet.fill(second.text, ANSWERS) == first


def test_answers_of_earlier_versions_are_known_by_their_tasks():
    first = lab_sheet.fill(TASKS, ANSWERS).text
    older = first.replace(" of backends, replaced", ", replaced").replace(
        " of models, replaced", ", replaced"
    )
    assert older.count("analysis, replaced") == 2
    assert lab_sheet.fill(older, ANSWERS).text == first
    assert "MPI is the fastest." in lab_sheet.fill(older, ONLY_MODELS).text


def test_an_answer_without_its_end_is_refused_and_nothing_is_lost():
    torn = lab_sheet.fill(TASKS, ANSWERS).text.replace("    <!-- hvlab: end -->\n", "", 1)
    line = next(number for number, text in enumerate(torn.splitlines(), 1) if "analysis of backends" in text)
    with pytest.raises(UsageError, match=f"begins at line {line} of the sheet has no end"):
        lab_sheet.fill(torn, ANSWERS)


def test_what_an_answer_that_stays_says_names_no_training():
    sheet = replace(NAMED, analyses={"backends": ["vgg16 is slow."]})
    first = lab_sheet.fill(f"inside{HEAD}1. Compare the backends\n\nacross{HEAD}", sheet)
    assert "vgg16 2x1" not in first.text
    assert lab_sheet.fill(first.text, replace(sheet, analyses={})).text == first.text


RUBRIC = "\n| Analysis of the speed-up | Points |\n|---|---|\n| Compare the backends | 10 |\n"


@pytest.mark.parametrize(
    ("below", "wanted"),
    [
        (f"1. Compare the backends\n{RUBRIC}", f"1. Compare the backends\n!\n{RUBRIC}"),
        (RUBRIC, RUBRIC),
        ("1. Compare how the\n   backends do\n2. More\n", "1. Compare how the\n   backends do\n!\n2. More\n"),
        ("We see: backends compare well.\n\n## Compare the backends\nWell.\n",
         "We see: backends compare well.\n\n## Compare the backends\n!\nWell.\n"),
        ("(optional) Compare the backends.\n", "(optional) Compare the backends.\n!\n"),
        ("任务三：比较不同后端\n的性能差异\n", "任务三：比较不同后端\n的性能差异\n!\n"),
    ],
)  # fmt: skip
def test_where_an_answer_stands(below, wanted):
    sheet = replace(SHEET, inside=[row("mpi", 1, 1)], analyses={"backends": ["MPI."]})
    filled = lab_sheet.fill(HEAD + below, sheet).text
    answer = re.compile(r" *<!-- hvlab: analysis of backends.*?MPI\..*?end -->\n\n", re.DOTALL)
    assert answer.sub("!\n", filled).partition("| 11 ms |\n\n")[2] == wanted


ACROSS = """Between servers

| Backend | Servers | GPUs per server | Step time | Speed-up |
|---|---|---|---|---|
| MPI | 2 | 2 | | |
| Gloo | 2 | 2 | | |
"""


def test_a_table_across_servers_takes_several_ranks_each_and_no_row_of_one_server(serial):
    filled = fill.fill(ACROSS, serial, "en")
    assert filled.empty == ()
    assert all(cells(filled.text, name)[3].endswith("ms") for name in ("MPI", "Gloo"))
    places = [line.split("|")[2:4] for line in filled.text.splitlines() if line.startswith("| ")][1:]
    assert {servers.strip() for servers, _ in places} == {"2", "3"}


@pytest.mark.parametrize("slots", [1, 2])
def test_a_table_across_servers_has_one_server_where_it_asks_for_it(serial, slots):
    filled = fill.fill(f"{ACROSS}| MPI | 1 | {slots} | | |\n", serial, "en")
    assert filled.empty == ()
    rows = [line for line in filled.text.splitlines() if line.startswith("| MPI | 1 |")]
    assert len(rows) == 1
    assert rows[0].split("|")[3].strip() == str(slots)


def test_a_run_on_one_server_misses_no_table_across_servers(tmp_path):
    maker = runs.Maker("r1")
    for slots in (1, 2):
        maker.train("mnist", runs.Place("mpi", runs.HOSTS[:1], slots))
    found = report_data.read(runs.store(tmp_path, maker, facts=FACTS))
    assert fill.fill(UNITS, found, "en").missing == ("environment",)
    filled = fill.fill(ACROSS.replace("| MPI | 2 | 2 |", "| MPI | 1 | 1 |"), found, "en")
    assert filled.missing == ("environment", "inside")
    assert cells(filled.text, "MPI")[3].endswith("ms")
