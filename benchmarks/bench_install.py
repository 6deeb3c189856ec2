"""How large hvlab is when installed: the base, each extra, and what `make install` gives a user.

Builds the wheel, and installs it into an environment of its own for each; needs the package index. Prints
JSON; ``of_limit`` is the size as a share of its limit, ``largest`` the packages that take most.

    python -m benchmarks.bench_install [--here]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from importlib.metadata import distributions
from pathlib import Path

import click

from hvlab.base.paths import project_dir

EXTRAS = {
    "base": "",
    "hosts": "[hosts]",
    "pictures": "[pictures]",
    "tune": "[tune]",
    "cloud": "[cloud]",
    "user": "[hosts,pictures,tune]",
}
LIMITS_MB = {"base": 150, "user": 450}


def megabytes(folder: Path) -> float:
    """Return the space that a folder takes on its disk."""
    inside = (path.lstat() for path in folder.rglob("*") if not path.is_dir())
    return round(sum(entry.st_blocks * 512 for entry in inside) / 1e6, 1)


def largest(folder: Path, most: int = 8) -> dict[str, float]:
    """Return the packages of an environment that take most, with their MB."""
    sizes = {}
    for package in distributions(path=[str(path) for path in folder.glob("lib/python3*/site-packages")]):
        paths = [Path(str(package.locate_file(file))) for file in package.files or ()]
        size = sum(path.stat().st_size for path in paths if path.is_file())
        sizes[package.metadata["Name"]] = round(size / 1e6, 1)
    return dict(sorted(sizes.items(), key=lambda one: -one[1])[:most])


def wheel(folder: Path) -> Path:
    """Return a wheel of the clone, built from a copy: building leaves files where it is done."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=project_dir(), check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(project_dir() / name, folder / "clone" / name, follow_symlinks=False)
    words = ["wheel", "--quiet", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(folder / "clone")]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    [built] = folder.glob("*.whl")
    return built


@click.command()
@click.option("--here", is_flag=True, help="Measure the environment that runs this; install nothing.")
def main(*, here: bool) -> None:
    """Measure the size of hvlab's extras."""
    if here:
        folder = Path(sys.prefix)
        click.echo(json.dumps({"folder": str(folder), "mb": megabytes(folder), "largest": largest(folder)}))
        return
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        built = wheel(work)
        for extra, words in EXTRAS.items():
            folder, begun = work / extra, time.perf_counter()
            venv.create(folder, with_pip=True)
            pins = ["--constraint", str(project_dir() / "requirements/run.txt")]
            pip = [str(folder / "bin/pip"), "install", "--quiet", "--quiet", *pins, f"{built}{words}"]
            subprocess.run(pip, check=True)
            row = {"extra": extra, "seconds": round(time.perf_counter() - begun, 1), "mb": megabytes(folder)}
            if limit := LIMITS_MB.get(extra):
                row["of_limit"] = round(megabytes(folder) / limit, 2)
            click.echo(json.dumps({**row, "largest": largest(folder)}))


if __name__ == "__main__":
    main()
