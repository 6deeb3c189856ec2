"""The parameter file of Open MPI: what the role writes, where, and what it refuses."""

import json
from pathlib import Path

import pytest
import yaml
from ansible.module_utils import hvlab_packed

from hvlab.checks import openmpi as checks
from hvlab.checks.provisioned import RoleHost, WrongNodeError
from tests.contract.tree import ROOT
from tests.unit.plays import play, program

FILE = "/opt/hvlab/openmpi/distro/etc/openmpi-mca-params.conf"
PLAY = """
- hosts: all:!localhost
  gather_facts: false
  vars_files: [{role}/defaults/main.yml, {role}/vars/main.yml]
  tasks:
    - ansible.builtin.include_vars: "{{{{ shown }}}}/{{{{ inventory_hostname }}}}.json"
    - ansible.builtin.import_tasks: "{role}/tasks/preflight.yml"
    - ansible.builtin.copy:
        content: "{{{{ __openmpi_parameter_files | to_json }}}}"
        dest: "{{{{ shown }}}}/{{{{ inventory_hostname }}}}"
        mode: "0600"
"""


def played(tmp_path: Path, hosts: dict[str, dict[str, object]], expect: int = 0) -> str:
    """Have the role write parameters, or refuse them, for each of several hosts; return what it says."""
    book = tmp_path / "play.yml"
    book.write_text(PLAY.format(role=ROOT / "roles/openmpi"))
    for name, given in hosts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(given))
    variables = {"shown": str(tmp_path), "ansible_facts": {}, "__openmpi_release": "distro"}
    return play(book, tmp_path, variables, "-i", f"{','.join(hosts)},", expect=expect)


def test_parameters_go_where_open_mpi_reads_them(tmp_path: Path) -> None:
    given = {"mpi_yield_when_idle": True, "btl_tcp_sndbuf": 4096, "pml": "^cm", "btl": None}
    elsewhere = {"openmpi_parameters_file": "/opt/x.conf", "openmpi_shared": True}
    hosts: dict[str, dict[str, object]] = {
        "given": {"openmpi_parameters": given},
        "none": {},
        "distro": {"openmpi_method": "distro"},
        "shared": {"openmpi_shared": True},
        "elsewhere-none": elsewhere,
        "elsewhere-one": {"openmpi_parameters": {"btl_tcp_links": 2}, **elsewhere},
    }
    played(tmp_path, hosts)
    files = {name: json.loads((tmp_path / name).read_text()) for name in hosts}
    (file,) = files["given"]
    assert file["path"] == FILE
    assert file["content"].encode().startswith(hvlab_packed.WRITTEN)
    assert file["content"].splitlines()[1:] == [
        "btl_tcp_sndbuf = 4096",
        "mpi_yield_when_idle = 1",
        "pml = ^cm",
    ]
    # One without any takes the place of an earlier one.
    (file,) = files["none"]
    assert (file["path"], file["content"].count("\n")) == (FILE, 1)
    assert files["distro"] == files["shared"] == []
    for count, name in enumerate(("elsewhere-none", "elsewhere-one")):
        (beside,) = files[name]
        assert beside["path"] == "/opt/x.conf"
        assert beside["content"].count("=") == count


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
    said = played(tmp_path, {f"n{n}": given for n, (given, _) in enumerate(REFUSED)}, expect=2)
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
  vars_files: [{role}/defaults/main.yml, {role}/vars/main.yml]
  tasks:
    - ansible.builtin.import_tasks: "{role}/tasks/main.yml"
"""


@pytest.mark.parametrize(
    ("fault", "observed"),
    [
        ("#!/bin/sh\necho 'no route between ranks' >&2\nexit 1\n", "status 1 and printed: no route between"),
        ("#!/bin/sh\necho one\n", "status 0 and printed: one. What to do: run `"),
        ("#!/bin/sh\nsleep 9\n", "after 1 s they had not ended. What to do: run `"),
    ],
)
def test_an_open_mpi_that_starts_no_ranks_fails_until_it_does(
    tmp_path: Path, fault: str, observed: str
) -> None:
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
        start = ("--start-at-task", "Put Open MPI into use")
        return play(book, programs, variables, *start, expect=expect)

    program(programs, "mpirun", fault)
    for _ in "ab":
        printed = use(expect=2)
        assert "localhost: two ranks should start with Open MPI distro" in printed
        assert observed in printed
    assert not record.exists()
    program(programs, "mpirun", f"#!/bin/sh\necho a\necho a\necho >> {tmp_path}/started\n")
    use()
    assert yaml.safe_load(record.read_text())["version"] == "distro"
    assert "changed=0" in use()
    assert (tmp_path / "started").read_text() == "\n"
