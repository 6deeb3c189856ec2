"""Tests that boot virtual machines, as root. One lab serves all modules that name its fixture."""

import os

import pytest

from tests.vlab.labs import booted


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.vlab)
        if os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="the virtual lab needs root"))


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """Three machines as they were booted."""
    with booted("inventory", tmp_path_factory) as lab:
        yield lab


@pytest.fixture(scope="session")
def lab(bare):
    """The same machines with the whole stack."""
    bare.site()
    return bare


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """Three nodes of Slurm, with the whole stack."""
    with booted("slurm", tmp_path_factory) as lab:
        lab.site()
        yield lab
