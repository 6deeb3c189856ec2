"""The two ends: a stack file, plan's lock, run, baseline, or the stack in use, which fills the gaps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from hvlab import __version__
from hvlab.analysis.baseline import keeping
from hvlab.analysis.compare import Measurements, measurements
from hvlab.base.errors import CheckError, UsageError, some
from hvlab.base.yaml_files import mistake, read_yaml
from hvlab.bench.settings import SettingsFile
from hvlab.lab.environment import components
from hvlab.lab.inventory import Lab
from hvlab.lab.pin_variables import BUILD_ROLES, TITLES, builds, defaults, patches
from hvlab.results.store import Store
from hvlab.searches.bisect.stack import COMPONENTS, Stack, from_settings, split_parameters
from hvlab.stack.resolver import lock
from hvlab.stack.resolver.pins import Pin, parse
from hvlab.workloads.parameters import OWN_STACK

_REMEDY = (
    "write versions: {torch: 2.4.1}, build: {horovod_variants: ...} (variables of the roles "
    f"{', '.join(BUILD_ROLES)}), settings: (as in a settings file), or some of them"
)
Facts = Mapping[str, Any]


class StackFile(BaseModel):
    """The content of a stack file; ``about`` is for its readers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    about: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    build: dict[str, Any] = Field(default_factory=dict)
    settings: SettingsFile = Field(default_factory=SettingsFile)

    @field_validator("versions")
    @classmethod
    def _check_versions(cls, given: dict[str, str]) -> dict[str, str]:
        for name, version in given.items():
            if name not in COMPONENTS:
                raise ValueError(
                    f"{name} cannot be installed beside another: it can be {', '.join(COMPONENTS)}"
                )
            try:
                parse(f"{name}={version}")
            except UsageError as error:
                raise ValueError(f"{error}; {error.remedy}") from error
        return given

    @field_validator("build")
    @classmethod
    def _check_build(cls, given: dict[str, Any]) -> dict[str, Any]:
        for name in given:
            if not builds(name):
                raise ValueError(f"{name} is not a build variable of the roles {', '.join(BUILD_ROLES)}")
        return given

    @property
    def items(self) -> dict[str, Any]:
        """The end of the search, as a user names it."""
        return {**self.versions, **self.build, **from_settings(self.settings)}


def in_use(lab: Lab, facts: Mapping[str, Facts]) -> Stack:
    """Return the stack that all hosts of a lab have, with the inventory's build variables.

    Raises CheckError if they differ or have none, UsageError if the inventory builds them differently.
    """
    each = {
        host: {name: Pin(name, version).version for name, version in components(of_host).items()}
        for host, of_host in facts.items()
    }
    for name in COMPONENTS:
        if observed := _different({host: versions.get(name) for host, versions in each.items()}):
            raise CheckError(
                f"the hosts have different versions of {TITLES[name]}: {observed}",
                remedy="provision them alike, or choose hosts that are alike with -l",
            )
    versions = next(iter(each.values()))
    if absent := [name for name in ("openmpi", "horovod") if not versions.get(name)]:
        raise CheckError(
            f"{some(list(facts))}: {' and '.join(TITLES[name] for name in absent)} not installed",
            remedy="run `hvlab provision` first",
        )
    build = {}
    for name in dict.fromkeys(name for host in lab.hosts for name in host.vars if builds(name)):
        if observed := _different({host.name: host.vars.get(name) for host in lab.hosts}):
            raise UsageError(
                f"the inventory gives the hosts different values of {name}: {observed}",
                remedy="Bisect builds one stack for all: give them one value, or choose hosts with -l.",
            )
        build[name] = lab.hosts[0].vars.get(name)
    return Stack({**{name: version for name, version in versions.items() if version}, **build})


def read(text: str, store: Store, lab: Lab) -> dict[str, Any]:
    """Read a stack from a file, run, baseline, or the ``lab`` itself (no difference). Raises UsageError."""
    if text == OWN_STACK:
        return {}
    path = Path(text)
    if path.is_file():
        return _lock(path, lab) if path.suffix == ".json" else _file(path)
    if text in keeping.names(store.folder):
        return _read_measured(f"the baseline {text}", keeping.load(store.folder, lab.name, name=text))
    try:
        run = store.run(text)
    except UsageError as error:
        raise UsageError(
            f"{text} is neither a file nor a baseline, and {error}",
            remedy="name a stack file, a lock of `hvlab plan`, a run (`hvlab results list`), a baseline, "
            f"or {OWN_STACK}",
        ) from error
    return _read_measured(f"run {run.run_id}", [measurements(run, store.records(run.run_id))])


def notes(text: str) -> list[str]:
    """Return the parts of a lock that cannot be restored: Horovod patches of another hvlab."""
    path = Path(text)
    kept = lock.read(path) if path.suffix == ".json" else None
    if kept is None or not set(kept.patches.values()) - {patches()}:
        return []
    return [
        f"{path} was written by hvlab {kept.release}, whose patches of Horovod differ from those of this "
        f"hvlab ({__version__}). All stacks are built with this one's: if no change here costs the time, "
        "build with that release beside this one, and compare the two."
    ]


def with_defaults(*stacks: Stack) -> list[Stack]:
    """Return the stacks with the roles' defaults for variables they lack, each Open MPI parameter an item."""
    named = {name for stack in stacks for name in stack.items}
    known = {name: value for name, value in defaults().items() if name in named}
    return [Stack(split_parameters({**known, **stack.items})) for stack in stacks]


def _different(values: Mapping[str, Any]) -> str:
    """Describe which hosts have which of several values; empty if all agree."""
    hosts: dict[str, list[str]] = {}
    for host, value in values.items():
        hosts.setdefault(json.dumps(value, sort_keys=True), []).append(host)
    words = {text: "none" if text == "null" else text.strip('"') for text in hosts}
    return "; ".join(f"{words[text]} on {some(each)}" for text, each in hosts.items() if len(hosts) > 1)


def _file(path: Path) -> dict[str, Any]:
    try:
        return StackFile.model_validate(read_yaml(path) or {}).items
    except ValidationError as error:
        raise UsageError(f"the stack {path}: {mistake(error)}", remedy=_REMEDY) from error
    except (ValueError, yaml.YAMLError) as error:
        raise UsageError(f"the stack {path} cannot be read: {error}", remedy=_REMEDY) from error


def _lock(path: Path, lab: Lab) -> dict[str, Any]:
    """Return a lock's entries for the lab's hosts; all entries if it has none for them."""
    kept = lock.read(path) or lock.Lock(path, {})
    names = [host.name for host in lab.hosts if host.name in kept.hosts] or list(kept.hosts)
    hosts = {name: {**kept.builds.get(name, {}), **kept.hosts[name]} for name in names}
    shared: dict[str, Any] = {}
    for name in dict.fromkeys(name for items in hosts.values() for name in items):
        if name not in COMPONENTS and not builds(name):
            continue
        if observed := _different({host: items.get(name) for host, items in hosts.items()}):
            raise UsageError(
                f"{path}: its hosts differ in {name}: {observed}",
                remedy="write a stack file with the one to use",
            )
        shared[name] = next(iter(hosts.values())).get(name)
    return shared


def _read_measured(title: str, runs: Iterable[Measurements]) -> dict[str, Any]:
    stacks = [run.stack for run in runs]
    if not any(stacks):
        raise UsageError(f"{title} has no stack: it was imported, or measured nothing")
    given: dict[str, Any] = {}
    for name in COMPONENTS:
        values = sorted({value for stack in stacks for value in stack.get(name, ())})
        if len(values) > 1:
            raise UsageError(
                f"{title} has several versions of {TITLES[name]}: {', '.join(values)}",
                remedy="write a stack file with the one to use",
            )
        if values:
            given[name] = Pin(name, values[0]).version
    return given
