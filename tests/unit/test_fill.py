"""A lab sheet filled from one run: its tables and tasks, and nothing else of it."""

import difflib
import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.base.errors import HvlabError, UsageError
from hvlab.report import data as report_data
from hvlab.report import fill, sheet
from hvlab.report.report import analyse
from hvlab.report.sheet import Content, SheetTraining, fill_in
from tests.contract.tree import ROOT
from tests.unit import runs
from tests.unit.test_report_answer import trained

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
    place = {"servers": str(servers), "slots": str(slots), "ranks": str(servers * slots)}
    return {"backend": backend} | place | values | figures


LABELS = {
    "serial": "Serial", "none": "Horovod", "naive8": "float8", "8bit": "8 bit, error feedback",
    "fp16": "fp16", "bf16": "bf16",
}  # fmt: skip


def compressed(algorithm, devices, time="1m", accuracy="98 %"):
    """A row of the table of compressions."""
    label = f"Device# == {devices}" if devices else ""
    return {"algorithm": algorithm, "devices": label, "time": time, "accuracy": accuracy}


def answering(answers):
    """What is answered to a task."""
    return lambda kind: answers.get(kind, ())


def content(names=None, environment=None, answers=None, **rows):
    """What is known of a run with one training that has no name."""
    names = {"mpi": "MPI", "gloo": "Gloo", "ccl": "oneCCL"} if names is None else names
    return Content(environment or {}, [SheetTraining((), rows)], names, answering(answers or {}))


SHEET = content(
    environment={"servers": "3", "gpu": "4 x T4 \\| 2", "driver": "450<br>ena", "nccl": "无"},
    inside=[row("mpi", 1, 1), row("mpi", 1, 2), row("mpi", 1, 4), row("gloo", 1, 2), row("ccl", 1, 2)],
    across=[row("mpi", 1, 1), row("mpi", 2, 1), row("mpi", 3, 1), row("gloo", 2, 1)],
)


def changed(before, after):
    """The lines that went and those that came."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [f"{line[0]} {line[1:]}" for line in lines if line[:2] not in ("--", "++", "@@")]


def test_every_table_is_filled_and_nothing_else_changes():
    filled = fill_in(TWO_TABLES, SHEET)
    assert filled.tables == ("environment", "inside", "across")
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
    filled = fill_in(TWO_TABLES, SHEET).text
    assert (
        "    | NCCL | 1 | | | | |\n    | NCCL |1  | | | | |\n    | ... | | | | | |\n    | oneCCL |" in filled
    )


@pytest.mark.parametrize(
    "text", [TWO_TABLES, COMPRESSION, TWO_TABLES.replace("\n", "\r\n"), TWO_TABLES.rstrip("\n`")]
)
def test_filling_again_changes_nothing(text):
    rows = SHEET.trainings[0].rows | {"compression": [compressed("none", "2"), compressed("bf16", "8")]}
    known = content(names=LABELS, environment=SHEET.environment, **rows)
    once = fill_in(text, known)
    assert once.figures
    assert fill_in(once.text, known).text == once.text


def test_line_ends_are_kept():
    windows = TWO_TABLES.replace("\n", "\r\n")
    assert fill_in(windows, SHEET).text == fill_in(TWO_TABLES, SHEET).text.replace("\n", "\r\n")


def test_a_table_that_ends_the_text_without_a_line_end():
    text = "| Backend | Slots | Step time |\n|---|---|---|\n| MPI | | |"
    wanted = "| Backend | Slots | Step time |\n|---|---|---|\n| MPI | 1 | 11 ms |\n| MPI | 2 | 12 ms |"
    assert fill_in(text, content(inside=[row("mpi", 1, 1), row("mpi", 1, 2)])).text == wanted


def test_a_table_without_rows_gets_them():
    text = "across servers\n\n| Backend | Servers | Step time |\n|---|---|---|\n\nend\n"
    filled = fill_in(text, content(across=[row("mpi", 2, 1)]))
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
    filled = fill_in(text, content(inside=[row("mpi", 1, 2)], across=[row("mpi", 2, 1)]))
    assert filled.tables == (kind,)
    (other,) = {"inside", "across"} - {kind}
    assert filled.notes[-1] == (0, f"the sheet has no table for {other}")


def test_the_table_of_compressions():
    rows = [
        compressed("serial", ""), compressed("none", "2"), compressed("none", "8"),
        compressed("naive8", "2", accuracy="9.6 %"), compressed("8bit", "2"), compressed("8bit", "4"),
        compressed("fp16", "4"),
    ]  # fmt: skip
    filled = fill_in(COMPRESSION, content(compression=rows, names=LABELS))
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
    lines = fill_in(text, content(compression=rows, names=LABELS)).text.split("\n")
    places = {
        name: next(n for n, line in enumerate(lines) if name in line) for name in ("float16", "== 8", "bf16")
    }
    assert places["float16"] < places["== 8"] < places["bf16"]


def scaled(*lines, rows=SHEET.trainings[0].rows["inside"]):
    """What becomes of the rows of a table inside one server."""
    text = "\n".join(["| Backend | Servers | Slots | Step time |", "|-|-|-|-|", *lines, ""])
    filled = fill_in(text, content(inside=rows))
    return [" ".join(line.replace("|", " ").split()) for line in filled.text.splitlines()[2:]]


OTHER = """| Workers | Backend | Iteration time | Images/sec | Speedup |
|---|---|---|---|---|
| 1 | MPI | | | |
| 2 | MPI | | | |
| 3 | MPI | | | |
| 4 | MPI | | | |
"""


def test_a_table_of_ranks_alone_takes_one_layout_of_each():
    measured = {"inside": [row("mpi", 1, slots) for slots in (1, 2, 4)], "across": [row("mpi", 3, 1)]}
    filled = fill_in(OTHER, content(**measured))
    assert [" ".join(line.split()) for line in filled.text.splitlines()[2:]] == [
        "| 1 | MPI | 11 ms | 11 /s | 1.0 |",
        "| 2 | MPI | 12 ms | 12 /s | 2.0 |",
        "| 3 | MPI | 31 ms | 31 /s | 1.0 |",
        "| 4 | MPI | 14 ms | 14 /s | 4.0 |",
    ]
    assert (
        1,
        "figures of servers x slots 1x1, 1x2, 1x4, 3x1: the table has no columns for both",
    ) in filled.notes


@pytest.mark.parametrize(
    "head",
    [
        "| 后端 | 节点数 | 每步时间（ms） | 吞吐（样本/秒） |",
        "| Backend | Machines | Training time (s) | Accuracy |",
        "| Communication backend | GPUs | Speedup |",
        "| 压缩方法 | 进程数 | 训练时间 | 正确率 |",
    ],
)
def test_tables_with_other_words_are_known(head):
    known = content(inside=[row("mpi", 1, 1)], compression=[compressed("fp16", 2)])
    assert fill_in(f"{head}\n{'|-' * 4}|\n", known).figures


@pytest.mark.parametrize("name", ["transformer.md", "transformer.zh.md"])
def test_the_sheet_of_the_transformer_is_filled(name):
    text = (ROOT / "docs/sheets" / name).read_text("utf-8")
    titles = {"mpi": "MPI", "gloo": "Gloo", "ddp-gloo": "DDP Gloo", "fsdp-gloo": "FSDP Gloo"}
    figures = {"tokens": "9000", "memory": "1 GiB"}
    rows = [row(one, hosts, 1, **figures) for one in titles for hosts in (1, 2)]
    training = SheetTraining(("lm",), {"inside": rows[::2], "across": rows})
    environment = {"servers": "2", "gpu": "none", "os": "Debian"}
    known = Content(environment, [training], titles, answering({"backends": ["Gloo is slower."]}))
    filled = fill_in(text, known)
    assert (filled.figures, filled.answered) == (8, ("backends",))
    assert filled.text.count("9000") == filled.text.count("1 GiB") == 8
    assert sheet.language(text) == ("zh" if ".zh" in name else "en")


@pytest.mark.parametrize(
    "head",
    [
        *("每主机进程数", "每台主机的进程数", "每服务器GPU数", "每个节点卡数", "单节点进程数", "单机卡数"),
        *("节点内进程数", "每机进程数", "每台机器GPU数", "单台服务器显卡数"),
        *("Ranks per host", "Processes/node", "GPUs on each server", "ranks per machine", "GPUs/host"),
    ],
)
def test_ranks_per_host_are_not_taken_for_all_ranks(head):
    text = f"| Backend | Hosts | {head} | Step time |\n|-|-|-|-|\n| MPI | 2 | 1 | |\n| MPI | 3 | 1 | |\n"
    filled = fill_in(text, content(across=[row("mpi", 2, 1), row("mpi", 3, 1)]))
    assert [line.split("|")[2:5] for line in filled.text.splitlines()[2:]] == [
        [" 2 ", " 1 ", " 21 ms "],
        [" 3 ", " 1 ", " 31 ms "],
    ]


def test_a_throughput_per_host_is_no_number_of_ranks():
    text = "| Backend | Hosts | Throughput per node |\n|-|-|-|\n| MPI | 2 | |\n"
    assert "| MPI | 2 | 21 /s |" in fill_in(text, content(across=[row("mpi", 2, 1)])).text


def test_a_table_of_messages_is_no_training():
    text = "| Backend | Nodes | Message size | Latency (us) |\n|-|-|-|-|\n| MPI | 2 | 1 MB | |\n"
    filled = fill_in(text, SHEET)
    assert not filled.figures
    assert filled.notes[0] == (1, "hvlab fills no such table; `hvlab results show` prints all figures")


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


def test_one_table_may_ask_for_one_server_and_for_several():
    table = "| 通信后端 | 服务器数量 | 每台服务器显卡数量 | 平均每步耗时 |\n|---|---|---|---|\n"
    filled = fill_in(f"{table}| MPI | 1 | 4 | |\n| MPI | 3 | 1 | |\n| Gloo | 2 | 1 | |\n", SHEET)
    rows = {" ".join(line.replace("|", " ").split()) for line in filled.text.splitlines()}
    assert {"MPI 1 4 14 ms", "MPI 3 1 31 ms", "Gloo 2 1 21 ms"} <= rows


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
def test_every_figure_has_one_row_and_stays_there(lines, places):
    head = "| Backend | Servers | Slots | Step time |"
    text = "\n".join([head, "|-" * 4 + "|", *("|".join(["", *line, "", ""]) for line in lines), ""])
    known = content(inside=[row(*place, step=f"{place} ms") for place in places])
    once = fill_in(text, known).text
    assert all(once.count(f" {place} ms") == 1 for place in places)
    assert fill_in(once, known).text == once


NAMES = st.sampled_from(["用Horovod并行", "float16", "别的", "...", ""])
DEVICES = st.sampled_from(["", "2", "Device# == 4"])
MEASURED = st.lists(
    st.tuples(st.sampled_from(["none", "fp16", "bf16"]), st.sampled_from("248")), unique=True, max_size=5
)


@given(st.lists(st.tuples(NAMES, DEVICES), max_size=6), MEASURED)
def test_every_compression_has_one_row_and_stays_there(lines, measured):
    rows = "".join(f"| {name} | {devices} | | |\n" for name, devices in lines)
    text = f"| 训练算法 | | 训练时间 | 正确率 |\n|-|-|-|-|\n{rows}"
    known = content(compression=[compressed(*each, time=" ".join(each)) for each in measured], names=LABELS)
    once = fill_in(text, known).text
    assert all(once.count(f" {name} {devices} ") == 1 for name, devices in measured)
    assert fill_in(once, known).text == once


HEAD = "\n| Backend | Servers | Slots | Step time |\n|-|-|-|-|\n| MPI | | | |\n\n"
NAMED = Content(
    names=SHEET.names,
    trainings=[
        SheetTraining(
            words,
            {
                "inside": [row("mpi", 1, 1, step=f"{words[-1]} 1x1")],
                "across": [row("mpi", 2, 1, step=f"{words[-1]} 2x1")],
            },
        )
        for words in (("mnist",), ("synthetic", "resnet50"), ("synthetic", "vgg16"))
    ],
)


def steps(text):
    """The step time of each row, and the tables that were left."""
    filled = fill_in(text, NAMED)
    lines = [line for line in filled.text.splitlines() if line.startswith("| MPI")]
    left = [note for _, note in filled.notes if "names none of" in note]
    return [line.split("|")[4].strip() for line in lines], left


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
def test_a_further_table_of_no_training_has_no_figures(text, wanted):
    left = "this table (inside) has no figures: its text names none of mnist, resnet50, vgg16"
    assert steps(text) == (wanted, [left])


def test_both_halves_of_the_environment_are_filled():
    text = TWO_TABLES.partition("### 实验结果")[0]
    filled = fill_in(text + text, SHEET)
    assert filled.text.count("| 450<br>ena |") == 2


@given(st.text(alphabet="|-: \n\\`ab后端通信服务器数量步耗时", max_size=80))
def test_any_text_is_read_and_written_as_it_was(text):
    assert "".join(sheet._lines(text)) == text
    for line in sheet._lines(text):
        assert sheet._parse(line).line == line
    once = fill_in(text, SHEET)
    assert fill_in(once.text, SHEET).text == once.text


def test_what_is_known_and_has_no_table_is_missing():
    filled = fill_in("no table\n", SHEET)
    kinds = ("environment", "inside", "across")
    assert filled.notes == tuple((0, f"the sheet has no table for {kind}") for kind in kinds)
    assert (filled.text, filled.tables) == ("no table\n", ())


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


def run(store, name, text, lang="en", **given):
    """A sheet filled from a run of the store."""
    return fill.fill(text, analyse(report_data.read(store, name)), lang, **given)


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_run_fills_the_sheet(store, lang):
    filled = run(store, runs.LAB7, TWO_TABLES, lang)
    assert not [note for line, note in filled.notes if not line]
    lines = [line.strip() for line in filled.text.splitlines()]
    mpi = [line for line in lines if line.startswith("| MPI | 1 | 2 |")]
    assert len(mpi) == 1
    assert mpi[0].endswith("| 1.80 |")
    assert sum(line.startswith("| MPI | 3 | 1 |") for line in lines) == 1
    assert any("X\\|Y" in line for line in lines)
    assert run(store, runs.LAB7, filled.text, lang).text == filled.text
    assert "| ... |" not in filled.text.split("Gloo")[0]


def test_tables_of_several_trainings_get_their_own_figures(store):
    text = f"## ResNet-50, inside{HEAD}## RNN, inside{HEAD}## inside{HEAD}"
    filled = run(store, runs.LAB7, text)
    parts = filled.text.split("## ")
    assert [part.count("| MPI") for part in parts] == [0, 2, 2, 1]
    assert "ms" in parts[1]
    assert parts[1].splitlines()[3:] != parts[2].splitlines()[3:]
    line = filled.text.splitlines().index("## inside") + 2
    left = "this table (inside) has no figures: its text names none of mnist, rnn, resnet50"
    assert (line, left) in filled.notes


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_run_fills_the_table_of_compressions(store, lang):
    filled = run(store, runs.LAB4, COMPRESSION, lang)
    assert filled.tables == ("compression",)
    assert next(note for line, note in filled.notes if not line) == "the sheet has no table for environment"
    assert "2m22.338s" not in filled.text
    naive = next(line for line in filled.text.splitlines() if line.startswith("| float8"))
    assert naive.rstrip(" |").endswith("9.58%")
    assert "0m4." in naive
    assert run(store, runs.LAB4, filled.text, lang).text == filled.text


def test_another_number_of_epochs_is_told_and_stands_in_the_sheet(store):
    text = COMPRESSION.replace("size: 10", "size: 20")
    filled = run(store, runs.LAB4, text, "zh")
    assert (1, "'Epoch size: 20', but this run's is 10") in filled.notes
    assert "实测训练了 10 个 epoch" in filled.text.splitlines()[3]
    assert run(store, runs.LAB4, filled.text, "zh").text == filled.text
    assert "epoch" not in run(store, runs.LAB4, COMPRESSION, "zh").text.casefold().replace("epoch size", "")


def test_every_setting_that_the_sheet_has_otherwise_is_told(serial):
    said = "- Epoch size: 2\n- 批大小：128\nLearning rate = 0.050\n\nbatch size: 64; learning rate: 0.1\n\n"
    filled = fill.fill(said + UNITS, serial, "en")
    conflicts = [
        "'- 批大小：128', but this run's is 64",
        "'batch size: 64; learning rate: 0.1', but this run's is 0.05",
    ]
    assert [note for _, note in filled.notes if note.endswith(("is 64", "is 0.05"))] == conflicts
    assert "The batch size was 64;" in filled.text
    assert fill.fill(filled.text, serial, "en").text == filled.text


def test_without_an_allreduce_latency_and_bandwidth_are_no_figures(tmp_path):
    maker = runs.Maker("r1")
    for repeat, slots in itertools.product(range(1, 7), (1, 2)):
        maker.train("mnist", runs.Place("mpi", runs.HOSTS[:1], slots, repeat))
    filled = run(runs.store(tmp_path, maker, facts=FACTS), "r1", UNITS)
    (split,) = [line for line in filled.text.splitlines() if "A step over MPI" in line]
    assert not re.search("(latency|bandwidth) [0-9]", split)
    assert any("without --workload" in note for _, note in filled.notes)


def test_figures_beside_rows_that_ask_for_others_fit_no_sheet(store):
    text = f"{UNITS.partition('| Serial')[0]}| NCCL | 8 | 8 | | | | |\n"
    with pytest.raises(HvlabError, match="NCCL servers 8 slots 8: this backend was not measured"):
        run(store, runs.LAB7, text)
    assert run(store, runs.LAB7, text + "| ... | | | | | | |\n").figures


def test_a_row_of_the_environment_that_stays_empty_is_told(store):
    rows = ("Operating system", "Horovod version", "Network interface", "PSU")
    table = "".join(f"| {name} | |\n" for name in rows)
    filled = run(store, runs.LAB7, f"| Item | Value |\n|---|---|\n{table}\n{UNITS}")
    assert "X\\|Y" in next(line for line in filled.text.splitlines() if "Network" in line)
    assert (6, "PSU: hvlab has nothing to write here") in filled.notes
    assert len([note for _, note in filled.notes if note.endswith("nothing to write here")]) == 1


def test_a_sheet_that_no_figure_fits_is_an_error(store):
    for text, has in (
        ("# nothing\n", "no table that can be filled"),
        (COMPRESSION, "tables for compression"),
    ):
        with pytest.raises(HvlabError, match=f"figures for inside, across; the sheet has {has}") as caught:
            run(store, runs.LAB7, text)
        assert caught.value.exit_code == 1
        assert "通信后端" in str(caught.value.remedy)


def test_nothing_of_another_run_stays(store):
    sheet = TWO_TABLES + "\n4. 比较不同模型的并行加速差异\n5. 比较压缩对正确率的影响\n\n" + COMPRESSION
    first = run(store, runs.LAB7, sheet, "zh")
    assert "计算/通信比" in first.text
    other, alone = (run(store, runs.LAB4, text, "zh").text for text in (first.text, sheet))
    figures = re.compile(r"\d[\d.]* (?:ms|s|样本/s)\b|real \S+")
    assert figures.findall(other) == figures.findall(alone) != []
    assert "计算/通信比" not in other
    assert "| Gloo | 1 | 1 | | | |" in " ".join(other.split())


def test_figures_of_the_users_own_go_and_are_told(store):
    text = TWO_TABLES.replace("| NCCL | 1 | | | | |", "| NCCL | 1 | 2 | 7 ms | | |")
    filled = run(store, runs.LAB7, text, "zh")
    line = next(at for at, said in filled.notes if said.startswith("平均每步耗时: 7 ms -> nothing"))
    assert " ".join(filled.text.splitlines()[line - 1].split()) == "| NCCL | 1 | 2 | | | |"
    assert (line, f"NCCL servers 1 slots 2: this backend was not measured in run {runs.LAB7}") in filled.notes


def test_a_table_inside_one_server_is_of_one_host(tmp_path):
    maker = runs.Maker("r1")
    for slots in (1, 2):
        maker.train("mnist", runs.Place("mpi", runs.HOSTS[:1], slots))
    maker.train("mnist", runs.Place("gloo", runs.HOSTS[1:2], 2))
    filled = run(runs.store(tmp_path, maker, facts=FACTS), "r1", TWO_TABLES)
    assert "ms" in cells(filled.text, "MPI")[3]
    assert "Gloo | 1 | 2" not in filled.text


@pytest.mark.parametrize(
    ("text", "lang"), [(TWO_TABLES, "zh"), (COMPRESSION, "zh"), ("# a\nby 张三\n" + "b" * 200, "en")]
)
def test_the_language_of_a_sheet(text, lang):
    assert sheet.language(text) == lang


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
    line = next(line.strip() for line in text.splitlines() if line.strip().startswith(f"| {name} "))
    return [cell.strip() for cell in line.split("|")[1:-1]]


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """lab7 with a serial program, whose repeats over oneCCL all failed."""
    maker = runs.lab7(repeats=5)
    for repeat in range(1, 6):
        maker.train("mnist", runs.Place("serial", runs.HOSTS[:1], 1, repeat))
    return analyse(report_data.read(runs.store(tmp_path_factory.mktemp("results"), maker, facts=FACTS)))


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
    assert sheet.unit_of(head) == unit


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


def reasons(filled):
    """The notes on rows and tasks that stay empty, by their lines in the text."""
    lines = filled.text.splitlines()
    return {" ".join(lines[at - 1].split()): note for at, note in filled.notes if at and "->" not in note}


def test_what_stays_empty_is_listed_with_its_reason(serial):
    assert reasons(fill.fill(UNITS, serial, "en")) == {
        "| NCCL | 1 | 2 | | | | |": "NCCL servers 1 slots 2: this backend was not measured in run "
        f"{runs.LAB7}",
        "| MPI | 4 | 4 | | | | |": "MPI servers 4 slots 4: measured at servers x slots of "
        "1x1, 1x2, 2x1, 2x2, 3x1, 3x2",
        "| Abacus | 1 | 2 | | | | |": "Abacus servers 1 slots 2: hvlab does not know this backend",
    }


def test_a_backend_that_failed_says_with_what(serial):
    filled = fill.fill(UNITS.replace("NCCL | 1 | 2", "oneCCL | 1 | 1"), serial, "en")
    assert f"oneCCL servers 1 slots 1: every repeat failed: {runs.UNPROVED}" in dict(filled.notes).values()


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_task_of_analysis_gets_the_curve_and_the_measured_parts(serial, lang):
    filled = fill.fill(UNITS, serial, lang, pictures="sheet_files")
    below = filled.text.partition("analyse the reasons\n")[2].partition("hvlab: end")[0]
    assert re.search(r"!\[[^]]*mnist[^]]*\]\(sheet_files/speedup-1.png\)", below)
    assert below.startswith("    <!-- hvlab: analysis")
    parts = ("计算", "等待", "延迟", "带宽", "核", "95% 区间") if lang == "zh" else (
        "compute", "waiting", "latency", "bandwidth", "cores", "95% interval"
    )  # fmt: skip
    assert all(part in below for part in parts)
    assert not re.search(r"\bopen\b|尚无定论", below)
    assert below.count("MPI") >= 4
    models = filled.text.partition("2. (optional)")[2]
    assert ("计算/通信比" if lang == "zh" else "FLOP per byte") in models
    assert fill.fill(filled.text, serial, lang, pictures="sheet_files").text == filled.text


@pytest.mark.parametrize(
    ("repeats", "wanted"), [(1, "interval –, n = 1: too few repeats: 5"), (5, "n = 5: not distinguishable)")]
)
def test_a_sheet_has_the_verdict_of_the_report(tmp_path, repeats, wanted):
    data = report_data.read(runs.store(tmp_path, runs.lab7(repeats=repeats)), runs.LAB7)
    own = " ".join(fill.fill(UNITS, analyse(data), "en").text.replace("\N{NO-BREAK SPACE}", " ").split())
    assert wanted in own


def test_a_task_without_an_answer_is_listed(store):
    text = f"{COMPRESSION}\n1. Compare the models\n2. 分析压缩对正确率的影响\n3. 为什么压缩更慢\n"
    filled = run(store, runs.LAB4, text)
    told = [note for _, note in filled.notes if note.startswith("a task")]
    assert told == ["a task about models has no answer: it takes two models, each trained on several ranks, "
                    "with `--suite lab7`", "a task about compression is answered above"]  # fmt: skip
    assert re.search(r"float8 .*; .8[89] points and \d\.\d+. the training time on 2", filled.text)


def test_figures_that_are_overwritten_are_told(serial):
    filled = fill.fill(UNITS, serial, "en")
    step = cells(filled.text, "MPI")[3]
    ((line, _),) = [note for note in filled.notes if note[1] == f"Step time (s): 12 -> {step}"]
    assert f"| MPI | 1 | 2 | {step} |" in " ".join(filled.text.splitlines()[line - 1].split())


def test_the_line_of_an_overwritten_figure_counts_what_was_added():
    text = TWO_TABLES.replace("| NCCL |1  | | | | |", "| NCCL | 1 | 9 | 5 ms | | |").replace(
        "||NCCL版本||", "||NCCL版本|2.9|"
    )
    rows = dict(SHEET.trainings[0].rows)
    rows["inside"] = [*rows["inside"], row("nccl", 1, 9), row("nccl", 1, 1)]
    filled = fill_in(text, content(environment=SHEET.environment, **rows))
    told = {note: filled.text.splitlines()[at - 1] for at, note in filled.notes}
    assert "NCCL版本" in told["NCCL版本: 2.9 -> 无"]
    assert "| 19 ms |" in told["平均每步耗时: 5 ms -> 19 ms"]


ANSWERS = replace(
    SHEET, answer=answering({"backends": ["MPI is the fastest."], "models": ["VGG scales worst."]})
)
ONLY_MODELS = replace(SHEET, answer=answering({"models": ["VGG scales best."]}))
TASKS = f"{HEAD}1. Compare the backends\n\nMy own words.\n\n2. Compare the models\n\nMore words.\n"


def test_an_answer_of_another_run_goes():
    first = fill_in(TASKS, ANSWERS)
    assert first.answered == ("backends", "models")
    second = fill_in(first.text, ONLY_MODELS)
    assert second.answered == ("models",)
    assert "MPI is the fastest." not in second.text
    assert "My own words." in second.text
    assert fill_in(second.text, ANSWERS).text == first.text


def test_answers_of_earlier_versions_are_replaced():
    first = fill_in(TASKS, ANSWERS).text
    older = re.sub(r" of \w+, replaced", ", replaced", first)
    assert older.count("analysis, replaced") == 2
    assert fill_in(older, ANSWERS).text == first


def test_an_answer_without_its_end_is_refused_and_nothing_is_lost():
    torn = fill_in(TASKS, ANSWERS).text.replace("    <!-- hvlab: end -->\n", "", 1)
    line = next(number for number, text in enumerate(torn.splitlines(), 1) if "analysis of backends" in text)
    with pytest.raises(UsageError, match=f"begins at line {line} of the sheet has no end"):
        fill_in(torn, ANSWERS)


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
    filled = fill_in(HEAD + below, content(inside=[row("mpi", 1, 1)], answers={"backends": ["MPI."]})).text
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
    assert reasons(filled) == {}
    assert all(cells(filled.text, name)[3].endswith("ms") for name in ("MPI", "Gloo"))
    places = [line.split("|")[2:4] for line in filled.text.splitlines() if line.startswith("| ")][1:]
    assert {servers.strip() for servers, _ in places} == {"2", "3"}


@pytest.mark.parametrize("slots", [1, 2])
def test_a_table_across_servers_has_one_server_where_it_asks_for_it(serial, slots):
    filled = fill.fill(f"{ACROSS}| MPI | 1 | {slots} | | |\n", serial, "en")
    assert reasons(filled) == {}
    rows = [line for line in filled.text.splitlines() if line.startswith("| MPI | 1 |")]
    assert len(rows) == 1
    assert rows[0].split("|")[3].strip() == str(slots)


def test_a_run_on_one_server_misses_no_table_across_servers(tmp_path):
    maker = runs.Maker("r1")
    for slots in (1, 2):
        maker.train("mnist", runs.Place("mpi", runs.HOSTS[:1], slots))
    store = runs.store(tmp_path, maker, facts=FACTS)
    missing = [note for line, note in run(store, "r1", UNITS).notes if not line]
    assert [note for note in missing if "table" in note] == ["the sheet has no table for environment"]
    filled = run(store, "r1", ACROSS.replace("| MPI | 2 | 2 |", "| MPI | 1 | 1 |"))
    assert cells(filled.text, "MPI")[3].endswith("ms")


def test_a_processors_model_is_its_name(tmp_path):
    maker = runs.Maker("r1")
    maker.train("mnist", runs.Place("mpi", runs.HOSTS[:1], 2))
    own = {"processor_model": "AMD EPYC 7763", "architecture": "x86_64", "processor_vcpus": 2}
    store = runs.store(tmp_path, maker, facts={name: facts | own for name, facts in FACTS.items()})
    filled = run(store, "r1", TWO_TABLES.replace("||GPU连接方式||", "||CPU型号||"), "zh").text
    assert "2 个 CPU 核（AMD EPYC 7763" in filled


def test_without_facts_the_environment_is_what_the_records_say(tmp_path):
    maker = runs.Maker("r1")
    maker.train("mnist", runs.Place("mpi", runs.HOSTS[:1], 2))
    filled = run(
        runs.store(tmp_path, maker, facts={}), "r1", TWO_TABLES.replace("|OS版本||", "|OS版本|AIX|"), "zh"
    ).text
    table = filled.partition("### 实验环境")[2].partition("###")[0]
    assert "|OS版本| Debian 12.11 |" in table
    assert "1（n1）" in table
    assert "torch 2.12.0" in table


SIGNED = "<!-- hvlab: signature, replaced by each --fill -->\n\n"
SIGNATURE = {"author": "张三", "number": "2021*1", "class": "3", "date": "11-28"}
BLANKS = "# 实验报告\n\n姓名：____ 学号：\n\n| 班 级 | |\n|---|---|\n| MPI | |\n\n```\nname:\n```\n"


def signed(text, signature):
    """What becomes of a sheet that is signed."""
    known = content(inside=[row("mpi", 1, 1)])
    return fill_in(text, replace(known, signature=signature, signed="{}: {}".format)).text


def test_a_signature_goes_into_the_blanks_of_the_sheet_else_below_its_title():
    once = signed(BLANKS, SIGNATURE)
    assert "姓名： 张三 学号： 2021*1\n" in once
    assert "| 班 级 | 3 |" in once
    assert once.startswith(f"# 实验报告\n\n{SIGNED}date: 11-28\n\n")
    assert "```\nname:\n```" in once
    assert signed(once, SIGNATURE) == once
    assert "date: 1-1" in signed(once, {"date": "1-1"})
    assert "11-28" not in signed(once, {})


@pytest.mark.parametrize(
    "blanks",
    [
        "**姓名**：____    **学号**：____\n",
        "姓名：<u>&emsp;  </u> 学号：<u>  </u>\n",
        "- **Name:** ____\n- Student ID:\n",
    ],
)
def test_blanks_in_markup_are_signed(blanks):
    once = signed(f"# Lab\n\n{blanks}", {"author": "Li", "number": "7"})
    assert "signature" not in once
    assert re.search(r"(?s)(姓名|Name)\W+Li\b.*(学号|ID)\W+7\n", once)
    assert signed(once, {"author": "Li", "number": "7"}) == once


def test_what_is_written_into_a_blank_stays():
    wanted = f"{SIGNED}author: Wang\n\n<!-- hvlab: end -->\n\nname: Li\n"
    assert signed("name: Li\n", {"author": "Wang"}) == wanted


def test_torch_in_horovods_place_fills_horovods_rows():
    text = "| Backend | Hosts | Step time |\n|-|-|-|\n| Gloo | 3 | |\n"
    shim = fill.fill(text, analyse(trained({"horovod-on-ddp-gloo": 1.0})), "en")
    assert re.search(r"\| Gloo \| 3 \| \d", shim.text)
    assert "Gloo: of horovod-on-ddp-gloo" in shim.notes[-1][1]
    both = fill.fill(text, analyse(trained({"gloo": 1.0, "horovod-on-ddp-gloo": 3.0})), "en")
    alone = fill.fill(text, analyse(trained({"gloo": 1.0})), "en")
    assert both.text.splitlines()[2] == alone.text.splitlines()[2]
