"""hvlab from a source package and its wheel, in an environment of its own and far from the clone."""

import json
import os
import shutil
import subprocess
import sys
import venv

import pytest

from tests.contract import tree

pytestmark = pytest.mark.slow

pytest.importorskip(
    "setuptools", minversion="77", reason="requirements/dev.txt is newer than this environment"
)
PROGRAM = "#!{python}\nfrom ansible.cli.{module} import main\nmain()\n"
FACTS = {
    "distribution": "Debian",
    "distribution_version": "12",
    "kernel": "6.1.0",
    "driver": None,
    "gpus": [],
    "architecture": "x86_64",
    "python": "3.11.2",
    "gcc": "12.2.0",
}


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """Install a wheel that a source package makes.

    Return what runs a command line in a folder that holds nothing but an inventory.
    """
    folder = tmp_path_factory.mktemp("installed")
    for path in tree.files():
        target = folder / "clone" / path.relative_to(tree.ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ANSIBLE_"))
    }
    pip = [sys.executable, "-m", "pip", "--quiet", "--no-input"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", folder],
        check=True,
        env=environment,
        cwd=folder / "clone",
    )
    shutil.rmtree(folder / "clone")
    [source] = folder.glob("hvlab-*.tar.gz")
    subprocess.run([*pip, "wheel", *offline, "--wheel-dir", folder, source], check=True, env=environment)
    # A new environment; what hvlab needs is lent by this one, and comes after what is installed here.
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    [wheel] = folder.glob("*.whl")
    subprocess.run(
        [*pip, "--python", python, "install", "--no-compile", "--no-deps", "--no-index", wheel],
        check=True,
        env=environment,
    )
    [packages] = folder.glob("venv/lib/python3*/site-packages")
    (packages / "lent.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    for module in ("playbook", "inventory"):
        script = folder / f"venv/bin/ansible-{module}"
        script.write_text(PROGRAM.format(python=python, module=module))
        script.chmod(0o755)
    shutil.copytree(tree.ROOT / "inventory/lab", folder / "empty/mylab")

    def run(*words, expect=0, **extra):
        argv = [folder / "venv/bin" / words[0], *words[1:]]
        done = subprocess.run(
            argv, cwd=folder / "empty", env=environment | extra, capture_output=True, text=True, check=False
        )
        assert done.returncode == expect, f"{words}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run.project = packages / "hvlab/_project"
    return run


def test_nothing_is_left_behind(away):
    told = away(
        "python",
        "-c",
        "import hvlab, hvlab.base.paths; print(hvlab.__file__, hvlab.base.paths.project_dir())",
    )
    assert told.split() == [str(away.project.parent / "__init__.py"), str(away.project)]
    parts = ("hvlab", "playbooks", "roles", "templates", "inventory")
    files = [path.relative_to(tree.ROOT) for path in tree.files()]
    installed = (away.project, away.project.parent.parent)
    assert not [
        file
        for file in files
        if file.parts[0] in parts and not any((base / file).is_file() for base in installed)
    ]


def test_a_stack_is_resolved_and_cases_are_listed(away, tmp_path):
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({"n1": FACTS}))
    assert json.loads(away("hvlab", "plan", "--facts", str(facts), "--format", "json"))
    cases = away("hvlab", "bench", "-i", "mylab", "--suite", "quick", "--backend", "mpi", "--dry-run")
    assert "allreduce" in cases


def test_site_yml_has_its_roles_and_plugins(away):
    assert "site.yml" in away("hvlab", "provision", "--help")
    site = ["ansible-playbook", str(away.project / "site.yml"), "-i", "mylab"]
    settings = {"ANSIBLE_CONFIG": str(away.project / "ansible.cfg")}
    # What a plugin of hvlab refuses once every role is read, before any host is contacted.
    refused = away(*site, "-e", "nccl_verion=2", expect=2, **settings)
    assert "nccl_verion is unknown" in refused


def test_the_checks_of_hosts_come_with_it(away):
    argv = [
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        str(away.project / "tests/node"),
        "-p",
        "no:cacheprovider",
    ]
    assert "ssh_trust-checks host keys" in away("python", *argv, "--hosts=n1", "--ansible-inventory=mylab")
