"""One search of settings of the hosts with its folder: what they have, the trials, the proof, and back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from hvlab.base.errors import CheckError
from hvlab.bench.matrix import expand
from hvlab.results.store import Store
from hvlab.searches.tune.host_result import HostTuneResult
from hvlab.searches.tune.host_space import load, survey
from hvlab.searches.tune.host_state import HostStates
from hvlab.searches.tune.host_trials import HostTrials, confirm
from hvlab.searches.tune.session import Note, TuneRequest, begun, lengthened, proved, searched, write


def of_hosts(request: TuneRequest) -> TuneRequest:
    """Return a request that asks for settings of the hosts, one after another, in the place of all others."""
    parameters = tuple(setting.parameter for setting in load())
    return replace(request, space=replace(request.space, parameters=parameters), kind="coordinate")


def tune_hosts(request: TuneRequest, store: Store, folder: Path, *, note: Note) -> HostTuneResult:
    """Search among settings of the hosts (:func:`of_hosts`), prove the best, write that into ``folder``.

    At the end each host has what it had before, whatever happens; where this is killed, ``folder`` holds the
    file with which that is made up for. Raises CheckError where nothing of the hosts can be changed.
    """
    with begun(request, store, folder) as launches:
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
            outcome = searched(request, trials, note=note)
            proof = proved(trials, outcome.best, partial(confirm, trials), note=note)
        refused = tuple(f"{space.words(one)}: {why}" for one, why in trials.refused.items())
        result = HostTuneResult(space, outcome, {}, proof, launches.spent, survey=known, refused=refused)
        write(result, folder)
    return result
