"""Make a Debian tree look and act like a system of the Red Hat family, for nodes without their images.

Programs are Debian's; dnf, the rpm database, the releases' files and the packages' names are the family's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hvlab.base.yaml_files import read_shipped
from hvlab.vlab.controller import discard, link, run, write

PACKAGES = ("dnf", "python3-dnf", "dnf-plugins-core", "rpm", "createrepo-c", "gpg", "gpgv")
_DATA = read_shipped(Path(__file__).with_suffix(".yml"))
STANDS_FOR: Mapping[str, str] = _DATA["packages"]
_AWAY = Path("usr/lib/hvlab/debian")
_MOVED = ("usr/bin/apt*", "usr/bin/dpkg*", "usr/sbin/dpkg*", "var/lib/dpkg", "etc/apt", "etc/dpkg")
_BUILD = Path("tmp/hvlab-rpm")
_DNF_CONF = "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\n"


@dataclass(frozen=True)
class System:
    """A system of the family: its ``os-release`` id, name and version, and the rpm that says which it is."""

    id: str
    name: str
    version: str
    release_file: str
    release_package: str
    tag: str

    @property
    def major(self) -> str:
        """The version that repositories use as ``$releasever``."""
        return self.version.split(".")[0]

    @property
    def yum(self) -> bool:
        """Whether its package manager is yum, its lock plugin yum's and its sshd without ``Include``."""
        return self.tag == "el7"

    @property
    def os_release(self) -> str:
        """The text of /etc/os-release."""
        like = "fedora" if self.id == "amzn" else "rhel centos fedora"
        lines = {"NAME": self.name, "VERSION": self.version, "ID": self.id, "ID_LIKE": like}
        lines |= {"VERSION_ID": self.version, "PLATFORM_ID": f"platform:{self.tag}"}
        lines |= {"PRETTY_NAME": f"{self.name} {self.version}"}
        return "".join(f'{key}="{value}"\n' for key, value in lines.items())


SYSTEMS = {name: System(**system) for name, system in _DATA["systems"].items()}


def release_of(os_release: str) -> str:
    """Return the release that an /etc/os-release of ours belongs to; empty for any other."""
    return next((name for name, system in SYSTEMS.items() if system.os_release == os_release), "")


def turn(tree: Path, release: str) -> None:
    """Turn a Debian tree that has our packages into a system of the family."""
    system = SYSTEMS[release]
    installed = _debian_packages(tree)
    # Debian's own folder for the database is the home directory of rpm's caller.
    write(tree / "etc/rpm/macros.hvlab", "%_dbpath /var/lib/rpm\n")
    _install(tree, spec(system, installed, _libraries(tree), _programs(tree)))
    _move_away(tree)
    write(tree / "usr/lib/os-release", system.os_release)
    text = f"{system.name} release {system.version}\n"
    write(tree / "etc" / system.release_file, text)
    write(tree / "etc/issue", text)
    (tree / "etc/debian_version").unlink(missing_ok=True)
    write(tree / "etc/dnf/dnf.conf", _DNF_CONF)
    # It would keep every package that was ever downloaded, as a repository.
    write(tree / "etc/dnf/plugins/local.conf", "[main]\nenabled = false\n")
    (tree / "etc/yum.repos.d").mkdir(exist_ok=True)
    link(tree / "usr/bin/yum", "dnf-3")
    if system.yum:
        (tree / "usr/bin/dnf").unlink()
    if release in ("el7", "el8"):
        _drop_include(tree / "etc/ssh/sshd_config")


def spec(system: System, versions: dict[str, str], libraries: list[str], programs: list[str]) -> str:
    """Return the text of a spec file: a package without files for each that the base programs stand for."""
    locks = "yum-plugin-versionlock" if system.yum else "python3-dnf-plugin-versionlock"
    names = {**STANDS_FOR, locks: "dnf-plugins-core", "yum" if system.yum else "dnf": "dnf"}
    head = {"Name": system.release_package, "Version": system.version, "Release": f"1.{system.tag}"}
    head |= {"Summary": system.name, "License": "Apache-2.0", "AutoReqProv": "no"}
    provides = [f"system-release = {system.version}", f"system-release(releasever) = {system.major}"]
    provides += [f"redhat-release = {system.version}"]
    if system.release_package == "system-release":
        del provides[0]
    lines = [f"{key}: {value}" for key, value in head.items()]
    lines += [f"Provides: {one}" for one in provides] + ["%description", system.name, "%files"]
    extra = {"glibc": libraries, "filesystem": programs, "python3": ["python(abi) = 3.11"]}
    for name, stands_for in names.items():
        lines += [f"%package -n {name}", f"Summary: {stands_for} of Debian", "AutoReqProv: no"]
        lines += [f"Version: {_upstream(versions[stands_for])}"]
        lines += [f"Provides: {one}" for one in extra.get(name, [])]
        lines += [f"%description -n {name}", f"Stands for the programs of {stands_for}.", f"%files -n {name}"]
    return "\n".join(lines) + "\n"


def _upstream(version: str) -> str:
    """Return a Debian version without epoch, revision and marks of Debian's: 9.2p1 of 1:9.2p1-2+deb12u6."""
    return re.split(r"[-+~]", version.split(":", 1)[-1])[0]


def _debian_packages(tree: Path) -> dict[str, str]:
    listing = run(["chroot", tree, "dpkg-query", "-W", "-f", "${Package} ${Version}\\n"])
    return dict(line.split() for line in listing.splitlines())


def _libraries(tree: Path) -> list[str]:
    """Return the shared libraries that the tree provides, as rpm writes them: ``libc.so.6()(64bit)``."""
    paths = sorted(path.relative_to(tree) for path in tree.glob("usr/lib/*-linux-gnu*/*.so.*"))
    given = "".join(f"/{path}\n" for path in paths)
    return sorted(set(run(["chroot", tree, "/usr/lib/rpm/elfdeps", "--provides"], given=given).splitlines()))


def _programs(tree: Path) -> list[str]:
    programs = [
        path.relative_to(tree) for pattern in ("usr/bin/*", "usr/sbin/*") for path in tree.glob(pattern)
    ]
    names = sorted(f"/{path}" for path in programs if not path.name.startswith(("apt", "dpkg")))
    plain = [name for name in names if set(Path(name).name).isdisjoint("[ ")]
    return plain + [name.removeprefix("/usr") for name in plain]


def _install(tree: Path, text: str) -> None:
    build = tree / _BUILD
    write(build / "hvlab.spec", text)
    define = ["--define", f"_topdir /{_BUILD}"]
    run(["chroot", tree, "rpmbuild", "-bb", "--quiet", *define, f"/{_BUILD}/hvlab.spec"], seconds=600)
    files = [f"/{path.relative_to(tree)}" for path in sorted(build.glob("RPMS/*/*.rpm"))]
    run(["chroot", tree, "rpm", "--initdb"])
    run(["chroot", tree, "rpm", "--install", "--force-debian", "--nodeps", "--justdb", *files], seconds=600)
    discard(build)


def _move_away(tree: Path) -> None:
    for pattern in _MOVED:
        for path in tree.glob(pattern):
            place = tree / _AWAY / path.relative_to(tree)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place)


def _drop_include(config: Path) -> None:
    """Let sshd read, beside its one file, only what tells a node its port: theirs knows no ``Include``."""
    text = config.read_text(encoding="utf-8")
    write(config, text.replace("sshd_config.d/*.conf", "sshd_config.d/05-port.conf"), mode=0o600)
