"""Packaging. Everything that is configuration of a tool stands in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
# What Ansible and `hvlab verify` read as files. It lies in hvlab/_project, at the paths it has in the clone.
PROJECT = (
    "site.yml", "ansible.cfg", "group_vars", "playbooks", "playbooks/group_vars", "roles", "templates",
    "inventory", "tests/__init__.py", "tests/node", "hvlab/ansible", "hvlab/workloads/programs",
    "hvlab/checks/node", "hvlab/checks/machines", "hvlab_horovod/alias",
)  # fmt: skip
# What plans from recorded facts, doctors of logs, results and reports need. requirements/ pins what hvlab is
# tested with, benchmarks/bench_install.py measures what each extra takes.
REQUIRES = (
    "click~=8.5",
    "jinja2~=3.1",
    "junitparser~=5.0",
    "numpy~=2.4",
    "prometheus-client>=0.26,<1",
    "pydantic~=2.13",
    "pyyaml>=6.0.4",
    "resolvelib~=1.2",
    "rich~=15.0",
)
EXTRAS = {
    # "Ansible" is ansible-core: no role uses a collection.
    "hosts": (
        "ansible-core~=2.19.14",
        "ansible-runner~=2.4",
        "paramiko~=5.1",
        "pip>=22.2",
        "py-spy~=0.4.2",
        "pysequoia~=0.1.35",
        "pytest-testinfra~=10.2",
        "pytest~=9.2",
    ),
    "tune": ("optuna~=5.0",),
    # The pictures beside Markdown and a filled sheet; a PDF is printed by a browser.
    "pictures": ("matplotlib~=3.11",),
    # Collections, for inventories that ask a cloud.
    "cloud": ("ansible~=12.3",),
}


class BuildPy(build_py):
    """Also installs what is no Python package; an editable install has it in the clone."""

    def run(self) -> None:
        """Build the packages, then copy the rest."""
        super().run()
        if not self.editable_mode:
            project = Path(self.build_lib) / "hvlab/_project"
            shutil.rmtree(project, ignore_errors=True)
            for source in self._files():
                target = project / source
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / source, target)

    def get_source_files(self) -> list[str]:
        """Return what a source distribution holds."""
        return [*super().get_source_files(), *map(str, self._files())]

    def _files(self) -> list[Path]:
        paths = [ROOT / name for name in PROJECT]
        below = [*paths, *(path for folder in paths for path in folder.rglob("*"))]
        return sorted(path.relative_to(ROOT) for path in below if path.is_file() and path.suffix != ".pyc")


setup(
    name="hvlab",
    version="0.1.0",
    description="From bare hosts to a measured, documented Horovod cluster",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_namespace_packages(include=["hvlab", "hvlab.*"], exclude=["*__pycache__"]),
    package_data={"": ["*.json", "*.yml", "*.xz", "*.sh"]},
    cmdclass={"build_py": BuildPy},
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["hvlab=hvlab.__main__:main"]},
)
