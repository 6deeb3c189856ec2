"""A run analysed: one object that the opening and every section of its report are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.dominant import explain
from hvlab.analysis.model.fit import Fit, fits
from hvlab.analysis.model.predict import predictions
from hvlab.analysis.model.prediction import NoPrediction, Prediction
from hvlab.analysis.model.training import Training, trainings
from hvlab.analysis.scaling import HostCheck, check_hosts
from hvlab.report import answer, collectives, compression, verdicts
from hvlab.report.answer import Answer
from hvlab.report.collectives import SweepGroup
from hvlab.report.compression import CompressionStudy
from hvlab.report.data import ReportData
from hvlab.report.leaving import Leaving, leavings
from hvlab.report.trainings import Study, studies
from hvlab.report.verdicts import BackendVerdict

SIGNATURE = ("author", "number", "class", "date")


@dataclass(frozen=True)
class Report:
    """A run with its analysis.

    ``attached``: the page will hold the records; ``signature``: its author, some of `SIGNATURE`.
    """

    data: ReportData
    attached: bool
    signature: Mapping[str, str]
    studies: Sequence[Study]
    sweeps: Sequence[SweepGroup]
    compressed: Sequence[CompressionStudy]
    checks: Sequence[HostCheck]
    judged: Sequence[BackendVerdict]
    answers: Sequence[Answer]
    leavings: Sequence[Leaving]
    trainings: Sequence[Training]
    fits: Sequence[Fit]
    predictions: Sequence[Prediction | NoPrediction]
    explained: Sequence[Explanation]

    def explanations(self, kind: str) -> list[Explanation]:
        """Return the explanations whose key begins with ``kind``."""
        return [one for one in self.explained if one.key.startswith(f"{kind}.")]


def analyse(data: ReportData, *, attached: bool = True, signature: Mapping[str, str] | None = None) -> Report:
    """Return the run with its analysis."""
    studied, swept = studies(data), collectives.sweeps(data)
    judged = verdicts.judge(data, studied, swept)
    fitted = fits(data.configurations, virtual=data.virtual)
    return Report(
        data,
        attached,
        signature or {},
        studied,
        swept,
        compression.comparisons(data),
        check_hosts(data.configurations),
        judged,
        answer.answers(data, judged),
        [] if data.imported or data.sides else leavings(data.configurations, data.compare),
        trainings(data.configurations),
        [one for one in fitted if isinstance(one, Fit)],
        predictions(data.configurations, fitted, virtual=data.virtual),
        explain(data.configurations, fitted),
    )
