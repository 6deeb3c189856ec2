"""TensorFlow beside torch, each in its own environment: the two want different versions of the same packages.

Horovod's build for TensorFlow takes four minutes; without its pack in the cache these tests run only where
HVLAB_TEST_SLOW is set, as `make test-tensorflow` does.
"""

import os

import pytest

from hvlab.paths import cache_dir
from tests.vlab.labs import booted

pytestmark = pytest.mark.skipif(
    not (any((cache_dir() / "packs").glob("horovod-tf-*.tar.gz")) or os.environ.get("HVLAB_TEST_SLOW")),
    reason="compiles for four minutes: `make test-tensorflow` does, and keeps what it has built",
)
VERSIONS = "import {0}, numpy; print({0}.__version__, numpy.__version__)"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A host with the two frameworks."""
    with booted("tensorflow", tmp_path_factory) as lab:
        lab.site()
        yield lab


def test_each_framework_has_its_own_numpy(both):
    torch = both.on("f1", f"/opt/hvlab/horovod/cpu/bin/python -c '{VERSIONS.format('torch')}'").split()
    tensorflow = both.on(
        "f1", f"/opt/hvlab/horovod/tf/bin/python -c '{VERSIONS.format('tensorflow')}'"
    ).split()
    assert torch[0].startswith("2.13.0")
    assert tensorflow[0] == "2.15.1"
    assert torch[1].split(".")[0] == "2"
    assert tensorflow[1].split(".")[0] == "1"


def test_two_ranks_of_each_add_up_right(both):
    both.hvlab("verify")


def test_a_second_run_changes_nothing(both):
    assert both.site() == {"f1": 0}
