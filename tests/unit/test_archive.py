"""An archive on its way to a host: from where it may come, and what is refused."""

import getpass
import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import hvlab_archive as archive

CONTENT = bytes(range(256)) * 10000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
# A stand-in for runuser and ssh, which runs what the other host would.
RUNUSER = """#!/bin/sh
echo "$*" > {folder}/argv
while [ $# -gt 1 ]; do shift; done
{harm}eval "$1"
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: Any) -> None:
        """Print nothing."""


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "pack.tar.gz").write_bytes(CONTENT)
    return folder


@pytest.fixture
def address(mirror: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(mirror)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def received(tmp_path: Path, **changes: Any) -> str:
    """Get CONTENT to a host, in the place of one of the tool's folder."""
    usual = {"archive": "", "url": "", "peer": {}, "size": len(CONTENT), "sha256": SHA256, "user": ""}
    place = str(tmp_path / "opt/.tool.pack-1/pack.tar.gz")
    archive.receive(place, **usual | changes)
    return place


def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str = "") -> dict[str, Any]:
    """Put the stand-in into PATH; return the host that it reaches."""
    program = tmp_path / "bin/runuser"
    program.parent.mkdir()
    program.write_text(RUNUSER.format(folder=tmp_path, harm=harm))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return {"user": "hvlab", "address": "192.0.2.1", "port": 2222}


def modes(place: str) -> list[str]:
    return [oct(stat.S_IMODE(path.stat().st_mode)) for path in (Path(place).parent, Path(place))]


def test_from_a_folder(tmp_path: Path, mirror: Path) -> None:
    place = received(tmp_path, archive=f"{mirror}/pack.tar.gz")
    assert Path(place).read_bytes() == CONTENT
    assert modes(place)[0] == "0o700"


def test_from_an_address(tmp_path: Path, mirror: Path, address: str) -> None:
    assert Path(received(tmp_path, url=f"{address}/pack.tar.gz")).read_bytes() == CONTENT
    with pytest.raises(OSError, match="404"):
        received(tmp_path, url=f"{address}/other.tar.gz")


def test_from_another_host(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it may serve others in turn: the lab user may read it, and change nothing."""
    peer = fake_ssh(tmp_path, monkeypatch)
    place = received(tmp_path, archive=f"{mirror}/pack.tar.gz", peer=peer, user=getpass.getuser())
    assert Path(place).read_bytes() == CONTENT
    assert modes(place) == ["0o750", "0o640"]
    argv = (tmp_path / "argv").read_text()
    assert argv.startswith("-u hvlab -- ssh ")
    assert "-o StrictHostKeyChecking=yes" in argv
    assert f"-p 2222 -l hvlab 192.0.2.1 exec cat {mirror}/pack.tar.gz" in argv


@pytest.mark.parametrize(
    ("harm", "observed"),
    [
        ("echo denied >&2; exit 255; ", "0 of 2560000 bytes arrived; ssh: denied"),
        ("printf x; ", "more than 2560000 bytes arrived"),
        ("printf x; exec head -c 2559999 /dev/zero; ", f"its sha256 is .*, the controller's is {SHA256}"),
        ("sleep 60; ", "it did not arrive within 1 s"),
    ],
)
def test_what_is_not_right_is_not_kept(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch, harm: str, observed: str
) -> None:
    peer = fake_ssh(tmp_path, monkeypatch, harm)
    monkeypatch.setattr(archive, "SETUP_SECONDS", 1 if "sleep" in harm else 60)
    monkeypatch.setattr(archive, "LEAST_BYTES_PER_SECOND", 1 << 30)
    with pytest.raises(ValueError, match=observed):
        received(tmp_path, archive=f"{mirror}/pack.tar.gz", peer=peer)
    assert list((tmp_path / "opt").iterdir()) == []
