"""The repositories of one test run: built once, served, and changed on demand."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.vlab.repository import deb, rpm, spec
from tests.vlab.repository.keys import Key
from tests.vlab.repository.server import Server

ROOT = "compute/cuda/repos"
DEB_SYSTEMS = ("debian12", "ubuntu2204")
RPM_SYSTEMS = ("rhel9",)
# The names under which NVIDIA publishes its keys; here each holds the throwaway key.
KEY_NAMES = ("3bf863cc.pub", "8793F200.pub", "D42D0685.pub", "CDF6BA43.pub")
TOOLKIT = "libnvidia-container"


class Repository:
    """See the package's own text for how it is used."""

    def __init__(
        self, folder: Path, address: str, port: int = 0, systems: Iterable[str] = DEB_SYSTEMS + RPM_SYSTEMS
    ) -> None:
        self.built = _build(folder, tuple(systems))
        self.key, self.other = Key(folder / "keys/good"), Key(folder / "keys/other")
        self.served = folder / "served"
        self.server = Server(self.served, address, port)
        self._serve()

    def __enter__(self) -> Repository:
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()
        self.key.close()
        self.other.close()

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        """Stop answering; `start` goes on at the same address."""
        self.server.stop()

    @property
    def site(self) -> str:
        return f"http://{self.server.address}:{self.server.port}"

    @property
    def url(self) -> str:
        """What nvidia_repository_url takes."""
        return f"{self.site}/{ROOT}"

    @property
    def fingerprint(self) -> str:
        return self.key.fingerprint

    @property
    def variables(self) -> dict[str, str]:
        """What sends the roles here instead of to NVIDIA."""
        return {"nvidia_repository_url": self.url, "nvidia_repository_key_fingerprint": self.fingerprint}

    def restore(self) -> None:
        """Undo what was withdrawn or signed by another key; apt keeps to lists that are newer than others."""
        self._serve()
        self.sign(self.key)

    def _serve(self) -> None:
        shutil.rmtree(self.served, ignore_errors=True)
        shutil.copytree(self.built, self.served)

    def withdraw(self, name: str, version: str = "*") -> None:
        """Let a package vanish from every repository, as old versions do."""
        folders = set()
        for path in [
            *self.served.rglob(f"{name}_{version}_*.deb"), *self.served.rglob(f"{name}-{version}.*.rpm"),
        ]:  # fmt: skip
            path.unlink()
            folders.add(path.parent)
        assert folders, f"there is no {name} {version}"
        for folder in folders:
            publish(folder, self.key)

    def sign(self, key: Key) -> None:
        """Sign all lists again; with ``self.other`` the published key no longer fits them."""
        for folder in folders(self.served):
            publish(folder, key)


def publish(folder: Path, key: Key) -> None:
    """Write and sign the lists of one repository."""
    if any(folder.glob("*.deb")):
        deb.publish(folder, key, "NVIDIA CUDA" if ROOT in str(folder) else "libnvidia-container")
    else:
        rpm.publish(folder, key)


def folders(site: Path) -> list[Path]:
    """Return the folders of a site that are a repository."""
    return sorted({path.parent for pattern in ("*.deb", "*.rpm") for path in site.rglob(pattern)})


def _build(folder: Path, systems: tuple[str, ...]) -> Path:
    """Return the folder with everything; it is built when the sources of this package have changed."""
    here = Path(__file__).parent
    sources = sorted(path for path in here.rglob("*") if path.is_file() and path.suffix != ".pyc")
    digest = hashlib.sha256(repr(systems).encode())
    for path in sources:
        digest.update(path.read_bytes())
    done = folder / f"built-{digest.hexdigest()[:16]}"
    keys = [Key.ensure(folder / "keys" / name) for name in ("good", "other")]
    if done.is_dir():
        return done
    work = folder / "building"
    shutil.rmtree(work, ignore_errors=True)
    for system in systems:
        place = work / ROOT / system / "x86_64"
        place.mkdir(parents=True)
        kind = rpm if system.startswith(("rhel", "amzn")) else deb
        _fill(kind, system, place, keys[0])
        for name in KEY_NAMES:
            (place / name).write_bytes(keys[0].public)
    extras = [(deb, TOOLKIT, "stable/deb/amd64"), (rpm, TOOLKIT, "stable/rpm/x86_64")]
    for kind, system, under in [*extras, (rpm, "epel", "9/Everything/x86_64")]:
        place = work / system / under
        place.mkdir(parents=True)
        _fill(kind, system, place, keys[0])
        (work / system / "gpgkey").write_bytes(keys[0].public)
    work.rename(done)
    return done


def _fill(kind, system: str, place: Path, key: Key) -> None:
    packages = spec.packages(system, "rpm" if kind is rpm else "deb")
    if kind is rpm:
        rpm.build(packages, place, key)
    else:
        deb.build(packages, place)
    publish(place, key)
