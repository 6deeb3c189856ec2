"""One search of settings of the hosts with its folder: what they have, the trials, the proof, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hvlab.bench.matrix import expand
from hvlab.errors import CheckError
from hvlab.results.lock import measuring
from hvlab.results.store import Store
from hvlab.tune.host_result import HostTuneResult
from hvlab.tune.host_space import load, survey
from hvlab.tune.host_state import HostStates
from hvlab.tune.host_trials import HostTrials, confirm
from hvlab.tune.search import search
from hvlab.tune.session import TuneRequest, check, lengthened, proof_seconds, to_prove, write
from hvlab.tune.trials import Launches


def of_hosts(request: TuneRequest) -> TuneRequest:
    """Return a request that asks for settings of the hosts, one after another, in the place of all others."""
    parameters = tuple(setting.parameter for setting in load())
    return replace(request, space=replace(request.space, parameters=parameters), kind="coordinate")


def tune_hosts(
    request: TuneRequest, store: Store, folder: Path, *, note: Callable[[str], None]
) -> HostTuneResult:
    """Search among settings of the hosts (:func:`of_hosts`), prove the best, write that into ``folder``.

    At the end each host has what it had before, whatever happens; where this is killed, ``folder`` holds the
    file with which that is made up for. Raises CheckError where nothing of the hosts can be changed.
    """
    check(request)
    folder.mkdir(parents=True, exist_ok=True)
    launches = Launches(request.lab, Store(folder))

    def say(text: str) -> None:
        note(f"{text} ({launches.spent / 60:.1f} of {request.budget / 60:g} min)")

    with measuring(store.folder, request.lab.name):
        [case], _ = expand(request.spec, request.lab)
        lab = replace(request.lab, hosts=tuple(host for host in request.lab.hosts if host.name in case.hosts))
        known = survey(lab, load())
        for sentence in known.left_out:
            note(sentence)
        if not known.settings:
            raise CheckError(
                "nothing of these hosts can be changed, or they have all of it already",
                remedy="see above; without --host-settings, `hvlab tune` searches the settings of the ranks",
            )
        space = replace(request.space, parameters=tuple(each.parameter for each in known.settings))
        spec, _ = lengthened(request, launches)
        states = HostStates(lab, known.before)
        trials = HostTrials(
            *(spec, launches, space, float(request.budget)), survey=known, states=states, refused={}
        )
        with states.kept(folder, note):
            outcome = search(
                *(space, trials, trials.left),
                kind=request.kind,
                seed=request.seed,
                fits=trials.fits,
                note=say,
            )
            proof = None
            if outcome.best is not None:
                note(to_prove(trials, outcome.best))
                proof = confirm(trials, outcome.best, seconds=proof_seconds(trials))
        refused = tuple(f"{space.words(one)}: {why}" for one, why in trials.refused.items())
        result = HostTuneResult(space, outcome, {}, proof, launches.spent, survey=known, refused=refused)
        write(result, folder)
    return result
