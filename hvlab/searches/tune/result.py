"""The result of a search, for people (Markdown) and machines (JSON), and the settings' importance. Pure."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from hvlab.analysis.compare import decision_rows
from hvlab.analysis.compare.decisions import Decision
from hvlab.base.masking import mask
from hvlab.searches.tune.confirmation import Confirmation
from hvlab.searches.tune.search import Board, SearchResult, distributions, freeze
from hvlab.searches.tune.space import Candidate, Space
from hvlab.statistics import interval
from hvlab.statistics.interval import Interval

# With fewer settings, a share says nothing.
FEWEST = 12
_DRAWS = 40
# The best share of the trials, which is compared with all.
_BEST = 0.2


def importance(space: Space, board: Board, *, seed: int = 0) -> dict[str, Interval]:
    """Return each parameter's share in what distinguishes the best settings, the largest first.

    The interval is the middle 95 % of bootstrap samples. Empty if too few settings were tried, or none
    differ.
    """
    values = {one: board.mean(one) for one in board.values if one not in board.failed}
    if len(values) < FEWEST or len(set(values.values())) == 1:
        return {}
    draw = random.Random(seed)  # noqa: S311 - samples of figures
    names = list(values)
    shares: dict[str, list[float]] = {item.name: [] for item in space.parameters}
    for _ in range(_DRAWS):
        chosen = draw.choices(names, k=len(names))
        for name, share in _shares(space, chosen, values).items():
            shares[name].append(share)
    middle = {}
    for name, drawn in shares.items():
        if drawn:
            low, high = (sorted(drawn)[round(share * (len(drawn) - 1))] for share in (0.025, 0.975))
            middle[name] = Interval(low, statistics.median(drawn), high)
    return dict(sorted(middle.items(), key=lambda item: -item[1].mid))


def _shares(space: Space, chosen: list[Candidate], values: Mapping[Candidate, float]) -> dict[str, float]:
    known = distributions(space)
    study = optuna.create_study()
    study.add_trials([freeze(one, values[one], known) for one in chosen])
    evaluator = PedAnovaImportanceEvaluator(target_quantile=_BEST)
    try:
        return get_param_importances(study, evaluator=evaluator)
    except (RuntimeError, ValueError):  # a sample without any difference
        return {}


_SHOWN = 10
UNCHECKED = "The loss was not checked: hvlab cannot read the loss of a command."


@dataclass(frozen=True)
class TuneResult:
    """A search, which took ``seconds``, with its proof, if anything was to be proved.

    ``autotuned`` is the choice of Horovod's autotune, if it ran.
    """

    space: Space
    search: SearchResult
    shares: Mapping[str, Interval]
    proof: Confirmation | None
    seconds: float
    autotuned: Candidate | None = None

    @property
    def proved(self) -> bool:
        """Something better than today's settings was found, and holds."""
        return self.proof is not None and self.proof.holds

    @property
    def answer(self) -> str:
        """The answer in a sentence or two."""
        best, proof = self.search.best, self.proof
        if best is None or proof is None:
            return f"{self._today} as good as anything tried: {self._tried}."
        words, run = self.space.words(best), f" (run {proof.run_id})" if proof.run_id else ""
        if proof.holds:
            return " ".join(filter(None, [f"Better, and proved{run}: {words}.", self.gains, self._beside]))
        if proof.cut_off:
            return (
                f"Open: time ended before there were enough repeats to prove {words}{run}; the same command "
                "continues."
            )
        if proof.against:
            return f"Not accepted: {words}: {proof.reason}{run}."
        return (
            f"Nothing better is proved: the best of what was tried, {words}, is not significantly better "
            f"when it is measured again{run}. {self.gains}"
        )

    @property
    def kind(self) -> str:
        """Kind of answer: better, open, not_accepted or as_good."""
        if self.proof is None:
            return "as_good"
        if self.proof.holds or self.proof.cut_off:
            return "better" if self.proof.holds else "open"
        return "not_accepted" if self.proof.against else "as_good"

    @property
    def gains(self) -> str:
        """Gain of the new settings, for each comparison of the proof."""
        parts = []
        for each, turned in self._ratios():
            size = each.a.get("size_bytes")
            at = f" at {size} bytes" if size is not None else ""
            parts.append(f"{each.row.metric}{at} {interval.words(turned)}, {decision_rows.word(each)}")
        return "; ".join(parts)[:1].upper() + "; ".join(parts)[1:] + "." if parts else ""

    def _ratios(self) -> Iterator[tuple[Decision, Interval]]:
        for each in self.proof.decisions.rows if self.proof else ():
            if (quotient := each.row.verdict.ratio) is not None:
                yield each, Interval(1 / quotient.high, 1 / quotient.mid, 1 / quotient.low)

    @property
    def _today(self) -> str:
        today = self.space.today
        return "Today's settings are" if today.env or today.mpirun or today.rules else "The default is"

    @property
    def _beside(self) -> str:
        return UNCHECKED if self.proof is not None and self.proof.loss_checked is False else ""

    @property
    def _tried(self) -> str:
        board = self.search.board
        tried = len(board.values.keys() | board.failed)
        how = "all that the search proposes" if self.search.exhausted else "until time was up"
        return f"{tried} setting{'s' * (tried != 1)} in {board.launches} launches, {how}"

    def markdown(self) -> str:
        """Return the section of a report: the answer, the trials, the importance."""
        board = self.search.board
        order = sorted(board.values.keys() - board.failed, key=lambda one: (board.mean(one), one))
        lines = ["# Tuning", "", self.answer, ""]
        lines += [f"Tried: {self._tried}, {self.seconds / 60:.1f} minutes of measuring.", ""]
        if self.autotuned is not None:
            lines += [f"Horovod's autotune chose: {self.space.words(self.autotuned)}.", ""]
        lines += ["| settings | time against today's | rounds |", "|---|--:|--:|"]
        lines += [
            f"| {self.space.words(one)} | {_percent(board.mean(one))} | {len(board.values[one])} |"
            for one in order[:_SHOWN]
        ]
        if len(order) > _SHOWN:
            lines.append(f"| {len(order) - _SHOWN} more, up to | {_percent(board.mean(order[-1]))} | |")
        lines += [f"| {self.space.words(one)} | failed | |" for one in sorted(board.failed)]
        lines += ["", "These figures chose the settings; only the proof shows their gain.", ""]
        if self.shares:
            lines += ["| setting | share of the differences | 95 % |", "|---|--:|--:|"]
            lines += [
                f"| {name} | {100 * share.mid:.0f} % | {100 * share.low:.0f} to {100 * share.high:.0f} % |"
                for name, share in self.shares.items()
            ]
            lines += [
                "",
                "Shares in what distinguishes the best fifth (Optuna's PED-ANOVA, bootstrap intervals).",
            ]
        else:
            lines.append(f"Too few settings ran to say which one mattered: it takes {FEWEST}.")
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Return the complete result, JSON-ready."""
        board = self.search.board
        return {
            "proved": self.proved,
            "kind": self.kind,
            "against": self.proof.against if self.proof else "",
            "answer": self.answer,
            "best": self.space.changes(self.search.best) if self.search.best else {},
            "settings": self._settings(self.search.best) if self.search.best else None,
            "run": self.proof.run_id if self.proof else None,
            "seconds": round(self.seconds, 1),
            "launches": board.launches,
            "rounds": board.rounds,
            "autotuned": None if self.autotuned is None else self.space.changes(self.autotuned),
            "tried": [
                {"changes": self.space.changes(one), "log_ratios": board.values.get(one, []),
                 "failed": one in board.failed}
                for one in [*board.values, *sorted(board.failed - board.values.keys())]
            ],
            "importance": {name: [one.low, one.mid, one.high] for name, one in self.shares.items()},
            "gains": [
                {"metric": each.row.metric, "unit": each.row.unit, "size_bytes": each.a.get("size_bytes"),
                 "ratio": [ratio_.low, ratio_.mid, ratio_.high]}
                for each, ratio_ in self._ratios()
            ],
            "loss_checked": self.proof.loss_checked if self.proof else None,
            "proof": decision_rows.as_json(self.proof.decisions) if self.proof else None,
        }  # fmt: skip

    def _settings(self, best: Candidate) -> dict[str, Any]:
        settings: dict[str, Any] = mask(self.space.settings(best).model_dump())
        return {name: value for name, value in settings.items() if value}


def _percent(logarithm: float) -> str:
    return f"{100 * math.expm1(logarithm):+.1f} %"
