"""Open MPI: how it is built, its file of parameters, and what the role refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils import hvlab_packed
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from hvlab.checks import openmpi as checks
from hvlab.checks.provisioned import RoleHost, WrongNodeError
from hvlab.stack.provision import openmpi
from hvlab.stack.provision.packs import pack_key
from tests.contract.tree import ROOT
from tests.unit.plays import play, program

pytestmark = pytest.mark.slow

FILE = "/opt/hvlab/openmpi/distro/etc/openmpi-mca-params.conf"
PLAY = """
- hosts: all:!localhost
  gather_facts: false
  vars_files: [{role}/defaults/main.yml, {role}/vars/main.yml]
  tasks:
    - ansible.builtin.include_vars: "{{{{ shown }}}}/{{{{ inventory_hostname }}}}.json"
    - ansible.builtin.import_tasks: "{role}/tasks/preflight.yml"
"""
REQUEST: dict[str, Any] = {
    "method": "source", "version": "4.1.8", "source": {"version": "4.1.8", "sha256": "0a", "way": "url"},
    "key": "k", "prefix": "/opt/hvlab/openmpi", "cuda": "auto", "cuda_home": "", "ucx": "auto",
    "ucx_home": "", "ucx_header": "",
    "flags": ["--without-verbs"], "parameters": {}, "parameters_file": "", "shared": False,
    "facts": {"architecture": "x86_64", "distribution": "Debian", "distribution_release": "bookworm",
              "os_family": "Debian", "hvlab": {}},
}  # fmt: skip
RDMA = {"rdma": {"devices": ["mlx5_0"]}}
HEADER = "#define UCP_API_MAJOR    1\n#define UCP_API_MINOR    17\n"


def planned(**changes: Any) -> dict[str, Any]:
    facts = {**REQUEST["facts"], "hvlab": changes.pop("host", {})}
    return openmpi.plan(**REQUEST | {"facts": facts} | changes)


def test_a_build_on_a_plain_host() -> None:
    plan = planned()
    assert plan["configure"] == [
        "--prefix=/opt/hvlab/openmpi/4.1.8", "--enable-mpirun-prefix-by-default", "--with-hwloc=internal",
        "--with-libevent=internal", "--with-pmix=internal", "--with-ucx=no", "--without-verbs",
    ]  # fmt: skip
    # Another key, and everybody compiles again.
    assert pack_key("openmpi", {**plan["inputs"], "needs": []}) == "09a0014ece29a6f1"
    assert plan["record"]["key"] == "k"
    assert planned(method="distro")["record"]["source"] == "packages"


@pytest.mark.parametrize(
    ("changes", "cards"),
    [
        ({"cuda_home": "/cuda", "host": RDMA}, ["mlx5_0"]),
        ({"cuda_home": "/cuda", "host": {**RDMA, "ucx": {"cuda": True}}}, []),
        ({"host": RDMA}, []),
        ({"cuda_home": "/cuda"}, []),
        ({"cuda_home": "/cuda", "host": RDMA, "ucx": "False"}, []),
        ({"cuda_home": "/cuda", "host": RDMA, "method": "distro"}, []),
    ],
)
def test_cards_that_nobody_left_out_and_that_are_not_used_are_told(changes: Any, cards: list[str]) -> None:
    assert planned(**changes)["unused_cards"] == cards


@pytest.mark.parametrize(
    ("changes", "cuda", "ucx", "flags"),
    [
        ({"host": RDMA, "ucx_header": HEADER}, False, "1.17", {"--with-ucx=/usr"}),
        ({"host": RDMA, "ucx": "False"}, False, "no", {"--with-ucx=no"}),
        ({"cuda_home": "/cuda", "host": RDMA}, True, "no", {"--with-cuda=/cuda", "--with-ucx=no"}),
        ({"cuda_home": "/cuda", "cuda": "False"}, False, "no", set()),
        (
            {"cuda_home": "/cuda", "host": {**RDMA, "ucx": {"cuda": True}}, "ucx_header": HEADER},
            True, "1.17", {"--with-cuda=/cuda", "--with-ucx=/usr"},
        ),
        ({"ucx": "true", "ucx_home": "/hpcx", "ucx_header": HEADER}, False, "1.17", {"--with-ucx=/hpcx"}),
        (
            {"source": {"version": "5.0.8"}, "cuda_home": "/cuda"},
            True, "no", {"--with-prrte=internal", "--with-cuda-libdir=/cuda/lib64/stubs"},
        ),
    ],
)  # fmt: skip
def test_support_for_gpu_memory_and_ucx(
    changes: dict[str, Any], cuda: bool, ucx: str, flags: set[str]
) -> None:
    plan = planned(**changes)
    assert (plan["cuda"], plan["inputs"]["ucx"]) == (cuda, ucx)
    assert flags <= set(plan["configure"])


@pytest.mark.parametrize(
    ("changes", "file"),
    [
        ({}, "/opt/hvlab/openmpi/4.1.8/etc/openmpi-mca-params.conf"),
        ({"method": "distro"}, ""),
        ({"shared": True}, ""),
        ({"shared": True, "parameters_file": "/opt/x.conf"}, "/opt/x.conf"),
    ],
)
def test_parameters_go_where_open_mpi_reads_them(changes: dict[str, Any], file: str) -> None:
    assert planned(**changes)["parameters_file"] == file


@pytest.mark.parametrize("count", [0, 3])
def test_the_file_of_parameters(count: int) -> None:
    """One without any takes the place of an earlier one."""
    given = {"mpi_yield_when_idle": True, "btl_tcp_sndbuf": 4096, "pml": "^cm"} if count else {}
    template = ROOT / "roles/openmpi/templates/opt/hvlab/openmpi/etc/openmpi-mca-params.conf.j2"
    variables = {"__openmpi_plan": planned(parameters={**given, "btl": None})}
    text = Templar(DataLoader(), variables).template(trust_as_template(template.read_text()))
    assert text.encode().startswith(hvlab_packed.WRITTEN)
    lines = ["btl_tcp_sndbuf = 4096", "mpi_yield_when_idle = 1", "pml = ^cm"]
    assert text.splitlines()[1:] == lines[:count]


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"openmpi_parameters": {"btl-tcp": 1}}, "btl-tcp must be a name"),
    ({"openmpi_parameters": {"OMPI_MCA_btl": "tcp"}}, "OMPI_MCA_btl must be a name"),
    (
        {"openmpi_parameters": {"btl": "tcp\npml = ob1"}},
        "btl must be a name of small letters, digits and _, with a",
    ),
    ({"openmpi_parameters": {"btl": ["tcp"]}}, "btl must be"),
    ({"openmpi_parameters": {"btl": "tcp"}, "openmpi_shared": True}, "lab_shared_packs"),
    ({"openmpi_parameters": {"btl": "tcp"}, "openmpi_method": "distro"}, "openmpi_method distro"),
]


def test_parameters_that_would_not_be_read_are_refused(tmp_path: Path) -> None:
    book = tmp_path / "play.yml"
    book.write_text(PLAY.format(role=ROOT / "roles/openmpi"))
    for n, (given, _) in enumerate(REFUSED):
        (tmp_path / f"n{n}.json").write_text(json.dumps(given))
    hosts = ",".join(f"n{n}" for n, _ in enumerate(REFUSED))
    said = play(book, tmp_path, {"shown": str(tmp_path), "ansible_facts": {}}, "-i", f"{hosts},", expect=2)
    for n, (_, observed) in enumerate(REFUSED):
        refused = said.split(f"n{n}: openmpi_parameters cannot be written: ")[1].split("What to do:")
        assert observed in refused[0]
        assert len(refused) > 1


def _node(text: str, info: str, parameters: dict[str, object]) -> RoleHost:
    answers = {"openmpi parameters": {FILE: text}, "ompi_info": {"rc": 0, "out": info, "err": ""}}
    return RoleHost(
        "n1", None, {"openmpi_parameters": parameters, "openmpi_prefix": "/opt/hvlab/openmpi"}, {}, answers
    )


def test_verify_compares_the_file_with_the_inventory_and_asks_open_mpi() -> None:
    known = f"mca:btl:tcp:param:btl_tcp_sndbuf:source:file ({FILE}:2)\n"
    text = "# Written by hvlab: openmpi_parameters.\n#   btl = tcp\nbtl_tcp_sndbuf = 4096\n"
    checks.parameters_match_the_inventory(_node(text, known, {"btl_tcp_sndbuf": 4096, "btl": None}))
    checks.parameters_match_the_inventory(_node("# a = 1\n", "", {}))
    with pytest.raises(
        WrongNodeError, match=r"n1: .*has {'btl_tcp_sndbuf': '4096'}, openmpi_parameters has none"
    ):
        checks.parameters_match_the_inventory(_node(text, known, {}))
    misspelt = _node("btl_tcp_sndbuff = 4096\n", known, {"btl_tcp_sndbuff": 4096})
    with pytest.raises(WrongNodeError, match="does not know the parameters btl_tcp_sndbuff"):
        checks.parameters_match_the_inventory(misspelt)


USE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {{name: "{role}"}}
"""


BROKEN = (
    ("#!/bin/sh\necho 'no route between ranks' >&2\nexit 1\n", "status 1 and printed: no route between"),
    ("#!/bin/sh\necho one\n", "status 0 and printed: one. What to do: run `"),
    ("#!/bin/sh\nsleep 9\n", "after 1 s they had not ended. What to do: run `"),
)


def test_an_open_mpi_that_starts_no_ranks_fails_until_it_does(tmp_path: Path) -> None:
    """What failed once was in the record of facts and never tried again."""
    book, programs, record = tmp_path / "play.yml", tmp_path / "prefix/distro/bin", tmp_path / "record.fact"
    book.write_text(USE.format(role=ROOT / "roles/openmpi"))
    programs.mkdir(parents=True)
    given = {
        "openmpi_prefix": str(tmp_path / "prefix"),
        "openmpi_method": "distro",
        "openmpi_cuda_home": "",
        "openmpi_profile": str(tmp_path / "profile.sh"),
        "openmpi_record": str(record),
        "__openmpi_check_seconds": 1,
    }

    def use(expect: int = 0) -> str:
        local = {"record": yaml.safe_load(record.read_text())} if record.exists() else {}
        variables = given | {"ansible_facts": {"ansible_local": local, "hvlab": {}}}
        start = ("--start-at-task", "Link Open MPI as current, and write its PATH and parameters")
        return play(book, programs, variables, *start, expect=expect)

    for fault, observed in (BROKEN[0], *BROKEN):
        program(programs, "mpirun", fault)
        printed = use(expect=2)
        assert "localhost: two ranks should start with Open MPI distro" in printed
        assert observed in printed
    assert not record.exists()
    program(programs, "mpirun", f"#!/bin/sh\necho a\necho a\necho >> {tmp_path}/started\n")
    use()
    assert yaml.safe_load(record.read_text())["version"] == "distro"
    assert "changed=0" in use()
    assert (tmp_path / "started").read_text() == "\n"


@pytest.mark.parametrize(
    ("method", "version", "reason"),
    [
        ("source", "3.1.3", "hang"),
        ("source", "1.10.7", "does not build"),
        ("source", "4.1.7", ""),
        ("source", "4.1.8", ""),
        ("distro", "3.1.3", ""),
    ],
)
def test_releases_that_the_catalogue_refuses_are_refused(method: str, version: str, reason: str) -> None:
    """Where packages are installed, the version of the source counts for nothing."""
    refused = planned(method=method, version=version)["refused"]
    assert bool(refused) == bool(reason)
    assert reason in refused
