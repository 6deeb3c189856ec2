"""The words by which the tables of a lab sheet, Chinese or English, are known. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from hvlab.formats.markdown import Row, Table, plain

Kind = Literal["environment", "inside", "across", "compression"]
KINDS: tuple[Kind, ...] = ("environment", "inside", "across", "compression")
# Words of a head, the first that fits counts; spaces and letter case do not.
SCALING = {
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
_ENOUGH = 3
_INSIDE = ("服务器内", "单机", "insideone", "inside", "withinone", "oneserver", "singleserver")
_ACROSS = ("服务器间", "多机", "across", "between")
_BACKENDS = (
    ("nccl", "nccl"),
    ("ccl", "ccl"),
    ("gloo", "gloo"),
    ("mpi", "mpi"),
    ("串行", "serial"),
    ("serial", "serial"),
)
_ALGORITHMS = (
    ("serial", r"串行|serial"),
    ("8bit", r"^(8bit|8位|int8)|shared|feedback|共享|误差"),
    # The lab sheet's own: a plain cast to eight bits.
    ("naive8", r"float8|fp8|8bit|naive|plaincast"),
    ("bf16", r"bf16|bfloat16"),
    ("fp16", r"float16|16bit|fp16|16位"),
    ("none", r"horovod|不压缩|uncompressed"),
)


def backend(word: str) -> str | None:
    """Return the backend that a cell names."""
    text = plain(word)
    return next((name for part, name in _BACKENDS if part in text), None)


def algorithm(word: str) -> str | None:
    """Return the compression that a cell names: serial, none, 8bit, naive8, fp16 or bf16."""
    text = plain(word)
    return next((name for name, words in _ALGORITHMS if re.search(words, text)), None)


def kinds(found: Sequence[Table], names: Sequence[int | None]) -> list[Kind | None]:
    """Return what each table is; the first of two tables of speed-up is that inside one server.

    ``names`` tells which training each is of, None: not told. Tables of different ones are no such two.
    """
    known: list[Kind | None] = []
    for table, name in zip(found, names, strict=True):
        if head(table, "compression") is not None:
            known.append("compression")
        elif head(table, "inside") is not None:
            seen = [
                kind
                for kind, other in zip(known, names, strict=False)
                if name is None or other in (name, None)
            ]
            above = (kind for heading in table.headings if (kind := _place(heading)) and kind not in seen)
            guess: Kind = "across" if "inside" in seen else "inside"
            known.append(_place(table.said) or next(above, guess))
        else:
            named = {environment_key(row)[0] for row in table.rows} - {None}
            known.append("environment" if len(named) >= _ENOUGH else None)
    return known


def _place(line: str) -> Kind | None:
    said = plain(line)
    for kind, words in (("inside", _INSIDE), ("across", _ACROSS)):
        if any(word in said for word in words):
            return "inside" if kind == "inside" else "across"
    return None


def head(table: Table, kind: Kind) -> tuple[int, dict[str, int]] | None:
    """Return the number of the row with a table's heads, and the column of each; None where it is no such."""
    if kind == "compression":
        return _columns(table, _COMPRESSION, ("algorithm", "time", "accuracy"))
    return _columns(table, SCALING, ("backend", "servers", "step"))


def _columns(
    table: Table, heads: Mapping[str, Sequence[str]], needed: Iterable[str]
) -> tuple[int, dict[str, int]] | None:
    """Return the number of the row with the heads, and the column of each head."""
    for number, row in enumerate(table.rows):
        columns: dict[str, int] = {}
        for place, word in enumerate(row.words):
            name = next((name for name, words in heads.items() if any(each in word for each in words)), None)
            if name is not None:
                columns.setdefault(name, place)
        if set(needed) <= columns.keys():
            return number, columns
    return None


def environment_key(row: Row) -> tuple[str | None, int]:
    """Return what a row of the environment table asks for, and the place of its name."""
    for place, word in enumerate(row.words[:-1]):
        for name, words in ENVIRONMENT.items():
            if any(each in word for each in words):
                return name, place
    return None, 0
