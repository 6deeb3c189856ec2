"""Package sources: the fingerprint of a key, entries in the way, what to do about a failure."""

import hashlib
from pathlib import Path

import pytest
import yaml
from ansible.module_utils import hvlab_managers, hvlab_openpgp, hvlab_sources

from hvlab.paths import project_dir

TWO_KEYS = (Path(__file__).parents[1] / "data/two-keys.asc").read_bytes()
# What GnuPG says of the keys in that file.
FIRST, SECOND = "15CF248826CF7D79D66638FF87AEFA9FE0805398", "F78C71BC8247810F1479B1C10EA1355E2AE444C8"
REPOS = "developer.download.nvidia.com/compute/cuda/repos"


def test_fingerprints_are_those_of_gnupg():
    assert list(hvlab_openpgp.keys(TWO_KEYS)) == [FIRST, SECOND]


def test_armor_and_back():
    packets = hvlab_openpgp.dearmor(TWO_KEYS)
    assert hvlab_openpgp.armor(packets) == TWO_KEYS
    assert hvlab_openpgp.keys(packets) == hvlab_openpgp.keys(TWO_KEYS)


def test_one_key_is_taken_out_of_a_file():
    first = hvlab_openpgp.keys(TWO_KEYS)[FIRST]
    assert list(hvlab_openpgp.keys(first)) == [FIRST]
    assert first + hvlab_openpgp.keys(TWO_KEYS)[SECOND] == hvlab_openpgp.dearmor(TWO_KEYS)


@pytest.mark.parametrize(("version", "head"), [(5, b"\x9a"), (6, b"\x9b")])
def test_fingerprints_of_newer_versions_are_sha256(version, head):
    body = bytes([version]) + b"\0" * 300
    packet = b"\xc6" + bytes([192 + (len(body) - 192 >> 8), len(body) - 192 & 0xFF]) + body
    found = list(hvlab_openpgp.keys(packet))
    assert found == [hashlib.sha256(head + len(body).to_bytes(4, "big") + body).hexdigest().upper()]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no public key"),
        (b"<html>not found</html>", "no OpenPGP data"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!!\n-----END PGP PUBLIC KEY BLOCK-----", "damaged"),
        (hvlab_openpgp.dearmor(TWO_KEYS)[:40], "cut short"),
        (b"\xc6\x01\x03", "unknown version 3"),
        (b"\xc6\xe5" + b"\0" * 32, "unknown length"),
    ],
)
def test_what_is_no_key_is_told(data, why):
    with pytest.raises(ValueError, match=why):
        hvlab_openpgp.keys(data)


@pytest.mark.parametrize(
    "wanted", [FIRST, FIRST.lower(), FIRST[-16:], "15CF 2488 26CF 7D79 D666 38FF 87AE FA9F E080 5398"]
)
def test_a_fingerprint_may_be_written_in_several_ways(wanted):
    assert hvlab_openpgp.matches(FIRST, wanted)
    assert not hvlab_openpgp.matches(SECOND, wanted)


LIST = f"""# a comment with {REPOS}/debian12
deb http://mirror.example.org/debian bookworm main
deb [signed-by=/k.gpg] https://{REPOS}/debian12/x86_64/ /
"""
SOURCES = f"""Types: deb
URIs: http://mirror.example.org/debian
Suites: bookworm

# NVIDIA
Types: deb
URIs: http://{REPOS}/debian12/x86_64/
Suites: /
Enabled: yes
"""
REPO = f"""[base]
name={REPOS}
baseurl=http://mirror.example.org
[cuda]
name=cuda
enabled=1
baseurl=https://{REPOS}/rhel9/x86_64
"""


@pytest.mark.parametrize(
    ("path", "text", "gone", "kept"),
    [
        ("a.list", LIST, f"{hvlab_sources.MARK}deb [signed-by", "\ndeb http://mirror"),
        ("a.sources", SOURCES, f"Enabled: no\nURIs: http://{REPOS}", "Suites: bookworm"),
        ("a.repo", REPO, "[cuda]\nenabled=0\nname=cuda\nbaseurl", "[base]\nname="),
    ],
)
def test_entries_in_the_way_are_switched_off_once(path, text, gone, kept):
    without = hvlab_sources.switch_off(path, text, [f"https://{REPOS}"])
    assert gone in without
    assert kept in without
    assert "Enabled: yes" not in without
    assert "enabled=1" not in without
    assert hvlab_sources.switch_off(path, without, [f"https://{REPOS}"]) == without
    assert hvlab_sources.switch_off(path, text, ["http://elsewhere.example.org"]) == text


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("W: GPG error: NO_PUBKEY A4B469963BF863CC", "7fa2af80 is retired"),
        ("E: The repository 'x' is not signed. NO_PUBKEY 0123456789ABCDEF", "see who signs"),
        ("E: The repository 'x' does not have a Release file.", "InRelease or Release"),
        ("W: Failed to fetch http://x Could not connect to x:80 (1.2.3.4)", "see that the host reaches"),
        ("Curl error (7): Couldn't connect. Error: Cannot download repomd.xml", "see that the host reaches"),
        ("certificate verify failed", "ca-certificates"),
        ("something else", "see that the host reaches"),
    ],
)
def test_a_failure_comes_with_its_remedy(said, advice):
    params = {
        "name": "x",
        "url": "http://x",
        "suite": "/",
        "components": [],
        "enabled": True,
        "priority": None,
    }
    assert advice in hvlab_managers.remedy(said, hvlab_managers.Apt(params))


def test_every_system_has_a_key_with_a_fingerprint():
    data = yaml.safe_load((project_dir() / "roles/nvidia_repository/vars/main.yml").read_text())
    keys, fingerprints = data["__nvidia_repository_keys"], data["__nvidia_repository_fingerprints"]
    assert set(keys.values()) == set(fingerprints)
    for name, fingerprint in fingerprints.items():
        assert fingerprint.endswith(name.removesuffix(".pub").upper())
