"""The base image: one directory tree per release and package configuration, made once, never changed."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hvlab.base import cache
from hvlab.base.errors import HvlabError
from hvlab.base.files import file_sha256, lock
from hvlab.base.paths import image_dirs, images_dir
from hvlab.vlab import names, packages, redhat
from hvlab.vlab.controller import close, discard, link, run, stream, write
from hvlab.vlab.packages import ImageConfig

RECIPE = 4
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "openssh-client", "python3", "python3-apt",
    "iproute2", "procps", "sudo", "ca-certificates",
)  # fmt: skip
# Nodes are thrown away: what dpkg writes there need not survive a power cut.
# A node has apt's lists, as an installed machine has: its first `apt-get update` fetches only what is new.
_OPTIONS = ("--variant=minbase", "--dpkgopt=force-unsafe-io", "--skip=cleanup/apt/lists")
# As in other images for containers: a first `apt-get update` takes half as long without.
_NO_TRANSLATIONS = 'Acquire::Languages "none";\n'
# Background work that would hold apt's lock, or wait for something that a container lacks.
_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "apt-daily.service", "apt-daily-upgrade.service",
    "e2scrub_all.timer", "e2scrub_reap.service", "dpkg-db-backup.timer", "console-getty.service",
    "getty.target", "systemd-firstboot.service", "systemd-resolved.service",
)  # fmt: skip
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
# Above what distributions give to services, below what containers' users get (subuid).
_FIRST_USER = 70_000
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_AUTOMOUNT = Path("/usr/share/mmdebstrap/hooks/file-mirror-automount")


def key(config: ImageConfig) -> str:
    """Return the name of the image: its release and a hash of everything that goes into it."""
    inputs = [RECIPE, PACKAGES, _OPTIONS, _MASKED, config.release, config.apt_settings, config.ca_bundle]
    inputs.append(packages.render(config.sources))
    inputs += [[path, mode, hashlib.sha256(content).hexdigest()] for path, mode, content in config.files]
    if config.release in names.REDHAT:
        inputs += [file_sha256(Path(redhat.__file__).with_suffix(end)) for end in (".py", ".yml")]
    return f"{config.release}-{hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]}"


def ensure(config: ImageConfig, *, say: Callable[[str], None]) -> Path:
    """Return the image for this configuration and build it when it is missing (about 30 s).

    Raises HvlabError with the end of mmdebstrap's output.
    """
    images = images_dir()
    images.mkdir(parents=True, exist_ok=True)
    image = images / key(config)
    if image.is_dir():
        cache.use(image)
        return image
    with lock(images, waiting=lambda: say("another call builds the image")):
        if not image.is_dir():
            for half in images.glob(".building-*"):
                discard(half)
            _build(config, images / f".building-{image.name}", image, say)
            cache.use(image)
    return image


def close_all() -> None:
    """Close every image, also of an earlier hvlab, to all but root; their folder is the user's."""
    for folder in image_dirs():
        for image in folder.glob("*-" + "[0-9a-f]" * 16):
            # On a read-only file system they stay unchanged.
            with suppress(OSError):
                if not image.is_symlink():
                    image.chmod(0o700)


def is_whole(image: Path) -> bool:
    """Whether this is an image that can be booted."""
    return image.is_absolute() and (image / "usr/lib/os-release").is_file()


def _build(config: ImageConfig, work: Path, image: Path, say: Callable[[str], None]) -> None:
    close(work)
    tree, overlay = work / "root", work / "config"
    settings = config.apt_settings + _NO_TRANSLATIONS
    write(overlay / "etc/apt/apt.conf.d/90hvlab", settings, mode=packages.mode(settings))
    for path, mode, content in config.files:
        write(overlay / path.lstrip("/"), content, mode=mode)
    say("build the base image")
    stream(_argv(config, work, tree), line=lambda text: say(_step(text)), remedy=_remedy(config))
    _finish(config, tree)
    # The rename says that the image is whole: its files have to be on the disk before it.
    run(["sync", "--file-system", tree], seconds=600)
    tree.rename(image)
    discard(work)


def _argv(config: ImageConfig, work: Path, tree: Path) -> list[str]:
    """Return the command that builds; it and all it starts end when hvlab ends, however that happens."""
    contained = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--pid", "--fork"]
    # mmdebstrap's temporary files are removed with an unfinished image.
    contained += ["--kill-child=KILL", "--mount-proc", "--", "env", f"TMPDIR={work}"]
    top = " ".join(shlex.quote(str(entry)) for entry in sorted((work / "config").iterdir()))
    hooks = [f"--setup-hook=copy-in {top} /"]
    if packages.source_paths(config.sources):
        hooks.append(f"--hook-dir={_AUTOMOUNT}")
    sources = []
    if config.sources:
        sources = [str(work / "deb.sources")]
        write(work / "deb.sources", packages.render(config.sources))
    packages_included = PACKAGES + (redhat.PACKAGES if config.release in names.REDHAT else ())
    include = f"--include={','.join(packages_included)}"
    build = ["mmdebstrap", "--mode=root", "--format=directory", *_OPTIONS, include]
    return [*contained, *build, *hooks, names.debian(config.release), str(tree), *sources]


def _finish(config: ImageConfig, tree: Path) -> None:
    """Turn mmdebstrap's tree into a node's base: our sources and CAs, no identity, no background work."""
    apt = tree / "etc/apt"
    sources = config.sources
    if not sources:
        sources = tuple(packages.read_list((apt / "sources.list").read_text(encoding="utf-8")))
    for path in [apt / "sources.list", *(apt / "sources.list.d").glob("*")]:
        path.unlink(missing_ok=True)
    text = packages.render(sources)
    write(apt / "sources.list.d/hvlab.sources", text, mode=packages.mode(text))
    extra = packages.find_missing_certificates(
        config.ca_bundle, (tree / _CERTIFICATES).read_text(encoding="utf-8")
    )
    for number, certificate in enumerate(extra):
        write(tree / f"usr/local/share/ca-certificates/hvlab-{number:03}.crt", certificate)
    run(["chroot", tree, "update-ca-certificates"], seconds=600)
    for name in _MASKED:
        link(tree / "etc/systemd/system" / name, "/dev/null")
    networkd = "/lib/systemd/system/systemd-networkd.service"
    link(tree / "etc/systemd/system/multi-user.target.wants/systemd-networkd.service", networkd)
    if config.release in names.REDHAT:
        discard(tree / "var/lib/apt")
        redhat.turn(tree, config.release)
    else:
        run(["chroot", tree, "apt-cache", "gencaches"], seconds=600)
    _number_users(tree / "etc/login.defs")
    for path in (tree / "etc/ssh").glob("ssh_host_*"):
        path.unlink()
    for name in ("etc/hostname", "etc/machine-id", "var/lib/dbus/machine-id", "etc/resolv.conf"):
        (tree / name).unlink(missing_ok=True)
    # A host's own root folder lies above it, in its overlay.
    tree.chmod(0o700)


def _number_users(settings: Path) -> None:
    """Give the users of hosts IDs that are nobody's on the machine: its processes are known there by them."""
    text = settings.read_text(encoding="utf-8")
    for name, value in (("MIN", _FIRST_USER), ("MAX", _FIRST_USER + 9999)):
        text = re.sub(rf"(?m)^([UG]ID_{name})\s+\d+", rf"\1 {value}", text)
    write(settings, text)


def _step(line: str) -> str:
    named = line.startswith("I: ") and line.endswith("...")
    return line.removeprefix("I: ") if named else "build the base image"


def _remedy(config: ImageConfig) -> str:
    if config.sources:
        return "check that `apt-get update` works on this machine: the nodes use its sources"
    if not _KEYRING.is_file() or not shutil.which("gpg"):
        return (
            f"mmdebstrap needs {_KEYRING} and gpg: `apt-get install debian-archive-keyring gpg` "
            "(Fedora: `dnf install debian-keyring gnupg2`)"
        )
    return f"check that this machine reaches Debian's mirror of {names.debian(config.release)}"


def release_of(root: Path) -> str:
    """Return the name of the release in a directory tree; empty when there is none."""
    try:
        text = (root / "usr/lib/os-release").read_text(encoding="utf-8")
    except OSError:
        return ""
    codenames = [line.partition("=")[2] for line in text.splitlines() if line.startswith("VERSION_CODENAME=")]
    return codenames[0].strip('"') if codenames else redhat.release_of(text)


def check_path(image: Path) -> None:
    """Raise HvlabError when the image lies where overlayfs cannot name it."""
    if set(str(image)) & set(",:\\"):
        raise HvlabError(
            f"the image cannot be mounted from {image}: a comma, colon or backslash in its path",
            remedy="set HVLAB_IMAGES to a plain path",
        )
