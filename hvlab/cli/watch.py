"""``hvlab watch``: a run in progress, seen from another terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hvlab.bench.watch import View, Watch, current, open_watch
from hvlab.cli import candidates, options
from hvlab.results import searches
from hvlab.results.store import Record, Store

_EVERY_S = 1.0
_WIDE = 10_000
# A narrower terminal shows the cases and how they ended, without bar, hosts and figures.
_NARROW = 60
# Lines on a terminal besides cases and verdicts, and the minimum of either.
_REST, _FEWEST = 12, 3
_STYLES = {"ok": "green", "failed": "red", "skipped": "yellow"}


@click.command("watch")
@click.argument("run", required=False, shell_complete=candidates.runs)
@options.of_verb("watch")
def command(*, run: str | None, once: bool, store: Store) -> int:
    """\b
    hvlab watch
    hvlab watch last --once

    Show a run in progress: its cases, the time left, the verdicts.

    RUN is a run of bench, tune or bisect; the default is the newest in progress. In a search of tune or
    bisect, the display follows from run to run until the search ends.

    It reads what these commands write on this machine, contacts no host, and may be stopped at any time.
    Verdicts are those of the last look at all comparisons of a run with --repeats auto, --ab or --against; in
    between there are none, since looking more often would find more false ones. The display ends with the
    run: exit code 0 if the run finished, 1 if cases failed or it did not finish, 130 after Ctrl-C. A search
    gives 0 if it reached a result, else 1.
    """
    watch = open_watch(store, run) if run else current(store)
    console = Console(highlight=False)
    try:
        view = watch.read()
        if once or (view.ended and not console.is_terminal):
            _print(view)
        elif console.is_terminal:
            view = _live(watch, view, console)
        else:
            view = _lines(watch, view)
    except KeyboardInterrupt:
        return 130
    if once and not view.ended:
        return 0
    if view.search:
        return _search_end(view.search)
    return 0 if view.state == "finished" and not view.count("failed") else 1


def _search_end(folder: Path) -> int:
    name = searches.name(folder)
    if searches.has_ended(folder):
        click.echo(f"{name} ended; its report is in {folder}")
        return 0
    click.echo(f"{name} did not finish; the same command resumes it")
    return 1


def _print(view: View) -> None:
    """Print a view once; rows are wrapped only on a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDE)
    cases = _cases(view, len(view.cases), console)
    console.print(Group(*_head(view, bar=False), *cases, *_verdicts(view, _WIDE)))


def _live(watch: Watch, view: View, console: Console) -> View:
    page = _Page(console)
    with Live(page.render(view), console=console, auto_refresh=False) as live:
        while not view.ended:
            time.sleep(_EVERY_S)
            view = watch.read()
            live.update(page.render(view), refresh=True)
    return view


def _lines(watch: Watch, view: View) -> View:
    shown, said = len(view.cases), ""
    _print_head(view)
    while True:
        for number, case in enumerate(view.cases[shown:], shown + 1):
            place = f"[{number}/{view.total}] {case.case} on {','.join(case.hosts)}"
            click.echo(": ".join(filter(None, [place, case.status, _line(case.said)])))
        shown = len(view.cases)
        if view.doing not in ("", said):
            said = view.doing
            click.echo(f"{said}; {_time(view)}" if view.going else said)
        if view.ended:
            break
        time.sleep(_EVERY_S)
        before, view = view, watch.read()
        if view.run.run_id != before.run.run_id:
            shown = 0
            _print_head(view)
    _print_head(view)
    return view


def _print_head(view: View) -> None:
    click.echo(_title(view))
    click.echo(_counts(view))


class _Page:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._judged: tuple[Record, ...] | None = None
        self._verdicts: list[RenderableType] = []

    def render(self, view: View) -> RenderableType:
        """Return the page; verdicts are computed only after a look, since that takes a second."""
        room = max(2 * _FEWEST, self.console.height - _REST)
        verdicts = room // 2 if view.judged else 0
        if view.judged is None or view.judged != self._judged:
            self._judged, self._verdicts = view.judged, list(_verdicts(view, verdicts))
        head = _head(view, bar=self.console.width >= _NARROW)
        return Group(*head, *_cases(view, room - verdicts, self.console), *self._verdicts)


def _head(view: View, *, bar: bool) -> Iterator[RenderableType]:
    yield Text(_title(view), style="bold")
    counts = Text(_counts(view))
    if bar:
        line = Table.grid(padding=(0, 1))
        line.add_row(ProgressBar(total=max(1, view.total), completed=len(view.cases), width=24), counts)
        yield line
    else:
        yield counts
    yield Text(_time(view))
    if view.doing:
        yield Text(f"now: {view.doing}", no_wrap=True, overflow="ellipsis")


def _title(view: View) -> str:
    run, progress = view.run, view.progress
    name = f"run {run.run_id} of {searches.name(view.search)}" if view.search else f"run {run.run_id}"
    title = f"{name} on {run.lab}: {view.state}"
    if view.state == "elsewhere" and progress:
        title = f"{name} on {run.lab}: running on {progress.machine}"
        return f"{title}, unless it was killed: that cannot be seen from here"
    if view.state == "killed":
        process = f"process {progress.pid}" if progress else "its process"
        resume = "the same command" if view.search else f"`hvlab bench --resume {run.run_id}`"
        return f"{title}; {process} is gone; {resume} resumes it"
    return title


def _counts(view: View) -> str:
    waiting = max(0, view.total - len(view.cases) - view.running)
    done = ", ".join(f"{number} {word}" for word in _STYLES if (number := view.count(word)))
    words = [f"{len(view.cases)} of {view.total} cases done" + (f" ({done})" if done else "")]
    words += [f"{view.running} running"] * bool(view.running)
    words += [f"{waiting} to do"] * bool(waiting)
    return ", ".join(words)


def _time(view: View) -> str:
    words = []
    if view.elapsed is not None:
        words.append(f"elapsed {_clock(view.elapsed)}")
    if view.left is not None:
        words.append(f"about {_clock(view.left)} left")
    elif view.going and view.progress and view.progress.expected:
        words.append(f"expected: {view.progress.expected}")
    return ", ".join(words) or f"begun {view.run.started_at}"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _cases(view: View, most: int, console: Console) -> Iterator[RenderableType]:
    wide = console.width >= _NARROW
    if view.cases:
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("last cases" if len(view.cases) > most else "cases", no_wrap=True)
        for heading in ("hosts", "", "figures") if wide else ("",):
            width = None if heading else max(map(len, _STYLES))
            table.add_column(heading, no_wrap=True, overflow="ellipsis", min_width=width)
        for case in view.cases[-most:]:
            status = Text(case.status, style=_STYLES.get(case.status, ""))
            row = (Text(_hosts(case.hosts)), status, Text(_line(case.said))) if wide else (status,)
            table.add_row(Text(case.case), *row)
        yield Text()
        yield table


def _hosts(hosts: Sequence[str]) -> str:
    return ",".join(hosts) if len(hosts) <= _FEWEST else f"{hosts[0]}..{hosts[-1]} ({len(hosts)})"


def _line(text: str) -> str:
    return " ".join(text.split())


def _verdicts(view: View, most: int) -> Iterator[RenderableType]:
    if view.judged is None or not (view.judged or view.going):
        return
    yield Text()
    if not view.judged:
        when = "after the sixth repeat of each case" if view.spec.get("auto") else "after the last repeat"
        yield Text(f"verdicts: {when}")
        return
    # These load slowly, and a run without comparisons needs none of them.
    from hvlab.analysis.compare import decision_rows, measurements  # noqa: PLC0415
    from hvlab.analysis.compare.decisions import decide  # noqa: PLC0415

    decisions = decide(measurements(view.run, view.judged), view.spec)
    repeats = max(record.repeat for record in view.judged)
    yield Text(f"after {repeats} repeats: {decision_rows.sentences(decisions)[0]}", style="bold")
    rows = decision_rows.table(decisions)
    if not rows:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    names = [name for name in decision_rows.COLUMNS if name not in ("why", "needs")]
    for name in names:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for row in rows[:most]:
        table.add_row(*(Text(_format(row.get(name))) for name in names))
    yield table
    if len(rows) > most:
        yield Text(f"and {len(rows) - most} more: `hvlab compare {view.run.run_id}`")


def _format(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
