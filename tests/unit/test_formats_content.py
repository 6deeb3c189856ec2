"""A log as people keep it: packed, of another encoding, within JSON, pasted from a web page, cut."""

import bz2
import gzip
import json
import lzma
from pathlib import Path

import pytest

from hvlab.base.errors import UsageError
from hvlab.results.formats import importing, lines
from hvlab.results.formats.records import LaunchOverrides
from hvlab.results.store import Store

LOG = Path(__file__).parent.parent / "data/nccl-tests/allreduce-8x-mi300x-rccl.txt"
TEXT = LOG.read_text()


def docker(text):
    return "".join(
        json.dumps({"log": f"{line}\n", "stream": "stdout"}, separators=(",", ":")) + "\n"
        for line in text.splitlines()
    ).encode()


def ansible(text):
    lines = ",\n".join(f"        {json.dumps(line)}" for line in text.splitlines())
    return f'ok: [n1] => {{\n    "out.stdout_lines": [\n{lines}\n    ]\n}}\n'.encode()


def without_heads(text):
    """GitHub takes the # at the beginning of a line for a heading's."""
    return "\n".join(line.removeprefix("#") for line in text.splitlines()).encode()


@pytest.mark.parametrize(
    "kept",
    [
        gzip.compress(TEXT.encode()),
        bz2.compress(TEXT.encode()),
        lzma.compress(TEXT.encode()),
        gzip.compress(TEXT.encode("utf-16")),
        TEXT.replace("\n", "\r\n").encode("utf-16"),
        TEXT.encode("utf-32"),
        b"\xef\xbb\xbf" + TEXT.encode(),
        docker(TEXT),
        ansible(TEXT),
        without_heads(TEXT),
    ],
    ids=[
        "gzip",
        "bzip2",
        "xz",
        "gzip utf-16",
        "utf-16 crlf",
        "utf-32",
        "utf-8 mark",
        "docker",
        "ansible",
        "no #",
    ],
)
def test_a_log_says_the_same_however_it_was_kept(kept, tmp_path):
    store = Store(tmp_path / "results")
    path = tmp_path / "allreduce.log"
    path.write_bytes(kept)
    _, plain = importing.import_files(store, [LOG], LaunchOverrides(), lab="x")
    _, made = importing.import_files(store, [path], LaunchOverrides(), lab="x")

    def said(records):
        return [
            (r.workload, r.hosts, r.slots_per_host, r.params, r.metric, r.value, r.status) for r in records
        ]

    assert said(made) == said(plain)
    assert (store.folder / made[0].raw_path).read_bytes() == kept


def test_a_packed_file_that_is_damaged_is_named():
    with pytest.raises(UsageError, match=r"x\.log\.gz is damaged"):
        lines.text_of(gzip.compress(TEXT.encode())[:-20], "x.log.gz")


def test_a_packed_file_may_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(lines, "_LARGEST", 2**20)
    with pytest.raises(UsageError, match=r"x\.gz holds more than 1 MiB"):
        lines.text_of(gzip.compress(b"\0" * 2**21), "x.gz")


def test_a_row_that_was_cut_does_not_say_which_operation_it_was(tmp_path):
    path = tmp_path / "job.log"
    row = next(line for line in TEXT.splitlines() if " float " in line)
    # The root and three figures are as many as the four figures of an older version without a root.
    cut = row[: row.index(busbw := row.split()[7]) + len(busbw)].replace("91.10", "911.0")
    path.write_text(TEXT.partition(row)[0].replace("all_reduce", "") + f"{row}\n{cut}")
    _, made = importing.import_files(Store(tmp_path / "results"), [path], LaunchOverrides(), lab="x")
    assert {record.workload for record in made} == {"allreduce"}
