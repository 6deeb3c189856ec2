"""benchmarks/bench_doctor.py: right, wrong and silent answers of doctor, on a folder of threads."""

import json

from click.testing import CliRunner

from benchmarks.bench_doctor import ANSWERS, main

FULL, CALM = "write: No space left on device", "All is well."
FAILED = "ncclCommInitRank failed: unhandled cuda error"
THREADS = {
    "quota, disk-full": {"https://a/right": FULL},
    "quota": {"https://a/wrong": FULL, "https://a/silent": CALM, "https://a/failed": FAILED},
    "none": {"https://a/quiet": CALM, "https://a/alarm": FULL},
}


def test_threads_of_a_folder_are_counted_and_misses_named(tmp_path):
    (tmp_path / "threads.yml").write_text(json.dumps(THREADS))
    done = CliRunner().invoke(main, ["--misses", str(tmp_path)], catch_exceptions=False)
    *misses, figures = map(json.loads, done.stdout.splitlines())
    assert misses == [
        {"thread": "https://a/wrong", "wrong": ["disk-full"], "wanted": ["quota"]},
        {"thread": "https://a/silent", "silent": [], "wanted": ["quota"]},
        {"thread": "https://a/failed", "unexplained": ["nccl-cuda-error"], "wanted": ["quota"]},
        {"thread": "https://a/alarm", "alarms": ["disk-full"], "wanted": []},
    ]
    del figures["cpu_s"]
    shares = {"precision": 0.3333, "recall": 0.25, "wrong_share": 0.25, "alarm_share": 0.5}
    assert figures == {"threads": 6, **dict.fromkeys(ANSWERS, 1), **shares}


def test_no_threads_have_no_shares(tmp_path):
    done = CliRunner().invoke(main, [str(tmp_path)], catch_exceptions=False)
    figures = json.loads(done.stdout)
    assert (figures["threads"], figures["precision"], figures["recall"]) == (0, None, None)
