"""MPI through UCX, as on InfiniBand; here UCX goes over TCP, because no host has an RDMA card.

Open MPI and Horovod are compiled: ten minutes; with their packs in the cache two.
"""

import json

import pytest

from tests.vlab.labs import booted

pytestmark = pytest.mark.ucx
UCX_OVER_TCP = {
    "OMPI_MCA_pml": "ucx",
    # Left alone, Open MPI takes UCX for Mellanox cards only.
    "OMPI_MCA_opal_common_ucx_tls": "any",
    "OMPI_MCA_opal_common_ucx_devices": "any",
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "host0",
}
SMALL = ("--hosts", "2", "--slots", "1", "--sizes", "64K,1M", "--iterations", "7")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with booted("ucx", tmp_path_factory) as lab:
        lab.site()
        yield lab


@pytest.fixture
def forced(lab):
    """The lab whose ranks are told to use UCX."""
    path = lab.inventory / "group_vars/all/forced.yml"
    plain = lab.inventory / "group_vars/all.yml"
    path.parent.mkdir()
    plain.rename(path.parent / "all.yml")
    path.write_text(json.dumps({"lab_rank_env": UCX_OVER_TCP}), "utf-8")
    try:
        yield lab
    finally:
        (path.parent / "all.yml").rename(plain)
        path.unlink()
        path.parent.rmdir()


def carried(lab):
    lab.hvlab("bench", "--restart", "--backend", "mpi", *SMALL)
    records = lab.results_of("show")
    assert {(row["proved_backend"], row["status"]) for row in records} == {("mpi", "ok")}
    (used,) = {(row["stack"]["pml"], row["stack"]["transport"]) for row in records}
    return used


def test_open_mpi_is_built_with_it_once(lab):
    fact = json.loads(lab.on("u1", "cat /etc/ansible/facts.d/hvlab_openmpi.fact"))
    assert fact["ucx"] == "1.13"
    assert "mca:pml:ucx:" in lab.on("u2", "/opt/hvlab/openmpi/current/bin/ompi_info --parsable --all")
    assert lab.site() == {"u1": 0, "u2": 0}


def test_without_a_card_open_mpi_goes_over_tcp_by_itself(lab):
    assert carried(lab) == ("ob1", "host0")


def test_ucx_carries_the_data_where_it_is_asked_for(forced):
    assert carried(forced) == ("ucx", "host0")


def test_hosts_check_right_and_a_lost_library_is_named(lab):
    lab.hvlab("verify")
    lab.on("u2", "apt-get -qq remove -y libucx0 >/dev/null")
    rows = json.loads(lab.hvlab("verify", "--format", "json", expect=1).stdout)
    assert {row["host"] for row in rows if row["outcome"] == "failed" and "UCX" in json.dumps(row)} == {"u2"}
    assert lab.site()["u2"] > 0
    lab.hvlab("verify")


def test_a_host_without_it_is_refused_before_ranks_start(lab):
    fact = "/etc/ansible/facts.d/hvlab_openmpi.fact"
    lab.on("u2", f'cp {fact} /root/ && sed -i \'s/"ucx": ".*"/"ucx": ""/\' {fact}')
    try:
        message = lab.hvlab("bench", "--restart", "--backend", "mpi", *SMALL, expect=2).stderr
    finally:
        lab.on("u2", f"mv /root/hvlab_openmpi.fact {fact}")
    assert "Open MPI was built without UCX on u2 and with it on u1" in message
    assert "openmpi_ucx" in message
