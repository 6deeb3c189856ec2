"""What a shell offers for a line that is being typed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import commands
from hvlab import cli
from hvlab.base.paths import project_dir
from hvlab.cli import completion
from hvlab.cli.completion import SHELLS
from hvlab.lab.inventory_files import list_names
from hvlab.results.store import Store
from tests.unit.test_results import RECORD

INI = """\
[gpu]
gpu[01:03] ansible_user=admin
n7:2222

[all:vars]
lab_name=x

[cpu:children]
gpu
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with inventories, a store and a baseline, in which somebody types."""
    lab = tmp_path / "inventory/mylab"
    lab.mkdir(parents=True)
    (lab / "hosts.yml").write_text("all:\n  children:\n    cpu:\n      hosts:\n        n1:\n        n2: {}\n")
    (tmp_path / "inventory/with space").mkdir()
    store = Store(tmp_path / "results")
    store.create("r1", lab="t", spec_key="k", spec={}, cases=["c1"])
    store.add([RECORD])
    store.put("r2", [], lab="t", spec_key="k", spec={}, cases=["c1"])
    (tmp_path / "results/baselines/t").mkdir(parents=True)
    (tmp_path / "results/baselines/t/spring.json").write_text("{}")
    for name in ("HVLAB_RESULTS", "ANSIBLE_INVENTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(line: str, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what bash is answered for a line whose last word is being typed."""
    monkeypatch.setenv("_HVLAB_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    assert completion.is_requested()
    assert completion.answer(cli.cli) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out.split()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("hvlab be", ["plain,bench"]),
        ("hvlab results sh", ["plain,show"]),
        ("hvlab bench --suit", ["plain,--suite"]),
        ("hvlab bench --suite qu", ["file,qu", "plain,quick"]),
        ("hvlab bench --suite = qu", ["file,qu", "plain,quick"]),
        ("hvlab bench --export mpi", ["plain,mpijob"]),
        ("hvlab bench --backend mpi,gl", ["plain,mpi,gloo"]),
        ("hvlab bench -i inv", ["file,inv", "plain,inventory/mylab"]),
        ("hvlab lab ssh -i inventory/mylab ", ["plain,n1", "plain,n2"]),
        ("hvlab verify -i inventory/mylab -l n1,", ["plain,n1,n2", "plain,n1,all", "plain,n1,cpu"]),
        ("hvlab results show ", ["plain,r2", "plain,r1"]),
        ("hvlab compare r1 r", ["plain,r2", "plain,r1"]),
        ("hvlab results export r1 --case ", ["plain,c1"]),
        ("hvlab baseline check --name ", ["plain,spring"]),
        ("hvlab results show --results elsewhere ", []),
        ("hvlab doctor --log /var/lo", ["file,/var/lo"]),
        ("hvlab doctor --explain gloo-m", ["plain,gloo-mesh"]),
        ("hvlab completion fi", ["plain,fish"]),
        ("hvlab nonsense ", []),
    ],
)
def test_a_word_is_completed(here, line, answer, capfd, monkeypatch):
    values = offered(line, capfd, monkeypatch)
    assert values == answer or (not answer and values == offered("hvlab ", capfd, monkeypatch))


def test_what_is_damaged_gives_nothing(here, capfd, monkeypatch):
    shutil.rmtree(here / "results/runs")
    (here / "results/runs").write_text("no folder")
    (here / "inventory/mylab/hosts.yml").write_text("all: [\n  hosts: {n1: }\n")
    (here / "inventory/mylab/more").write_bytes(b"\xff\xfe\x00")
    for line in ("hvlab results show ", "hvlab compare ", "hvlab results export --case "):
        assert offered(line, capfd, monkeypatch) == []
    assert offered("hvlab lab ssh -i inventory/mylab ", capfd, monkeypatch) == []
    assert offered("hvlab lab ssh -i inventory/none ", capfd, monkeypatch) == []


def test_inventories_of_the_clone_are_offered_in_its_folders(capfd, monkeypatch):
    monkeypatch.chdir(project_dir() / "tests")
    assert "plain,../inventory/lab" in offered("hvlab plan -i ", capfd, monkeypatch)


def test_no_script_of_an_inventory_is_run_and_no_ansible_loaded(here):
    folder = here / "inventory/mylab"
    (folder / "dynamic").write_text("#!/bin/sh\ntouch ran\n")
    (folder / "dynamic").chmod(0o755)
    code = "import sys; from hvlab.cli import cli, completion; completion.answer(cli)\n"
    code += "assert 'ansible' not in sys.modules"
    for line in ("hvlab lab ssh -i inventory/mylab ", "hvlab bench -i inventory/mylab -l "):
        words = {"COMP_WORDS": line, "COMP_CWORD": "9", "_HVLAB_COMPLETE": "bash_complete"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**words, "PYTHONPATH": str(project_dir())},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("plain,n1\nplain,n2\n")
    assert not (here / "ran").exists()


def test_an_ini_inventory_lists_hosts_and_groups(tmp_path):
    (tmp_path / "hosts").write_text(INI)
    assert list_names(tmp_path) == (["gpu01", "gpu02", "gpu03", "n7"], ["all", "gpu", "cpu"])


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_asks_without_errors(shell, capsys):
    assert cli.run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_HVLAB_COMPLETE={shell}_complete" in script
    assert script.count(" 2>/dev/null)") == 1
    assert ("--max 1" in script) == (shell == "fish")


def test_zsh_gets_three_lines_of_each_item(here, capfd, monkeypatch):
    monkeypatch.setenv("_HVLAB_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "hvlab plan -i ")
    monkeypatch.setenv("COMP_CWORD", "3")
    completion.answer(cli.cli)
    assert capfd.readouterr().out.splitlines() == ["file", "_", "_", "plain", "inventory/mylab", "_"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_an_option_and_its_value_may_be_one_word(here, shell, capfd, monkeypatch):
    monkeypatch.setenv("_HVLAB_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "hvlab bench --suite=qu")
    monkeypatch.setenv("COMP_CWORD", "2" if shell == "zsh" else "--suite=qu")
    completion.answer(cli.cli)
    assert "--suite=quick" in capfd.readouterr().out


@pytest.fixture
def path(here, monkeypatch):
    """hvlab as a command."""
    program = here / "bin/hvlab"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={project_dir()} exec {sys.executable} -m hvlab "$@"\n')
    program.chmod(0o755)
    shells = {str(Path(shell).parent) for shell in map(shutil.which, ("fish", "zsh")) if shell}
    monkeypatch.setenv("PATH", ":".join([str(program.parent), *shells, "/usr/bin", "/bin"]))
    return program


def in_shell(argv: list[str], script: str) -> list[str]:
    done = subprocess.run([*argv, script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes(path):
    script = """\
compopt() { :; }
eval "$(hvlab completion bash)"
COMP_WORDS=(hvlab results show r) COMP_CWORD=3
_hvlab_completion hvlab; echo "${COMPREPLY[@]}"
rm "$(type -P hvlab)"
COMPREPLY=(); _hvlab_completion hvlab; echo "${COMPREPLY[@]}"
complete -p hvlab"""
    assert in_shell(["bash", "--norc", "-c"], script) == [
        *("r2", "r1"),
        *("complete", "-o", "nosort", "-F", "_hvlab_completion", "hvlab"),
    ]


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(path):
    script = 'hvlab completion fish | source; complete -C "hvlab results show r"'
    assert {line.split("\t")[0] for line in in_shell(["fish", "-c"], script)} >= {"r1", "r2"}


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_takes_the_script(path):
    script = 'compdef() { echo "$@"; }; eval "$(hvlab completion zsh)"'
    assert in_shell(["zsh", "-f", "-c"], script) == ["_hvlab_completion", "hvlab"]


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(path):
    script = """\
compdef() { :; }; eval "$(hvlab completion zsh)"
_describe() { print -rl -- "${(@P)3}"; }
words=(hvlab results show r) CURRENT=4
_hvlab_completion"""
    assert [line.partition(":")[0] for line in in_shell(["zsh", "-f", "-c"], script) if ":" in line] == [
        "r2",
        "r1",
    ]


def test_every_value_that_is_a_run_is_completed(here):
    for name, command, context in commands(cli.cli, "hvlab"):
        for item in command.params:
            if item.name in ("run", "runs", "run_a", "run_b", "resume", "against"):
                values = [each.value for each in item.shell_complete(context, "r")]
                assert values == ["r2", "r1"], f"{name}: {item.name}"
