"""What a node of the Red Hat family is made of."""

from dataclasses import replace

import pytest

from hvlab.vlab import image, names, redhat
from hvlab.vlab.packages import ImageConfig

VERSIONS = dict.fromkeys([*redhat.STANDS_FOR.values(), "dnf"], "1:2.3p1-4+deb12u1")
CONFIG = ImageConfig(release="el9", sources=(), apt_settings="", files=(), ca_bundle="")


def test_every_release_has_its_system():
    assert tuple(redhat.SYSTEMS) == names.REDHAT


@pytest.mark.parametrize("release", names.REDHAT)
def test_the_packages_stand_for_what_is_there(release):
    system = redhat.SYSTEMS[release]
    text = redhat.spec(system, VERSIONS, ["libc.so.6()(64bit)"], ["/usr/bin/env", "/bin/sh"])
    assert f"Name: {system.release_package}\n" in text
    assert f"Provides: system-release(releasever) = {system.version.split('.')[0]}\n" in text
    assert "%package -n bash\n" in text
    assert "Version: 2.3p1\n" in text
    assert "Provides: libc.so.6()(64bit)\n" in text
    assert "Provides: /bin/sh\n" in text
    locks = "yum-plugin-versionlock" if release == "el7" else "python3-dnf-plugin-versionlock"
    assert f"%package -n {locks}\n" in text


@pytest.mark.parametrize("release", names.REDHAT)
def test_an_image_tells_its_release(release, tmp_path):
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text(redhat.SYSTEMS[release].os_release)
    assert image.release_of(tmp_path) == release


def test_images_of_the_family_differ_from_each_other_and_from_debian():
    keys = {image.key(replace(CONFIG, release=release)) for release in (*names.REDHAT, "bookworm")}
    assert len(keys) == len(names.REDHAT) + 1


def test_what_was_moved_away_is_debians(tmp_path):
    for path in ("usr/bin/apt-get", "usr/bin/dpkg", "usr/bin/env", "var/lib/dpkg/status", "etc/apt/apt.conf"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    redhat._move_away(tmp_path)
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert "usr/bin/env" in left
    assert [path for path in left if not path.startswith("usr/lib/hvlab/")] == ["usr/bin/env"]
    assert "usr/lib/hvlab/debian/var/lib/dpkg/status" in left
