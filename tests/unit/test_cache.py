"""What lies in the cache, how old it is, and what may go."""

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from hvlab.base import cache
from hvlab.base.errors import UsageError
from hvlab.cli import cli
from hvlab.stack.provision.packs import Archive

DAY = cache.DAY_S
NOW = time.time()


def put(path: Path, days: float, size: int = 8192) -> Path:
    """Write a file that was last used that many days ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HVLAB_IMAGES", str(tmp_path / "images"))
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path / "results"))
    for days, name in ((40, "old"), (10, "middle"), (0, "new")):
        put(tmp_path / f"cache/packs/{name}-k.tar.gz", days)
        put(tmp_path / f"cache/packs/{name}-k.tar.gz.sha256", days, 80)
    put(tmp_path / "cache/datasets/k1/train", 50)
    os.utime(tmp_path / "cache/datasets/k1", (NOW - 50 * DAY,) * 2)
    put(tmp_path / "cache/packs/.incoming-killed", 2)
    put(tmp_path / "images/bookworm-1/etc/passwd", 60)
    os.utime(tmp_path / "images/bookworm-1", (NOW - 60 * DAY,) * 2)
    return tmp_path


def names(each):
    return sorted(one.name for one in each)


def hvlab(*words):
    return CliRunner().invoke(cli, ["clean", *words])


def test_a_wrong_limit_is_named(folder, monkeypatch):
    monkeypatch.setenv(cache.LIMIT, "much")
    with pytest.raises(UsageError, match="HVLAB_CACHE_LIMIT: 'much' is no size"):
        cache.limit()
    assert hvlab().exit_code


def test_what_is_old_goes_and_what_was_killed(folder):
    assert names(cache.older(cache.entries(), 30 * DAY, now=NOW)) == [
        ".incoming-killed", "bookworm-1", "k1", "old-k.tar.gz",
    ]  # fmt: skip
    assert "--yes removes 4 of these" in hvlab().stderr
    assert len(cache.entries()) == 6, "it only shows where there is no terminal"
    done = hvlab("--yes")
    assert (done.exit_code, "removed 4" in done.stderr) == (0, True)
    assert names(cache.entries()) == ["middle-k.tar.gz", "new-k.tar.gz"]
    assert not (folder / "cache/packs/old-k.tar.gz.sha256").exists()
    assert list((folder / "images").iterdir()) == []
    assert "nothing is old" in hvlab("--yes").stderr


def test_use_keeps_it(folder):
    archive = folder / "cache/packs/old-k.tar.gz.sha256"
    cache.use(archive)
    cache.use(folder / "cache/datasets/k1")
    cache.use(folder / "images/bookworm-1")
    assert names(cache.older(cache.entries(), 30 * DAY, now=NOW)) == [".incoming-killed"]
    assert archive.stat().st_size == 80


def test_what_was_used_since_it_was_looked_at_stays(folder):
    (old,) = (one for one in cache.entries() if one.name == "old-k.tar.gz")
    cache.use(folder / "cache/packs/old-k.tar.gz.sha256")
    assert not cache.remove(old)
    assert (folder / "cache/packs/old-k.tar.gz").exists()


def test_a_size_takes_the_longest_unused_first_but_nothing_of_today(folder):
    packs = [one for one in cache.entries() if one.kind == "pack"]
    assert names(cache.beyond(packs, 30_000, now=NOW)) == ["old-k.tar.gz"]
    assert names(cache.beyond(packs, 0, now=NOW)) == ["middle-k.tar.gz", "old-k.tar.gz"]
    assert cache.beyond(packs, 1 << 30, now=NOW) == []


def test_a_new_pack_keeps_the_cache_below_its_limit(folder, monkeypatch):
    monkeypatch.setenv(cache.LIMIT, "30K")
    monkeypatch.setattr(cache, "_images", None)  # to look through their files takes seconds
    lines = []
    cache.keep_limit(lines.append)
    assert [line.split()[0] for line in lines] == ["k1", "old-k.tar.gz"]
    assert Archive("new", "k").path.exists()
    assert (folder / "images/bookworm-1").exists(), "images are not part of the cache's size"
    monkeypatch.setenv(cache.LIMIT, "much")
    with pytest.raises(UsageError, match="much"):
        cache.keep_limit(lines.append)


def test_an_image_of_a_lab_that_is_up_stays(folder, monkeypatch):
    monkeypatch.setattr(cache, "_lower_folders", lambda: {str(folder / "images/bookworm-1")})
    (image,) = (one for one in cache.entries() if one.kind == "image")
    assert image.busy
    assert "bookworm-1" not in names(cache.older(cache.entries(), DAY, now=NOW))


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")
def test_that_images_are_roots_is_said(folder):
    said = "`sudo hvlab clean` shows the sizes of images"
    (folder / "images/bookworm-1").chmod(0o700)
    assert said not in hvlab().stderr
    for above in (folder, *folder.parents):
        above.chmod(above.stat().st_mode | 0o111)
    os.seteuid(65534)
    try:
        assert said in hvlab().stderr
    finally:
        os.seteuid(0)


def test_of_old_runs_only_what_programs_printed_goes(folder):
    run = folder / "results/runs/20260101T000000Z-0000"
    for name in ("stdout", "stderr", "timeline.json", "result.json", "case.json"):
        put(run / "case" / name, 40)
    put(run / "store.jsonl", 40)
    put(folder / "results/runs/20260102T000000Z-0000/case/stdout", 3)
    assert hvlab("--yes").exit_code == 0
    left = sorted(path.name for path in (folder / "results").rglob("*") if path.is_file())
    assert left == ["case.json", "result.json", "stdout", "store.jsonl"]


def test_of_searches_that_ended_only_what_programs_printed_goes(folder):
    for search, result in (("tune/ended", True), ("bisect/ended", True), ("tune/open", False)):
        own = folder / "results" / search
        for name in ("runs/r1/case/stdout", "runs/r1/case/result.json", "runs/r1/store.jsonl", "hvlab.db"):
            put(own / name, 40)
        if result:
            put(own / "result.json", 40)
    assert hvlab("--yes").exit_code == 0
    printed = sorted((folder / "results").glob("*/*/runs/*/*/stdout"))
    assert printed == [folder / "results/tune/open/runs/r1/case/stdout"], "an open search is resumed from it"
    assert len([path for path in (folder / "results").rglob("*") if path.is_file()]) == 12


def test_what_exceeds_a_size_goes_too(folder):
    rows = json.loads(hvlab("--older-than", "45", "--max-size", "30K", "--format", "json").stdout)
    assert sorted(row["name"] for row in rows if row["goes"]) == [
        ".incoming-killed", "bookworm-1", "k1", "old-k.tar.gz",
    ]  # fmt: skip


def test_what_cannot_be_removed_is_named(folder, monkeypatch):
    def refuse(one):
        raise PermissionError(13, "Permission denied", str(one.paths[0]))

    monkeypatch.setattr(cache, "remove", refuse)
    done = hvlab("--yes")
    assert "images/bookworm-1: Permission denied" in str(done.exception)


def test_json_has_each_with_its_paths(folder):
    rows = json.loads(hvlab("--format", "json").stdout)
    (old,) = (row for row in rows if row["name"] == "old-k.tar.gz")
    assert (old["kind"], old["goes"], len(old["paths"])) == ("pack", True, 2)


@pytest.mark.parametrize(
    ("text", "size"), [("500", 500), ("2K", 2000), ("1.5G", 1_500_000_000), ("2 GiB", 2 << 30)]
)
def test_sizes(text, size):
    assert cache.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "5x", "-1", "1e3", "9" * 400 + "G", "9" * 5000])
def test_no_sizes(text):
    with pytest.raises(UsageError):
        cache.parse_size(text)
