"""Results that are damaged, full or in use."""

import sqlite3

from tests.faults.fault import LIST, fault
from tests.faults.world import PROJECT

BENCH = ("bench", "--restart", "--backend", "mpi", "--hosts", "2", "--slots", "1", "--sizes", "1K")
TINY = (*BENCH, "--iterations", "6")


def file(world):
    return world.results / "hvlab.db"


@fault("stores", *LIST, code=0, seconds=15, short=True)
def index_of_no_bytes(world):
    """The index of the runs has 0 bytes."""
    with world.saved(file(world)) as path:
        path.write_bytes(b"")
        yield


@fault("stores", *LIST, code=0, seconds=15)
def index_that_is_cut_off(world):
    """The second half of the index is gone."""
    with world.saved(file(world)) as path:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        yield


@fault("stores", *LIST, code=0, seconds=15)
def index_that_is_something_else(world):
    """The file of the index holds something else."""
    with world.saved(file(world)) as path:
        path.write_bytes(b"something else\n" * 1000)
        yield


@fault("stores", *LIST, code=2, says=("schema version 999", "what to do"), seconds=15)
def index_of_a_newer_hvlab(world):
    """A newer hvlab wrote the index."""
    with world.saved(file(world)) as path:
        database = sqlite3.connect(path)
        database.execute("PRAGMA user_version = 999")
        database.close()
        yield


@fault("stores", *LIST, code=0, seconds=30)
def index_that_is_gone(world):
    """The index is removed; the folders of the runs are there."""
    with world.saved(world.results):
        file(world).unlink()
        yield


@fault("stores", *LIST, code=0, seconds=15)
def store_on_a_read_only_disk(world):
    """The disk of the results has become read-only: they are still shown."""
    with world.read_only(world.results):
        yield


@fault("stores", *TINY, code=2, says=("cannot be written", "what to do"), seconds=20, then=LIST)
def bench_into_a_read_only_disk(world):
    """The disk of the results is read-only when a bench begins."""
    with world.read_only(world.results):
        yield


@fault(
    "stores",
    *TINY,
    code=1,
    says=("No space left on device", "has space, or name another with --results"),
    seconds=60,
    then=LIST,
    short=True,
)
def bench_into_a_full_disk(world):
    """The disk of the results takes 64 KiB more when a bench begins."""
    with world.small_disk(world.folder / "small") as disk, world.changed(HVLAB_RESULTS=str(disk)):
        yield


@fault("stores", *LIST, code=2, says=("is a file", "what to do"), seconds=15, then=("lab", "status"))
def results_that_are_a_file(world):
    """HVLAB_RESULTS names a file."""
    with world.changed(HVLAB_RESULTS=str(PROJECT / "README.md")):
        yield


@fault(
    "stores",
    "results",
    "show",
    "none-of-that-name",
    code=2,
    says=("none-of-that-name",),
    seconds=15,
    then=LIST,
)
def run_that_is_unknown(world):
    """A run is named that the store does not have."""
    yield


@fault("stores", *TINY, code=2, says=("is being measured by process", "what to do"), seconds=20, short=True)
def two_benches_at_once(world):
    """Another bench measures the lab."""
    holder = world.start(*BENCH, "--iterations", "100000")
    world.until(lambda: any(world.results.glob(".*.lock")) and world.ranks(world.hosts[0]))
    yield
    holder.send_signal(2)
    holder.communicate(timeout=60)
