"""Disks that are full or read-only, on hosts and on the controller."""

from tests.faults.fault import fault
from tests.faults.provisioning import TRUST
from tests.faults.stores import TINY

HOME = "/home/hvlab/.hvlab"
GLOO = tuple("gloo" if word == "mpi" else word for word in TINY)


def mounted(world, host, path, options):
    world.on(host, f"mkdir -p {path}; mount -t tmpfs -o {options} tmpfs {path}")


@fault("disks", *TINY, code=1, says=("o space left on device", "what to do"), seconds=60, short=True)
def home_of_the_head_that_is_full(world):
    """The head's disk takes no file of a case."""
    head = world.hosts[0]
    mounted(world, head, HOME, "size=4k,uid=$(id -u hvlab),mode=0755")
    world.on(head, f"head -c 4096 /dev/zero > {HOME}/full")
    yield
    world.on(head, f"umount -l {HOME}")


@fault("disks", *TINY, code=1, says=("ead-only file system", "what to do"), seconds=60)
def home_of_the_head_that_is_read_only(world):
    """The head's home has become read-only."""
    head = world.hosts[0]
    mounted(world, head, HOME, "size=4k,ro")
    yield
    world.on(head, f"umount -l {HOME}")


@fault("disks", *TINY, code=1, says=("folder for temporary files", "f2"), seconds=60)
def tmp_of_a_worker_that_is_full(world):
    """/tmp of the second host is full: Open MPI needs it there."""
    host = world.hosts[1]
    mounted(world, host, "/tmp", "size=1m,mode=1777")
    yield
    world.on(host, "umount -l /tmp")


@fault("disks", *TRUST, code=0, seconds=60)
def temporary_folder_that_is_full(world):
    """The controller's folder for temporary files is full: another one is taken."""
    with world.small_disk(world.folder / "full", "4k") as disk, world.changed(TMPDIR=str(disk)):
        (disk / "all").write_bytes(b"x" * 4096)
        yield


@fault("disks", *TINY, code=0, seconds=60)
def temporary_folder_that_is_full_for_bench(world):
    """The same when a bench begins."""
    with world.small_disk(world.folder / "full", "4k") as disk, world.changed(TMPDIR=str(disk)):
        (disk / "all").write_bytes(b"x" * 4096)
        yield


@fault("disks", *GLOO, code=1, says=("/dev/shm", "what to do"), seconds=60, then=TINY)
def shared_memory_of_the_head_that_is_full(world):
    """/dev/shm of the head is full."""
    head = world.hosts[0]
    world.on(head, "dd if=/dev/zero of=/dev/shm/full bs=1M")
    yield
    world.on(head, "rm /dev/shm/full")
