"""``hvlab baseline``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hvlab.analysis import baseline
from hvlab.analysis.baseline import output
from hvlab.analysis.compare import Measurements, measurements, rows
from hvlab.base.errors import UsageError
from hvlab.base.files import writing
from hvlab.cli import candidates, options
from hvlab.cli.compare import MATTERS
from hvlab.results.store import Store
from hvlab.statistics.between import FEWEST

_NAME = {"default": baseline.DEFAULT}


@click.group("baseline", cls=options.SubVerbs)
def command() -> None:
    """\b
    hvlab baseline set last~1
    hvlab baseline add
    hvlab baseline check --strict

    Keep runs as the baseline of their lab, and check later runs against it.
    """


@command.command("set", short_help="Make runs the baseline of their lab.")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=candidates.runs)
@options.of_verb("baseline-keep", name=_NAME)
def set_baseline(*, runs: tuple[str, ...], name: str, store: Store) -> int:
    """Make each RUN (default: the last run) the baseline of their lab, in place of the earlier one."""
    return _keep(store, [_measurements(store, run) for run in runs or (None,)], name)


@command.command("add", short_help="Add runs to the baseline of their lab.")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=candidates.runs)
@options.of_verb("baseline-keep", name=_NAME)
def add_to_baseline(*, runs: tuple[str, ...], name: str, store: Store) -> int:
    """Add each RUN (default: the last run) to the baseline of its lab; the first ones begin it."""
    measured = [_measurements(store, run) for run in runs or (None,)]
    lab = measured[0].lab
    known = baseline.load(store.folder, lab, name=name) if name in baseline.names(store.folder, lab) else ()
    return _keep(store, [*known, *measured], name)


def _keep(store: Store, runs: Sequence[Measurements], name: str) -> int:
    file = baseline.save(store.folder, runs, name=name)
    names = ", ".join(run.run_id for run in runs)
    click.echo(f"baseline {name} of lab {runs[0].lab} now consists of runs {names}: {file}")
    if len(runs) < FEWEST:
        click.echo(
            f"a verdict on later runs needs {FEWEST} runs in the baseline, preferably at different times of "
            f"day, it has {len(runs)}: measure again, then `hvlab baseline add`",
            err=True,
        )
    return 0


@command.command("check", short_help="Check a run against the baseline; exit code 1 if worse.")
@click.argument("run", required=False, shell_complete=candidates.runs)
@options.of_verb("baseline-check", name=_NAME, matters=MATTERS)
def check_run(
    *,
    run: str | None,
    name: str,
    metric: str | None,
    matters: float,
    strict: bool,
    store: Store,
    output_format: str,
    file: Path | None,
) -> int:
    """Check RUN (default: the last run) against the baseline of its lab; exit code 1 on a regression.

    How much runs differ merely because they were measured at different times is estimated from the runs of
    the baseline. With fewer than five, all figures are undecided; what fails now and did not before is a
    regression. The exit code is 1 on a regression; where nothing is worse than undecided it is 0, and 1 with
    --strict.
    """
    measured = _measurements(store, run)
    kept = baseline.load(store.folder, measured.lab, name=name)
    if measured.run_id in {one.run_id for one in kept}:
        problem = f"run {measured.run_id} is in the baseline {name} itself"
        raise UsageError(problem, remedy="measure again with `hvlab bench`, or name another run")
    checked = baseline.check(measured, kept, metric=metric, matters=matters / 100)
    text = output.render(checked, output_format, strict=strict)
    if file:
        with writing(file):
            file.write_text(text + "\n", "utf-8")
    else:
        click.echo(text)
    for difference in checked.comparison.differences:
        click.echo(f"differs (A: the run, B: the baseline): {difference}", err=True)
    summary = output.summary(checked, strict=strict)
    click.echo(
        f"run {measured.run_id} against {', '.join(one.run_id for one in kept)}: {summary}\n{rows.NOTE}",
        err=True,
    )
    return 0 if checked.passed(strict=strict) else 1


def _measurements(store: Store, run: str | None) -> Measurements:
    chosen = store.run(run)
    return measurements(chosen, store.records(chosen.run_id))
