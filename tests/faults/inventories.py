"""Inventories that cannot be used: told before any host is reached."""

from tests.faults.fault import LIST, fault

STATUS = ("lab", "status")


@fault("inventory", *STATUS, code=2, says=("there is no inventory at", "what to do"), seconds=15)
def inventory_that_is_missing(world):
    """The inventory is not there."""
    before, world.inventory = world.inventory, world.folder / "nowhere"
    yield
    world.inventory = before


@fault("inventory", *STATUS, code=2, says=("hosts.yml, line", "not valid YAML", "what to do"), seconds=15)
def inventory_that_is_no_yaml(world):
    """A bracket of the inventory is never closed."""
    with world.copied("all: {hosts: [\n"):
        yield


@fault("inventory", *STATUS, code=2, says=("hosts.yml", "aliases", "what to do"), seconds=15)
def inventory_of_aliases(world):
    """Aliases of aliases in the inventory stand for a billion values."""
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    with world.copied("\n".join([*lines, "all: {hosts: {f1: {x: *a9}}}", ""])):
        yield


@fault("inventory", *STATUS, code=2, says=("hosts.yml", "what to do"), seconds=15)
def inventory_of_nul_bytes(world):
    """The inventory holds NUL bytes, as after a crash of the file system."""
    with world.copied("\0" * 4096):
        yield


@fault("inventory", *STATUS, code=2, says=("occurs twice", "what to do"), seconds=15)
def inventory_with_a_host_twice(world):
    """A host stands in the inventory twice."""
    with world.copied("all:\n  hosts:\n    n1: {ansible_host: 10.0.0.1}\n    n1: {ansible_host: 10.0.0.2}\n"):
        yield


@fault("inventory", *STATUS, code=2, says=("openmpi_verison", "what to do"), seconds=15, short=True)
def inventory_with_a_misspelt_variable(world):
    """A variable of a role is misspelt."""
    with world.copied(lambda content: None, openmpi_verison="5.0.5"):
        yield


@fault("inventory", *STATUS, code=2, says=("lab_network", "what to do"), seconds=15)
def inventory_with_a_wrong_network(world):
    """The lab's network is not a network."""
    with world.copied(lambda content: None, lab_network="198.18.62.0/99"):
        yield


@fault("inventory", "verify", "-l", "nobody", code=2, says=("nobody", "the hosts are"), seconds=15, then=LIST)
def limit_that_no_host_matches(world):
    """--limit names a host that is not there."""
    yield


@fault(
    "inventory",
    "plan",
    code=1,
    says=("no torch 0.0.1 is known", "what would resolve it"),
    seconds=60,
    then=("lab", "status"),
)
def pin_of_a_release_that_is_unknown(world):
    """A pin asks for a release of torch that nobody knows."""
    with world.copied(lambda content: None, lab_torch="0.0.1"):
        yield
