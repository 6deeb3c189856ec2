"""``hvlab results``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from hvlab.analysis import ceiling, described, nccl_topology
from hvlab.base.answers import AnswerError
from hvlab.base.errors import UsageError, did_you_mean
from hvlab.base.files import writing
from hvlab.cli import bench_output, candidates, options
from hvlab.results import formats, samples, tables
from hvlab.results.formats import MeasuredRun, importing
from hvlab.results.formats.names import PROGRAMS
from hvlab.results.formats.records import LaunchOverrides
from hvlab.results.store import FIELDS, Record, Store
from hvlab.results.summary import failures
from hvlab.workloads.operations import OPERATIONS
from hvlab.workloads.outcome import ending

RUN_COLUMNS = ("run_id", "started_at", "cases", "ok", "failed", "state", "lab")


@click.group("results", cls=options.SubVerbs)
def command() -> None:
    """\b
    hvlab results list
    hvlab results show last
    hvlab results export last~1 --format csv --output run.csv
    hvlab results import nccl.log --ran-on 2 --slots 8

    List, show, export and import results.
    """


@command.command("list", short_help="List the runs, newest first.")
@options.of_verb("results-list")
def list_runs(*, store: Store, output_format: str) -> int:
    """List the runs, newest first: start time, number of cases, how many succeeded."""
    rows = store.overview()
    if not rows and output_format == "table":
        click.echo("no runs yet: start one with `hvlab bench`", err=True)
        return 0
    if output_format == "table":
        rows = [{**row, "started_at": str(row["started_at"])[:16].replace("T", " ")} for row in rows]
    click.echo(tables.render(rows, RUN_COLUMNS, output_format))
    return 0


@command.command("show", short_help="Show a run, by default the last.")
@click.argument("run", required=False, shell_complete=candidates.runs)
@options.of_verb("results-show")
def show_run(*, run: str | None, store: Store, output_format: str) -> int:
    """Show RUN (default: the last run): a short table, or all fields of all records as json or csv."""
    chosen = store.run(run)
    records = store.records(chosen.run_id)
    if output_format != "table":
        click.echo(tables.render([vars(record) for record in records], FIELDS, output_format))
        return 0
    click.echo(f"run {chosen.run_id} of {chosen.started_at} on {chosen.lab}: {chosen.state}")
    _show(store, chosen.run_id, records)
    click.echo(f"raw files: {store.run_folder(chosen.run_id)}; all fields: --format json or csv")
    return 0


@command.command("samples", short_help="Show how the iterations of a run are distributed.")
@click.argument("run", required=False, shell_complete=candidates.runs)
@options.of_verb("results-samples")
def show_samples(*, run: str | None, store: Store, output_format: str) -> int:
    """Show how the iterations of RUN (default: the last run) are distributed.

    A row for each configuration: mean, median, p95, p99 and a histogram of the iterations of all repeats
    after the warm-up; each is the mean over the ranks. p95 needs 20 iterations, p99 needs 100. The last bar
    holds everything beyond. JSON has the edges and counts of the histogram.
    """
    from hvlab.analysis.compare.rows import case_names  # noqa: PLC0415 - it takes long, and `list` must not

    chosen = store.run(run)
    sampled = samples.samples_of(store, store.records(chosen.run_id))
    if not sampled and output_format == "table":
        raise UsageError(
            f"run {chosen.run_id} has no raw files with iterations in {store.run_folder(chosen.run_id)}",
            remedy="imported figures have none; name a run that was measured here",
        )
    if output_format == "table":
        table = samples.table(sampled, case_names(sampled))
        click.echo(tables.render(table, samples.TABLE, output_format))
        return 0
    columns = (*samples.COLUMNS, *(["histogram"] if output_format == "json" else []))
    click.echo(tables.render(samples.rows(sampled), columns, output_format))
    return 0


@command.command("export", short_help="Export a run in the format of another tool.")
@click.argument("run", required=False, shell_complete=candidates.runs)
@options.of_verb("results-export", name={"type": click.Choice(list(formats.FORMATS))})
def export_run(
    *, run: str | None, name: str, cases: tuple[str, ...], output: Path | None, store: Store
) -> int:
    """Export RUN (default: the last run) in the format of another tool.

    nccl-tests, nccl-tests-json and osu contain the collectives, one launch after another; as JSON, each on
    a line of its own. csv and jsonl contain every record, junit a test for each case, and prometheus gauges
    in seconds and bytes.
    """
    chosen = store.run(run)
    records = store.records(chosen.run_id)
    missing = set(cases) - {record.case_id for record in records}
    if missing:
        raise UsageError(
            f"run {chosen.run_id} has no case {', '.join(sorted(missing))}",
            remedy=f"`hvlab results show {chosen.run_id} --format csv` lists them",
        )
    exported = [record for record in records if not cases or record.case_id in cases]
    measured = MeasuredRun(chosen, exported, _seconds(store, chosen.run_id))
    text = formats.export(name, measured)
    left_out = formats.list_left_out(name, measured)
    if left_out:
        click.echo(f"{len(left_out)} cases cannot be written as {name}: {', '.join(left_out)}", err=True)
    if output is None:
        click.echo(text, nl=False)
        return 0
    with writing(output):
        output.write_text(text, "utf-8")
    return 0


@command.command("rebuild", short_help="Rebuild the index of the runs.")
@options.of_verb("results-rebuild")
def rebuild_store(*, store: Store) -> int:
    """Rebuild the index of the runs, and report missing files.

    Any command rebuilds it if it is missing or damaged: the folders of the runs hold everything.
    """
    records, unread = store.rebuild()
    known = {run.run_id for run in store.runs()}
    click.echo(f"{store.folder / 'hvlab.db'} is new: {len(known)} runs, {records} records")
    if unread:
        click.echo(f"{unread} lines of {store.folder}/runs/*/store.jsonl cannot be read", err=True)
    bare = [each for each in sorted((store.folder / "runs").glob("*/")) if each.name not in known]
    for each in bare:
        click.echo(f"{each} has files, but does not say what was asked", err=True)
    return 1 if unread or bare else 0


@command.command("import", short_help="Import the output of nccl-tests, OSU or a training as a new run.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.of_verb("results-import", reader={"type": click.Choice(list(formats.READERS))})
def import_files(
    *,
    files: tuple[Path, ...],
    reader: str | None,
    lab: str,
    workload: str | None,
    backend: str | None,
    hosts: str | None,
    slots: int | None,
    gpus: str | None,
    nic: str | None,
    store: Store,
) -> int:
    """Import what nccl-tests (text, JSON), the OSU benchmarks or a training printed into FILES as a new run.

    A training is one of Horovod's synthetic benchmarks, or tf_cnn_benchmarks. Files may be packed (gzip,
    bzip2, xz), in UTF-8, UTF-16 or UTF-32, or docker's log of a container.

    Output of any version is accepted, whatever launchers, pods or clocks put before its lines. Launches of
    the same configuration become its repeats; the settings that a file states belong to the configuration.
    An impossible row becomes a failure with its line, and columns without a metric are named.

    Each collective is judged by the capacity of its links. A file names its GPUs, but not the network: add
    --nic if ranks are on several hosts.
    """
    # The names of nccl-tests are taken, too.
    workload = workload and PROGRAMS.get(workload.lower().removesuffix("_perf"), workload)
    if workload and workload not in OPERATIONS and (near := did_you_mean(workload, OPERATIONS)):
        raise UsageError(f"--workload {workload} is not known", remedy=near.strip())
    overrides = LaunchOverrides(workload, backend, _hosts(hosts), slots, _hardware(gpus, nic))
    run_id, records = importing.import_files(store, files, overrides, reader=reader, lab=lab)
    cases = dict.fromkeys(record.case_id for record in records)
    click.echo(f"run {run_id}: cases {len(cases)}, records {len(records)}, files {len(files)}")
    _show(store, run_id, records)
    for text in (*_unknown(gpus), *_contradictions(records, gpus)):
        click.echo(text, err=True)
    if gpus is None and any(row.backend == "nccl" and not row.stack.get("gpus") for row in records):
        click.echo("inside hosts the GPUs count: give them with --gpus, such as --gpus h100:8", err=True)
    if nic is None and any(row.backend == "nccl" and len(row.hosts) > 1 for row in records):
        click.echo("between hosts the network counts: give it with --nic, such as --nic 8x400", err=True)
    for file in dict.fromkeys(
        record.stack["file"] for record in records if not (record.hosts and record.slots_per_host)
    ):
        click.echo(
            f"{file} does not say on which hosts its ranks ran, or how many ran on each. Many tables cannot"
            " show its figures without that: give --ran-on and --slots",
            err=True,
        )
    left_out: dict[str, dict[str, None]] = {}
    for record in records:
        left_out.setdefault(record.stack["file"], {}).update(dict.fromkeys(record.stack.get("left_out", ())))
    for file, names in left_out.items():
        if names:
            click.echo(f"{file}: left out, as hvlab has no metric for it: {', '.join(names)}", err=True)
    return 1 if bench_output.print_impossible(store, run_id, records) else 0


def _unknown(gpus: str | None) -> Iterator[str]:
    """Yield what --gpus names and hvlab does not know."""
    for gpu in described.gpus(gpus)["gpus"][:1] if gpus and not Path(gpus).is_file() else []:
        if not ceiling.is_known(gpu["name"]):
            near = did_you_mean(gpu["name"], ceiling.models()).strip() or "links inside a host stay unknown"
            yield f"--gpus {gpus}: hvlab does not know the links of {gpu['name']}; {near}"


def _contradictions(records: Sequence[Record], gpus: str | None) -> Iterator[str]:
    """Yield what files say of their GPUs that --gpus does not, once a file."""
    asked = described.gpus(gpus)["gpus"] if gpus and not Path(gpus).is_file() else []
    model = re.search(r"[a-z]*[0-9]+[a-z]*", asked[0]["name"].lower()) if asked else None
    if not model:
        return
    about = ((row.stack["file"], row.stack.get("gpus"), row.slots_per_host) for row in records)
    for file, listed, slots in dict.fromkeys(about):
        number, _, name = str(listed or "").partition(" x ")
        # A name without a number is that of a board before its release.
        other = re.search("[0-9]", name) and model[0] not in re.sub(r"\W", "", name.lower())
        # People leave devices out of their lists.
        if other or (name and number == str(slots) != str(len(asked))):
            ours = f"the ceiling is that of --gpus {gpus}: leave it out, or correct it"
            yield f"{file} names {listed} a host; {ours}"


def _show(store: Store, run_id: str, records: Sequence[Record]) -> None:
    bench_output.show_run(store, run_id, records)
    bench_output.list_cases("failed", failures(records), err=False)


def _hardware(gpus: str | None, nic: str | None) -> dict[str, Any] | None:
    facts: dict[str, Any] = {}
    if gpus is not None and Path(gpus).is_file():
        facts = nccl_topology.facts(Path(gpus).read_text("utf-8", "replace"))
    elif gpus is not None:
        facts = described.gpus(gpus)
    if nic is not None:
        facts |= described.cards(nic)
    return facts or None


def _hosts(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if re.fullmatch("[0-9]{1,5}", text) and 0 < int(text) <= 2**16:
        return tuple(f"host{number}" for number in range(1, int(text) + 1))
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if re.fullmatch("[0-9]+ ?x ?[0-9]+", text) or any(re.fullmatch("[^:]+:[0-9]+", name) for name in names):
        raise UsageError(
            f"--ran-on {text}: ranks per host have their own option",
            remedy="write --ran-on 2 --slots 8 or --ran-on n1,n2 --slots 8",
        )
    if not names or text.isdigit():
        raise UsageError(f"--ran-on {text}: it names no host", remedy="write --ran-on 2 or --ran-on n1,n2")
    return names


def _seconds(store: Store, run_id: str) -> dict[str, float]:
    seconds = {}
    for path in store.run_folder(run_id).glob("*/case.json"):
        try:
            ended = ending((), path.parent)
            seconds[path.parent.name] = ended["ended_at"] - ended["started_at"]
        except (FileNotFoundError, AnswerError, KeyError):
            continue
    return seconds
