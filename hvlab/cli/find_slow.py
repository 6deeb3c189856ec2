"""``hvlab find-slow``: which host is slow, and which link?"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hvlab.base.errors import CheckError
from hvlab.cli import options, textfile
from hvlab.remote import direct, probe
from hvlab.results.formats.plain import Families
from hvlab.results.lock import measuring
from hvlab.results.store import Store
from hvlab.searches.slow import advice
from hvlab.searches.slow.hosts import TRANSFER_S, HostProbe
from hvlab.searches.slow.search import ALPHA, RATIO, SlowSearch, search
from hvlab.searches.slow.trials import Judgement
from hvlab.vlab.limits import host_cores

_WIDE = 10_000


@click.command("find-slow")
@options.of_verb(
    "find-slow",
    ratio={"default": RATIO},
    alpha={"default": ALPHA},
    transfer_time={"default": TRANSFER_S, "names": [f"{1000 * TRANSFER_S:g}ms"]},
)
def command(
    *,
    inventory: Path,
    limit: str | None,
    here: bool,
    named: str | None,
    output_format: str,
    ratio: float,
    alpha: float,
    transfer_time: float,
    torch: str,
    store: Store,
    metrics: Path | None,
    matrix: bool,
) -> None:
    """\b
    hvlab find-slow
    hvlab find-slow --here                      # in a Slurm job, as any user
    hvlab find-slow -l 'n[1:8]' --matrix

    Find out which host is slow, and which link, in which direction.

    First all hosts compute and send to one another at once; then suspects are measured one at a time beside
    others. Data goes over TCP between the hosts' interfaces to the ranks' network; with --torch, from device
    to device, and devices also compute and copy. The hosts need Python 3.8, and should do no other work
    meanwhile. Nothing is changed on them and nothing is stored; the results folder only holds the lock
    against other measurements of the lab. The exit code is 1 if something is slow (virtual hosts that share
    cores do not count) or most links carry nothing, 3 if a host is unreachable.
    """
    textfile.prepare(metrics)
    lab = options.load_requested_lab(inventory, limit, here=here, named=named)
    names = [host.name for host in lab.hosts]
    console = Console(stderr=True)
    lock = measuring(store.folder.resolve(), lab.name)
    with lock, console.status(f"reaching {len(names)} hosts") as status:

        def show(launch: int, steps: int) -> None:
            status.update(f"launch {launch}: {steps} steps on {len(names)} hosts")

        measure = HostProbe(lab, transfer_s=transfer_time, torch=torch, on_launch=show)
        if lab.listed:
            direct.refuse_silent(lab)
        elif len(names) > 1:
            probe.probe(lab.hosts)
        result = search(len(names), measure, ratio=ratio, alpha=alpha, copies=bool(torch))
    cores = {host: held.cpus for host, held in host_cores(lab.name).items()}
    placed = {
        each: advice.lacks_shared_cores(each, names, measure.shares, cores) for each in result.of("slow")
    }
    slow = [each for each, others in placed.items() if not others]
    if output_format == "json":
        given = {"lab": lab.name, "ratio": ratio, "alpha": alpha}
        excused = [each for each, others in placed.items() if others]
        outcome = advice.as_json(result, names, measure.shares, excused)
        click.echo(json.dumps({**given, **outcome}, indent=1))
    else:
        _print(result, names, measure, placed, matrix=matrix)
    described = [advice.describe(each, names).title for each in slow]
    textfile.write(metrics, "find-slow", lab.name, _gauges(described, slow))
    if slow:
        titles = "; ".join(described)
        raise CheckError(titles, remedy="see above; run this again afterwards")


def _gauges(titles: Sequence[str], slow: Sequence[Judgement]) -> Families:
    ratios: dict[tuple[tuple[str, str], ...], float] = {
        (("what", title),): each.slower.mid for title, each in zip(titles, slow, strict=True)
    }
    return {
        "hvlab_slow_count": ("Number of slow hosts and links.", {(): float(len(slow))}),
        "hvlab_slow_ratio": ("Time of a slow host or link over that of the others.", ratios),
    }


def _print(
    result: SlowSearch,
    names: list[str],
    measure: HostProbe,
    placed: Mapping[Judgement, Sequence[str]],
    *,
    matrix: bool,
) -> None:
    click.echo(
        f"{advice.compare_effort(result)}\nmedian of the links: {advice.format_speed(result.median_rate)}"
    )
    if matrix:
        Console(width=None if Console().is_terminal else _WIDE).print(heat_map(result, names))
    for each, others in placed.items():
        place = advice.describe(each, names, measure.shares)
        if others:
            name = names[each.suspect.host]
            click.echo(f"\n{name} is not at fault: `hvlab lab up` placed it on cores of {', '.join(others)}")
            continue
        click.echo(f"\n{place.title}\n  observed: {place.observed}\n  what to do: {place.remedy}")
    for each in result.of("open"):
        place = advice.describe(each, names, measure.shares)
        click.echo(
            f"\nnot decided: {place.title}\n  observed: {place.observed}\n  what to do: run this again"
        )
    if result.groups:
        click.echo(f"\n{advice.describe_far_groups(result, names)}")
    elif result.together:
        click.echo(f"\n{advice.explain_shared_links(result, names)}")
    for text in advice.list_unconfirmed(result, names):
        click.echo(f"\n{text}")
    if result.untried:
        click.echo(f"\n{advice.explain_untried(result)}")
    if all(placed.values()):
        click.echo(f"\n{advice.conclude(result)}")


def heat_map(result: SlowSearch, names: list[str]) -> Table:
    """Return each link's time relative to the median: a row for each sender."""
    table = Table("from / to", *names, "computing", box=None, pad_edge=False)
    for sender, name in enumerate(names):
        links = [result.links.get((sender, receiver)) for receiver in range(len(names))]
        table.add_row(name, *(_heat(value) for value in (*links, result.computing[sender])))
    return table


def _heat(value: float | None) -> Text:
    if value is None:
        return Text("·", justify="right")
    if math.isinf(value):
        return Text("none", style="white on red3", justify="right")
    bands = ((1.2, ""), (1.5, "black on yellow"), (2.5, "white on dark_orange3"))
    style = next((style for bound, style in bands if value < bound), "white on red3")
    return Text(f"{value:.2f}" if value < 100 else f"{value:.2g}", style=style, justify="right")  # noqa: PLR2004
