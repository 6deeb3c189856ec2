"""The ceiling of collectives: what links carry, and who is judged normal, slow or impossible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hvlab.analysis import ceiling, nccl_topology
from hvlab.analysis.ceiling import Ceiling
from hvlab.base.errors import UsageError
from hvlab.cli import run
from hvlab.cli.results import _hardware
from hvlab.results.configurations import Configuration, Repeats
from hvlab.workloads.operations import OPERATIONS

_THREADS = yaml.safe_load((Path(__file__).parents[1] / "data/ceilings.yml").read_text("utf-8"))


def _configuration(hosts: int, slots: int, workload: str = "allreduce", **params: Any) -> Configuration:
    names = tuple(f"n{number}" for number in range(1, hosts + 1))
    params = {"device": "cuda", "size_bytes": 2**30} | params
    return Configuration(workload, "nccl", "unknown", names, slots, tuple(sorted(params.items())))


def _facts(hosts: int, **hvlab: Any) -> dict[str, Any]:
    return {f"n{number}": {"hvlab": hvlab} for number in range(1, hosts + 1)}


def _judge(one: Configuration, top: Ceiling, *figures: float) -> str:
    gathered = {}
    for place, busbw in enumerate(figures):
        size = 2 ** (30 - len(figures) + 1 + place)
        params = tuple(sorted((dict(one.params) | {"size_bytes": size}).items()))
        sized = Configuration(one.workload, one.backend, one.launcher, one.hosts, one.slots, params)
        gathered[sized] = Repeats(values={"busbw": {1: busbw}})
    (judged,) = ceiling.judge(gathered, dict.fromkeys(gathered, top))
    return judged.verdict


@pytest.mark.parametrize("thread", _THREADS, ids=lambda thread: thread["source"])
def test_public_figures_are_judged_as_their_maintainers_did(thread: dict[str, Any]) -> None:
    slots = int(thread["gpus"].rpartition(":")[2])
    facts = _hardware(thread["gpus"], thread.get("nics")) or {}
    one = _configuration(thread["hosts"], slots, thread.get("workload", "allreduce"))
    top = ceiling.ceiling(one, _facts(thread["hosts"], **facts), reached=thread["busbw"])
    assert isinstance(top, Ceiling), top
    assert _judge(one, top, thread["busbw"]) == thread["verdict"]


def _virtual(rates: dict[str, str], **more: Any) -> dict[str, Any]:
    return {host: {"virtual_link": {"up": rate, "down": rate, **more}} for host, rate in rates.items()}


@pytest.mark.parametrize(
    ("workload", "slots", "busbw", "bound"),
    [
        # One rank a host: the ring's busbw is the rate, and nothing sends less than a buffer over a link.
        ("allreduce", 1, 0.125, 0.125 * 2 * (3 / 4)),
        ("allgather", 1, 0.125, 0.125),
        ("broadcast", 1, 0.125, 0.125),
        # Both ranks of a host send to six others.
        ("alltoall", 2, 0.125 * (7 / 8) / (2 * 6 / 8), 0.125 * (7 / 8) / (2 * 6 / 8)),
    ],
)
def test_a_link_between_hosts(workload: str, slots: int, busbw: float, bound: float) -> None:
    rates = dict.fromkeys(("n1", "n2", "n3", "n4"), "1gbit")
    top = ceiling.ceiling(_configuration(4, slots, workload, device="cpu"), _virtual(rates))
    assert isinstance(top, Ceiling)
    assert (top.busbw, top.bound) == pytest.approx((busbw, bound))
    assert not top.limit.place


def test_the_slow_link_is_the_limit() -> None:
    facts = _virtual({"n1": "1gbit", "n2": "1gbit", "n3": "100mbit"})
    top = ceiling.ceiling(_configuration(3, 1, device="cpu"), facts)
    assert isinstance(top, Ceiling)
    assert (top.limit.place, top.limit.text, top.busbw) == ("n3", "100mbit", 0.0125)


def test_the_uplink_of_a_rack_is_the_limit() -> None:
    facts = _virtual({"n1": "1gbit", "n2": "1gbit"}, rack="a", uplink="50mbit")
    facts |= _virtual({"n3": "1gbit"}, rack="b", uplink=None)
    top = ceiling.ceiling(_configuration(3, 1, device="cpu"), facts)
    assert isinstance(top, Ceiling)
    assert (top.limit.kind, top.limit.place, top.limit.text) == ("uplink", "a", "50mbit")
    inside = ceiling.ceiling(_configuration(2, 1, device="cpu"), facts)
    assert isinstance(inside, Ceiling)
    assert inside.limit.text == "1gbit"


@pytest.mark.parametrize(
    ("name", "link", "slots", "gb_per_s"),
    [
        ("NVIDIA A100-SXM4-80GB", "NVLink (NV12)", 8, 300),
        ("NVIDIA A100-SXM4-40GB", "NVLink (NV4)", 4, 300),
        ("Tesla V100-SXM2-16GB", "NVLink (NV2)", 2, 50),
        ("NVIDIA H100 80GB HBM3", None, 8, 450),
        ("NVIDIA A100 80GB PCIe", "PCIe (PHB)", 8, 31.504),
        ("NVIDIA B200", "NVLink (NV18)", 8, 900),
        ("NVIDIA RTX A6000", "NVLink (NV4)", 2, 56.25),
        ("AMD Instinct MI300X", None, 8, 448),
        ("AMD Instinct MI300X", None, 2, 64),
    ],
)
def test_links_inside_a_host(name: str, link: str | None, slots: int, gb_per_s: float) -> None:
    facts = _facts(1, gpus=[{"name": name}] * slots, topology={"link": link})
    top = ceiling.ceiling(_configuration(1, slots), facts)
    assert isinstance(top, Ceiling)
    assert top.busbw == pytest.approx(gb_per_s)


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [
        ("4090", 31.504),
        ("rtx4090", 31.504),
        ("2080ti", 15.76),
        ("A100-80GB", 300),
        ("NVIDIA H100 96GB HBM3", 450),
        ("H100 80G", 450),
        ("Tesla V100S-PCIE-32GB", 15.76),
        ("Quadro RTX 8000", 15.76),
        ("6000", None),
        ("80GB", None),
        ("NVIDIA", None),
    ],
)
def test_gpus_are_known_by_the_names_that_people_use(name: str, gb_per_s: float | None) -> None:
    top = ceiling.ceiling(_configuration(1, 8), _facts(1, gpus=[{"name": name}] * 8))
    assert getattr(top, "busbw", None) == (gb_per_s and pytest.approx(gb_per_s))


@pytest.mark.parametrize(
    ("name", "slots", "reached", "busbw", "assumed"),
    [
        ("NVIDIA A100 80GB PCIe", 2, 20, 31.504, "bridges"),
        ("NVIDIA A100 80GB PCIe", 2, 208, 300, ""),
        ("NVIDIA A40", 8, 20, 31.504, "bridges"),
        ("NVIDIA A40", 8, 70, 63.008, ""),
        ("Tesla V100-SXM2-16GB", 2, 22, 25, "mesh"),
        ("Tesla V100-SXM2-16GB", 2, 45, 50, "mesh"),
        ("Tesla V100-SXM2-16GB", 2, 140, 150, ""),
        ("Tesla V100-SXM2-16GB", 8, 22, 150, ""),
        ("NVIDIA H100 PCIe", 2, 400, 300, ""),
    ],
)
def test_of_the_wirings_that_facts_leave_open_the_least_that_carries_the_figure_counts(
    name: str, slots: int, reached: float, busbw: float, assumed: str
) -> None:
    facts = _facts(1, gpus=[{"name": name}] * slots)
    top = ceiling.ceiling(_configuration(1, slots), facts, reached=reached)
    assert isinstance(top, Ceiling)
    assert (top.busbw, top.limit.assumed) == (pytest.approx(busbw), assumed)


@pytest.mark.parametrize(
    ("name", "ranks", "reached", "gb_per_s"),
    [
        ("NVIDIA A100-SXM4-80GB", 4, 72, 100),
        ("NVIDIA A100-SXM4-80GB", 8, 230, 300),
        ("NVIDIA H200", 8, 370, 450),
        ("AMD Instinct MI300X", 8, 48, 64),
        ("NVIDIA L40S", 4, 20, 31.504),
    ],
)
def test_sendrecv_inside_a_host_uses_the_links_of_a_pair(
    name: str, ranks: int, reached: float, gb_per_s: float
) -> None:
    facts = _facts(1, gpus=[{"name": name}] * ranks)
    top = ceiling.ceiling(_configuration(1, ranks, "sendrecv"), facts, reached=reached)
    assert isinstance(top, Ceiling)
    assert top.busbw == pytest.approx(gb_per_s)


@pytest.mark.parametrize(("busbw", "verdict"), [(190, "normal"), (100, "unclear"), (500, "impossible")])
def test_a_network_limits_hosts_whose_own_links_are_not_known(busbw: float, verdict: str) -> None:
    facts = _hardware("NVIDIA Graphics Device:4", "4x400") or {}
    one = _configuration(4, 4)
    top = ceiling.ceiling(one, _facts(4, **facts), reached=busbw)
    assert isinstance(top, Ceiling)
    assert _judge(one, top, busbw) == verdict
    assert "the links of NVIDIA Graphics Device are not known" in top.unknown


def test_nvlink_between_hosts_counts_if_their_network_is_not_known() -> None:
    facts = _facts(18, **(_hardware("gb200:4", None) or {}))
    verdicts = {}
    for busbw in (846, 387):
        one = _configuration(18, 4)
        top = ceiling.ceiling(one, facts, reached=busbw)
        assert isinstance(top, Ceiling)
        verdicts[busbw] = _judge(one, top, busbw)
    assert verdicts == {846: "normal", 387: "unclear"}


def test_the_negotiated_pcie_link_counts() -> None:
    gpus = [{"name": "NVIDIA L40S", "pcie": "16.0 x16"}, {"name": "NVIDIA L40S", "pcie": "8.0 x8"}]
    top = ceiling.ceiling(_configuration(1, 2), _facts(1, gpus=gpus, topology={"link": "PCIe (NODE)"}))
    assert isinstance(top, Ceiling)
    assert top.busbw == pytest.approx(0.985 * 8)


_TOPOLOGIES = Path(__file__).parents[1] / "data/nccl-topology"
# As bridges join them on Azure's NC A100 v4 (github.com/Azure/azhpc-images): two pairs.
_PAIRS = "".join(
    f'<pci busid="{one}" link_speed="" link_width="0"><gpu sm="80"><nvlink target="{other}" count="12" '
    'tclass="0x030200"/></gpu></pci>'
    for one, other in ("12", "21", "34", "43")
)


@pytest.mark.parametrize(
    ("text", "hosts", "slots", "top"),
    [
        ((_TOPOLOGIES / "nccl-tests-256.xml").read_text("utf-8"), 1, 2, (450, "18 x 25 GB/s")),
        ((_TOPOLOGIES / "nccl-tests-256.xml").read_text("utf-8"), 2, 2, (100, "2 x 400 Gbit/s")),
        ((_TOPOLOGIES / "nccl-2113.xml").read_text("utf-8"), 1, 2, (63, "32.0 GT/s x16")),
        ((_TOPOLOGIES / "nccl-2113.xml").read_text("utf-8"), 2, 1, (12.5, "100 Gbit/s")),
        (f"<system>{_PAIRS}</system>", 1, 4, "its GPUs are connected by NVLink and PCIe"),
        (f"<system>{_PAIRS}</system>".replace("43", "13"), 1, 4, "its GPUs are connected by NVLink and PCIe"),
    ],
)
def test_nccls_own_topology_names_the_links(
    text: str, hosts: int, slots: int, top: tuple[float, str] | str
) -> None:
    known = ceiling.ceiling(_configuration(hosts, slots), _facts(hosts, **nccl_topology.facts(text)))
    if isinstance(known, str):
        assert known.endswith(str(top))
    else:
        assert (round(known.busbw, 1), known.limit.text) == top


@pytest.mark.parametrize("text", ["", "<system/>", "<!DOCTYPE s [<!ENTITY a 'b'>]><system/>", "nothing"])
def test_a_topology_without_gpus_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no GPU"):
        nccl_topology.facts(text)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            {"gpus": [{"name": "NVIDIA Graphics Device"}] * 2},
            "the links of NVIDIA Graphics Device are not known",
        ),
        ({"gpus": [{"name": "NVIDIA L4"}, {"name": "NVIDIA T4"}]}, "its GPUs are NVIDIA L4; NVIDIA T4"),
        (
            {
                "gpus": [{"name": "Tesla V100-SXM2-16GB"}] * 2,
                "topology": {"link": "NVLink (NV1) and PCIe (SYS)"},
            },
            "connected by NVLink (NV1) and PCIe (SYS)",
        ),
    ],
)
def test_the_unknown_is_said_and_not_guessed(facts: dict[str, Any], reason: str) -> None:
    answer = ceiling.ceiling(_configuration(1, 2), _facts(1, **facts))
    assert isinstance(answer, str)
    assert reason in answer


def test_virtual_hosts_without_a_rate_are_said_once() -> None:
    facts = _virtual(dict.fromkeys(("n1", "n2"), ""))
    answer = ceiling.ceiling(_configuration(2, 1, device="cpu"), facts, "host0")
    assert answer == "links of virtual hosts have no rate unless lab_rate sets one"


def test_the_devices_that_carried_the_data_count() -> None:
    nics = [{"name": "eth0", "speed_mbit": 10_000}, {"name": "eth1", "speed_mbit": None}]
    rdma = {"devices": [{"name": "mlx5_0", "rate": "200 Gb/sec (4X HDR)", "state": "ACTIVE"}]}
    facts = _facts(2, nics=nics, rdma=rdma)
    one = _configuration(2, 1, device="cpu")
    by_carriers = {
        carriers: getattr(ceiling.ceiling(one, facts, carriers), "busbw", None)
        for carriers in ("eth0", "mlx5_0:1", "eth1", "bond0", "")
    }
    assert by_carriers == {"eth0": 1.25, "mlx5_0:1": 25, "eth1": None, "bond0": None, "": 25}


def test_sizes_near_the_largest_say_nothing_of_larger_ones() -> None:
    # nccl issue 2441: up to 1.5 MB.
    top = ceiling.ceiling(_configuration(2, 2), _facts(2, **(_hardware("H100 NVL:2", "2x200") or {})))
    figures = {700_000: 3.91, 1_000_000: 4.37, 1_400_000: 11.1, 1_500_000: 11.3}
    gathered = {
        _configuration(2, 2, size_bytes=size): Repeats(values={"busbw": {1: busbw}})
        for size, busbw in figures.items()
    }
    (judged,) = ceiling.judge(gathered, dict.fromkeys(gathered, top))
    assert judged.verdict == "rising"


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [((0.02, 0.11), "normal"), ((0.02, 0.05), "rising"), ((0.05, 0.05), "slow"), ((0.2,), "impossible")],
)
def test_verdicts(figures: tuple[float, ...], verdict: str) -> None:
    one = _configuration(2, 1, device="cpu")
    top = ceiling.ceiling(one, _virtual({"n1": "1gbit", "n2": "1gbit"}))
    assert isinstance(top, Ceiling)
    assert _judge(one, top, *figures) == verdict


_LOG = str(Path(__file__).parents[1] / "data/nccl-tests/allreduce-16x-a100-no-head.txt")


def test_anybodys_log_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--ran-on", "2", "--slots", "8", "--gpus", "a100:8", "--nic", "8x200"]
    assert run(["results", "import", _LOG, *words, "--results", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "allreduce over nccl on 2x8: 188 GB/s, 94% of the 200 GB/s that a ring can do" in text
    assert "the limit is the network (RDMA), 8 x 200 Gbit/s; as fast as it should be" in text


def _log(workload: str, hosts: int, slots: int, busbw: float) -> str:
    """Write one size of what nccl-tests 2.13 prints, as nccl-tests issue 294 shows it."""
    lines = [
        f"#  Rank {rank:2} Group  0 Pid {895544 + rank} on     h100-{rank // slots} device {rank % slots:2} "
        f"[0002:00:{rank % slots + 1:02}] NVIDIA H100 80GB HBM3"
        for rank in range(hosts * slots)
    ]
    algbw = busbw / OPERATIONS[workload].busbw(hosts * slots)
    half = f"{2**33 / algbw / 1e3:.1f} {algbw:.2f} {busbw:.2f} 0"
    return "\n".join(["# Using devices", *lines, f"{2**33} {2**31} float none -1 {half} {half}"]) + "\n"


@pytest.mark.parametrize(
    ("log", "nic", "verdict"),
    [
        # nccl-tests issue 267, nccl issue 1792, and one card a host.
        (("alltoall", 6, 8, 55), "8x400", "94% of the 58.7 GB/s that these links allow"),
        (("alltoall", 16, 8, 22), "8x400", "slow: 80% or more is usual"),
        (("sendrecv", 2, 1, 48), "1x400", "96% of the 50 GB/s that these links allow"),
        (
            ("allgather", 2, 1, 50.5),
            "1x400",
            "101% of the 50 GB/s that a ring can do (within the error of such",
        ),
    ],
)
def test_a_log_names_its_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: tuple[Any, ...], nic: str, verdict: str
) -> None:
    file = tmp_path / "log"
    file.write_text(_log(*log))
    words = ["--workload", log[0], "--nic", nic, "--results", str(tmp_path)]
    assert run(["results", "import", str(file), *words]) == 0
    assert verdict in capsys.readouterr().out


@pytest.mark.parametrize(
    ("title", "where", "judged"),
    [
        # Slingshot 11: cscs-docs' recipes of OSU.
        ("Bandwidth", ("2", "1"), ("200", "24 GB/s, 96% of the 25 GB/s that these links allow")),
        ("Bandwidth", ("2", "1"), ("4x200", "1 of 4 x 200 Gbit/s; as fast as it should be")),
        ("Bi-Directional Bandwidth", ("2", "1"), ("100", "12 GB/s, 96% of the 12.5 GB/s")),
        ("Bandwidth", ("2", "1"), ("400", "slow: 80% or more is usual")),
        ("Bandwidth", ("1", "2"), ("200", "no ceiling is known: the ranks of one host share its memory")),
    ],
)
def test_a_copy_between_two_hosts_is_judged(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    title: str,
    where: tuple[str, str],
    judged: tuple[str, str],
) -> None:
    nic, words = judged
    file = tmp_path / "log"
    rows = "2097152                 23982.65\n4194304                 24005.74\n"
    file.write_text(
        f"# OSU MPI {title} Test v7.5\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n{rows}"
    )
    ran_on, slots = where
    options = ["--ran-on", ran_on, "--slots", slots, "--nic", nic, "--results", str(tmp_path)]
    assert run(["results", "import", str(file), *options]) == 0
    text = capsys.readouterr().out
    assert "busbw GB/s" in text
    assert words in text


@pytest.mark.parametrize(
    ("hosts", "other", "told"),
    [
        (
            1,
            range(4, 8),
            "no ceiling is known: h100-0: its GPUs are NVIDIA A100-SXM4-80GB; NVIDIA H100 80GB HBM3",
        ),
        (2, range(8, 16), "whether that is slow is not known: h100-0: its GPUs are NVIDIA A100-SXM4-80GB; "),
    ],
)
def test_of_different_gpus_none_is_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: int, other: range, told: str
) -> None:
    lines = _log("allgather", hosts, 8, 150).splitlines(keepends=True)
    ranks = [f"#  Rank {rank:2} " for rank in other]
    file = tmp_path / "log"
    file.write_text(
        "".join(
            line.replace("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB") if line[:11] in ranks else line
            for line in lines
        )
    )
    words = ["--workload", "allgather", "--nic", "8x400", "--results", str(tmp_path)]
    assert run(["results", "import", str(file), *words]) == 0
    assert told in capsys.readouterr().out


def test_the_command_of_a_log_hides_no_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    file.write_text("$ ./build/all_gather_perf -b 8G -e 8G -g 8\n" + _log("allgather", 1, 8, 360))
    assert run(["results", "import", str(file), "--results", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "busbw GB/s 360" in " ".join(text.split())
    assert "80% of the 450 GB/s" in text


def test_a_ring_that_beats_its_wire_is_not_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    file.write_text(_log("allgather", 2, 1, 52.5))
    words = ["--workload", "allgather", "--nic", "400", "--results", str(tmp_path)]
    assert run(["results", "import", str(file), *words]) == 1
    text = capsys.readouterr().out
    assert "105% of the 50 GB/s that a ring can do; the limit is the network" in text
    assert "the figure or the facts are wrong" in text


def test_a_slow_one_of_several_types_is_named_with_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log"
    rows = [
        " ".join((f"{2**33} {2**33 // item} {dtype} sum -1", *[half] * 2))
        for dtype, item, busbw in (("half", 2, 388.0), ("float", 4, 14.0))
        for half in [f"{2**33 / busbw / 1e3 * 1.875:.0f} {busbw / 1.875:.2f} {busbw} 0"]
    ]
    file.write_text("\n".join(rows) + "\n")
    words = ["--workload", "allreduce", "--ran-on", "2", "--slots", "8", "--gpus", "h100:8", "--nic", "8x400"]
    assert run(["results", "import", str(file), *words, "--results", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.startswith("ceiling: allreduce over nccl on 2x8, dtype float16: 388 GB/s") for line in lines
    )
    assert any("dtype float32: 14 GB/s, 4%" in line and line.endswith("is usual") for line in lines)
    assert [line for line in lines if line.startswith("next:")] == [
        "next: with NCCL_DEBUG=INFO, see that every card is used (`NET/IB : Using`), with GPUDirect"
        " (`GDRDMA`); `hvlab doctor LOG` explains such logs; `hvlab health` checks hosts,"
        " `hvlab find-slow` finds the slow one"
    ]


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        (["--gpus", "h10:8"], "does not know the links of h10; did you mean h100?"),
        (["--gpus", "hopper:8"], "does not know the links of hopper; links inside a host stay unknown"),
        ([], "give them with --gpus, such as --gpus h100:8"),
    ],
)
def test_gpus_that_are_not_known_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gpus: list[str], told: str
) -> None:
    words = ["--ran-on", "2", "--slots", "8", "--nic", "8x200", "--results", str(tmp_path)]
    assert run(["results", "import", _LOG, *gpus, *words]) == 0
    assert told in capsys.readouterr().err


def test_a_figure_above_the_wire_is_not_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--ran-on", "2", "--slots", "8", "--nic", "1x100", "--results", str(tmp_path)]
    assert run(["results", "import", _LOG, *words, "--gpus", str(_TOPOLOGIES / "nccl-tests-256.xml")]) == 1
    assert "not ok: allreduce over nccl on 2x8: 188 GB/s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("8x400", [400] * 8),
        ("8x400G", [400] * 8),
        ("4x200Gbps", [200] * 4),
        ("4 x 200 Gbit/s", [200] * 4),
        ("16×200Gb/s", [200] * 16),
        ("2x100GbE RoCE", [100] * 2),
        ("32x100 efa", [100] * 32),
        ("ib hdr200", [200]),
        ("HDR", [200]),
        ("ndr200", [200]),
        ("8 x NDR400", [400] * 8),
        ("4xHDR200", [200] * 4),
        ("200Gb/s (HDR)", [200]),
        ("8x400gbps, roce", [400] * 8),
        ("400G", [400]),
        ("3200", [3200]),
        ("3.2T", [3200]),
        ("2 x 1.6 Tbps", [1600] * 2),
        ("400Gbps x8", [400] * 8),
        ("8x400 gIB", [400] * 8),
    ],
)
def test_network_cards_as_people_write_them(text: str, rates: list[int]) -> None:
    facts = _hardware(None, text) or {}
    assert [port["rate"] for port in facts["rdma"]["devices"]] == [f"{rate} Gb/sec" for rate in rates]


@pytest.mark.parametrize(
    ("gpus", "nic"),
    [
        ("h100:8", "4x200 tcp"),
        ("h100:8", "4x200 TCPXO"),
        (str(_TOPOLOGIES / "nccl-tests-256.xml"), "4x200 tcp"),
    ],
)
def test_cards_over_tcp_are_judged_as_such(gpus: str, nic: str) -> None:
    facts = _hardware(gpus, nic) or {}
    top = ceiling.ceiling(_configuration(2, 8), _facts(2, **facts))
    assert isinstance(top, Ceiling)
    assert (top.limit.kind, top.limit.text, top.busbw) == ("network", "4 x 200 Gbit/s", 100)


def test_gpus_as_people_write_them() -> None:
    assert [_hardware(text, None) for text in ("8xH100", "8 x H100", "H100:8", "H100 x8", "H100x8")] == [
        {"gpus": [{"name": "H100"}] * 8}
    ] * 5


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--gpus", "h100"),
        ("--gpus", "h100:0"),
        ("--gpus", "h100:4,a100:4"),
        ("--ran-on", "2x8"),
        ("--ran-on", "n1:8,n2:8"),
        ("--workload", "allreduc"),
        ("--nic", "efa"),
        ("--nic", "fast"),
        ("--nic", "4xhdr"),
        ("--nic", "4 hdr"),
        ("--nic", "8x50GB/s"),
        ("--nic", "0x400"),
        ("--nic", "8x0"),
    ],
)
def test_hardware_that_cannot_be_read_is_refused(
    tmp_path: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["results", "import", _LOG, option, value, "--results", str(tmp_path)]) == 2
    assert "what to do" in capsys.readouterr().err
