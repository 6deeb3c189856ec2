"""What nodes inherit: texts of a controller in, texts for a node out."""

import configparser
from pathlib import Path

import pytest

from hvlab.vlab import packages
from hvlab.vlab.packages import PackageSource

LIST = """\
# a comment
deb [arch=amd64,arm64 signed-by=/keys/own.gpg] http://mirror.example/debian bookworm main non-free-firmware#
deb-src http://mirror.example/debian bookworm main
deb http://mirror.example/debian bookworm-backports main
deb http://security.example/debian-security bookworm-security main
deb http://other.example/ubuntu jammy main
deb cdrom:[Debian 12]/ bookworm main
deb http://tools.example/apt tools-bookworm main
"""
SOURCES = """\
# the archive
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://mirror.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: file:/srv/mirror/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
"""


def test_a_list_gives_its_deb_lines():
    first, *others = packages.read_list(LIST)
    assert first == PackageSource(
        ("http://mirror.example/debian",),
        ("bookworm",),
        ("main", "non-free-firmware"),
        (("Architectures", "amd64 arm64"), ("Signed-By", "/keys/own.gpg")),
    )
    assert [source.suites[0] for source in others] == [
        "bookworm-backports",
        "bookworm-security",
        "jammy",
        "tools-bookworm",
    ]


def test_mmdebstrap_puts_a_keyring_s_path_in_quotes():
    [source] = packages.read_list(
        'deb [signed-by="/keys/debian.gpg"] http://mirror.example/debian bookworm main\n'
    )
    assert source.options == (("Signed-By", "/keys/debian.gpg"),)


def test_a_sources_file_gives_its_enabled_deb_stanzas():
    archive, local = packages.read_sources(SOURCES)
    assert archive.suites == ("bookworm", "bookworm-updates", "bookworm-backports")
    assert archive.options == (("Signed-By", "/usr/share/keyrings/debian-archive-keyring.gpg"),)
    assert local.options[0][1].splitlines()[1:] == [" -----BEGIN PGP PUBLIC KEY BLOCK-----", " .", " abc"]


@pytest.mark.parametrize(
    ("release", "suites", "components"),
    [
        ("bookworm", ["bookworm", "bookworm-backports", "bookworm-security"], ("main", "non-free-firmware")),
        ("trixie", ["trixie", "trixie-security"], ("main", "non-free-firmware")),
        ("bullseye", ["bullseye", "bullseye-security"], ("main",)),
    ],
)
def test_entries_become_those_of_the_release(release, suites, components):
    found = packages.translate(packages.read_list(LIST), own="bookworm", release=release)
    assert [suite for source in found for suite in source.suites] == suites
    assert found[0].components == components


@pytest.mark.parametrize("release", ["bullseye", "bookworm", "trixie"])
def test_stanzas_become_those_of_the_release_and_read_back(release):
    found = packages.translate(packages.read_sources(SOURCES), own="bookworm", release=release)
    expected = [release, f"{release}-updates"]
    if release == "bookworm":
        expected.append("bookworm-backports")
    assert list(found[0].suites) == expected
    text = packages.render(found)
    assert "Types: deb\n" in text
    assert packages.read_sources(text) == found


def test_a_controller_of_another_release_has_nothing_for_us():
    assert packages.translate(packages.read_list(LIST), own="noble", release="trixie") == []


def test_files_that_entries_and_settings_name():
    named = packages.find_named_files(
        packages.read_list(LIST), 'Acquire::https::CaInfo "/etc/ssl/lab.pem";\n'
    )
    assert named == ["/etc/ssl/lab.pem", "/keys/own.gpg"]


def test_local_folders_of_apt():
    assert packages.source_paths(packages.read_sources(SOURCES)) == [Path("/srv/mirror/debian")]


def test_settings_that_reach_packages_are_kept():
    dump = """\
APT::Architecture "amd64";
Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::http::Proxy-Auto-Detect "/usr/bin/detect";
Acquire::https::CaInfo "/etc/ssl/lab.pem";
Acquire::Check-Valid-Until "false";
Acquire::AllowInsecureRepositories "0";
Acquire::GzipIndexes "true";
DPkg::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";
"""
    assert packages.apt_settings(dump).splitlines() == [
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::https::CaInfo "/etc/ssl/lab.pem";',
        'Acquire::Check-Valid-Until "false";',
    ]


def _pem(body: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----"


def test_certificates_that_the_image_lacks():
    wanted = f"# one\n{_pem('AAA')}\n{_pem('BBB')}\n{_pem('BBB')}\n"
    assert packages.find_missing_certificates(wanted, _pem("AAA") + "\n") == [_pem("BBB") + "\n"]
    assert packages.find_missing_certificates("", _pem("AAA")) == []


@pytest.mark.parametrize(
    ("text", "upstream", "expected"),
    [
        ("nameserver 192.0.2.1\n", "nameserver 192.0.2.9\n", "nameserver 192.0.2.1\n"),
        ("nameserver 127.0.0.53\noptions edns0\n", "nameserver 192.0.2.9\n", "nameserver 192.0.2.9\n"),
        ("nameserver 127.0.0.53\n", "", "nameserver 127.0.0.53\n"),
        (
            "nameserver 127.0.0.53\nnameserver 192.0.2.1\n",
            "x",
            "nameserver 127.0.0.53\nnameserver 192.0.2.1\n",
        ),
        ("", "nameserver 192.0.2.9\n", ""),
    ],
)
def test_a_stub_resolver_is_replaced(text, upstream, expected):
    assert packages.resolv_conf(text, upstream) == expected


PIP = r"""
:env:.find-links='/srv/wheels'
:env:.config-file='/dev/null'
:env:.require-virtualenv='1'
global.cache-dir='/home/me/.cache/pip'
global.extra-index-url='\nfile:///srv/index/simple\nhttps://index.example/simple'
global.find-links='/srv/old'
global.cert='/srv/ca.pem'
install.find-links="/srv/it's"
install.no-binary='numpy'
"""


def test_pip_settings_of_the_environment_win():
    assert packages.pip_settings(PIP) == {
        "global": {
            "extra-index-url": "\nfile:///srv/index/simple\nhttps://index.example/simple",
            "cert": "/srv/ca.pem",
            "find-links": "/srv/wheels",
        },
        "install": {"no-binary": "numpy"},
    }


def test_pip_conf_reads_back():
    parser = configparser.RawConfigParser()
    parser.read_string(packages.pip_conf(packages.pip_settings(PIP)))
    assert parser["global"]["extra-index-url"].split() == [
        "file:///srv/index/simple",
        "https://index.example/simple",
    ]
    assert packages.pip_conf(packages.pip_settings("")) == ""


def test_paths_of_pip_are_shared_with_what_their_pages_point_to():
    assert packages.pip_paths(packages.pip_settings(PIP)) == [
        Path("/srv/ca.pem"),
        Path("/srv/index"),
        Path("/srv/wheels"),
    ]


def test_files_that_pip_is_to_read_are_each_a_path():
    settings = {
        "global": {"constraint": "/etc/a.txt\n/srv/b.txt https://example.org/c.txt", "cert": "/etc/ca.pem"}
    }
    assert packages.pip_paths(settings) == [Path("/etc/a.txt"), Path("/etc/ca.pem"), Path("/srv/b.txt")]


def test_a_node_has_the_files_of_pips_settings_that_lie_among_the_systems_own(monkeypatch, tmp_path):
    constraint = tmp_path / "constraints.txt"
    constraint.write_text("torch<3\n")
    constraint.chmod(0o640)
    monkeypatch.setattr(packages, "_pip_listing", lambda: f"global.constraint='{constraint}'\n")
    assert packages.node_config("bookworm").shared == (constraint,)
    monkeypatch.setattr(packages, "is_shareable", lambda path: path != constraint)
    config = packages.node_config("bookworm")
    assert config.files == ((str(constraint), 0o640, b"torch<3\n"),)
    assert constraint not in config.shared


def test_a_file_below_a_link_of_the_system_is_written_to_where_that_leads(monkeypatch, tmp_path):
    """A node's tree has the same links, and hvlab writes through none there."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ca.pem").write_text("x")
    (tmp_path / "lib").symlink_to("etc")
    monkeypatch.setattr(packages, "_pip_listing", lambda: f"global.cert='{tmp_path}/lib/ca.pem'\n")
    monkeypatch.setattr(packages, "is_shareable", lambda _: False)
    assert [path for path, _, _ in packages.node_config("bookworm").files] == [f"{tmp_path}/etc/ca.pem"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/wheels", True),
        ("/home/me/wheels", True),
        ("/", False),
        ("/etc/ssl/x.pem", False),
        ("/opt", False),
    ],
)
def test_the_system_itself_is_not_shared(path, expected):
    assert packages.is_shareable(Path(path)) is expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("file:///srv/my%20wheels", Path("/srv/my wheels")),
        ("/srv/wheels", Path("/srv/wheels")),
        ("https://index.example/simple", None),
        ("wheels", None),
    ],
)
def test_local_paths(word, expected):
    assert packages.local_path(word) == expected
