"""Packaging. Everything that is configuration of a tool stands in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def requirements(name: str) -> list[str]:
    """Return the requirement lines of ``requirements/<name>.txt``."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-"))]


setup(
    name="hvlab",
    version="0.1.0",
    description="From bare hosts to a measured, documented Horovod cluster",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["hvlab", "hvlab.*"]),
    package_data={"hvlab": ["catalogue/*.yml", "datasets/*.yml", "bench/suites/*.yml"]},
    install_requires=requirements("run"),
    extras_require={"dev": requirements("dev")},
    entry_points={"console_scripts": ["hvlab=hvlab.__main__:main"]},
)
