"""The inventory: what is read, and each thing that is refused."""

import re
from pathlib import Path

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from hvlab.ansible.action.hvlab_driver import as_request
from hvlab.base import process
from hvlab.base.errors import InventoryError
from hvlab.base.paths import project_dir
from hvlab.lab import inventory
from hvlab.lab.inventory import load, problems, start_loading
from hvlab.lab.inventory_files import file_problems
from hvlab.lab.inventory_reader import READ, Inventory
from hvlab.lab.inventory_rules import argument_problems, is_valid_name, role_options
from hvlab.lab.variants import available

GOOD = {"ansible_host": "10.0.0.1", "lab_network": "10.0.0.0/24", "lab_interface": "eth0"}


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    """Two roles, one prefix the beginning of the other."""
    for name, options in {"openmpi": ["openmpi_version"], "lab_user": ["lab_user_name"]}.items():
        meta = tmp_path / "roles" / name / "meta"
        meta.mkdir(parents=True)
        body = "".join(f"      {option}: {{type: str}}\n" for option in options)
        (meta / "argument_specs.yml").write_text(f"argument_specs:\n  main:\n    options:\n{body}")
    return tmp_path / "roles"


def observed(variables: dict, roles: Path, *, name: str = "n1", virtual: bool = False) -> str:
    groups = {"virtual": [name]} if virtual else {}
    return "\n".join(
        f"{p.host}: {p.observed} -> {p.remedy}" for p in problems({name: variables}, groups, roles)
    )


def test_a_good_host_has_no_problem(roles):
    assert (
        observed(
            GOOD
            | {
                "openmpi_version": "{{ __stack.versions.openmpi }}",
                "lab_user_name": "x",
                "my_own": 1,
                "lab_pack_mirror": "/nfs/packs",
                "lab_shared_packs": "/nfs/installed",
            },
            roles,
        )
        == ""
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ansible_host": "not a host"}, "neither an address nor a host name"),
        ({"ansible_host": "-oProxyCommand=x"}, "neither an address nor a host name"),
        ({"lab_slots": 0}, "lab_slots is 0"),
        ({"lab_slots": "two"}, "lab_slots is 'two'"),
        ({"lab_slots": True}, "lab_slots is True"),
        ({"lab_rank_env": "UCX_TLS=tcp"}, "lab_rank_env is 'UCX_TLS=tcp'"),
        ({"lab_rank_env": {"HVLAB_CASE": "x"}}, "names that begin with HVLAB_ are taken"),
        ({"lab_rank_env": {"UCX_TLS": ["tcp"]}}, "lab_rank_env is {'UCX_TLS': ['tcp']}"),
        ({"lab_rank_env": {"HF_TOKEN": "hf-a", "X": 1.5}}, "lab_rank_env is {'HF_TOKEN': '***', 'X': 1.5}"),
        ({"horovod_variants": {"cpu": "mpi"}}, "horovod_variants is {'cpu': 'mpi'}"),
        # A text counts as true, whatever it says.
        ({"horovod_variants": {"cpu": {"mpi": "false"}}}, "horovod_variants is {'cpu': {'mpi': 'false'}}"),
        ({"ansible_port": 99999}, "ansible_port is 99999 -> write a whole number from 1 to 65535"),
        ({"lab_network": "10.0.0.0"}, "no prefix length"),
        ({"lab_network": "10.0.0.1/24"}, "has host bits set"),
        ({"lab_interface": "eth0,eth1"}, "lab_interface is 'eth0,eth1'"),
        ({"lab_name": "../x"}, "lab_name is '../x'"),
        ({"lab_pack_mirror": "packs"}, "lab_pack_mirror is 'packs'"),
        ({"lab_shared_packs": "packs"}, "lab_shared_packs is 'packs'"),
        ({"lab_shared_packs": "/nfs/../etc"}, "lab_shared_packs is '/nfs/../etc'"),
        ({"lab_shared_packs": "/"}, "lab_shared_packs is '/'"),
        ({"lab_pack_mirror": "http://me:word@10.0.0.9/packs"}, "address without user and password"),
        ({"lab_intreface": "eth0"}, "did you mean lab_interface?"),
        ({"lab_user_nmae": "x"}, "did you mean lab_user_name?"),
        (
            {"openmpi_version": "4.1.8"},
            "openmpi_version is set, which hvlab does itself -> write lab_openmpi instead",
        ),
        ({"nvidia_driver_version": ""}, "write lab_driver instead"),
        ({"cuda_method": "{{ our_method }}"}, "write lab_cuda_method instead"),
        # openmpi_version would be refused in turn.
        ({"openmpi_verion": "4.1.8"}, "did you mean lab_openmpi?"),
        ({"opnmpi_version": "4.1.8"}, "did you mean lab_openmpi?"),
    ],
)
def test_a_wrong_variable_is_refused(roles, change, told):
    assert told in observed(GOOD | change, roles)


@pytest.mark.parametrize("missing", ["lab_network", "lab_interface"])
def test_a_missing_variable_is_named(roles, missing):
    assert f"{missing} is not set" in observed({k: v for k, v in GOOD.items() if k != missing}, roles)


@pytest.mark.parametrize("name", ["n_1", "-n", "n-", "a" * 64, "a..b", ""])
def test_wrong_host_names(name, roles):
    assert not is_valid_name(name)
    assert "RFC 1123" in observed(GOOD, roles, name=name)


@pytest.mark.parametrize("name", ["n1", "N1", "1", "a.b-c.example", "a" * 63])
def test_good_host_names(name):
    assert is_valid_name(name)


def test_an_address_is_no_host_name(roles):
    assert "ansible_host: 10.0.0.1" in observed(GOOD, roles, name="10.0.0.1")


def test_a_virtual_host_must_be_on_the_lab_network(roles):
    moved = GOOD | {"ansible_host": "10.1.0.1"}
    assert "is not in lab_network" in observed(moved, roles, virtual=True)
    assert observed(moved, roles) == ""


def test_two_hosts_at_one_address(roles):
    found = problems({"a": GOOD, "b": GOOD}, {}, roles)
    assert [(p.host, p.observed) for p in found] == [("a, b", "they share the address 10.0.0.1")]
    assert problems({"a": GOOD, "b": GOOD | {"ansible_port": 2222}}, {}, roles) == []


def test_the_lab_is_one(roles):
    found = problems(
        {"a": GOOD, "b": GOOD | {"ansible_host": "10.0.0.2", "lab_interface": "eth1"}}, {}, roles
    )
    assert [p.observed for p in found] == ["lab_interface differs between hosts: eth0, eth1"]


def test_no_hosts(roles):
    assert problems({}, {}, roles)[0].observed == "it has no hosts"


def test_a_role_without_specs_is_known_by_its_defaults(tmp_path):
    (tmp_path / "x/defaults").mkdir(parents=True)
    (tmp_path / "x/defaults/main.yml").write_text("x_a: 1\n")
    assert role_options(tmp_path)["x"].keys() == {"x_a"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("common_limit_nofile", "many", "argument 'common_limit_nofile' is of type"),
        ("common_hosts_managed", "perhaps", "argument 'common_hosts_managed' is of type"),
        ("container_runtime_method", "snap", "must be one of: distro, repo, got: snap"),
        ("common_limit_nofile", 65536, ""),
        ("common_limit_nofile", "65536", ""),
        ("common_hosts_managed", "yes", ""),
        ("common_limit_nofile", "{{ some_fact }}", ""),
        ("common_packages_extra", ["{{ editor }}"], ""),
        ("common_limit_nofile", None, '"None" cannot be converted to an int'),
    ],
)
def test_values_that_a_role_would_refuse_are_told_before_any_host_is_contacted(name, value, message):
    text = observed(GOOD | {name: value}, project_dir() / "roles")
    assert message in text
    assert bool(message) == bool(text)


def test_a_value_that_is_refused_shows_no_secret():
    text = observed(GOOD | {"common_limit_nofile": "API_KEY=abc123"}, project_dir() / "roles")
    assert "common_limit_nofile" in text
    assert "abc123" not in text


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("h.yml", "all:\n  hosts:\n    a:\n    a:\n", "'a' occurs twice"),
        ("h.yml", "all:\n  hosts: [\n", "not valid YAML"),
        ("h.ini", "[x]\na ansible_host=1.1.1.1\na\n", "'a' occurs twice in [x]"),
        ("h.ini", "[x]\na ansible_host=1.1.1.1\n[y]\na ansible_host=1.1.1.2\n", "the name is used twice"),
        (
            "h.yml",
            "x:\n  hosts:\n    a: {ansible_host: 1.1.1.1}\ny:\n  hosts:\n    a: {ansible_host: 1.1.1.2}\n",
            "the name is used twice",
        ),
    ],
)
def test_mistakes_in_the_text(tmp_path, name, text, told):
    path = tmp_path / name
    path.write_text(text)
    assert told in "\n".join(problem.observed for problem in file_problems(path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hosts", "# hosts\n[x]\na ansible_host=1.1.1.1\n[y]\na\n[z:children]\nx\ny\n[x:vars]\na=1\na=2\n"),
        ("h.yml", "all:\n  vars:\n    a: !vault |\n      x\n    b: !unsafe 'y'\n"),
    ],
    ids=["a host in several groups", "Ansible's tags"],
)
def test_no_mistakes_in_the_text(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert file_problems(tmp_path / name) == []


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    text = "all:\n  hosts:\n" + "".join(f"    n{i}: {{ansible_host: 10.0.0.{i}}}\n" for i in (10, 9, 2))
    (tmp_path / "hosts.yml").write_text(text)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text(
        "lab_network: 10.0.0.0/24\nlab_interface: eth0\nlab_slots: 2\n"
    )
    return tmp_path


def test_load_keeps_the_order(lab):
    loaded = load(lab)
    assert [(h.name, h.address, h.slots, h.port) for h in loaded.hosts] == [
        ("n10", "10.0.0.10", 2, 22),
        ("n9", "10.0.0.9", 2, 22),
        ("n2", "10.0.0.2", 2, 22),
    ]
    assert (loaded.name, loaded.network, loaded.interface) == ("lab", "10.0.0.0/24", "eth0")
    assert not loaded.hosts[0].virtual


def test_load_with_a_limit(lab):
    assert [host.name for host in load(lab, limit="n2,n9").hosts] == ["n9", "n2"]
    with pytest.raises(InventoryError, match="matches --limit") as caught:
        load(lab, limit="zz*")
    assert "n10, n9, n2" in str(caught.value.remedy)


def test_a_reading_begun_before_is_the_one_that_counts(lab, monkeypatch):
    started, begin = [], process.begin
    monkeypatch.setattr(inventory, "process", process)
    monkeypatch.setattr(
        process, "begin", lambda *words, **named: started.append(begin(*words, **named)) or started[-1]
    )
    with start_loading(lab, limit="n2"):
        assert [host.name for host in load(lab, limit="n2").hosts] == ["n2"]
        assert len(started) == 1
        assert len(load(lab).hosts) == 3
    with start_loading(lab):
        pass
    assert [reader.returncode for reader in started] == [0, 0, -9]
    with start_loading(lab / "nowhere"):
        assert len(started) == 3


def test_ansible_evaluates_what_hvlab_reads(lab, monkeypatch):
    monkeypatch.setenv("HVLAB_TEST_USER", "someone")
    text = """
my_builds: {cpu: {mpi: true, gloo: "{{ my_gloo }}"}}
my_gloo: "{{ groups['all'] | length > 2 }}"
horovod_variants: "{{ my_builds }}"
ansible_port: "{{ 22 * 100 }}"
lab_torch: "{{ hostvars['n9'].my_torch }}"
cuda_version: "{{ __stack.versions.cuda | default('', true) }}"
lab_nccl_method: "{{ 'wheel' | lower }}"
ansible_user: "{{ lookup('ansible.builtin.env', 'HVLAB_TEST_USER') }}"
ansible_ssh_common_args: -o UserKnownHostsFile=/labs/{{ inventory_hostname }}/known_hosts
lab_user_name: !unsafe 'x{{'
ansible_become_password: "{{ lookup('ansible.builtin.file', '/nowhere') }}"
"""
    with (lab / "group_vars/all.yml").open("a") as file:
        file.write(text)
    (lab / "host_vars").mkdir()
    (lab / "host_vars/n9.yml").write_text("my_torch: 2.13.0\n")
    host = load(lab).host("n2")
    assert available([host]) == ["mpi", "gloo"]
    assert (host.port, host.user, host.text("lab_torch")) == (2200, "someone", "2.13.0")
    assert host.text("ansible_ssh_common_args") == "-o UserKnownHostsFile=/labs/n2/known_hosts"
    assert host.vars["lab_nccl_method"] == "wheel"
    assert host.vars["lab_user_name"] == "x{{"
    # What the roles hand to one another is no pin; and no password is asked for.
    assert "{{" in host.vars["cuda_version"]
    assert "lookup" in host.vars["ansible_become_password"]


def test_a_template_that_cannot_be_evaluated(lab):
    with (lab / "group_vars/all.yml").open("a") as file:
        file.write('horovod_variants: "{{ my_builds }}"\n')
    with pytest.raises(
        InventoryError, match="horovod_variants cannot be evaluated: 'my_builds' is undefined"
    ):
        load(lab)


def test_a_vault_opens(lab, monkeypatch):
    password = lab.parent / "password"
    password.write_text("secret\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    vault = VaultLib([("default", VaultSecret(b"secret"))])
    (lab / "host_vars").mkdir()
    (lab / "host_vars/n9.yml").write_bytes(vault.encrypt("ansible_user: whoever\n"))
    indented = vault.encrypt("anyone").decode().replace("\n", "\n  ")
    (lab / "host_vars/n2.yml").write_text(f"ansible_user: !vault |\n  {indented}\n")
    users = {host.name: host.user for host in load(lab).hosts}
    assert users == {"n10": None, "n9": "whoever", "n2": "anyone"}


def test_a_vault_that_stays_shut_says_what_opens_it(lab):
    vault = VaultLib([("default", VaultSecret(b"secret"))])
    (lab / "host_vars").mkdir()
    (lab / "host_vars/n9.yml").write_bytes(vault.encrypt("ansible_user: whoever\n"))
    with pytest.raises(InventoryError) as raised:
        load(lab)
    assert raised.value.remedy == "name the file with the vault's password in ANSIBLE_VAULT_PASSWORD_FILE"


def test_the_projects_variables_stand_below_the_inventorys(lab):
    assert load(lab).host("n9").text("lab_user_home") == "/home/hvlab"
    with (lab / "group_vars/all.yml").open("a") as file:
        file.write("lab_user_name: ranks\n")
    assert load(lab).host("n9").text("lab_user_home") == "/home/ranks"


def test_checks_of_roles_read_what_the_roles_do(lab, monkeypatch):
    password = lab.parent / "password"
    password.write_text("secret\n")
    monkeypatch.setattr("ansible.constants.DEFAULT_VAULT_PASSWORD_FILE", str(password))
    monkeypatch.setenv("HVLAB_TEST_USER", "someone")
    (lab / "host_vars").mkdir()
    vault = VaultLib([("default", VaultSecret(b"secret"))])
    (lab / "host_vars/n9.yml").write_bytes(vault.encrypt("my_torch: 2.13.0\n"))
    (lab / "host_vars/n2.yml").write_text("""
openmpi_prefix: "/x/{{ inventory_hostname }}"
other: "{{ hostvars['n9'].my_torch }}"
looked_up: "{{ lookup('ansible.builtin.env', 'HVLAB_TEST_USER') }}"
slurm_accounting_enabled: "no"
slurm_rest_enabled: "True"
recorded: "{{ __stack.torch }}"
""")
    # Recorded by a host, which has no lookup run here.
    lookup = "{{ lookup('pipe', 'touch " + str(lab / "ran") + "') }}"
    inventory = Inventory(str(lab))
    variables = inventory.variables("n2", {"torch": lookup})
    expected = {
        "slurm_controller": "n10", "cuda_prefix": "/usr/local/cuda", "openmpi_prefix": "/x/n2",
        "other": "2.13.0", "looked_up": "someone", "recorded": lookup,
        "slurm_accounting_enabled": False, "slurm_rest_enabled": True,
    }  # fmt: skip
    assert {name: variables[name] for name in expected} == expected
    assert not (lab / "ran").exists()
    assert inventory.names("all:!n9") == ["n10", "n2"]


def test_an_inventory_that_hangs(tmp_path, monkeypatch):
    script = tmp_path / "slow"
    script.write_text("#!/bin/sh\nsleep 60\n")
    script.chmod(0o755)
    monkeypatch.setattr("hvlab.lab.inventory._SECONDS", 1.0)
    with pytest.raises(InventoryError, match="slow within 1 s") as caught:
        load(script)
    assert "ansible-inventory --list" in caught.value.remedy


def test_what_hvlab_reads_is_evaluated():
    names = re.compile(
        r"""(?:vars\.get\(|vars\[|lab\.text\(|host\.text\()"((?:ansible|lab|horovod|openmpi|workloads)_\w+)"""
    )
    code = "\n".join(path.read_text() for path in (project_dir() / "hvlab").rglob("*.py"))
    assert set(names.findall(code)) <= READ | {
        "ansible_facts",
        "ansible_inventory_sources",
        "ansible_play_batch",
        "ansible_play_hosts",
        "ansible_play_hosts_all",
    }
    assert "horovod_variants" in names.findall(code)


def test_a_network_of_ipv6_is_refused(roles):
    told = observed(GOOD | {"lab_network": "2001:db8::/64", "ansible_host": "2001:db8::1"}, roles)
    assert "lab_network is '2001:db8::/64': ranks talk over IPv4 only" in told


def test_load_tells_all_problems_at_once(lab):
    (lab / "group_vars/all.yml").write_text("lab_network: x\nlab_interface: eth0\nlab_slots: 0\n")
    with pytest.raises(InventoryError) as caught:
        load(lab)
    assert "lab_network is 'x'" in str(caught.value)
    assert "lab_slots is 0" in str(caught.value)
    assert "n10, n9, n2" in str(caught.value)


def test_load_refuses_what_is_not_there_or_does_not_parse(tmp_path):
    with pytest.raises(InventoryError, match="no inventory at"):
        load(tmp_path / "none")
    (tmp_path / "hosts.ini").write_text("[x\na\n")
    with pytest.raises(InventoryError, match="cannot read the inventory"):
        load(tmp_path / "hosts.ini")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANSIBLE_VERBOSITY", "1"),
        ("ANSIBLE_DEBUG", "1"),
        ("ANSIBLE_FORCE_COLOR", "1"),
        ("ANSIBLE_VARS_ENABLED", ""),
        ("ANSIBLE_PRECEDENCE", "all_inventory"),
        ("ANSIBLE_INVENTORY_ENABLED", "ini"),
        ("ANSIBLE_INVENTORY_IGNORE", ".yml"),
        ("ANSIBLE_YAML_FILENAME_EXT", ".none"),
    ],
)
def test_what_a_user_set_for_other_uses_of_ansible_does_not_matter(lab, monkeypatch, name, value):
    before = load(lab)
    monkeypatch.setenv(name, value)
    assert load(lab) == before


OPTIONS = {
    name: option for own in role_options(project_dir() / "roles").values() for name, option in own.items()
}
TEXTS = {"bool": ("false", "perhaps"), "int": ("7", "many"), "float": ("0.5", "much")}


def test_every_option_given_as_a_text_is_converted_or_refused():
    """As `-e NAME=VALUE` gives it, and an INI inventory, but for what Python would take for a value."""
    for name, option in OPTIONS.items():
        kind = option.get("type", "str")

        def said(value, name=name):
            return list(argument_problems("n1", {name: value}, OPTIONS))

        if kind in ("list", "dict"):
            (problem,) = said("a,b=c")
            assert problem.observed == f"{name} is the text 'a,b=c', where a {kind} is needed"
            assert not [one for one in said([] if kind == "list" else {}) if "is the text" in one.observed]
        elif kind in TEXTS:
            right, wrong = TEXTS[kind]
            assert said(right) == []
            assert [problem.remedy[: len(name)] for problem in said(wrong)] == [name]
        else:
            assert kind in ("str", "path", "raw"), name


def test_the_drivers_switches_given_as_texts_are_not_turned_round():
    request = as_request({"method": "repo", "remove_old": "false", "fabric": "no", "imex": "False"}, {})
    assert (request.remove_old, request.fabric, request.imex) == (False, False, False)
    assert as_request({"method": "repo", "remove_old": "yes"}, {}).remove_old


def test_a_folder_without_an_inventory_says_how_to_write_one(tmp_path):
    with pytest.raises(InventoryError, match="Ansible cannot read the inventory") as refused:
        load(tmp_path)
    assert "hvlab init" in refused.value.remedy
