"""MNIST from mirrors that lack it, break off, lie or say nothing: web servers on the loopback interface."""

import gzip
import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hvlab.base.errors import CheckError, UsageError
from hvlab.workloads import datasets
from hvlab.workloads.datasets import shelf
from hvlab.workloads.datasets.idx import FILES
from tests.unit.test_datasets import contents, sum_of

# So long that no machine is too slow for it.
PATIENT = datasets.Patience(silence=60, file=120)
TRAIN_IMAGES, _, TEST_IMAGES, TEST_LABELS = FILES


@dataclass
class Mirror:
    """A web server: what it has, how it behaves, what it was asked for."""

    files: dict[str, bytes]
    address: str = ""
    stop_after: int | None = None
    status: int = 200
    ranges: bool = True
    silent: threading.Event | None = None
    hangs_up: bool = False
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving(mirror):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name, part = self.path.rpartition("/")[2], self.headers.get("Range")
            mirror.asked.append((name, part))
            if mirror.silent:
                mirror.silent.wait(20)
            if mirror.silent or mirror.hangs_up:
                return
            content = mirror.files.get(name)
            if content is None or mirror.status != 200:
                self.send_error(404 if content is None else mirror.status)
                return
            start = int(part[6:-1]) if part and mirror.ranges else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            with suppress(ConnectionError):  # we have heard enough
                self.wfile.write(content[start : mirror.stop_after])

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        mirror.address = f"http://127.0.0.1:{server.server_port}/mnist/"
        try:
            yield mirror
        finally:
            if mirror.silent:
                mirror.silent.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def packed(monkeypatch):
    """What mirrors have: a small set that stands in for MNIST, under its name and with its checksums."""
    files = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in contents(train=90).items()}
    known = {
        "sha256": {name: sum_of(content) for name, content in contents(train=90).items()},
        "archives": {name: {"bytes": len(c), "sha256": sum_of(c)} for name, c in files.items()},
        "mirrors": [],
    }
    monkeypatch.setattr(datasets, "_sets", lambda: {"mnist": known})
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("HVLAB_MNIST_MIRRORS", raising=False)
    return files


@pytest.fixture
def good(packed):
    with serving(Mirror(packed)) as mirror:
        yield mirror


def mnist(tmp_path, *mirrors, patience=PATIENT):
    return datasets.prepare("mnist", cache=tmp_path, mirrors=[m.address for m in mirrors], patience=patience)


def test_mnist_is_fetched_once(tmp_path, good):
    made = mnist(tmp_path, good)
    assert {name: (made.folder / name).read_bytes() for name in FILES} == contents(train=90)
    assert made.key == shelf.key_of(datasets._sets()["mnist"]["sha256"])
    assert sorted(good.asked) == [(f"{name}.gz", None) for name in sorted(FILES)]
    assert mnist(tmp_path, good) == made
    assert len(good.asked) == 4
    assert [path.name for path in (tmp_path / "datasets").iterdir() if path.is_dir()] == [made.key]


def test_a_site_names_its_own_mirrors(tmp_path, good, monkeypatch):
    monkeypatch.setenv("HVLAB_MNIST_MIRRORS", f"http://127.0.0.1:1/a, {good.address}")
    assert datasets.prepare("mnist", cache=tmp_path).name == "mnist"
    monkeypatch.setenv("HVLAB_MNIST_MIRRORS", "/srv/mnist")
    with pytest.raises(UsageError, match="'/srv/mnist' is no mirror"):
        datasets.prepare("mnist", cache=tmp_path / "other")


def test_half_a_file_is_gone_on_with_at_the_next_mirror(tmp_path, good, packed):
    name = f"{TRAIN_IMAGES}.gz"
    half = len(packed[name]) // 2
    with serving(Mirror({name: packed[name]}, stop_after=half)) as first:
        mnist(tmp_path, first, good)
    assert (name, f"bytes={half}-") in good.asked


def test_a_mirror_without_parts_begins_anew(tmp_path, packed):
    name = f"{TRAIN_IMAGES}.gz"
    with serving(Mirror(packed, stop_after=30)) as first, serving(Mirror(packed, ranges=False)) as second:
        mnist(tmp_path, first, second)
    assert (name, "bytes=30-") in second.asked


def test_half_a_wrong_file_spoils_no_right_one(tmp_path, good, packed):
    wrong = {name: content[::-1] for name, content in packed.items()}
    with serving(Mirror(wrong, stop_after=30)) as first:
        mnist(tmp_path, first, good)
    assert [part for name, part in good.asked if name == f"{TEST_IMAGES}.gz"] == ["bytes=30-", None]


def test_what_has_come_stays_for_the_next_time(tmp_path, good, packed):
    lacking = f"{TEST_LABELS}.gz"
    had = {name: content for name, content in packed.items() if name != lacking}
    with serving(Mirror(had)) as first, pytest.raises(CheckError, match=rf"{lacking}: HTTP 404"):
        mnist(tmp_path, first)
    mnist(tmp_path, good)
    assert good.asked == [(lacking, None)]


def test_what_has_come_is_looked_at_again(tmp_path, good, packed):
    had = {name: content for name, content in packed.items() if name != f"{TEST_LABELS}.gz"}
    with serving(Mirror(had)) as first, pytest.raises(CheckError):
        mnist(tmp_path, first)
    (tmp_path / f"datasets/.incoming-mnist/{TRAIN_IMAGES}.gz").write_bytes(b"spoilt")
    mnist(tmp_path, good)
    assert {name for name, _ in good.asked} == {f"{TRAIN_IMAGES}.gz", f"{TEST_LABELS}.gz"}


def wrong_sum(packed):
    return Mirror({name: bytes(len(content)) for name, content in packed.items()})


@pytest.mark.parametrize(
    ("mirror", "told"),
    [
        (wrong_sum, f"{TRAIN_IMAGES}.gz: its sha256 is [0-9a-f]{{64}}, not [0-9a-f]{{64}}"),
        (lambda packed: Mirror({}), f"{TRAIN_IMAGES}.gz: HTTP 404 Not Found"),
        (lambda packed: Mirror(packed, status=503), f"{TRAIN_IMAGES}.gz: HTTP 503"),
        (lambda packed: Mirror(packed, stop_after=30), f"{TRAIN_IMAGES}.gz: only 30 of [0-9]+ bytes arrived"),
        (lambda packed: Mirror(dict.fromkeys(packed, b"<html>")), f"{TRAIN_IMAGES}.gz: it has 6 bytes, not"),
        (lambda packed: Mirror(packed, hangs_up=True), f"{TRAIN_IMAGES}.gz: Remote end closed connection"),
    ],
)  # fmt: skip
def test_each_mirror_is_named_with_what_was_seen(tmp_path, packed, mirror, told):
    with serving(mirror(packed)) as bad, pytest.raises(CheckError) as caught:
        datasets.prepare(
            "mnist",
            cache=tmp_path,
            mirrors=["http://127.0.0.1:1/", bad.address],
            patience=PATIENT,
        )
    assert re.search(r"http://127\.0\.0\.1:1/: .*[Cc]onnection refused", str(caught.value))
    assert re.search(f"{re.escape(bad.address)}: .*{told}", str(caught.value))
    assert "--data DIR" in caught.value.remedy
    assert "digits" in caught.value.remedy
    assert not [path for path in (tmp_path / "datasets").iterdir() if not path.name.startswith(".")]


def test_a_mirror_that_says_nothing_is_left(tmp_path, packed):
    with serving(Mirror(packed, silent=threading.Event())) as silent, pytest.raises(CheckError) as caught:
        mnist(tmp_path, silent, patience=datasets.Patience(silence=0.2, file=5))
    assert f"{silent.address}: {TRAIN_IMAGES}.gz: no answer within 0.2 s" in str(caught.value)


def test_a_dead_mirror_is_asked_once(tmp_path, good):
    with serving(Mirror({}, hangs_up=True)) as dead:
        mnist(tmp_path, dead, good)
    assert len(dead.asked) == 1


def test_a_file_may_not_take_for_ever(tmp_path, good):
    with pytest.raises(CheckError, match=r"of \d+ bytes arrived in 0 s"):
        mnist(tmp_path, good, patience=datasets.Patience(silence=60, file=0))


def test_two_at_once_fetch_once(tmp_path, good):
    found = []
    threads = [threading.Thread(target=lambda: found.append(mnist(tmp_path, good))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1
    assert len(good.asked) == 4
