"""The module hvlab_docker, run as Ansible runs it, with a stand-in for dockerd."""

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from hvlab.ansible.modules import hvlab_docker
from hvlab.ansible.modules.hvlab_docker import merged, version

DOCKERD = """#!/usr/bin/python3
import json, sys
if "{validates}" == "no" and "--validate" in sys.argv:
    sys.exit("unknown flag: --validate\\nSee 'dockerd --help'.")
config = json.load(open(sys.argv[-1]))
if "nonsense" in config:
    sys.exit(f"unable to configure the Docker daemon with file {{sys.argv[-1]}}: nonsense")
if "--validate" not in sys.argv:
    sys.exit("dockerd needs to be started with root. To see how to run dockerd in rootless mode ...")
print("configuration OK")
"""
SAYS = {
    "docker": 'echo "Docker version 27.5.1, build 9f9e405"',
    "nvidia-ctk": 'echo "NVIDIA Container Toolkit CLI version 1.17.8"; echo "commit: f202b80"',
    "systemctl": 'test "$1" = is-active && echo active || echo enabled',
    "setpriv": 'shift 3; exec "$@"',
}


@pytest.fixture(params=["yes", "no"], ids=["validates", "older"])
def host(request, tmp_path, monkeypatch):
    """A folder of programs that come first on the path; dockerd of either kind."""
    programs = {name: f"#!/bin/sh\n{text}\n" for name, text in SAYS.items()}
    programs["dockerd"] = DOCKERD.format(validates=request.param)
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(hvlab_docker, "DATA_ROOT", str(tmp_path / "lib"))
    return tmp_path


@pytest.fixture
def bring(host, capsys):
    def run(config, *, check=False, **more):
        arguments = {
            "config": config,
            "path": str(host / "etc/docker/daemon.json"),
            "_ansible_check_mode": check,
            **more,
        }
        with patch_module_args(arguments), pytest.raises(SystemExit):
            hvlab_docker.main()
        return json.loads(capsys.readouterr().out)

    return run


def put(host, text):
    (host / "etc/docker").mkdir(parents=True, exist_ok=True)
    (host / "etc/docker/daemon.json").write_text(text)


def there(host):
    return json.loads((host / "etc/docker/daemon.json").read_text())


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"m": ["x", "y"]}, {"m": ["z", "y"]}, {"m": ["z", "y", "x"]}),
        ({"r": {"mine": {"path": "p"}}}, {"r": {"nvidia": {}}}, {"r": {"mine": {"path": "p"}, "nvidia": {}}}),
        ({"a": ["x"]}, {"a": "y"}, {"a": "y"}),
        ({}, {}, {}),
    ],
)
def test_settings_are_merged(old, new, both):
    assert merged(old, new) == both
    assert merged(both, new) == both


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Docker version 20.10.24+dfsg1, build 297e128", "20.10.24+dfsg1"),
        ("NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80", "1.17.8"),
        ("", None),
        ("permission denied", None),
    ],
)
def test_version(text, told):
    assert version(text) == told


def test_it_is_written_once_and_the_rest_stays(bring, host):
    put(host, '{"default-runtime": "mine", "registry-mirrors": ["https://old.example"]}')
    wanted = {"registry-mirrors": ["https://new.example"], "log-opts": {"max-size": "10m"}}
    done = bring(wanted)
    assert done["changed"]
    assert there(host) == {
        "default-runtime": "mine",
        "registry-mirrors": ["https://new.example", "https://old.example"],
        "log-opts": {"max-size": "10m"},
    }
    assert done["mirrors"] == ["https://new.example", "https://old.example"]
    assert (done["docker"], done["toolkit"], done["service"]) == ("27.5.1", "1.17.8", True)
    assert done["data_root"] == str(host / "lib")
    assert not bring(wanted)["changed"]


def test_nothing_wanted_makes_no_file(bring, host):
    assert not bring({})["changed"]
    assert not (host / "etc").exists()


def test_check_mode_says_so_and_writes_nothing(bring, host):
    done = bring({"debug": True}, check=True)
    assert done["changed"]
    assert json.loads(done["diff"]["after"]) == {"debug": True}
    assert not (host / "etc").exists()


@pytest.mark.parametrize("text", ["{,", "[]", "\xff"])
def test_what_is_no_json_is_refused_with_its_remedy(bring, host, text):
    put(host, "")
    (host / "etc/docker/daemon.json").write_bytes(text.encode("latin-1"))
    done = bring({"debug": True})
    assert done["failed"]
    assert "daemon.json" in done["msg"]
    assert (host / "etc/docker/daemon.json").read_bytes() == text.encode("latin-1")


def test_an_empty_file_holds_no_settings(bring, host):
    put(host, "\n")
    bring({"debug": True})
    assert there(host) == {"debug": True}


def test_what_dockerd_refuses_is_not_written(bring, host):
    put(host, '{"debug": false}')
    done = bring({"nonsense": 1})
    assert done["failed"]
    assert f"unable to configure the Docker daemon with file {host}/etc/docker/daemon.json" in done["msg"]
    assert there(host) == {"debug": False}


@pytest.mark.parametrize("kind", ["containers/0123", "image/vfs/imagedb/content/sha256/0123"])
def test_images_are_not_lost_without_a_word(bring, host, kind):
    (host / "lib" / kind).mkdir(parents=True)
    done = bring({"data-root": "/data"})
    assert done["failed"]
    assert "container_runtime_data_root_move: leave" in done["msg"]
    assert kind.split("/")[0].rstrip("s") in done["msg"]
    assert not (host / "etc").exists()
    assert bring({"data-root": "/data"}, data_root_move="leave")["data_root"] == "/data"


def test_an_unused_data_root_may_move(bring, host):
    (host / "lib/containers").mkdir(parents=True)
    assert bring({"data-root": "/data"})["changed"]
    assert not bring({"data-root": "/data"})["changed"]
