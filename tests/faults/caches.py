"""Packs that are damaged, on hosts and in the controller's cache."""

from tests.faults.fault import fault

PROVISION = ("provision", "-t", "openmpi,horovod")
FILE = "/opt/hvlab/openmpi/current/share/openmpi/help-mpi-api.txt"


@fault(
    "caches",
    "verify",
    "-l",
    "f2",
    code=1,
    says=("help-mpi-api.txt", "hvlab provision"),
    seconds=90,
    then=PROVISION,
)
def file_that_was_overwritten(world):
    """A byte of a pack's file was changed on a host; its size is the same."""
    world.on(world.hosts[1], f"printf X | dd of={FILE} bs=1 seek=100 conv=notrunc status=none")
    yield


@fault("caches", "provision", code=0, seconds=120, then=("verify", "-l", "f2"))
def file_that_was_overwritten_is_put_right(world):
    """The same before a provision, which installs the pack again."""
    world.on(world.hosts[1], f"printf Y | dd of={FILE} bs=1 seek=100 conv=notrunc status=none")
    yield


def missing(world):
    """Take a pack away from the second host, which then needs the controller's."""
    world.on(world.hosts[1], "rm -rf /opt/hvlab/oneccl*")


@fault("caches", "provision", code=0, seconds=180, then=("verify", "-l", "f2"))
def pack_that_is_cut_off(world):
    """A pack in the cache ends early when a host needs it: it is made again."""
    with world.own_cache():
        for path in world.cache.glob("packs/oneccl-*.tar.gz"):
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size // 2)
        missing(world)
        yield


@fault("caches", "provision", code=0, seconds=180, then=("verify", "-l", "f2"))
def checksum_that_is_empty(world):
    """The checksum beside a pack in the cache is empty when a host needs the pack."""
    with world.own_cache():
        for path in world.cache.glob("packs/oneccl-*.sha256"):
            path.write_text("")
        missing(world)
        yield
