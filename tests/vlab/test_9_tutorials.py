"""The tutorials, as somebody types them: every `sh` block of a page in one shell, from first to last.

What a block of another language shows (`console`, `text`) is not run.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hvlab.base.paths import cache_dir, images_dir
from tests.contract import tree

pytestmark = pytest.mark.tutorials

ROOT = tree.ROOT
# With nothing in the cache, builds take twenty minutes of it, more where other work runs.
LIMIT_S = 3600
# What a page boots, taken down even where a command of it fails. A page that boots nothing takes seconds.
LABS = {"this-laptop": "inventory/lab", "ten-machines": "home/ten", "slurm-cluster": "inventory/slurm"}
# The example inventories with names and networks of their own: a demo that is up stays as it is.
OWN = {
    "lab_name: lab": "lab_name: tutorial",
    "lab_name: slurm": "lab_name: tutorialslurm",
    "198.18.0.": "198.18.239.",
    "198.18.1.": "198.18.240.",
}
PAGES = [ROOT / "docs/this-laptop.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_works_as_it_is_written(page, tmp_path):
    (tmp_path / "home").mkdir()
    shutil.copytree(ROOT / "inventory", tmp_path / "inventory")
    for path in (tmp_path / "inventory").rglob("*.yml"):
        text = path.read_text("utf-8")
        for theirs, own in OWN.items():
            text = text.replace(theirs, own)
        path.write_text(text, "utf-8")
    places = {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    caches = {"HVLAB_CACHE": str(cache_dir()), "HVLAB_IMAGES": str(images_dir())}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HVLAB_"))}
    env |= places | caches | {"PATH": path}
    lines = tree.block(str(page.relative_to(ROOT)))
    assert lines, f"{page.name} has nothing to type"
    try:
        done = subprocess.run(
            ["bash", "-e", "-x", "-c", lines],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    finally:
        lab = LABS.get(page.stem)
        if lab and (tmp_path / lab).exists():
            down = ["hvlab", "lab", "down", "-i", str(tmp_path / lab)]
            subprocess.run(down, cwd=tmp_path, env=env, check=True, capture_output=True)
