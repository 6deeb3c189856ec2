"""The controller's cache, in a copy: packs that are damaged, folders that take nothing."""

import shutil
from contextlib import contextmanager
from pathlib import Path

from hvlab import paths
from tests.faults.fault import fault

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


def pack(folder):
    return next(folder.glob("openmpi-*.tar.gz"))


@fault("caches", *MPI, code=0, seconds=120)
def pack_that_is_cut_off(world):
    """A pack in the cache is cut off: it is thrown away, and made again from a host that has it."""
    with own_cache(world) as folder:
        file = pack(folder)
        file.write_bytes(file.read_bytes()[:100_000])
        without(world)
        yield


@fault("caches", *MPI, code=0, seconds=120)
def pack_whose_sum_is_empty(world):
    """The file with a pack's sum is empty."""
    with own_cache(world) as folder:
        pack(folder).with_name(f"{pack(folder).name}.sha256").write_text("")
        without(world)
        yield


@fault("caches", *MPI, code=0, seconds=120)
def cache_that_is_empty(world):
    """The cache was deleted: the pack comes from a host that has it."""
    with own_cache(world) as folder:
        shutil.rmtree(folder)
        without(world)
        yield


@fault("caches", *MPI, code=1, says=("o space left", "what to do"), seconds=120)
def cache_that_is_full(world):
    """The cache's disk is full when a pack is to be kept."""
    with world.small_disk(world.folder / "cache-disk") as disk, world.changed(HVLAB_CACHE=str(disk)):
        without(world)
        yield
