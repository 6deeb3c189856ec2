"""Settings files: how a job is started, for `hvlab bench --settings` and for jobs that hvlab does not start.

A file holds environment variables of the ranks, options of mpirun, and a rules file of Open MPI. Here these
become the parameters of cases, so that results and comparisons know them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from hvlab.base.errors import UsageError
from hvlab.base.files import write_file
from hvlab.base.yaml_files import mistake, read_yaml
from hvlab.bench.matrix import Block, Spec, expand
from hvlab.lab.inventory import Lab
from hvlab.workloads import parameters
from hvlab.workloads.datasets import rules
from hvlab.workloads.launchers import RULES_FILE
from hvlab.workloads.parameters import BY_VARIABLE, ENV, MPIRUN, RULES, TUNING, find

_REMEDY = (
    "write env: {NAME: value}, mpirun: '--bind-to core', rules: the text of a rules file, or some of them"
)
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
_PLACES = re.compile(r"(-H|--?host|--?hostfile|--?machinefile|-np?|-c|-x|--?m?ca|--?rankfile|-rf)(=.*)?")


class SettingsFile(BaseModel):
    """The content of a settings file. ``about`` is for its readers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    about: str = ""
    env: dict[_Name, str | int | float] = Field(default_factory=dict)
    mpirun: str = ""
    rules: str = ""

    @field_validator("mpirun")
    @classmethod
    def _options(cls, text: str) -> str:
        words = shlex.split(text)
        if words and not words[0].startswith("-"):
            raise ValueError(f"{words[0]} is no option of mpirun")
        for word in words:
            if _PLACES.fullmatch(word):
                raise ValueError(f"{word} is hvlab's own; environment variables stand under env")
        return shlex.join(words)

    @field_validator("env")
    @classmethod
    def _variables(cls, env: dict[str, str | int | float]) -> dict[str, str | int | float]:
        for name, value in env.items():
            if name.startswith("HVLAB_"):
                raise ValueError(f"{name} is hvlab's own")
            if "\0" in str(value) or "\n" in str(value):
                raise ValueError(f"{name} has a line break or a zero byte")
        return env

    @field_validator("rules")
    @classmethod
    def _numbers(cls, text: str) -> str:
        try:
            return rules.read(text) if text.strip() else ""
        except UsageError as error:
            raise ValueError(f"{error}; {error.remedy}") from error

    @property
    def parameters(self) -> dict[str, str]:
        """Return the parameters of cases that this sets. Raises UsageError for a wrong value."""
        given = {
            BY_VARIABLE[name].name: str(value) for name, value in self.env.items() if name in BY_VARIABLE
        }
        for item in TUNING:
            if item.name in given:
                item.read(given[item.name])
        left = [f"{name}={value}" for name, value in sorted(self.env.items()) if name not in BY_VARIABLE]
        words = {ENV.name: shlex.join(left), MPIRUN.name: self.mpirun, RULES.name: self.rules}
        return given | {name: text for name, text in words.items() if text}


def load(path: Path) -> SettingsFile:
    """Return the settings of a file. Raises UsageError that names the mistake."""
    try:
        content = read_yaml(path)
        settings = SettingsFile.model_validate({} if content is None else content, strict=True)
        _ = settings.parameters
    except ValidationError as error:
        raise UsageError(f"the settings {path}: {mistake(error)}", remedy=_REMEDY) from error
    except ValueError as error:
        raise UsageError(f"the settings {path} cannot be read: {error}", remedy=_REMEDY) from error
    except UsageError as error:
        raise UsageError(f"the settings {path}: {error}", remedy=error.remedy) from error
    return settings


def with_settings(block: Block, settings: SettingsFile) -> Block:
    """Return a block whose cases run with these settings."""
    known = parameters(block.workload)
    axes = dict(block.axes)
    for name, text in settings.parameters.items():
        if item := find(name, known):
            axes[name] = item.several(text)
    return replace(block, axes=axes)


def misfit(spec: Spec, settings: SettingsFile, lab: Lab) -> str:
    """Return the reason why these cases cannot run with the settings; empty if they can."""
    blocks = tuple(with_settings(block, settings) for block in spec.blocks)
    _, infeasible = expand(replace(spec, blocks=blocks), lab)
    return infeasible[0].reason if infeasible else ""


def check_one(spec: Spec, lab: Lab, problem: str) -> None:
    """Raise UsageError, which begins with ``problem``, where a specification is not one configuration."""
    cases, infeasible = expand(spec, lab)
    if len(cases) == 1:
        return
    why = f"{len(cases)} configurations are asked for"
    remedy = "name one --workload, --backend, --hosts and --slots, and one value of each parameter"
    if not cases:
        why = infeasible[0].reason if infeasible else why
        remedy = "name one that can run; `hvlab bench --dry-run` says what is infeasible, and why"
    raise UsageError(f"{problem}: {why}", remedy=remedy)


def save(settings: SettingsFile, path: Path, *, recipe: Sequence[str] = ()) -> Path:
    """Write a settings file; the rules also as a file of their own.

    ``recipe`` holds the lines for a job that hvlab does not start; there RULES stands for the rules file.
    """
    rules_file = path.with_suffix(".rules")
    lines = [f"# `hvlab bench --settings {path.name}` measures with these settings."]
    if recipe:
        lines.append("# A job of your own is started as it was measured by:")
        named = (re.sub(rf"(?<==){RULES_FILE}$", rules_file.name, line) for line in recipe)
        lines += [f"#   {part}" for line in named for part in line.splitlines()]
    if settings.rules:
        lines.append(f"# ({rules_file.name}: a copy on every host, by its absolute path)")
        write_file(rules_file, f"{settings.rules}\n")
    content = {name: value for name, value in settings.model_dump().items() if value}
    write_file(path, "\n".join(lines) + "\n" + yaml.safe_dump(content, sort_keys=False, width=100))
    return path
