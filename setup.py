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
    "hvlab/health/node", "hvlab/health/machines",
)  # fmt: skip


def requirements(name: str) -> list[str]:
    """Return the requirement lines of ``requirements/<name>.txt``."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-"))]


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
        return [
            *super().get_source_files(),
            *map(str, self._files()),
            "requirements/run.txt",
            "requirements/dev.txt",
        ]

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
    package_data={"": ["*.yml", "*.xz"]},
    cmdclass={"build_py": BuildPy},
    install_requires=requirements("run"),
    extras_require={"dev": requirements("dev")},
    entry_points={"console_scripts": ["hvlab=hvlab.__main__:main"]},
)
