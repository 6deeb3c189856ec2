"""The options that select one configuration, in ``hvlab tune`` and ``hvlab bisect``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import click

from hvlab.bench.request import BenchRequest, one_configuration
from hvlab.cli import candidates, options
from hvlab.lab.backends import BACKENDS, LAUNCHERS
from hvlab.lab.inventory import Lab
from hvlab.workloads import WORKLOADS

F = TypeVar("F", bound=Callable[..., Any])
_ONE = (
    click.option("--hosts", type=click.IntRange(1), help="Number of hosts. Default: all."),
    click.option(
        "--slots", type=click.IntRange(1), default=1, show_default=True, help="Number of ranks per host."
    ),
    click.option(
        "--workload",
        shell_complete=candidates.words(WORKLOADS),
        help="What to measure. Default: allreduce.",
    ),
    click.option(
        "--backend",
        type=click.Choice(list(BACKENDS)),
        help="What carries the data. Default: the first that can run, with GPUs before others.",
    ),
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a parameter, as in bench.",
    ),
    click.option(
        "--copy",
        multiple=True,
        metavar="PATH",
        shell_complete=candidates.files,
        help="A file that COMMAND needs, as in bench.",
    ),
    click.option("--pattern", metavar="REGEX", help="The line with COMMAND's throughput, as in bench."),
    click.option(
        "--timeout",
        type=options.TimeType(),
        metavar="TIME",
        help="Time limit of a case. Default: 15m.",
    ),
    click.option("--launcher", type=click.Choice(LAUNCHERS), help="What starts the ranks, as in bench."),
)


def one_options(command: F) -> F:
    """Add the options that select one configuration; :func:`one` reads them."""
    for option in reversed(_ONE):
        command = option(command)
    return command


def one(values: Mapping[str, Any], lab: Lab) -> BenchRequest:
    """Return the configuration that the options select."""
    known = {item.name for item in fields(BenchRequest)}
    texts = {name: str(values[name]) for name in ("hosts", "slots") if values[name]}
    return one_configuration(
        BenchRequest(**{name: values[name] for name in known & values.keys()} | texts), lab
    )
