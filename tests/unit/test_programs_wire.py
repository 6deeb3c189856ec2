"""Which devices carried the data, by a kernel's counters."""

import pytest

from tests.unit.programs import program as imported


@pytest.fixture
def wire(monkeypatch):
    return imported(monkeypatch, "wire")


def write(root, path, value):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{value}\n")


def host(root, *, eth0=0, ib0=0, port=0):
    for name, value in {"eth0": eth0, "ib0": ib0, "lo": 10**9}.items():
        write(root, f"sys/class/net/{name}/statistics/tx_bytes", value)
    write(root, "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", port)


def test_a_port_counts_words_and_the_loopback_does_not_count(wire, tmp_path):
    host(tmp_path, eth0=1000, port=250)
    assert wire.sent(str(tmp_path)) == {"eth0": 1000, "ib0": 0, "mlx5_0:1": 1000}


def test_only_what_grew_is_shown(wire, tmp_path):
    host(tmp_path, eth0=1000, port=10)
    before = wire.sent(str(tmp_path))
    host(tmp_path, eth0=1500, port=10)
    assert wire.since(before, str(tmp_path)) == {"eth0": 500}


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        (
            {"n1": {"eth0": 4000, "mlx5_0:1": 10**7}, "n2": {"eth0": 5000, "mlx5_1:1": 10**7}},
            ["mlx5_0:1", "mlx5_1:1"],
        ),
        ({"n1": {"ib0": 10**7, "mlx5_0:1": 10**7 + 900}}, ["ib0", "mlx5_0:1"]),
        ({"n1": {"eth0": 10**6, "docker0": 90}}, ["eth0"]),
        ({"n1": {}}, []),
    ],
)
def test_the_bulk_names_the_carriers(wire, counts, names):
    assert wire.carriers(counts) == names


def test_open_mpis_layer_is_the_one_that_is_loaded(wire, tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 00:2b 12 /opt/hvlab/openmpi/4.1.8/lib/openmpi/mca_pml_ucx.so\n"
        "7f01-7f02 r--p 00000000 00:2b 12 /opt/hvlab/openmpi/4.1.8/lib/openmpi/mca_pml_ucx.so\n"
        "7f02-7f03 r-xp 00000000 00:2b 13 /opt/hvlab/openmpi/4.1.8/lib/openmpi/mca_btl_tcp.so\n"
    )
    assert wire.pml(str(maps)) == "ucx"
    assert wire.pml(str(tmp_path / "none")) == ""
