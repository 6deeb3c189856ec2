"""Which cases a run still has to measure: with ``--repeats auto``, those with open questions. Pure.

A look at the run (:mod:`hvlab.statistics.sequential`) depends on its records alone, so an interrupted run
continues as if it had not been interrupted.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from hvlab.analysis.compare.comparison import Measurements, add_failures, primary, without_size
from hvlab.analysis.compare.decisions import decide
from hvlab.bench.matrix import Spec
from hvlab.results.configurations import Configuration, gather
from hvlab.results.store import Record
from hvlab.statistics.interval import Interval, median
from hvlab.statistics.looks import LOOKS
from hvlab.statistics.sequential import is_narrow
from hvlab.workloads.case import Case


def first(cases: Sequence[Case], spec: Spec) -> tuple[Case, ...]:
    """Return the cases that are measured in any event."""
    return tuple(case for case in cases if not spec.auto or case.repeat <= LOOKS[0].repeats)


def list_due(cases: Sequence[Case], spec: Spec, records: Sequence[Record]) -> list[Case]:
    """Return the cases up to the next look at the run, those measured before among them.

    ``cases`` are all that may be needed. A case is repeated after a look where one of its questions is open:
    those of its figures that can be compared with another setting's, else the interval of its own median. One
    that failed in every repeat is not repeated.
    """
    chosen = list(first(cases, spec))
    done = {record.case_id for record in records}
    if not spec.auto:
        return chosen
    for look, later in itertools.pairwise(LOOKS):
        if any(case.id not in done for case in chosen):
            break
        names = _open([record for record in records if record.repeat <= look.repeats], spec)
        following = [case for case in cases if look.repeats < case.repeat <= later.repeats]
        chosen += [case for case in following if _name(case.id, case.repeat) in names]
    return chosen


def _open(records: Sequence[Record], spec: Spec) -> Collection[str]:
    names = _names(records)
    run = Measurements("", "", "", {}, add_failures(gather(records)))
    decisions = decide(run, {"auto": spec.auto, "sides": spec.sides})
    asked = {without_size(side) for each in decisions.rows for side in (each.a, each.b)}
    open_ = {without_size(side) for each in decisions.rows if not each.answered for side in (each.a, each.b)}
    for configuration, repeats in run.configurations.items():
        values = repeats.of(primary(configuration, repeats))
        if values and without_size(configuration) not in asked and not _is_known(values):
            open_.add(without_size(configuration))
    return {names[configuration] for configuration in open_}


def _is_known(values: Sequence[float]) -> bool:
    """Whether a median is known to 5 %; the interval of a few values is as narrow by chance."""
    figure = median(values)
    return (
        len(values) >= LOOKS[0].repeats
        and figure.mid > 0
        and is_narrow(Interval(figure.low / figure.mid, 1.0, figure.high / figure.mid))
    )


def _names(records: Sequence[Record]) -> Mapping[Configuration, str]:
    firsts = {record.case_id: record for record in records}
    return {
        without_size(configuration): _name(case, record.repeat)
        for case, record in firsts.items()
        for configuration in gather([record])
    }


def _name(case: str, repeat: int) -> str:
    return case.removesuffix(f"-r{repeat}")
