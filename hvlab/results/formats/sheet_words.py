"""The words by which the tables of a lab sheet, Chinese or English, are known. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from hvlab.results.formats.markdown import TableRow, plain

Kind = Literal["environment", "inside", "across", "compression"]
Name = TypeVar("Name", bound=str)
KINDS: tuple[Kind, ...] = ("environment", "inside", "across", "compression")


@dataclass(frozen=True)
class Layout:
    """A table whose rows are a group's figures at a place, such as a backend's on 2 servers of 4 GPUs.

    ``heads`` are the words of each head, the first that fits counts; a table has all that are ``needed``.
    ``group`` is the head of the names, which ``name`` knows, and ``place`` those of the numbers. With
    ``once``, a group is named in its first row only.
    """

    heads: Mapping[str, Sequence[str]]
    needed: tuple[str, ...]
    group: str
    place: tuple[str, ...]
    name: Callable[[str], str | None]
    once: bool = False


@dataclass(frozen=True)
class Heads:
    """The number of the row that holds a table's heads, the column of each, and the units some name."""

    layout: Layout
    row: int
    columns: Mapping[str, int]
    units: Mapping[str, str] = field(default_factory=dict)


_SPEEDUP = {
    "slots": ("每台服务器", "显卡数", "perserver", "pernode", "perhost", "slots"),
    "servers": ("服务器数", "servers", "hosts", "nodes"),
    "backend": ("后端", "backend"),
    "step": ("步耗时", "steptime", "timeperstep", "periteration"),
    "throughput": ("吞吐", "throughput"),
    "speedup": ("加速比", "speedup", "speed-up"),
    "efficiency": ("效率", "efficiency"),
}
_COMPRESSION = {
    "algorithm": ("算法", "algorithm"),
    "devices": ("设备", "device"),
    "time": ("时间", "time"),
    "accuracy": ("正确率", "准确率", "accuracy"),
}
ENVIRONMENT = {
    "servers": ("服务器数", "numberofservers", "servers"),
    "nic": ("网卡型号", "nicmodel", "networkcard"),
    "gpu_link": ("gpu连接", "gpusareconnected", "gpuinterconnect", "gpuconnection"),
    "gpu": ("gpu型号", "gpumodel"),
    "os": ("os版本", "操作系统", "osversion"),
    "driver": ("gpudriver", "gpu驱动"),
    "framework": ("深度学习框架", "framework"),
    "cuda": ("cuda版本", "cudaversion"),
    "nccl": ("nccl版本", "ncclversion"),
}
_WHERE: Mapping[Kind, Sequence[str]] = {
    "inside": ("服务器内", "单机", "insideone", "inside", "withinone", "oneserver", "singleserver"),
    "across": ("服务器间", "多机", "across", "between"),
}
_BACKENDS = {
    "nccl": ("nccl",),
    "ccl": ("ccl",),
    "gloo": ("gloo",),
    "mpi": ("mpi",),
    "serial": ("串行", "serial"),
}
_ALGORITHMS = (
    ("serial", r"串行|serial"),
    ("8bit", r"^(8bit|8位|int8)|shared|feedback|共享|误差"),
    # The lab sheet's own: a plain cast to eight bits.
    ("naive8", r"float8|fp8|8bit|naive|plaincast"),
    ("bf16", r"bf16|bfloat16"),
    ("fp16", r"float16|16bit|fp16|16位"),
    ("none", r"horovod|不压缩|uncompressed"),
)


_IMAGES = ("images", "image", "imgs", "img", "samples", "样本", "张", "张图片", "图片", "图像")
# How heads write the units. An image is a sample of a training on images.
_UNITS: Mapping[str, Sequence[str]] = {
    "s": ("s", "sec", "secs", "second", "seconds", "秒"),
    "ms": ("ms", "msec", "milliseconds", "毫秒"),
    "us": ("us", "\u03bcs", "microseconds", "微秒"),
    "min": ("min", "minutes", "分", "分钟"),
    "samples/s": tuple(f"{what}/{per}" for what in _IMAGES for per in ("s", "sec", "second", "秒")),
    "%": ("%", "percent", "百分比"),
    "x": ("x", "\u00d7", "倍", "times"),
}
_NAMED_UNITS = (
    r"[(\[]\s*([^()\[\]]+?)\s*[)\]]", r"(\S+/\S+)\s*$", r"[/,:]\s*([^\s/,:]+)\s*$", r"\bin\s+(\S+)\s*$",
)  # fmt: skip


def backend(word: str) -> str | None:
    """Return the backend that a cell names."""
    return _first(_BACKENDS, plain(word))


def algorithm(word: str) -> str | None:
    """Return the compression that a cell names: serial, none, 8bit, naive8, fp16 or bf16."""
    text = plain(word)
    return next((name for name, words in _ALGORITHMS if re.search(words, text)), None)


SPEEDUP = Layout(
    _SPEEDUP, ("backend", "servers", "step"), group="backend", place=("servers", "slots"), name=backend
)
COMPRESSION = Layout(
    _COMPRESSION, ("algorithm", "time", "accuracy"), group="algorithm", place=("devices",), name=algorithm,
    once=True,
)  # fmt: skip


def find_heads(rows: Sequence[TableRow]) -> Heads | None:
    """Return the heads of a table of figures; None where it is none."""
    for layout in (COMPRESSION, SPEEDUP):
        for number, row in enumerate(rows):
            columns: dict[str, int] = {}
            for place, word in enumerate(row.words):
                if name := _first(layout.heads, word):
                    columns.setdefault(name, place)
            if columns.keys() >= {*layout.needed}:
                # The lab sheet's column of devices has no head.
                beside = columns[layout.group] + 1
                if beside not in columns.values():
                    columns.setdefault(layout.place[0], beside)
                cells = {name: row.cells[place] for name, place in columns.items() if place < len(row.cells)}
                units = {name: unit for name, cell in cells.items() if (unit := unit_of(cell))}
                return Heads(layout, number, columns, units)
    return None


def unit_of(head: str) -> str | None:
    """Return the unit that a head names in brackets or at its end: s, ms, us, min, samples/s, % or x."""
    text = unicodedata.normalize("NFKC", re.sub(r"<[^<>]*>|[*_`\\$]", " ", head)).casefold()
    named = [word for pattern in _NAMED_UNITS for word in re.findall(pattern, text)]
    units = (unit for word in named for unit, words in _UNITS.items() if "".join(word.split()) in words)
    return next(units, None)


def where(line: str) -> Kind | None:
    """Return which table of speed-up a line announces."""
    return _first(_WHERE, plain(line))


def environment_key(row: TableRow) -> tuple[str | None, int]:
    """Return what a row of the environment table asks for, and the place of its name."""
    for place, word in enumerate(row.words[:-1]):
        if name := _first(ENVIRONMENT, word):
            return name, place
    return None, 0


def _first(words: Mapping[Name, Sequence[str]], text: str) -> Name | None:
    """Return the first name of which a word stands in a text."""
    return next((name for name, parts in words.items() if any(part in text for part in parts)), None)
