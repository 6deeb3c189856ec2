"""``hvlab bench``."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from hvlab.base.errors import CheckError, UsageError
from hvlab.bench import manifests, suite
from hvlab.bench.estimate import estimate
from hvlab.bench.placement import most_slots
from hvlab.bench.request import BenchRequest, specify
from hvlab.bench.resume import resumed
from hvlab.bench.schedule import Schedule
from hvlab.cli import bench_output, candidates, options
from hvlab.cli.options import GroupedCommand
from hvlab.lab import slurm_job
from hvlab.lab.backends import BACKENDS, LAUNCHERS, LIBRARIES
from hvlab.lab.inventory import Lab, load
from hvlab.results.store import Run, Store
from hvlab.results.summary import failures
from hvlab.vlab import limits
from hvlab.workloads import WORKLOADS

# Each sets one parameter: `--set sizes=1M`.
SHORT = ("sizes", "iterations", "dtype", "op", "batch", "compression", "data", "framework")
# Options allowed with --resume: where the run is, and the output format.
_ANYWAY = ("inventory", "limit", "here", "python", "store", "output_format", "dry_run", "verbose")
_WITH_RESUME = (*_ANYWAY, "resume")
# Options allowed with --against: what B changes, and how much is measured.
_WITH_AGAINST = (
    *(*_ANYWAY, "against", "restart", "queue_limit", "sets", "settings", *SHORT, "no_cuda", "backend"),
    *("launcher", "repeats", "time_limit"),
)

F = TypeVar("F", bound=Callable[..., Any])


class _Bench(GroupedCommand):
    brief = (
        *("inventory", "limit", "here", "hosts", "slots"),
        *("suite", "workload", "backend", "library", "sets", "no_cuda", "ab", "against", "resume"),
        *("repeats", "timeout", "dry_run", "restart", "store", "output_format"),
    )
    groups = {
        "Where": ("inventory", "limit", "here", "python", "hosts", "slots"),
        "What": ("suite", "workload", "backend", "library", "sets", "no_cuda", "ab", "against", "resume"),
        "Your own training": ("copy", "pattern", "unit"),
        "Parameters": ("settings", *SHORT),
        "How": (
            *("repeats", "time_limit", "timeout", "launcher", "queue_limit"),
            *(
                "container",
                "ssh_port",
                "container_options",
                "dry_run",
                "verbose",
                "export",
                "output",
                "restart",
            ),
            *("store", "output_format"),
        ),
    }
    notes = (
        lambda: ("Suites", [(name, suite.load(name).about) for name in suite.NAMES]),
        lambda: ("Parameters of the collectives", bench_output.parameter_rows("time")),
        lambda: ("Parameters of the trainings", bench_output.parameter_rows("step_time")),
        lambda: ("Parameters of your own training", bench_output.parameter_rows("real")),
        lambda: ("Parameters of all workloads", bench_output.common_rows()),
    )


def _shorts(command: F) -> F:
    for name in reversed(SHORT):
        command = click.option(f"--{name}", metavar="VALUE,...", help=f"Short for --set {name}=VALUE,...")(
            command
        )
    return command


@click.command("bench", cls=_Bench)
@options.inventory
@options.limit
@options.here
@options.python
@click.option(
    "--hosts",
    metavar="N,...",
    help="Numbers of hosts: 1,2,3, all, each or pairs. With each, every host alone; with pairs, the first "
    "with each other one; with pairs:all, every two hosts. Default: 1 to N; with more than 4 hosts, the "
    "powers of two and N.",
)
@click.option(
    "--slots", metavar="N,...", help="Numbers of ranks per host: 1,2 or all. Default: 1 and lab_slots."
)
@click.option(
    "--workload",
    shell_complete=candidates.words(WORKLOADS),
    metavar="NAME,...",
    help=f"{', '.join(WORKLOADS)}. Default: allreduce.",
)
@click.option(
    "--backend",
    shell_complete=candidates.words(BACKENDS),
    metavar="NAME,...",
    help=f"{', '.join(BACKENDS)}. Default: all of Horovod's that can run. serial is one process alone.",
)
@click.option(
    "--library",
    metavar="NAME,...",
    shell_complete=candidates.words(LIBRARIES),
    help="horovod, ddp (torch's own), or both: who averages gradients. Default: horovod.",
)
@click.option(
    "--suite",
    metavar="NAME|FILE.yml",
    shell_complete=candidates.suites,
    help=f"{', '.join(suite.NAMES)}, or a file. Says what to measure; other options override it.",
)
@click.option(
    "--ab",
    nargs=2,
    metavar="A B",
    help="Measure A and B in turn, and decide which is faster. Each is settings "
    "separated by spaces: parameters, backend=, launcher=, environment variables; '' changes nothing.",
)
@click.option(
    "--against",
    metavar="RUN",
    shell_complete=candidates.runs,
    help="Measure RUN again beside what is changed, and decide. A is RUN as it was, B what --set, --backend "
    "and --launcher change; exit code 1 where B is slower.",
)
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=candidates.runs,
    help="Resume RUN, last or last~1, with its own options.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE,...",
    help="Set a parameter, such as sizes=1K,1M. Each of several values makes its own cases. May be repeated.",
)
@click.option(
    "--settings",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Set what a settings file holds: environment, options of mpirun, Open MPI's rules (docs/tune.md). "
    "--set overrides it. In --ab: settings=FILE.",
)
@_shorts
@click.option(
    "--copy",
    multiple=True,
    metavar="PATH",
    shell_complete=candidates.files,
    help="A file or folder of this folder that COMMAND needs on the hosts; may be repeated. The files that "
    "COMMAND names are copied without it.",
)
@click.option(
    "--pattern",
    metavar="REGEX",
    help="The line of rank 0's output with the throughput, with a group (?P<value>...). The last one counts.",
)
@click.option("--unit", metavar="UNIT", help="Unit of that throughput. Default: samples/s.")
@click.option("--no-cuda", is_flag=True, help="Do not use GPUs: short for --set device=cpu.")
@click.option(
    "--repeats",
    type=options.RepeatsType(),
    metavar="N|auto",
    help="How many times each case is run. The order differs each time. auto: 6, then up to 16 of those "
    "whose comparison is still open. Default: 1; with --ab and --against auto.",
)
@click.option(
    "--time-limit",
    type=options.TimeType(),
    metavar="TIME",
    default=0,
    help="With --repeats auto: start no repeats after this time. As in 90s, 20m, 2h; the run can be resumed.",
)
@click.option(
    "--timeout", type=options.TimeType(), metavar="TIME", help="Time limit of a case. Default: 15m."
)
@click.option(
    "--launcher",
    type=click.Choice(LAUNCHERS),
    help="What starts the ranks, if the backend leaves a choice. srun: steps of one Slurm allocation, "
    "or of the one that hvlab runs in. Default: srun where the inventory has lab_slurm.",
)
@click.option(
    "--queue-limit",
    type=options.TimeType(),
    metavar="TIME",
    default=0,
    help="With srun: how long to wait for Slurm to grant the hosts, as in 90s, 10m, 2h. Default: no limit.",
)
@click.option(
    "--container",
    metavar="IMAGE",
    help="Run the ranks in containers of this image: by docker, or with --launcher srun and with --here by "
    "pyxis.",
)
@click.option(
    "--ssh-port",
    type=click.IntRange(1),
    default=BenchRequest.ssh_port,
    show_default=True,
    help="Port of the containers' sshd.",
)
@click.option(
    "--container-option",
    "container_options",
    multiple=True,
    metavar="OPTION",
    help="A further option for docker run, such as --volume=/data:/data, or with pyxis for srun, such as "
    "--container-mounts=/data:/data. May be repeated.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the cases and the time they take; contact no host. With --here it works outside of a job, "
    "too: add --hosts and --slots.",
)
@click.option("-v", "--verbose", is_flag=True, help="With --dry-run: also print every command line.")
@click.option(
    "--export",
    type=click.Choice(manifests.KINDS),
    help="Write the cases as jobs for Kubernetes instead, with a script that runs them (docs/kubernetes.md).",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default="mpijobs",
    show_default=True,
    help="With --export: the folder for the files.",
)
@options.results
@click.option("--restart", is_flag=True, help="Start a new run instead of resuming an unfinished one.")
@options.output_format
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
    output: Path,
    store: Store,
    restart: bool,
    output_format: str,
    **values: Any,
) -> int:
    """\b
    hvlab bench --suite lab7 --dry-run          # what it takes, and how long
    hvlab bench --workload mnist,rnn --backend mpi,gloo --repeats 5
    hvlab bench --here --suite quick            # in a Slurm job
    hvlab bench --ab fusion_threshold=1M fusion_threshold=64M
    hvlab bench -- python train.py              # a training of your own

    Run benchmarks on the hosts; print and store the results. The same command resumes an interrupted run.
    COMMAND is a training of your own, which every rank runs.
    """
    given = {name for name in context.params if _explicit(context, name)}
    short = {name: value for name in SHORT if (value := values.pop(name)) is not None}
    if str(short.get("framework")).lower() in LIBRARIES:
        raise UsageError("--framework is torch or tensorflow", remedy=f"write --library {short['framework']}")
    request = BenchRequest(**values, short=short)
    if resume is not None and not given <= set(_WITH_RESUME):
        raise UsageError(
            f"--resume {resume} uses the options of that run, and takes no "
            f"{_options(context, given - set(_WITH_RESUME))}",
            remedy="leave those options out, or start a new run",
        )
    if request.against is not None and not given <= set(_WITH_AGAINST):
        raise UsageError(
            f"--against {request.against} measures what that run measured, and takes no "
            f"{_options(context, given - set(_WITH_AGAINST))}",
            remedy="leave those options out, or name both settings with --ab",
        )
    for name, wanted in (("python", "here"), ("output", "export"), ("verbose", "dry_run")):
        if name in given and wanted not in given:
            option = f"--{wanted.replace('_', '-')}"
            raise UsageError(f"--{name} is for {option}", remedy=f"add {option}, or leave --{name} out")
    if here:
        lab = context.with_resource(_job(request, given, python, store, resume or request.against))
    else:
        lab = _lab(inventory, limit, prefetch=not dry_run and not export)
    if resume is None:
        run, schedule = None, Schedule.of(specify(request, lab, store), lab)
    else:
        run, schedule = resumed(store, resume, lab)
    held = limits.host_cores(lab.name) if any(host.virtual for host in lab.hosts) else {}
    bench_output.infeasible(schedule.infeasible, whole=verbose)
    bench_output.oversubscribed(schedule, held)
    bench_output.tag(schedule)
    if not schedule.cases:
        raise UsageError("every case is infeasible", remedy=_advice(lab))
    if export:
        bench_output.export(schedule, output)
        return 0
    if dry_run:
        _dry_run(schedule, store, output_format, verbose=verbose)
        return 0
    limits.keep_off(held.values())
    return _measure(schedule, store, output_format, restart=restart, run=run)


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
        return nullcontext(_planned(request, python))
    image, own = request.container, request.container_options
    if earlier:
        asked = store.spec(store.run(earlier).run_id)[1]
        image, own = asked.get("container"), tuple(asked.get("container_options") or ())
    return here.lab(python, image=image, options=own)


def _planned(request: BenchRequest, python: str | None) -> Lab:
    """Return assumed hosts of a Slurm job, for a dry run outside one."""
    counts = [re.findall(r"\d+", text or "") for text in (request.hosts, request.slots)]
    if not all(counts):
        raise UsageError(
            "this is no Slurm job, so --dry-run cannot know its hosts", remedy="add --hosts 64 --slots 8"
        )
    hosts, slots = (max(map(int, numbers)) for numbers in counts)
    kind = "without GPUs" if request.no_cuda else f"with {slots} GPUs each (--no-cuda: without)"
    click.echo(f"planned for a Slurm job of {hosts} hosts {kind}", err=True)
    return slurm_job.plan_lab(hosts, slots, gpu=not request.no_cuda, python=python)


def _lab(inventory: Path, limit: str | None, *, prefetch: bool) -> Lab:
    """Return the inventory's hosts, and meanwhile load the modules that measure them."""
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, inventory, limit=limit)
        if prefetch:
            importlib.import_module("hvlab.bench.measure")
        return loading.result()


def _explicit(context: click.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source not in (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)


def _options(context: click.Context, given: set[str]) -> str:
    names = [
        item.opts[-1]
        for item in context.command.params
        if item.name in given and not getattr(item, "hidden", False)
    ]
    return ", ".join(names)


def _dry_run(schedule: Schedule, store: Store, output_format: str, *, verbose: bool) -> None:
    text = estimate(schedule.cases, store).text
    if schedule.spec.auto:
        from hvlab.bench import looks, measure  # noqa: PLC0415 - they load slowly

        cases = looks.first(schedule.cases, schedule.spec)
        text = measure.expected(schedule, cases, store)
        schedule = replace(schedule, cases=cases)
    click.echo(text, err=True)
    if output_format == "table":
        bench_output.plan(schedule, store)
    if verbose or output_format != "table":
        bench_output.commands(schedule, output_format, seconds=estimate(schedule.cases, store).seconds)


def _advice(lab: Lab) -> str:
    most = f"--hosts up to {len(lab.hosts)} and --slots up to {most_slots(lab)}"
    return f"see the reasons above; this lab allows {most}"


def _measure(schedule: Schedule, store: Store, output_format: str, *, restart: bool, run: Run | None) -> int:
    # These load slowly, and a dry run does not need them.
    from hvlab.bench.measure import measure  # noqa: PLC0415
    from hvlab.cli import decisions  # noqa: PLC0415
    from hvlab.report.write import write_page  # noqa: PLC0415
    from hvlab.searches.tune.host_state import left_behind  # noqa: PLC0415

    if left := left_behind(store.folder, schedule.lab.name):
        raise CheckError(
            f"the hosts have settings of a search that was killed ({left[0].parent})",
            remedy="`hvlab tune --restore` puts back what they had",
        )
    run_id = measure(schedule, store, restart=restart, resume=run)
    records = store.records(run_id)
    slower, asked = False, schedule.spec
    if not asked.sides:
        bench_output.results(store, run_id, records, output_format)
    if asked.sides or (asked.auto and output_format == "table"):
        answer = decisions.of_run(store, store.run(run_id))
        decisions.show(answer, output_format)
        slower = bool(asked.against) and answer.count("faster") > 0
    if asked.against:
        decisions.note_stack(store, asked.against, run_id)
    bench_output.ending(schedule, records, run_id, write_page(store, run_id))
    return 1 if failures(records) or slower else 0
