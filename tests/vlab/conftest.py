"""Tests that boot virtual machines: only as root, and only where the marker `vlab` is asked for."""

import os
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.vlab.labs import booted, weigh

# The modules that share a lab; every other one has a lab of its own, and may run beside them.
SHARED = {
    "main": (
        "test_1_init",
        "test_1_site",
        "test_2_bench",
        "test_2_training",
        "test_3_alone",
        "test_3_clean",
        "test_3_health",
        "test_3_verify",
        "test_7_containers",
        "test_8_faults",
    ),
    "gpu": ("test_4_repository", "test_6_cuda", "test_8_nccl_tests"),
    "slurm": ("test_9_slurm", "test_9_srun", "test_9_here"),
}
GROUPS = {module: group for group, modules in SHARED.items() for module in modules}
# The tests of the main lab take longest, with two builds before them: those of other labs give way to them.
NICENESS_OF_OTHERS = 4


class ByLab(LoadScopeScheduling):
    """Gives all tests of one lab to one process."""

    def _split_scope(self, nodeid):
        module = Path(nodeid.partition("::")[0]).stem
        return GROUPS.get(module, module)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Set the priority of what this test starts, the hosts it boots included."""
    if os.geteuid() == 0:
        main = GROUPS.get(item.module.__name__.rpartition(".")[2]) == "main"
        os.setpriority(os.PRIO_PROCESS, 0, 0 if main else NICENESS_OF_OTHERS)


def pytest_xdist_make_scheduler(config, log):
    # In the order of the files: the last ones need what the main lab builds.
    config.option.loadscopereorder = False
    return ByLab(config, log)


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.vlab)
        if os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="the virtual lab needs root"))
        if item.get_closest_marker("slow") and not os.environ.get("HVLAB_TEST_SLOW"):
            item.add_marker(pytest.mark.skip(reason="slow: `make help` lists the targets of such tests"))


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """Three machines as they were booted. One lab serves the whole run."""
    with booted("inventory", tmp_path_factory) as lab:
        # Two builds here keep the longest chain of tests waiting: other hosts and controllers give way.
        weigh("hvlab", 400)
        weigh("hvlab/vmain", 500)
        yield lab


@pytest.fixture(scope="session")
def lab(bare):
    """The same machines with the whole stack."""
    bare.site()
    # All is built: what follows is measured as a user does it, who changes no weight.
    weigh("hvlab", 100)
    return bare


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """Three nodes of Slurm, with the whole stack."""
    with booted("slurm", tmp_path_factory) as lab:
        lab.site()
        yield lab
