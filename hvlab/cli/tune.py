"""``hvlab tune``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from hvlab.cli import options
from hvlab.cli.bench_request import TimeType, one, one_options
from hvlab.cli.groups import GroupedCommand
from hvlab.errors import UsageError
from hvlab.lab.backends import BACKENDS
from hvlab.lab.inventory import Lab, load
from hvlab.launchers import srun
from hvlab.paths import results_dir
from hvlab.results.store import Store


class _Tune(GroupedCommand):
    groups = {
        "Where": ("inventory", "limit", "hosts", "slots"),
        "What": ("workload", "backend", "sets", "copy", "pattern"),
        "Search": ("settings", "space_file", "kind", "budget", "seed", "timeout", "launcher", "restart"),
        "Results": ("output", "folder", "output_format"),
    }


@click.command("tune", cls=_Tune)
@options.inventory
@options.limit
@one_options
@click.option(
    "--settings",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Today's settings, which others have to beat. Default: hvlab's defaults.",
)
@click.option(
    "--space",
    "space_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What may be changed, and to which values. Default: what hvlab knows of the backend.",
)
@click.option(
    "--search",
    "kind",
    type=click.Choice(["tpe", "coordinate"]),
    default="tpe",
    show_default=True,
    help="tpe: Optuna's estimator. coordinate: one setting after another.",
)
@click.option(
    "--budget",
    type=TimeType(),
    metavar="TIME",
    default=1200,
    help="Time for search and proof, as in 2h. Default: 20m.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the search.")
@click.option("--restart", is_flag=True, help="Start a new search instead of resuming an unfinished one.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="tuned.yml",
    show_default=True,
    help="The settings file, written where the new settings are proved.",
)
@options.results
@options.table_or_json
@options.own_command
def command(
    *,
    inventory: Path,
    limit: str | None,
    settings: Path | None,
    space_file: Path | None,
    kind: str,
    budget: int,
    seed: int,
    restart: bool,
    output: Path,
    folder: Path | None,
    output_format: str,
    **values: Any,
) -> int:
    """Find settings that make one configuration faster, and prove it.

    Settings are proposed and measured in rounds, in turn with those of today; what is clearly worse is
    dropped. The best counts only if it is significantly better when it is measured again in turn with those
    of today, and a training's loss stays as it was. Otherwise the answer is that today's are as good, that
    the best was not accepted, and why, or that it is open because time ended; the exit code is 0 for each
    answer. To resume an interrupted or open search, run the same command again.
    """
    lab = load(inventory, limit=limit)
    store = Store(folder.absolute() if folder else results_dir())
    # These load slowly, and --help needs none of them.
    from hvlab.bench import settings as files  # noqa: PLC0415
    from hvlab.report.write import write_page  # noqa: PLC0415
    from hvlab.tune import space as spaces  # noqa: PLC0415
    from hvlab.tune.session import REPORT, TuneRequest, check, folder_of, tune, written  # noqa: PLC0415

    today = files.load(settings) if settings else files.SettingsFile()
    spec = one(lab, values, store)
    searched = _space(space_file, spec.blocks[0], values["launcher"], lab)
    space = spaces.space(searched, today, rank_env=lab.vars.get("lab_rank_env"))
    request = TuneRequest(spec, lab, space, kind, seed, budget)
    check(request)
    place = folder_of(request, store.folder, restart=restart)
    if (place / "hvlab.db").exists():
        click.echo(f"resuming the search in {place}", err=True)
    result = tune(request, store, place, note=lambda text: click.echo(text, err=True))
    if output_format == "json":
        click.echo(json.dumps(result.as_json(), indent=1))
    else:
        click.echo(result.markdown())
    if result.proof:
        click.echo(f"proof: {write_page(store, result.proof.run_id)}", err=True)
    click.echo(f"report: {place / REPORT}", err=True)
    if outcome := written(request, result, output):
        click.echo(outcome, err=True)
    return 0


def _space(file: Path | None, block: Any, launcher: str | None, lab: Lab) -> Any:
    """Return the parameters to search. Raises UsageError where there are none."""
    from hvlab.tune import selection  # noqa: PLC0415 - they load slowly
    from hvlab.tune import space as spaces  # noqa: PLC0415

    if file is not None:
        return spaces.load(file)
    backend = BACKENDS[block.backends[0]]
    if not backend.parallel:
        raise UsageError(
            f"{backend.name} is one process alone, of which hvlab knows no settings",
            remedy="write --space FILE",
        )
    launcher = launcher or (srun.NAME if lab.slurm else backend.launchers[0])
    return selection.of_block(block, launcher)
