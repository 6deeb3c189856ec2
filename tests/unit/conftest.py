"""What the tests of modules share: how a host names what modules import, and hypothesis on a busy machine."""

import gc
import os

import ansible.module_utils
from hypothesis import HealthCheck, settings

from hvlab.base.paths import project_dir
from hvlab.lab import inventory
from tests.unit import reader

ansible.module_utils.__path__.append(str(project_dir() / "hvlab/ansible/module_utils"))
# Time limits say how busy the machine is, not whether the code is right.
settings.register_profile(
    "untimed", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fuzz", deadline=5000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
inventory.process = reader.Served
# No power is cut here, and a busy disk takes longer than a test; what is no descriptor is still refused.
os.fsync = os.fstat
# Thousands of tests, and what they import, stay to the end: to look through them again takes long.
gc.set_threshold(50_000, 20, 20)


def pytest_collection_finish():
    gc.freeze()
