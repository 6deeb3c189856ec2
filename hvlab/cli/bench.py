"""``hvlab bench``."""

from __future__ import annotations

import importlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hvlab.base.errors import CheckError, UsageError
from hvlab.bench import manifests, suite
from hvlab.bench.estimate import estimate
from hvlab.bench.placement import most_slots, names_hosts
from hvlab.bench.request import BenchRequest, specify
from hvlab.bench.resume import load_resumed
from hvlab.bench.schedule import Schedule
from hvlab.cli import bench_output, candidates, options, textfile
from hvlab.cli.options import GroupedCommand
from hvlab.lab import slurm_job
from hvlab.lab.backends import BACKENDS, LAUNCHERS, LIBRARIES
from hvlab.lab.inventory import Lab, load
from hvlab.results.formats import plain
from hvlab.results.formats.launch import MeasuredRun
from hvlab.results.store import Run, Store
from hvlab.results.summary import failures
from hvlab.vlab import limits
from hvlab.workloads import WORKLOADS

# Each sets one parameter: `--set sizes=1M`.
SHORT = ("sizes", "iterations", "dtype", "op", "batch", "compression", "data", "framework")
# Options allowed with --resume: where the run is, and the output format.
_ANYWAY = ("inventory", "limit", "here", "python", "store", "metrics", "output_format", "dry_run", "verbose")
_WITH_RESUME = (*_ANYWAY, "resume")
# Options allowed with --against: what B changes, and how much is measured.
_WITH_AGAINST = (
    *(*_ANYWAY, "against", "restart", "queue_limit", "sets", "settings", *SHORT, "no_cuda", "backend"),
    *("launcher", "repeats", "time_limit"),
)


_NOTES = (
    lambda: ("Suites", [(name, suite.load(name).about) for name in suite.NAMES]),
    lambda: ("Parameters of the collectives", bench_output.parameter_rows("time")),
    lambda: ("Parameters of the trainings", bench_output.parameter_rows("step_time")),
    lambda: ("Parameters of your own training", bench_output.parameter_rows("real")),
    lambda: ("Parameters of all workloads", bench_output.common_rows()),
)


@click.command("bench", cls=GroupedCommand, notes=_NOTES)
@options.of_verb(
    "bench",
    suite={"names": suite.NAMES},
    workload={"shell_complete": candidates.words(WORKLOADS), "names": WORKLOADS},
    backend={"shell_complete": candidates.words(BACKENDS), "names": BACKENDS},
    library={"shell_complete": candidates.words(LIBRARIES)},
    repeats={"type": options.RepeatsType()},
    launcher={"type": click.Choice(LAUNCHERS)},
    ssh_port={"default": BenchRequest.ssh_port},
    export={"type": click.Choice(list(manifests.KINDS))},
)
@options.own_command
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    inventory: Path,
    limit: str | None,
    here: bool,
    python: str | None,
    resume: str | None,
    dry_run: bool,
    verbose: bool,
    export: str | None,
    output: Path | None,
    store: Store,
    metrics: Path | None,
    restart: bool,
    output_format: str,
    **values: Any,
) -> int:
    """\b
    hvlab bench --suite lab7 --dry-run          # what it takes, and how long
    hvlab bench --workload mnist,rnn --backend mpi,gloo --repeats 5
    hvlab bench --here --suite quick            # in a Slurm job
    hvlab bench --ab fusion_threshold=1M fusion_threshold=64M
    hvlab bench --explain -- python train.py    # a training of your own

    Run benchmarks on the hosts; print and store the results. The same command resumes an interrupted run.
    COMMAND is a training of your own, which every rank runs.
    """
    default = (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    given = {name for name in context.params if context.get_parameter_source(name) not in default}
    short = {name: value for name in SHORT if (value := values.pop(name)) is not None}
    if str(short.get("framework")).lower() in LIBRARIES:
        raise UsageError("--framework is torch or tensorflow", remedy=f"write --library {short['framework']}")
    request = BenchRequest(**values, short=short)
    named = request.hosts if names_hosts(request.hosts) else None
    _check_options(context, given - ({"python", "hosts"} if named else set()), resume, request.against)
    if named:
        refused = sorted(given & {"inventory", "here", "container", "ssh_port", "export"})
        options_ = [f"--{name.replace('_', '-')}" for name in refused]
        lab = options.have_listed_lab(named, limit, python, options_)
        request = replace(request, hosts=None)
    elif here:
        lab = context.with_resource(_job(request, given, python, store, resume or request.against))
    else:
        lab = _lab(inventory, limit, prefetch=not dry_run and not export)
    if resume is None:
        run, schedule = None, Schedule.of(specify(request, lab, store), lab)
    else:
        run, schedule = load_resumed(store, resume, lab)
    held = limits.host_cores(lab.name) if any(host.virtual for host in lab.hosts) else {}
    bench_output.print_infeasible(schedule.infeasible, whole=verbose)
    bench_output.print_oversubscribed(schedule, held)
    bench_output.tag(schedule)
    if not schedule.cases:
        most = f"--slots up to {most_slots(lab)}"
        most = most if named else f"--hosts up to {len(lab.hosts)} and {most}"
        remedy = f"see the reasons above; {'these hosts allow' if named else 'this lab allows'} {most}"
        raise UsageError("every case is infeasible", remedy=remedy)
    if export:
        bench_output.export(schedule, export, output or Path(f"{export}s"))
        return 0
    if dry_run:
        _dry_run(schedule, store, output_format, verbose=verbose)
        return 0
    textfile.prepare(metrics)
    limits.keep_off(held.values())
    return _measure(schedule, store, output_format, restart=restart, run=run, metrics=metrics)


def _check_options(context: click.Context, given: set[str], resume: str | None, against: str | None) -> None:
    for run, allowed, problem, remedy in (
        (resume, _WITH_RESUME, f"--resume {resume} uses the options of that run", "start a new run"),
        (
            *(against, _WITH_AGAINST, f"--against {against} measures what that run measured"),
            "name both settings with --ab",
        ),
    ):
        if run is not None and (others := given - set(allowed)):
            named = [item.opts[-1] for item in context.command.params if item.name in others]
            raise UsageError(
                f"{problem}, and takes no {', '.join(named)}", remedy=f"leave those options out, or {remedy}"
            )
    for name, needed in (("python", "here"), ("output", "export"), ("verbose", "dry_run")):
        if name in given and needed not in given:
            option = f"--{needed.replace('_', '-')}" + " or --hosts localhost" * (name == "python")
            raise UsageError(f"--{name} is for {option}", remedy=f"add {option}, or leave --{name} out")


def _job(
    request: BenchRequest, given: set[str], python: str | None, store: Store, earlier: str | None
) -> AbstractContextManager[Lab]:
    """Return the hosts of this Slurm job; they stay usable while the command runs."""
    from hvlab.remote import here  # noqa: PLC0415 - it loads slowly

    others = sorted(given & {"inventory", "limit", "ssh_port", "export"})
    if others:
        raise UsageError(
            "--here measures on the hosts of this Slurm job, and takes no "
            f"--{', --'.join(name.replace('_', '-') for name in others)}",
            remedy="leave that out; ask Slurm for other hosts, or choose with --hosts",
        )
    if "dry_run" in given and not earlier and not os.environ.get("SLURM_JOB_ID"):
        return nullcontext(_assume_lab(request, python))
    image, own = request.container, request.container_options
    if earlier:
        asked = store.spec(store.run(earlier).run_id)[1]
        image, own = asked.get("container"), tuple(asked.get("container_options") or ())
    return here.lab(python, image=image, options=own)


def _assume_lab(request: BenchRequest, python: str | None) -> Lab:
    asked = {"--hosts 64": request.hosts, "--slots 8": request.slots}
    counts = {
        example: max(map(int, re.findall(r"\d+", text or "0")), default=0) for example, text in asked.items()
    }
    if missing := [example for example, count in counts.items() if not count]:
        raise UsageError(
            "this is not a Slurm job, so --dry-run cannot know its hosts", remedy=f"add {' '.join(missing)}"
        )
    hosts, slots = counts.values()
    kind = "without GPUs" if request.no_cuda else f"with {slots} GPUs each (--no-cuda: without)"
    click.echo(f"planned for a Slurm job of {hosts} hosts {kind}", err=True)
    return slurm_job.plan_lab(hosts, slots, gpu=not request.no_cuda, python=python)


def _lab(inventory: Path, limit: str | None, *, prefetch: bool) -> Lab:
    """Return the inventory's hosts, and load the measuring modules meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, inventory, limit=limit)
        if prefetch:
            importlib.import_module("hvlab.bench.measure")
        return loading.result()


def _dry_run(schedule: Schedule, store: Store, output_format: str, *, verbose: bool) -> None:
    text = estimate(schedule.cases, store).text
    if schedule.spec.auto:
        from hvlab.bench import looks, measure  # noqa: PLC0415 - they load slowly

        cases = looks.first(schedule.cases, schedule.spec)
        text = measure.estimate_time(schedule, cases, store)
        schedule = replace(schedule, cases=cases)
    click.echo(text, err=True)
    if output_format == "table":
        bench_output.plan(schedule, store)
    if verbose or output_format != "table":
        bench_output.commands(schedule, output_format, seconds=estimate(schedule.cases, store).seconds)


def _measure(
    schedule: Schedule,
    store: Store,
    output_format: str,
    *,
    restart: bool,
    run: Run | None,
    metrics: Path | None,
) -> int:
    # These load slowly, and a dry run does not need them.
    from hvlab.bench.measure import measure  # noqa: PLC0415
    from hvlab.cli import compare  # noqa: PLC0415
    from hvlab.report.write import write_page  # noqa: PLC0415
    from hvlab.searches.tune.host_state import find_leftovers  # noqa: PLC0415

    if left := find_leftovers(store.folder, schedule.lab.name):
        raise CheckError(
            f"the hosts have settings of a search that was killed ({left[0].parent})",
            remedy="`hvlab tune --restore` restores the former ones",
        )
    run_id = measure(schedule, store, restart=restart, resume=run)
    records = store.records(run_id)
    slower, asked = False, schedule.spec
    if not asked.sides:
        bench_output.results(store, run_id, records, output_format)
    if asked.sides or (asked.auto and output_format == "table"):
        answer = compare.of_run(store, store.run(run_id))
        compare.show_decisions(answer, output_format)
        slower = bool(asked.against) and answer.count("faster") > 0
    if asked.against:
        compare.note_stack(store, asked.against, run_id)
    textfile.write(
        metrics, "bench", schedule.lab.name, plain.run_gauges(MeasuredRun(store.run(run_id), records))
    )
    bench_output.ending(schedule, records, run_id, write_page(store, run_id))
    impossible = bench_output.print_impossible(store, run_id, records)
    return 1 if failures(records) or slower or impossible else 0
