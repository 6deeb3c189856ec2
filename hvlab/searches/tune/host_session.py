"""A search of host settings with its folder: the hosts' state, the trials, the proof, the restoration."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hvlab.analysis.compare.comparison import Measurements, add_failures
from hvlab.analysis.compare.decisions import Decisions, decide
from hvlab.base.errors import CheckError
from hvlab.bench.matrix import expand
from hvlab.bench.sides import A, B
from hvlab.results.configurations import gather
from hvlab.results.store import Record, Store
from hvlab.results.summary import failures
from hvlab.searches.tune.confirmation import Confirmation
from hvlab.searches.tune.host_space import HostSurvey, load, survey
from hvlab.searches.tune.host_state import HostStates, RefusedError
from hvlab.searches.tune.result import TuneResult
from hvlab.searches.tune.session import (
    Note,
    TuneRequest,
    begin,
    lengthen_training,
    prove_best,
    run_search,
    write,
)
from hvlab.searches.tune.space import Candidate
from hvlab.searches.tune.trials import Trials, figures
from hvlab.statistics.looks import LOOKS

# The name of the parameter that differs between the two sides.
_SWITCHED = "host_settings"


@dataclass(kw_only=True)
class HostTrials(Trials):
    """Measures candidates of host settings. ``refused`` has the reasons of impossible ones."""

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
        """Measure one launch with these host settings; ``name`` tells it from others.

        Raises RefusedError if hosts refuse them, CheckError if they do not take back their former ones.
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
    """Measure the hosts' former state (A) and the best settings (B) in turn, as often as needed.

    Each round switches once: the next begins with the side that ended the last one. Rounds from before an
    interruption count, and cost no time.
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
        looks = repeat in {look.repeats for look in LOOKS}
        if looks and all(each.answered for each in _decisions(trials, records, words).rows):
            break
    decisions = _decisions(trials, records, words)
    better, worse = decisions.count("slower"), decisions.count("faster")  # of A
    return Confirmation("", better, worse, decisions, failed=len(failures(records)) + refused)


def _decisions(trials: HostTrials, records: Sequence[Record], words: dict[str, dict[str, str]]) -> Decisions:
    run = Measurements("", trials.launches.lab.name, "", {}, add_failures(gather(records)))
    return decide(run, {"auto": True, "sides": words})


_SYSCTL = "/proc/sys/"


@dataclass(frozen=True, kw_only=True)
class HostTuneResult(TuneResult):
    """A search of host settings, with the hosts' state before, and settings ``refused`` in trials."""

    survey: HostSurvey
    refused: tuple[str, ...]

    @property
    def _today(self) -> str:
        return "What the hosts have is"

    @property
    def _beside(self) -> str:
        return "The hosts have their former settings again."

    @property
    def keeping(self) -> list[str]:
        """Lines that keep proved settings over a restart of the hosts."""
        if not (self.proved and self.search.best):
            return []
        best = self.space.changes(self.search.best)
        written = {
            path: value
            for setting in self.survey.settings
            if setting.name in best
            for path, value in setting.levels[str(best[setting.name])].items()
        }
        return lines(written, self.survey.interfaces.values())

    @property
    def _notes(self) -> list[str]:
        return [*self.survey.left_out, *self.refused]

    def markdown(self) -> str:
        """Return the section of a report: the answer, trials, how to keep it, what was left out."""
        text = super().markdown()
        if self.keeping:
            head = "These settings end with a restart. To keep them, on every host:"
            text += "\n".join(["", head, "", "```sh", *self.keeping, "```", ""])
        if self._notes:
            text += "\n".join(["", *(f"- {note}" for note in self._notes), ""])
        return text

    def as_json(self) -> dict[str, Any]:
        """Return the complete result, JSON-ready."""
        return {
            **super().as_json(),
            "run": None,
            "settings": None,
            "keep": self.keeping,
            "left_out": self._notes,
        }


def lines(written: Mapping[str, str], interfaces: Iterable[str]) -> list[str]:
    """Return lines that keep these values over a restart: of a file in sysctl.d, then commands."""
    sysctl = {
        path.removeprefix(_SYSCTL): value for path, value in written.items() if path.startswith(_SYSCTL)
    }
    commands = [
        f"ip link set dev {interface} mtu {value}"
        for path, value in written.items()
        if path.endswith("/mtu")
        for interface in sorted(set(interfaces))
    ]
    commands += [
        f"echo {value} | tee {path}" for path, value in written.items() if path.endswith("/scaling_governor")
    ]
    return [
        *["# /etc/sysctl.d/90-hvlab.conf"] * bool(sysctl),
        *(f"{name.replace('/', '.')} = {value}" for name, value in sysctl.items()),
        *["# at each start of a host"] * bool(commands),
        *commands,
    ]


def of_hosts(request: TuneRequest) -> TuneRequest:
    """Return a request for settings of the hosts, one after another, in place of all others."""
    parameters = tuple(setting.parameter for setting in load())
    return replace(request, space=replace(request.space, parameters=parameters), kind="coordinate")


def tune_hosts(request: TuneRequest, store: Store, folder: Path, *, note: Note) -> HostTuneResult:
    """Search among settings of the hosts (:func:`of_hosts`), prove the best, write that into ``folder``.

    At the end each host has its former state; after a kill, ``folder`` holds the file that restores it.
    Raises CheckError if nothing on the hosts can be changed.
    """
    with begin(request, store, folder) as launches:
        [case], _ = expand(request.spec, request.lab)
        lab = replace(request.lab, hosts=tuple(host for host in request.lab.hosts if host.name in case.hosts))
        known = survey(lab, load())
        for sentence in known.left_out:
            note(sentence)
        if not known.settings:
            raise CheckError(
                "nothing can be changed on these hosts, or all of it is in place",
                remedy="see above; without --host-settings, `hvlab tune` searches the settings of the ranks",
            )
        space = replace(request.space, parameters=tuple(each.parameter for each in known.settings))
        spec, _ = lengthen_training(request, launches)
        states = HostStates(lab, known.before)
        trials = HostTrials(
            *(spec, launches, space, float(request.budget)), survey=known, states=states, refused={}
        )
        with states.preserve(folder, note):
            outcome = run_search(request, trials, note=note)
            proof = prove_best(trials, outcome.best, partial(confirm, trials), note=note)
        refused = tuple(f"{space.words(one)}: {why}" for one, why in trials.refused.items())
        result = HostTuneResult(space, outcome, {}, proof, launches.spent, survey=known, refused=refused)
        write(result, folder)
    return result
