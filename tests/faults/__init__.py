"""Faults that hvlab survives: what is put in, what it says, how soon. A module for each family."""

from tests.faults import (  # noqa: F401 - they enter their faults
    caches,
    clocks,
    disks,
    inventories,
    kills,
    labs,
    logins,
    networks,
    processes,
    provisioning,
    stores,
    trust,
)
from tests.faults.fault import FAULTS

SHORT = [name for name, fault in FAULTS.items() if fault.short]
