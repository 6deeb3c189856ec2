"""The controller's cache, in a copy: folders that take nothing."""

import shutil
from contextlib import contextmanager
from pathlib import Path

from hvlab import paths
from tests.faults.fault import LIST, fault

MPI = ("provision", "-t", "openmpi")


@contextmanager
def own_cache(world):
    """Use a copy of the packs of Open MPI; everything else of the cache is not needed here."""
    place = world.folder / "cache"
    (place / "packs").mkdir(parents=True)
    for file in (Path(paths.cache_dir()) / "packs").glob("openmpi-*"):
        shutil.copy2(file, place / "packs")
    with world.changed(HVLAB_CACHE=str(place)):
        yield place / "packs"
    shutil.rmtree(place)


def without(world):
    """Take Open MPI away from the last host, so that it needs the pack."""
    world.on(world.hosts[2], "rm -r /opt/hvlab/openmpi /etc/ansible/facts.d/hvlab_openmpi.fact")


@fault("caches", *MPI, code=0, seconds=120, then=LIST)
def cache_that_is_read_only(world):
    """The cache is read-only: what is in it is installed from there."""
    with own_cache(world) as folder:
        without(world)
        with world.read_only(folder.parent):
            yield


@fault("caches", *MPI, code=1, says=("cache", "what to do"), seconds=60, then=MPI)
def cache_that_is_a_file(world):
    """HVLAB_CACHE names a file, and a host needs a pack."""
    without(world)
    file = world.folder / "cache-file"
    file.write_text("x")
    with world.changed(HVLAB_CACHE=str(file)):
        yield
    file.unlink()
