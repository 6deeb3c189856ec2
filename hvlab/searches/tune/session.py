"""One search with its folder, from the first trial to the proof."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hvlab.base.errors import UsageError
from hvlab.base.files import write_file
from hvlab.bench.matrix import Spec, expand
from hvlab.bench.settings import SettingsFile, check_one, misfit, save, with_settings
from hvlab.lab.inventory import Lab
from hvlab.results.lock import measuring
from hvlab.results.searches import RESULT
from hvlab.results.store import Store
from hvlab.searches.tune import autotune
from hvlab.searches.tune.autotune import TrainingLength, balance, read_length, trains
from hvlab.searches.tune.confirmation import Confirmation, confirm
from hvlab.searches.tune.result import TuneResult, importance
from hvlab.searches.tune.search import SearchResult, search
from hvlab.searches.tune.space import Candidate, Space, including
from hvlab.searches.tune.trials import PROOF_LAUNCHES, Launches, Trials
from hvlab.workloads import launchers
from hvlab.workloads.parameters import OPTIONAL, TUNING

REPORT = "tuning.md"
# Share of the budget for training with Horovod's autotune.
_AUTOTUNE = 1 / 6
_FITTING = "leave that out of the file, or choose its backend and launcher"
Note = Callable[[str], None]
# Measures the best settings again beside today's, for this many seconds.
Prove = Callable[[Candidate, int], Confirmation]


@dataclass(frozen=True)
class TuneRequest:
    """The request: a configuration, the space of changes, the time to search, in seconds."""

    spec: Spec
    lab: Lab
    space: Space
    kind: str
    seed: int
    budget: int

    def key(self) -> str:
        """Return a hash that identifies this search, whatever its budget."""
        parameters = [item.model_dump() for item in self.space.parameters]
        asked = [self.spec.key(self.lab), parameters, self.space.today.model_dump(), self.kind, self.seed]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]


def check(request: TuneRequest) -> None:
    """Raise UsageError unless the request is one configuration whose settings can be changed."""
    check_one(request.spec, request.lab, "tune finds the settings of one configuration")
    own = {item.name for item in (*TUNING, *OPTIONAL)}
    if given := sorted(own & {name for block in request.spec.blocks for name in block.axes}):
        raise UsageError(
            f"--set {given[0]}: settings that are searched or kept belong in a file",
            remedy="write them to a settings file, and name it with --settings",
        )
    if reason := misfit(request.spec, request.space.today, request.lab):
        raise UsageError(f"--settings does not fit what is measured: {reason}", remedy=_FITTING)


def check_space(request: TuneRequest) -> None:
    """Raise UsageError if a parameter of a user's space cannot change the measured case."""
    space = request.space
    for place, (item, now) in enumerate(zip(space.parameters, space.start, strict=True)):
        others = [value for value in range(len(item.values)) if value != now]
        candidates = [(*space.start[:place], value, *space.start[place + 1 :]) for value in others]
        reasons = [misfit(request.spec, space.settings(each), request.lab) for each in candidates]
        if reasons and all(reasons):
            raise UsageError(f"{item.name} of --space does not fit: {reasons[0]}", remedy=_FITTING)


@contextmanager
def begin(request: TuneRequest, store: Store, folder: Path) -> Iterator[Launches]:
    """Check a search, and yield its launches; until it ends, nothing else may measure the lab."""
    check(request)
    with measuring(store.folder, request.lab.name):
        folder.mkdir(parents=True, exist_ok=True)
        yield Launches(request.lab, Store(folder))


def run_search(
    request: TuneRequest, trials: Trials, *, first: Sequence[Candidate] = (), note: Note
) -> SearchResult:
    """Search by trials, beginning with those of ``first``."""
    return search(
        *(trials.space, trials, trials.has_time),
        kind=request.kind,
        seed=request.seed,
        first=first,
        fits=trials.fits,
        note=lambda text: note(trials.format_progress(text)),
    )


def prove_best(trials: Trials, best: Candidate | None, prove: Prove, *, note: Note) -> Confirmation | None:
    """Prove the best of a search, if any."""
    if best is None:
        return None
    note(_announce_proof(trials, best))
    # The rest of the budget, or the minimum once that is spent.
    return prove(best, math.ceil(max(trials.proof_s, trials.rest_s)))


def tune(request: TuneRequest, store: Store, folder: Path, *, note: Note) -> TuneResult:
    """Search, prove, and write the result into ``folder``. The proof is a run of ``store``."""
    note(f"time limit {request.budget / 60:.2g} min; the proof, {PROOF_LAUNCHES} launches, may end after it")
    with begin(request, store, folder) as launches:
        spec, trained = lengthen_training(request, launches)
        chosen = autotune.run_autotune(
            request.spec, launches, request.space, trained, request.budget * _AUTOTUNE
        )
        space, autotuned = including(request.space, chosen) if chosen else (request.space, None)
        trials = Trials(spec, launches, space, float(request.budget))
        if autotuned is not None:
            note(trials.format_progress(f"Horovod's autotune chose: {space.words(autotuned)}"))

        def prove(best: Candidate, seconds: int) -> Confirmation:
            settings = space.settings(best)
            return confirm(spec, request.lab, store, space.today, settings, seconds=seconds)

        first = [] if autotuned is None else [autotuned]
        outcome = run_search(request, trials, first=first, note=note)
        # Before the proof, which an interruption here would repeat.
        shares = importance(space, outcome.board, seed=request.seed)
        proof = prove_best(trials, outcome.best, prove, note=note)
        result = TuneResult(space, outcome, shares, proof, launches.spent, autotuned)
        write(result, folder)
    return result


def write(result: TuneResult, folder: Path) -> None:
    """Write the result of a search into its folder."""
    write_file(folder / REPORT, result.markdown())
    if result.proof and result.proof.cut_off:  # without a result, the same command continues
        return
    write_file(folder / RESULT, json.dumps(result.as_json(), indent=1))


def write_settings(request: TuneRequest, result: TuneResult, output: Path) -> str:
    """Write the settings file if the best settings are proved; return a line about the file."""
    if not result.proved or result.search.best is None:
        return f"settings: {output} is from an earlier search, and stays unchanged" if output.exists() else ""
    best = result.space.settings(result.search.best)
    about = best.model_copy(update={"about": result.answer})
    save(about, output, recipe=recipe(request, best))
    return f"settings: {output}; `hvlab bench --settings {output}` measures with them"


def recipe(request: TuneRequest, settings: SettingsFile) -> list[str]:
    """Return the shell lines that start a user's own job as tune measured it with ``settings``."""
    [block] = request.spec.blocks
    [case], _ = expand(replace(request.spec, blocks=(with_settings(block, settings),)), request.lab)
    return launchers.recipe(case, request.lab)


def _announce_proof(trials: Trials, best: Candidate) -> str:
    text = f"to prove: {trials.space.words(best)}"
    if (over := trials.proof_s - trials.rest_s) > 0:
        text += f" (about {over / 60:.1f} min more than the budget, which was too short)"
    return text


def lengthen_training(request: TuneRequest, launches: Launches) -> tuple[Spec, TrainingLength | None]:
    """Return the spec of trials, with a training that is long enough, and the result of one launch."""
    [block] = request.spec.blocks
    if not trains(block):
        return request.spec, None
    today = with_settings(block, request.space.today)
    run = launches.measure(replace(request.spec, blocks=(today,), suite="tune-length"))
    trained = read_length(launches.folders(run))
    if trained is None:
        return request.spec, None
    asked = balance(block, trained, launches.spent, timeout=request.spec.timeout)
    return replace(request.spec, blocks=(asked,)), trained
