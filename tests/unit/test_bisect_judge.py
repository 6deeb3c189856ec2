"""What is said of two stacks, from launches whose times are known; only the launches are replaced."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hvlab.base.errors import CheckError
from hvlab.bench.schedule import Schedule
from hvlab.bench.settings import SettingsFile
from hvlab.results.store import Store, make_run_id
from hvlab.searches.bisect import judge
from hvlab.searches.bisect.judge import InstalledStack, Judge, StackFailsError
from hvlab.searches.bisect.result import BisectResult
from tests.unit import labs
from tests.unit.test_results import RECORD

# How many times as long the bad stack takes at a size; None: it does not run.
Cost = Callable[[int], float | None]
SIZES = (1 << 10, 1 << 20, 4 << 20)


def _judge(
    folder: Path,
    cost: Cost,
    monkeypatch: pytest.MonkeyPatch,
    *,
    sizes: tuple[int, ...] = SIZES,
    good: float | None = 1.0,
) -> Judge:
    draw = random.Random(1)  # noqa: S311 - noise

    def measure(schedule: Schedule, store: Store) -> str:
        run_id = make_run_id()
        spec = schedule.spec
        cases = [case.id for case in schedule.cases]
        store.create(run_id, lab="t", spec_key=spec.key(schedule.lab), spec=asdict(spec), cases=cases)
        for case in schedule.cases:
            own = {name: part for name, part in case.params.items() if name != "sizes"}
            records = []
            for size in case.params["sizes"]:
                times = cost(size) if own["side"] == "B" else good
                record = replace(
                    RECORD, run_id=run_id, case_id=case.id, repeat=case.repeat, metric="time",
                    params={**own, "size_bytes": size}, value=(times or 0) * math.exp(draw.gauss(0, 0.01)),
                )  # fmt: skip
                failed = {"status": "failed", "error": "it broke", "value": None, "metric": None}
                records.append(record if times else replace(record, **failed))
            store.add(records)
        store.enter(run_id, "finished")
        return run_id

    monkeypatch.setattr(judge, "measure", measure)
    return Judge(labs.spec("mpi", sizes=sizes), labs.lab(2), Store(folder), InstalledStack("", ()))


BAD = InstalledStack("", (("cycle_time", "5"),))


def test_a_stack_that_is_slower_at_all_sizes_is_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = _judge(tmp_path, lambda _: 1.3, monkeypatch).effect(BAD)
    assert effect.slower
    assert effect.log.mid == pytest.approx(math.log(1.3), abs=0.02)


@pytest.mark.parametrize(
    ("large", "times", "observed"),
    [
        # Two sizes are a little slower, one is so much faster that the mean is.
        (0.3, 1.1, "slower at 1K, 1M, faster at 4M, and over all sizes it takes -2"),
        # One is so much slower that the mean is.
        (3.0, 0.9, "slower at 4M, faster at 1K, 1M, and over all sizes it takes \\+3"),
    ],
)
def test_where_the_sizes_say_other_than_their_mean_one_size_has_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: float, times: float, observed: str
) -> None:
    measured = _judge(tmp_path, lambda size: large if size == SIZES[-1] else times, monkeypatch)
    with pytest.raises(CheckError, match=observed) as caught:
        measured.effect(BAD)
    assert str(caught.value.remedy).startswith("name one size, as in --set sizes=")
    # A step is judged by the mean, which its sizes need not agree with.
    assert measured.effect(BAD, 0.1).log.mid == pytest.approx(
        (math.log(large) + 2 * math.log(times)) / 3, abs=0.02
    )


def test_a_good_stack_that_failed_is_measured_again_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckError, match="the good stack does not run: it broke"):
        _judge(tmp_path, lambda _: 1.3, monkeypatch, good=None).effect(BAD)
    mended = _judge(tmp_path, lambda _: 1.3, monkeypatch).effect(BAD)
    assert mended.slower
    # And what was finished is not.
    again = _judge(tmp_path, lambda _: None, monkeypatch).effect(BAD)
    assert again == mended


@pytest.mark.parametrize("env", ["HOROVOD_CYCLE_TIME=1", "HOROVOD_CYCLE_TIME=1.0"])
def test_what_a_stack_has_anyway_makes_it_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: str
) -> None:
    settings = SettingsFile(env=dict([env.split("=")]))
    same = InstalledStack("", tuple(settings.parameters.items()))
    effect = _judge(tmp_path, lambda _: 1.3, monkeypatch).effect(same)
    assert effect == judge.SAME
    answer = BisectResult((), effect, None, ()).answer
    assert answer == "Both stacks run in the same way: the settings of one are the defaults of the other."


def test_a_stack_that_is_faster_is_not_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    effect = _judge(tmp_path, lambda _: 0.7, monkeypatch).effect(BAD)
    assert not effect.slower
    assert effect.log.high < 0


def test_a_stack_that_fails_says_so_and_so_does_one_of_which_nothing_was_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StackFailsError, match="it does not run: it broke"):
        _judge(tmp_path / "a", lambda _: None, monkeypatch).effect(BAD)
    measured = _judge(tmp_path / "b", lambda _: 1.0, monkeypatch)
    monkeypatch.setattr(Store, "records", lambda *_: [])
    with pytest.raises(CheckError, match="the good stack does not run: no case of it was launched"):
        measured.effect(BAD)
