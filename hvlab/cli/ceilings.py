"""Are collectives as fast as their links allow? Printed below the tables of a run."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hvlab.analysis import ceiling
from hvlab.analysis.ceiling import Ceiling, JudgedCollective
from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.lab.facts_shape import Facts
from hvlab.results import tables
from hvlab.results.configurations import gather
from hvlab.results.store import Record, Store
from hvlab.results.summary import sections

_FACTS = 256 * 2**20
_MOST = 5
_VERDICTS = {
    "normal": "as fast as it should be",
    "slow": "slow: {usual:.0%} or more is usual",
    "rising": "still rising with the size: measure larger messages",
    "impossible": "more than these links can carry ({bound:.3g} GB/s): the figure or the facts are wrong",
}
_KINDS = {
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "rdma": "network (RDMA)",
    "network": "network",
    "uplink": "uplink",
}


def show(store: Store, run_id: str, records: Sequence[Record]) -> None:
    """Print the tables of a run, and below them each collective beside the ceiling of its links."""
    try:
        facts = answers.read(
            store.run_folder(run_id) / "facts.json", "facts.json", dict[str, Facts], limit=_FACTS
        )
    except (FileNotFoundError, AnswerError):
        facts = {}
    limits = ceiling.ceilings(records, facts)
    known = {one: each.busbw for one, each in limits.items() if isinstance(each, Ceiling)}
    for section in sections(records, known):
        click.echo(tables.render(section.rows, section.columns, "table"))
    judgements = ceiling.judge(gather(records), limits)
    for judgement in judgements[:_MOST]:
        click.echo(f"ceiling: {_sentence(judgement)}")
    if len(judgements) > _MOST:
        click.echo(f"ceiling: and {len(judgements) - _MOST} more; `hvlab report {run_id}` has all")
    reasons = dict.fromkeys(each for each in limits.values() if each and isinstance(each, str))
    if reasons:
        click.echo(f"no ceiling is known: {'; '.join(reasons)}")


def _sentence(judged: JudgedCollective) -> str:
    one, top, limit = judged.configuration, judged.ceiling, judged.ceiling.limit
    share, where = top.share(judged.busbw), f"{limit.place}'s " if limit.place else "the "
    verdict = _VERDICTS[judged.verdict].format(usual=limit.usual, bound=top.bound)
    beyond = ", for a tree over few hosts and a switch that reduces send less" if share > 1 else ""
    return (
        f"{one.workload} over {one.backend} on {len(one.hosts)}x{one.slots}: {judged.busbw:.3g} GB/s, "
        f"{share:.0%} of the {top.busbw:.3g} GB/s that a ring can do{beyond}; "
        f"the limit is {where}{_KINDS[limit.kind]}, {limit.text}; {verdict}"
    )
