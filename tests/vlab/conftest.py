"""Tests that boot virtual machines: only as root, and only where the marker `vlab` is asked for."""

import os

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.vlab)
        if os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="the virtual lab needs root"))
