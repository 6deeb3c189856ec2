"""Trials of what hosts are set to: each launch is a run of its own, since hosts are switched between two."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hvlab.analysis.compare.decisions import Decisions, decide
from hvlab.analysis.compare.matching import Measurements, folded
from hvlab.bench.sides import A, B
from hvlab.results.configurations import gather
from hvlab.results.store import Record
from hvlab.results.summary import failures
from hvlab.searches.tune.confirmation import Confirmation
from hvlab.searches.tune.host_space import HostSurvey
from hvlab.searches.tune.host_state import HostStates, RefusedError
from hvlab.searches.tune.space import Candidate
from hvlab.searches.tune.trials import Trials, figures
from hvlab.statistics.looks import LOOKS

# As the name of what is switched between two sides.
_SWITCHED = "host_settings"


@dataclass(kw_only=True)
class HostTrials(Trials):
    """Measures candidates whose parameters are settings of hosts. ``refused`` says why some cannot be."""

    survey: HostSurvey
    states: HostStates
    refused: dict[Candidate, str]

    def _round(self, batch: Sequence[Candidate]) -> list[float | None]:
        costs: dict[int, float | None] = {}
        order = list(enumerate(batch))
        random.Random(self.rounds).shuffle(order)  # noqa: S311 - an order of launches
        for number, candidate in order:
            try:
                records = self.launch(candidate, f"{self.rounds}-{number}")
            except RefusedError as error:
                self.refused[candidate] = str(error)
                costs[number] = None
            else:
                costs[number] = figures(records).get("0")
        return [costs[number] for number in range(len(batch))]

    def launch(self, candidate: Candidate, name: str) -> list[Record]:
        """Return what one launch shows with the hosts set so; ``name`` tells it from others.

        Raises RefusedError where they cannot be; CheckError where they do not take back what they had.
        """
        state = json.dumps(self.survey.before, sort_keys=True)
        before = hashlib.sha256(state.encode()).hexdigest()[:8]
        suite = f"tune-hosts-{before}-{name}-{self.space.words(candidate)}"
        changes = self.survey.changes(
            {key: str(value) for key, value in self.space.changes(candidate).items()}
        )
        return self._records(
            replace(self._spec([candidate]), suite=suite), lambda: self.states.apply(changes)
        )


def confirm(trials: HostTrials, best: Candidate, seconds: float) -> Confirmation:
    """Measure the hosts as they were (A) and with the best settings (B) in turn, as often as it takes.

    Each round switches once: the next begins with the side that the last one ended with. Rounds that were
    measured before an interruption count, and cost no time.
    """
    sides = {A: trials.space.start, B: best}
    words = {side: {_SWITCHED: trials.space.words(candidate)} for side, candidate in sides.items()}
    records: list[Record] = []
    refused = 0
    begun = time.monotonic()
    for repeat in range(1, LOOKS[-1].repeats + 1):
        if refused or failures(records) or time.monotonic() - begun > seconds:
            break
        for side in (A, B) if repeat % 2 else (B, A):
            try:
                launched = trials.launch(sides[side], f"proof-{repeat}")
            except RefusedError:
                refused += 1
                break
            records += [
                replace(
                    record,
                    case_id=f"{side}-{repeat}",
                    repeat=repeat,
                    params={**record.params, "side": side, **words[side]},
                )
                for record in launched
            ]
        if repeat in {look.repeats for look in LOOKS} and _answered(_decisions(trials, records, words)):
            break
    decisions = _decisions(trials, records, words)
    better, worse = decisions.count("slower"), decisions.count("faster")  # of A
    return Confirmation("", better, worse, decisions, failed=len(failures(records)) + refused)


def _answered(decisions: Decisions) -> bool:
    return all(each.answered for each in decisions.rows)


def _decisions(trials: HostTrials, records: Sequence[Record], words: dict[str, dict[str, str]]) -> Decisions:
    run = Measurements("", trials.launches.lab.name, "", {}, folded(gather(records)))
    return decide(run, {"auto": True, "sides": words})
