"""RPM packages and the metadata of their repository, with rpmbuild, rpmsign and createrepo_c."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import yaml

from tests.vlab.repository.keys import Key
from tests.vlab.repository.spec import Package, rpm_name, rpm_version

_ARCH = "x86_64"
_SPEC_HEAD = """\
%global debug_package %{nil}
%global __spec_install_post %{nil}
%define _binary_payload w1.gzdio
%define _build_id_links none
Name: stand-ins
Version: 1
Release: 1
Summary: Stands in for the packages of these names
License: Apache-2.0
%description
%install
mkdir -p %{buildroot}
cp -a STAGE/. %{buildroot}
"""


def build(packages: list[Package], folder: Path, key: Key) -> None:
    """Write the signed packages into an empty folder; one call of rpmbuild makes as many as do not clash."""
    work = folder / ".work"
    for number, part in enumerate(_parts(packages)):
        stage = work / f"stage{number}"
        stage.mkdir(parents=True)
        _lay(part, stage)
        spec = work / f"part{number}.spec"
        head = _SPEC_HEAD.replace("STAGE", str(stage))
        spec.write_text(head + "".join(_section(package) for package in part), encoding="utf-8")
        name = "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"
        defines = {"_topdir": work / "top", "_rpmdir": folder, "_rpmfilename": name}
        options = [word for key_value in defines.items() for word in ("--define", "{} {}".format(*key_value))]
        _run(["rpmbuild", "-bb", "--quiet", "--target", _ARCH, *options, str(spec)])
    shutil.rmtree(work)
    key.sign_rpms(sorted(folder.glob("*.rpm")))
    modules = _modules(packages)
    if modules:
        (folder / "modules.yaml").write_text(modules, encoding="utf-8")


def publish(folder: Path, key: Key) -> None:
    """Write repodata and its signature for the packages that are in the folder."""
    shutil.rmtree(folder / "repodata", ignore_errors=True)
    _run(["createrepo_c", "--quiet", "--no-database", "--simple-md-filenames", str(folder)])
    if (folder / "modules.yaml").exists():
        modify = ["modifyrepo_c", "--mdtype=modules", "--simple-md-filenames"]
        _run([*modify, str(folder / "modules.yaml"), str(folder / "repodata")])
    key.sign(folder / "repodata/repomd.xml", folder / "repodata/repomd.xml.asc")


def _parts(packages: list[Package]) -> list[list[Package]]:
    """Share out the packages so that no name and no path is twice in one part."""
    parts: list[tuple[list[Package], set[str]]] = []
    for package in packages:
        taken = {package.name, *package.files}
        for part, names in parts:
            if not taken & names:
                part.append(package)
                names.update(taken)
                break
        else:
            parts.append(([package], taken))
    return [part for part, _ in parts]


def _lay(packages: list[Package], stage: Path) -> None:
    for package in packages:
        for path, file in package.files.items():
            place = stage / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.folder:
                place.mkdir(exist_ok=True)
            elif file.target:
                place.symlink_to(file.target)
            else:
                place.write_bytes(file.content)
                place.chmod(file.mode)


def split(version: str) -> tuple[str, str, str]:
    """Return epoch (or an empty text), version and release."""
    epoch, _, rest = version.rpartition(":")
    number, _, release = rest.rpartition("-")
    return epoch, number, release


def _section(package: Package) -> str:
    epoch, version, release = split(package.version)
    lines = [f"%package -n {package.name}", f"Version: {version}", f"Release: {release}"]
    lines += [f"Epoch: {epoch}"] if epoch else []
    lines += ["Summary: Stands in for the package of this name", "AutoReqProv: no"]
    tags = {"depends": "Requires", "provides": "Provides", "conflicts": "Conflicts", "replaces": "Obsoletes"}
    for key, listed in package.relations.items():
        lines += [f"{tags[key]}: {_relation(each)}" for each in listed if key != "replaces"]
    lines += [f"%description -n {package.name}", "Stands in for the package of this name."]
    for when, commands in _scripts(package).items():
        lines += [f"%{when} -n {package.name} -p <lua>", *commands]
    lines.append(f"%files -n {package.name}")
    for path, file in package.files.items():
        kind = "" if file.target else f"%attr({file.mode:04o}, root, root) "
        lines.append(f"{'%dir ' if file.folder else ''}{kind}{path}")
    return "\n".join(lines) + "\n"


def _relation(text: str) -> str:
    """Turn ``libnccl2 (= 1-1)`` into ``libnccl = 1-1``."""
    match = re.fullmatch(r"(\S+)(?: \((\S+) (\S+)\))?", text)
    assert match, text
    name, sign, version = match.groups()
    if not sign:
        return rpm_name(name)
    return f"{rpm_name(name)} {sign.replace('<<', '<')} {rpm_version(name, version)}"


def _scripts(package: Package) -> dict[str, list[str]]:
    """Return scripts in rpm's own Lua, which asks for no shell among the packages."""
    after, before = [], []
    for link, name, path, priority in package.alternatives:
        call = "rpm.execute('update-alternatives', '--{}')"
        after.append(call.format("', '".join(["install", link, name, path, priority])))
        gone = call.format("', '".join(["remove", name, path]))
        before.append(f"if tonumber(arg[2]) == 0 then {gone} end")
    if package.module:
        name, version = package.module
        for verb in ("add", "build", "install"):
            after.append(f"rpm.execute('dkms', '{verb}', '-m', '{name}', '-v', '{version}')")
        before.append(f"rpm.execute('dkms', 'remove', '-m', '{name}', '-v', '{version}', '--all')")
        known = "if posix.access('/usr/sbin/dkms', 'x') then"
        after, before = [known, *after, "end"], [known, *before, "end"]
    if any(".so." in path for path in package.files):
        after.append("rpm.execute('/sbin/ldconfig')")
    return {when: lines for when, lines in (("post", after), ("preun", before)) if lines}


def _modules(packages: list[Package]) -> str:
    """Return the streams of the module nvidia-driver as modulemd documents."""
    streams: dict[str, list[Package]] = {}
    for package in packages:
        for stream in package.streams:
            streams.setdefault(stream, []).append(package)
    documents = []
    for number, (stream, members) in enumerate(sorted(streams.items())):
        rpms = [
            f"{package.name}-{epoch or 0}:{version}-{release}.{_ARCH}"
            for package in members
            for epoch, version, release in [split(package.version)]
        ]
        names = sorted({package.name for package in members})
        data = {
            "name": "nvidia-driver",
            "stream": stream,
            "version": 20251001000000 + number,
            "context": f"{number:08x}",
            "arch": _ARCH,
            "summary": f"NVIDIA driver, {stream}",
            "description": f"NVIDIA driver, {stream}",
            "license": {"module": ["MIT"]},
            "profiles": {"default": {"rpms": names}},
            "artifacts": {"rpms": rpms},
        }
        documents.append({"document": "modulemd", "version": 2, "data": data})
    defaults = {"module": "nvidia-driver", "profiles": {stream: ["default"] for stream in sorted(streams)}}
    documents.append({"document": "modulemd-defaults", "version": 1, "data": defaults})
    return yaml.safe_dump_all(documents, explicit_start=True, explicit_end=True) if streams else ""


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
