"""``hvlab tune``."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hvlab.base.errors import UsageError
from hvlab.bench.placement import names_hosts
from hvlab.bench.request import specify
from hvlab.cli import options
from hvlab.cli.one_configuration import COMPUTED, read_request
from hvlab.cli.options import GroupedCommand
from hvlab.lab.backends import BACKENDS
from hvlab.lab.inventory import Lab, load
from hvlab.results import searches
from hvlab.results.lock import measuring
from hvlab.results.store import Store
from hvlab.workloads.launchers import srun

if TYPE_CHECKING:
    from hvlab.searches.tune.result import TuneResult
    from hvlab.searches.tune.session import TuneRequest

_note = partial(click.echo, err=True)


@click.command("tune", cls=GroupedCommand)
@options.of_verb("tune", **COMPUTED)
@options.own_command
def command(
    *,
    inventory: Path,
    limit: str | None,
    here: bool,
    python: str | None,
    settings: Path | None,
    space_file: Path | None,
    kind: str,
    budget: int,
    seed: int,
    restart: bool,
    host_settings: bool,
    restore: bool,
    output: Path,
    store: Store,
    output_format: str,
    **values: Any,
) -> int:
    """\b
    hvlab tune --workload mnist --time-limit 30m
    hvlab tune --backend gloo --set sizes=64K,4M
    hvlab tune -- python train.py               # a training of your own

    Find settings that make one configuration faster, and prove it.

    Settings are proposed and measured in rounds, in turn with today's; those that are clearly worse are
    dropped. The best counts only if it is significantly better when measured again in turn with today's,
    and if a training's loss stays the same. Otherwise the answer is that nothing better is proved, that
    the best was not accepted, and why, or that it is open because time ran out; the exit code is 0 for each
    answer. To resume an interrupted or open search, run the same command again.
    """
    named = values["hosts"] if names_hosts(values["hosts"]) else None
    lab = _lab(inventory, limit, python, here=here, named=named, as_root=host_settings or restore)
    if named:
        values["hosts"] = None
    if host_settings and space_file:
        raise UsageError("--host-settings has a space of its own", remedy="leave --space or it out")
    put_back = not (here or named) and _restore_hosts(inventory, lab, store)
    if restore:
        if not put_back:
            _note("there is nothing to put back: no search was killed before it did so")
        return 0
    # These load slowly, and --help needs none of them.
    from hvlab.searches.tune.host_session import of_hosts, tune_hosts  # noqa: PLC0415
    from hvlab.searches.tune.session import check, check_space, tune, write_settings  # noqa: PLC0415

    request = _request(lab, store, values, settings, space_file, kind=kind, seed=seed, budget=budget)
    if host_settings:
        request = of_hosts(request)
    check(request)
    if space_file:
        check_space(request)
    if not host_settings and not os.access(output.absolute().parent, os.W_OK):
        raise UsageError(f"{output} cannot be written there", remedy="choose another --output")
    place = searches.folder_of(store.folder, "tune", request.key(), restart=restart)
    if place.is_dir():
        _note(f"resuming the search in {place}")
    result = (tune_hosts if host_settings else tune)(request, store, place, note=_note)
    _print(result, store, place, output_format)
    if not host_settings and (outcome := write_settings(request, result, output)):
        _note(outcome)
    return 0


def _lab(
    inventory: Path, limit: str | None, python: str | None, *, here: bool, named: str | None, as_root: bool
) -> Lab:
    context = click.get_current_context()
    if python and not (here or named):
        raise UsageError(
            "--python is for --here or --hosts localhost", remedy="add one, or leave --python out"
        )
    if not (here or named):
        return load(inventory, limit=limit)
    source = context.get_parameter_source("inventory")
    others = [
        name
        for name, given in (
            ("--inventory", source is click.core.ParameterSource.COMMANDLINE),
            ("--here", here and named),
            ("--limit", limit and here),
            ("--host-settings or --restore, which need root", as_root),
        )
        if given
    ]
    if named:
        return options.have_listed_lab(named, limit, python, others)
    if others:
        raise UsageError(f"--here takes no {', no '.join(others)}", remedy="leave it out, or --here")
    from hvlab.remote import here as jobs  # noqa: PLC0415 - it loads slowly

    return context.with_resource(jobs.lab(python))


def _request(
    lab: Lab, store: Store, values: Any, settings: Path | None, space_file: Path | None, **search: Any
) -> TuneRequest:
    from hvlab.bench import settings as files  # noqa: PLC0415 - they load slowly
    from hvlab.searches.tune import space as spaces  # noqa: PLC0415
    from hvlab.searches.tune.session import TuneRequest  # noqa: PLC0415

    today = files.load(settings) if settings else files.SettingsFile()
    asked = read_request(values, lab)
    spec = specify(asked, lab, store)
    searched = _space(space_file, spec.blocks[0], asked.launcher, lab)
    space = spaces.space(searched, today, rank_env=lab.vars.get("lab_rank_env"))
    return TuneRequest(spec, lab, space, **search)


def _print(result: TuneResult, store: Store, place: Path, output_format: str) -> None:
    from hvlab.report.write import write_page  # noqa: PLC0415 - they load slowly
    from hvlab.searches.tune.session import REPORT  # noqa: PLC0415

    as_json = output_format == "json"
    click.echo(json.dumps(result.as_json(), indent=1) if as_json else result.markdown())
    if result.proof and result.proof.run_id:
        _note(f"proof: {write_page(store, result.proof.run_id)}")
    _note(f"report: {place / REPORT}")


def _restore_hosts(inventory: Path, lab: Lab, store: Store) -> bool:
    """Restore host settings that killed searches left changed; return whether there were any."""
    from hvlab.searches.tune import host_state  # noqa: PLC0415 - it loads slowly

    files = host_state.find_leftovers(store.folder, lab.name)
    if files:
        with measuring(store.folder, lab.name):
            for file in host_state.find_leftovers(store.folder, lab.name):
                hosts = host_state.restore(load(inventory), file)
                _note(f"put back what {', '.join(hosts)} had before the search in {file.parent}")
    return bool(files)


def _space(file: Path | None, block: Any, launcher: str | None, lab: Lab) -> Any:
    from hvlab.searches.tune import space_file  # noqa: PLC0415 - it loads slowly

    if file is not None:
        return space_file.load(file)
    backend = BACKENDS[block.backends[0]]
    if not backend.parallel:
        raise UsageError(
            f"{backend.name} is a single process, and hvlab knows no settings for it",
            remedy="write --space FILE",
        )
    launcher = launcher or (srun.NAME if lab.slurm else backend.launchers[0])
    return space_file.of_block(block, launcher)
