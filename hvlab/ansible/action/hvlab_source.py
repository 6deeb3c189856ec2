# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The controller's part of hvlab_source: the ways in order, checksums, cache and the memory of the choice."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from ansible.errors import AnsibleActionFail
from ansible.module_utils.urls import open_url
from packaging.version import InvalidVersion, Version

from hvlab.ansible.action.hvlab_wheels import pip_download
from hvlab.ansible.module_utils.hvlab_disk import SOURCES
from hvlab.ansible.plugin import HvlabAction
from hvlab.base import answers, cache
from hvlab.base.files import file_sha256
from hvlab.base.paths import cache_dir
from hvlab.stack.provision.packs import incoming, limit_size, pack_key

CONNECT_SECONDS = 10
SUFFIXES = ("bz2", "gz", "xz")


class NotThisWay(Exception):  # noqa: N818 - not an error: the next way is tried
    """This way does not provide the source; the text says why, in one line."""


class SourceArchive(NamedTuple):
    """A source archive on the controller."""

    version: str
    path: Path
    sha256: str
    way: str


def local_archives(folder: Path, name: str, version: str) -> list[Path]:
    """Return a folder's files named like this version's source."""
    names = [f"{name}-{version}.tar.{suffix}" for suffix in SUFFIXES]
    names += [f"{name}_{version}.orig.tar.{suffix}" for suffix in SUFFIXES]
    return [folder / entry for entry in names if (folder / entry).is_file()]


def check_sum(path: Path, expected: str, *, origin: str = "") -> str:
    """Return the sha256 of a file. Raises AnsibleActionFail if a different one is known for it.

    ``origin`` is the source of a file just fetched, which is not kept.
    """
    actual = file_sha256(path)
    if expected and actual != expected:
        remedy = "run again" if origin else "delete it and get it again"
        raise AnsibleActionFail(
            f"{origin or path} is not what it should be: its sha256 is {actual}, expected {expected} "
            f"({path.stat().st_size} bytes).\n"
            f"Nothing was built from it. What to do: {remedy}, or correct the checksum."
        )
    return actual


class ActionModule(HvlabAction):
    """Find a source archive for the whole lab."""

    def act(self) -> dict[str, Any]:
        """Return the archive and the way that worked."""
        self.name, self.version = self.args["name"], self.args["version"]
        if self.version in self.args["avoid"]:
            raise AnsibleActionFail(
                f"{self.name} {self.version} must not be used: {self.args['avoid'][self.version]}.\n"
                f"What to do: set {self.name}_version to another version."
            )
        self.cache = cache_dir() / "sources"
        choice = {
            name: self.args[name] for name in ("version", "ways", "url", "platform", "at_least", "below")
        }
        self.memory = self.cache / f"{self.name}-{pack_key(self.name, choice)}.json"
        self.tried: list[str] = []
        source = self._find()
        if source.path.is_relative_to(self.cache):
            cache.use(source.path)
        return {"changed": False, **source._asdict(), "path": str(source.path), "tried": self.tried}

    def _find(self) -> SourceArchive:
        remembered = None if self.args["refresh"] else self._read_remembered()
        for way in self.args["ways"]:
            if remembered and way != "file":
                return remembered
            try:
                source: SourceArchive = getattr(self, f"_from_{way}")()
            except NotThisWay as why:
                self.tried.append(f"{self.name} {self.version}: {way}: {why}")
                if not remembered:
                    self._display.display(self.tried[-1])
                continue
            self._remember(source)
            if source.version != self.version:
                self._display.warning(
                    f"{self.name} {source.version} ({source.way}) is used instead of {self.version}"
                )
            return source
        lines = "".join(f"\n  {line}" for line in self.tried)
        raise AnsibleActionFail(
            f"{self.host}: no source of {self.name} {self.version} was found:{lines}\n"
            f"What to do: put {self.name}-{self.version}.tar.bz2 into {self.args['folder']} on the "
            "controller and run again."
        )

    def _read_remembered(self) -> SourceArchive | None:
        try:
            record = json.loads(self.memory.read_text(encoding="utf-8"))
            source = SourceArchive(
                record["version"], self.cache / record["file"], record["sha256"], record["way"]
            )
            return source if file_sha256(source.path) == source.sha256 else None
        except (OSError, ValueError, KeyError):
            return None

    def _remember(self, source: SourceArchive) -> None:
        if source.way == "file" or self._task.check_mode:
            return
        record = {
            "version": source.version,
            "file": source.path.name,
            "sha256": source.sha256,
            "way": source.way,
        }
        self.memory.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        # Before the clean-up: it may be old.
        cache.use(source.path)
        cache.keep_limit(self._display.display)

    def _from_file(self) -> SourceArchive:
        folder = Path(self.args["folder"] or "")
        archives = local_archives(folder, self.name, self.version)
        if not archives:
            raise NotThisWay(f"no {self.name}-{self.version}.tar.* in {folder}")
        pinned = archives[0].name == (self.args["url"] or "").rpartition("/")[2]
        sha256 = check_sum(archives[0], self.args["checksum"] if pinned else "")
        return SourceArchive(self.version, archives[0], sha256, "file")

    def _checksum(self) -> str:
        if not self.args["checksum"]:
            raise NotThisWay("no sha256 is known for this version")
        return str(self.args["checksum"])

    def _from_url(self) -> SourceArchive:
        url, expected = self.args["url"], self._checksum()
        path = self.cache / url.rpartition("/")[2]
        self._drop_damaged(path, expected)
        if path.is_file():
            return SourceArchive(self.version, path, check_sum(path, expected), "url")
        if self._task.check_mode:
            return SourceArchive(self.version, path, expected, "url")
        try:
            with incoming(self.cache) as file:
                with file.open("wb") as output:
                    shutil.copyfileobj(open_url(url, timeout=CONNECT_SECONDS), output)
                sha256 = check_sum(file, expected, origin=url)
                file.replace(path)
        except OSError as error:
            raise NotThisWay(f"{url}: {getattr(error, 'reason', None) or error}") from error
        return SourceArchive(self.version, path, sha256, "url")

    def _drop_damaged(self, path: Path, expected: str) -> None:
        if expected and path.is_file() and file_sha256(path) != expected and not self._task.check_mode:
            self._display.warning(f"{path} in the controller's cache is damaged: it is fetched again")
            path.unlink()

    def _from_pip(self) -> SourceArchive:
        # pip runs its setup.py for the metadata, after comparing the sum.
        path, expected = self.cache / f"{self.name}-{self.version}.tar.gz", self._checksum()
        self._drop_damaged(path, expected)
        if not path.is_file():
            if self._task.check_mode:
                return SourceArchive(self.version, path, expected, "pip")
            self.cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".incoming-", dir=self.cache) as folder:
                pins = Path(folder, "requirements.txt")
                pins.write_text(f"{self.name}=={self.version} --hash=sha256:{expected}\n", encoding="utf-8")
                problem = pip_download(
                    ["--no-deps", "--no-binary", self.name, "--dest", folder, "--requirement", str(pins)]
                )
                if "DO NOT MATCH THE HASHES" in problem:
                    raise AnsibleActionFail(
                        f"{self.name} {self.version} is not what it should be.\n{problem}"
                    )
                if problem:
                    raise NotThisWay(problem)
                local_archives(Path(folder), self.name, self.version)[0].replace(path)
        return SourceArchive(self.version, path, check_sum(path, expected), "pip")

    def _from_distro(self) -> SourceArchive:
        if self._task.check_mode:
            return SourceArchive(self.version, self.cache, "", "distro")
        reader = self._get_remote_user() or "root"
        # Not chosen by the host: the path becomes part of an sftp command here.
        archive = f"{SOURCES}{secrets.token_hex(8)}/source"
        download = self._ask(package=self.name, reader=reader, archive=archive)
        if "problem" in download:
            raise NotThisWay(f"{self.host}: {download['problem']}")
        origin = f"{download['name']} of {self.host}"
        try:
            version = self._acceptable(str(download["version"]))
            suffix = str(download["name"]).rpartition(".tar.")[2]
            if suffix not in SUFFIXES:
                raise NotThisWay(f"{origin} is no archive that is known (.tar.{', .tar.'.join(SUFFIXES)})")
            path = self.cache / f"{self.name}-{version}.tar.{suffix}"
            # The distribution may have repacked the same version, with another sum.
            same = version == self.version and str(self.args["url"]).endswith(f".tar.{suffix}")
            with incoming(self.cache) as file:
                try:
                    with limit_size(file, self.host):
                        self._connection.fetch_file(archive, str(file))
                except answers.AnswerError as error:
                    raise NotThisWay(str(error)) from error
                sha256 = check_sum(file, download["sha256"], origin=origin)
                if same and self.args["checksum"]:
                    check_sum(file, self.args["checksum"], origin=origin)
                file.replace(path)
            return SourceArchive(version, path, sha256, "distro")
        finally:
            self._ask(archive=archive, forget=True)

    def _acceptable(self, version: str) -> str:
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)*", version):
            raise NotThisWay(f"the source package is {version[:40]!r}, which is no version")
        if version == self.version:
            return version
        if version in self.args["avoid"]:
            raise NotThisWay(f"the source package is {version}: {self.args['avoid'][version]}")
        low, high = self.args["at_least"], self.args["below"]
        try:
            supported = Version(low) <= Version(version) < Version(high)
        except InvalidVersion:
            supported = False
        if not supported:
            raise NotThisWay(f"the source package is {version}, supported are {low} up to below {high}")
        return version

    def _ask(self, **arguments: Any) -> dict[str, Any]:
        result = self._on_host(**arguments)
        if result.get("failed"):
            raise self._failure(result.get("msg"), result=result)
        return result
