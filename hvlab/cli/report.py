"""``hvlab report``."""

from __future__ import annotations

from pathlib import Path

import click

from hvlab.base.errors import UsageError
from hvlab.base.files import write_file
from hvlab.base.paths import results_dir
from hvlab.cli import candidates, options
from hvlab.report import data as reading
from hvlab.report.words import LANGUAGES, load
from hvlab.report.write import FILES, FORMATS, Written, save, write
from hvlab.results.store import Store
from hvlab.workloads.metrics import METRICS

_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".pdf": "pdf"}


@click.command("report")
@click.argument("run", required=False, shell_complete=candidates.runs)
@click.option(
    "--lang",
    type=click.Choice(LANGUAGES),
    default="en",
    show_default=True,
    help="Language of the report. HTML contains both and shows this one first.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    help="One HTML page, Markdown with separate pictures, or PDF.  [default: by --output, else html]",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="File to write.  [default: report.html, .md or .pdf in the run's folder]",
)
@click.option(
    "--fill",
    "template",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Fill in the tables of the lab sheet FILE.md instead of writing a report.",
    metavar="FILE.md",
)
@click.option(
    "--history",
    type=click.Choice(list(METRICS)),
    metavar="METRIC",
    help="Instead, write a page on METRIC, such as step_time or busbw, over all runs of RUN's lab.",
)
@options.results
def command(
    *,
    history: str | None,
    run: str | None,
    lang: str,
    output_format: str | None,
    output: Path | None,
    template: Path | None,
    folder: Path | None,
) -> int:
    """Write a report on RUN (default: the last run): which backend is best, tables, plots and findings."""
    store = Store(folder.absolute() if folder else results_dir())
    if history:
        if template is not None:
            raise UsageError("--fill takes the figures of one run", remedy="leave out --history")
        return _history(store, run, history, output=output, output_format=output_format, lang=lang)
    run_data = reading.read(store, run)
    if template is not None:
        if output_format or output:
            raise UsageError("--fill changes the lab sheet itself", remedy="leave out --format and --output")
        _fill(template, run_data, lang)
        return 0
    chosen = _format(output_format, output)
    if output is None:
        output = store.run_folder(run_data.head.run_id) / f"report.{chosen}"
        output.parent.mkdir(parents=True, exist_ok=True)
    return _tell(write(run_data, output.absolute(), output_format=chosen, lang=lang))


def _format(output_format: str | None, output: Path | None) -> str:
    return output_format or (_SUFFIXES.get(output.suffix.lower()) if output else None) or "html"


def _tell(written: Written) -> int:
    if not written.spoken:
        click.echo(
            "the plots are labelled in English: no Chinese font is installed (try fonts-noto-cjk)",
            err=True,
        )
    click.echo(written.path)
    return 0


def _history(
    store: Store,
    run: str | None,
    metric: str,
    *,
    output: Path | None,
    output_format: str | None,
    lang: str,
) -> int:
    from hvlab.report import history  # noqa: PLC0415 - only this option needs it

    runs = history.read(store, metric, run)
    chosen = _format(output_format, output)
    lab = runs[-1].run.lab
    # An imported run's lab may be called anything.
    path = (output or store.folder / f"history-{lab.replace('/', '_')}-{metric}.{chosen}").absolute()
    page = history.document(runs, metric)
    return _tell(save(page, path, name=f"{lab} {metric}", output_format=chosen, lang=lang))


def _fill(template: Path, run_data: reading.ReportData, lang: str) -> None:
    from hvlab.report import analysis, fill, images, markdown  # noqa: PLC0415 - only this option needs them

    folder = template.with_name(f"{template.stem}{FILES}")
    try:
        text = template.read_bytes().decode("utf-8")
        filled = fill.fill(text, run_data, lang, pictures=folder.name)
        # The pictures of an answer that stays are of another run.
        curves = analysis.curves(run_data) if "backends" in filled.answers else []
        plots = [one for one in curves if markdown.picture(folder.name, one.key) in filled.text]
        if plots:
            images.write(plots, load(lang), folder)
        # Whole or not at all, and where a link to it leads.
        write_file(template.resolve(), filled.text.encode("utf-8"), mode=template.stat().st_mode & 0o7777)
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{template} cannot be filled: {getattr(error, 'strerror', None) or error}"
        raise UsageError(problem, remedy="name a Markdown file in UTF-8 that can be written") from error
    for each in filled.overwritten:
        change = f"{each.head}: {each.old} -> {each.new or 'nothing, the row was replaced'}"
        click.echo(f"{template}, line {each.line}: {change}", err=True)
    for left in filled.left:
        names = ", ".join(left.trainings)
        problem = f"this table ({left.kind}) was left alone: the text above it names none of {names}"
        click.echo(f"{template}, line {left.line}: {problem}", err=True)
    for name in filled.missing:
        click.echo(f"{template} has no table for {name}", err=True)
    for empty in filled.empty:
        click.echo(f"{template}, line {empty.line}: {analysis.why_empty(run_data, empty)}", err=True)
    click.echo(template.absolute())
