"""Tests that boot virtual machines: only as root, and only where the marker `vlab` is asked for."""

import os

import pytest

from tests.vlab.labs import PROJECT, Lab


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.vlab)
        if os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="the virtual lab needs root"))


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """Three machines as they were booted. One lab serves the whole run."""
    folder = tmp_path_factory.mktemp("vmain")
    lab = Lab(PROJECT / "tests/vlab/inventory", folder / "results", folder / "data")
    lab.hvlab("lab down")
    try:
        lab.hvlab("lab up")
        yield lab
    finally:
        lab.hvlab("lab down")


@pytest.fixture(scope="session")
def lab(bare):
    """The same machines with the whole stack."""
    bare.site()
    return bare
