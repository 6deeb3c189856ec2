"""The tar files of Python packages in the controller's cache: a damaged one is made again."""

import os
import subprocess
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from hvlab.ansible import plugin
from hvlab.ansible.action import hvlab_wheels
from hvlab.ansible.action.hvlab_wheels import checksum_if_whole, sum_path

PIP_DOWNLOAD = hvlab_wheels.pip_download


@pytest.fixture
def action(monkeypatch, tmp_path):
    """The plugin, with a pip that makes a wheel of its own; ``fetched`` are its calls."""
    fetched: list[list[str]] = []

    def pip_download(arguments: list[str]) -> str:
        fetched.append(arguments)
        folder = Path(arguments[arguments.index("--dest") + 1])
        folder.mkdir()
        with zipfile.ZipFile(folder / "tool-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tool.py", "x = 1\n" * 1000)
        return ""

    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(hvlab_wheels, "pip_download", pip_download)
    monkeypatch.setattr(plugin.ActionBase, "run", lambda *_: {})
    made = object.__new__(hvlab_wheels.ActionModule)
    made._task = SimpleNamespace(check_mode=False)
    made.warned, made.fetched = [], fetched
    made._display = SimpleNamespace(warning=made.warned.append, display=lambda _: None)
    args = {
        "name": "tool", "requirements": "tool==1\n", "python": "3.11", "architecture": "x86_64",
        "deps": True, "folder": None, "fallback_index": "",
    }  # fmt: skip
    made.validate_argument_spec = lambda **_: (None, args)
    return made


def run(action) -> Path:
    result = action.run(None, {"inventory_hostname": "n1"})
    path = Path(result["path"])
    assert result["sha256"] == checksum_if_whole(path) != ""
    return path


def test_what_is_in_the_cache_is_not_fetched_again(action):
    assert run(action) == run(action)
    assert len(action.fetched) == 1
    assert not action.warned


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGE = {
    "cut": _cut,
    "no sum": lambda path: sum_path(path).unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut, empty sum": lambda path: (_cut(path), sum_path(path).write_text("")),
    "another": lambda path: path.write_bytes(path.read_bytes().replace(b"tool", b"tooI")),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_made_again(action, damage):
    path = run(action)
    good = path.stat().st_size
    damage(path)
    assert run(action).stat().st_size == good
    assert len(action.fetched) == 2
    assert "is damaged: it is made again" in action.warned[0]


def test_check_mode_fetches_nothing(action):
    path = run(action)
    _cut(path)
    action._task.check_mode = True
    assert action.run(None, {"inventory_hostname": "n1"})["sha256"] == ""
    assert len(action.fetched) == 1


def test_a_mirror_of_the_package_index_alone_has_torch_for_cuda(action, monkeypatch):
    tried = []

    def pip_download(arguments: list[str]) -> str:
        asked = Path(arguments[arguments.index("--requirement") + 1]).read_text()
        tried.append((asked, "--index-url" in arguments))
        return "" if asked == "torch===2.12.1\n" and fetch(arguments) == "" else "ERROR: no such build"

    fetch = hvlab_wheels.pip_download
    monkeypatch.setattr(hvlab_wheels, "pip_download", pip_download)
    _, args = action.validate_argument_spec()
    args |= {"requirements": "torch==2.12.1+cu130\n", "fallback_index": "https://example.org/cu130"}
    path = run(action)
    assert tried == [("torch==2.12.1+cu130\n", False), ("torch===2.12.1\n", False)]
    with tarfile.open(path) as tar:
        assert tar.extractfile("requirements.txt").read() == b"torch===2.12.1\n"
    assert run(action) == path
    assert len(tried) == 2
    # The package index has this release for another CUDA.
    args["requirements"] = "torch==2.4.1+cu124\n"
    with pytest.raises(hvlab_wheels.AnsibleActionFail, match="no such build"):
        action.run(None, {"inventory_hostname": "n1"})
    assert tried[2:] == [("torch==2.4.1+cu124\n", False), ("torch==2.4.1+cu124", True)]


def test_hosts_without_gpu_get_the_index_s_own_torch_where_none_is_for_the_cpu(action, monkeypatch):
    tried, said = [], []

    def pip_download(arguments: list[str]) -> str:
        asked = Path(arguments[arguments.index("--requirement") + 1]).read_text()
        tried.append((asked, "--index-url" in arguments, list(said)))
        return fetch(arguments) if "===" in asked else "ERROR: no such build"

    fetch = hvlab_wheels.pip_download
    monkeypatch.setattr(hvlab_wheels, "pip_download", pip_download)
    action._display.display = said.append
    _, args = action.validate_argument_spec()
    args |= {"requirements": "torch==2.13.0+cpu\n", "fallback_index": "https://example.org/cpu"}
    run(action)
    assert [way[:2] for way in tried] == [
        ("torch==2.13.0+cpu\n", False),
        ("torch==2.13.0+cpu", True),
        ("torch===2.13.0\n", False),
    ]
    assert "about 3 GB" in tried[2][2][0]


def test_wheels_that_name_no_c_library_are_taken(action, monkeypatch, tmp_path):
    """As torch 2.4.1+cpu, the last one for Python 3.8: linux_x86_64 alone was not asked for."""
    folder, name = tmp_path / "wheels of torch", "torch-2.4.1+cpu"
    folder.mkdir()
    with zipfile.ZipFile(folder / f"{name}-cp38-cp38-linux_x86_64.whl", "w") as wheel:
        wheel.writestr(
            f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.4.1+cpu\n"
        )
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp38-cp38-linux_x86_64\n")
    monkeypatch.setattr(hvlab_wheels, "pip_download", PIP_DOWNLOAD)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    _, args = action.validate_argument_spec()
    args |= {"requirements": "torch==2.4.1+cpu\n", "python": "3.8", "folder": str(folder)}
    with tarfile.open(run(action)) as tar:
        assert tar.getnames() == [f"{name}-cp38-cp38-linux_x86_64.whl"]


def test_no_package_comes_from_whichever_of_two_indexes_has_more_of_it(action, monkeypatch):
    """A package that the framework's index alone has could be uploaded to the package index by anybody."""
    calls = []

    def pip_download(arguments: list[str]) -> str:
        asked = Path(arguments[arguments.index("--requirement") + 1]).read_text()
        calls.append((asked, arguments))
        return "ERROR: none" if len(calls) == 1 else fetch(arguments) if len(calls) == 2 else ""

    fetch = hvlab_wheels.pip_download
    monkeypatch.setattr(hvlab_wheels, "pip_download", pip_download)
    _, args = action.validate_argument_spec()
    args |= {"requirements": "numpy==2\ntorch==2.4.1+cu124\n", "fallback_index": "https://example.org/cu124"}
    run(action)
    (_, own), (torch, alone), (everything, rest) = calls
    assert not any("--extra-index-url" in arguments for _, arguments in calls)
    assert torch == "torch==2.4.1+cu124"
    assert alone[-3:] == ["--index-url", "https://example.org/cu124", "--no-deps"]
    assert everything == args["requirements"]
    assert rest == [*own, "--find-links", alone[alone.index("--dest") + 1]]


@pytest.mark.parametrize("deps", [True, False])
def test_no_source_package_runs_its_setup_on_the_controller(action, deps):
    action.validate_argument_spec()[1]["deps"] = deps
    run(action)
    assert "--only-binary=:all:" in action.fetched[0]
    assert ("--no-deps" in action.fetched[0]) is not deps


NO_CONFLICT = "Collecting a\n"
CONFLICT = """Collecting torch==2.14.1+cpu

The conflict is caused by:
    The user requested torch==2.14.1+cpu
    The user requested (constraint) torch<=2.13

To fix this you could try to:
1. loosen the range of package versions you've specified
"""


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        (
            CONFLICT,
            "WARNING: a folder\nERROR: Cannot install torch==2.14.1+cpu because these package versions have "
            "conflicting dependencies.\nERROR: ResolutionImpossible: for help visit https://pip.pypa.io/\n",
            "ERROR: Cannot install torch==2.14.1+cpu because these package versions have "
            "conflicting dependencies.\nThe conflict is caused by:\n"
            "    The user requested torch==2.14.1+cpu\n"
            "    The user requested (constraint) torch<=2.13",
        ),
        (
            NO_CONFLICT,
            "ERROR: Could not find a version\nERROR: No matching distribution found for a==3",
            "ERROR: No matching distribution found for a==3",
        ),
        (
            NO_CONFLICT,
            "WARNING: Retrying (Retry(total=1)) after connection broken by "
            "'NewConnectionError(\"refused\")': /a/\n"
            "ERROR: No matching distribution found for a==3",
            'ERROR: No matching distribution found for a==3\nNewConnectionError("refused")\': /a/',
        ),
        ("", "killed", "killed"),
        ("", "", "status 2"),
    ],
)
def test_pip_s_own_reason_is_shown(monkeypatch, stdout, stderr, expected):
    done = subprocess.CompletedProcess([], 2, stdout, stderr)
    monkeypatch.setattr(hvlab_wheels.process, "run", lambda argv, seconds: done)
    assert hvlab_wheels.pip_download([]) == expected
