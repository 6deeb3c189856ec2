"""``hvlab report``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from hvlab.base.errors import UsageError, explain_unknown
from hvlab.base.files import write_file
from hvlab.cli import candidates, options
from hvlab.report import data as reading
from hvlab.report.report import SIGNATURE, Report, analyse
from hvlab.report.words import LANGUAGES, load
from hvlab.report.write import FILES, FORMATS, Written, save, write
from hvlab.results.store import Store
from hvlab.workloads.metrics import METRICS

_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".pdf": "pdf"}


@click.command("report")
@click.argument("run", required=False, shell_complete=candidates.runs)
@options.of_verb(
    "report",
    lang={"type": click.Choice(LANGUAGES)},
    output_format={"type": click.Choice(FORMATS)},
    signed={"names": SIGNATURE},
    history={"type": click.Choice(list(METRICS))},
)
def command(
    *,
    history: str | None,
    run: str | None,
    lang: str | None,
    output_format: str | None,
    output: Path | None,
    template: Path | None,
    in_place: bool,
    signed: Sequence[str],
    store: Store,
) -> int:
    """\b
    hvlab report                                # the last run
    hvlab report last~1 --output lab7.pdf --lang zh
    hvlab report --fill lab7.md                 # a lab sheet

    Write a report on RUN (default: the last run): which backend is best, tables, plots and findings.
    """
    if in_place and (output or not template):
        raise UsageError("--in-place changes the sheet of --fill", remedy="give --fill, and no --output")
    if history:
        if template or signed:
            raise UsageError("--fill and --sign are for one run", remedy="leave out --history")
        return _history(store, run, history, output=output, output_format=output_format, lang=lang or "en")
    signature = _signature(signed)
    run_data = reading.read(store, run)
    if template is not None:
        if output_format or (
            output and output.suffix.lower() not in ("", ".md", ".markdown", template.suffix)
        ):
            raise UsageError(
                "--fill writes the sheet's own format, Markdown",
                remedy="leave out --format, and let the name of --output end in .md",
            )
        beside = output or template.with_name(f"{template.stem}.filled.md")
        _fill(template, template if in_place else beside, analyse(run_data, signature=signature), lang)
        return 0
    chosen = _format(output_format, output)
    if output is None:
        output = store.run_folder(run_data.head.run_id) / f"report.{chosen}"
        output.parent.mkdir(parents=True, exist_ok=True)
    with Console(stderr=True).status(f"writing {output}"):
        written = write(
            run_data, output.absolute(), output_format=chosen, lang=lang or "en", signature=signature
        )
    return _tell(written)


def _signature(signed: Sequence[str]) -> dict[str, str]:
    from hvlab.report import sheet  # noqa: PLC0415 - most reports are not signed

    written = (one.partition("=")[::2] for one in signed)
    given = {sheet.signature_name(name) or name: value for name, value in written}
    for name, value in given.items():
        if name not in SIGNATURE:
            raise explain_unknown("name in --sign", name, SIGNATURE)
        if not value.strip():
            raise UsageError(f"--sign {name} has no value", remedy=f'write --sign {name}="..."')
    return {name: given[name] for name in SIGNATURE if name in given}


def _format(output_format: str | None, output: Path | None) -> str:
    """Return the format. Raises UsageError if option and file name disagree."""
    suffix = output.suffix.lower() if output else ""
    by_name = _SUFFIXES.get(suffix)
    if suffix and not by_name and not output_format:
        raise UsageError(
            f"--output {output}: no report is written as {suffix}",
            remedy="let the name end in .html, .md or .pdf, or give --format",
        )
    if output_format and by_name and by_name != output_format:
        raise UsageError(
            f"--output {output} is a name of {by_name}, and --format says {output_format}",
            remedy="leave out --format, or give the file another ending",
        )
    return output_format or by_name or "html"


def _tell(written: Written) -> int:
    if not written.spoken:
        click.echo(
            "the plots are labelled in English: no Chinese font is installed (try fonts-noto-cjk)", err=True
        )
    click.echo(written.path)
    return 0


def _history(
    store: Store, run: str | None, metric: str, *, output: Path | None, output_format: str | None, lang: str
) -> int:
    from hvlab.report import history  # noqa: PLC0415 - only this option needs it

    runs = history.read(store, metric, run)
    chosen = _format(output_format, output)
    lab = runs[-1].run.lab
    # An imported run's lab may have any name, even one unfit for a file.
    path = (output or store.folder / f"history-{lab.replace('/', '_')}-{metric}.{chosen}").absolute()
    page = history.document(runs, metric)
    return _tell(save(page, path, name=f"{lab} {metric}", output_format=chosen, lang=lang))


def _fill(template: Path, output: Path, report: Report, lang: str | None) -> None:
    from hvlab.report import fill, images, sheet, trainings  # noqa: PLC0415 - only this option needs them

    folder = output.with_name(f"{output.stem}{FILES}")
    try:
        text = template.read_bytes().decode("utf-8-sig")
        lang = lang or sheet.language(text)
        filled = fill.fill(text, report, lang, pictures=folder.name)
        if "backends" in filled.answered:
            font = images.chinese_font() if lang == "zh" else None
            curves = trainings.curves(report.data, report.studies, load("zh" if font else "en"))
            images.write(curves, folder, font)
        # Written atomically, to the target if it is a link.
        target = output.resolve()
        if kept := _keep(target, filled.text.encode("utf-8")):
            click.echo(f"{output} was kept as {kept.name}", err=True)
        write_file(target, filled.text.encode("utf-8"), mode=template.stat().st_mode & 0o7777)
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, UnicodeDecodeError):
            problem = "it is not UTF-8 text"
            remedy = (
                "save it as Markdown in UTF-8: `pandoc x.docx -t gfm -o x.md`, `iconv -f GB18030 -t UTF-8`"
            )
        else:
            problem = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            remedy = "name a Markdown file, and a file that can be written"
        raise UsageError(f"{template} cannot be filled: {problem}", remedy=remedy) from error
    for line, note in filled.notes:
        click.echo(f"{output}, line {line}: {note}" if line else note, err=True)
    click.echo(output.absolute())


def _keep(path: Path, content: bytes) -> Path | None:
    """Copy a file that is about to be overwritten with something else; return the copy."""
    if not path.exists() or path.read_bytes() == content:
        return None
    names = (path.with_name(f"{path.name}.~{number}~") for number in itertools.count(1))
    kept = next(name for name in names if not name.exists())
    write_file(kept, path.read_bytes(), mode=path.stat().st_mode & 0o7777)
    return kept
