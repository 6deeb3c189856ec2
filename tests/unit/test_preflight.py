"""What preflight makes of facts."""

import json
import re
import shutil
from dataclasses import asdict, replace
from types import SimpleNamespace

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.ansible import plugin as plugin_base
from hvlab.ansible.action import hvlab_preflight as action
from hvlab.base.answers import mismatch
from hvlab.base.errors import report
from hvlab.checks import preflight
from hvlab.checks.before import HostLimits, PreflightHost, PreflightLab, lab_hosts
from hvlab.checks.folders import check_disk, check_tmp
from hvlab.checks.machine import check_system
from hvlab.checks.preflight import check, report_missing
from hvlab.checks.python import check_pythons
from hvlab.checks.ssh import check_host_key, check_owner
from hvlab.lab.facts_shape import Facts
from hvlab.lab.inventory import Host
from hvlab.remote import known_hosts, ssh_keys, trust
from hvlab.remote import trust as rotation
from tests.unit.fuzzing import QUICK
from tests.unit.test_answers import VALUES, _replaced

pytestmark = pytest.mark.fuzz

NOW = 1_000_000.0
OTHER = f"SHA256:{'x' * 43}"
LIMITS = HostLimits(
    clock_offset_max=5,
    disk_free_mb={"/opt": 3000},
    disk_free_gpu_mb={"/opt": 8400},
    disk_spare_mb=200,
    supported={"Debian": ["12"], "Ubuntu": ["22.04"]},
)


def make(number, **changes):
    """A host with nothing wrong; `changes` go into the facts of our own."""
    name, address = f"n{number}", f"198.18.0.1{number}"
    observed = {
        "now": NOW,
        "sent": NOW - 1,
        "resolves": "{}",
        "interfaces": {"host0": {"cidrs": [f"{address}/24"], "up": True}},
        "tmp": {"writable": True, "noexec": False, "mode": "1777", "free_mb": 900},
        "disk_free_mb": {"/": 9000},
        "gcc": "12.2.0",
        "packs": {},
        "ssh_host_key": f"ssh-ed25519 AAA{number}",
    }
    facts = {
        "distribution": "Debian",
        "distribution_version": "12.5",
        "distribution_major_version": "12",
        "python_version": "3.11.2",
        "hostname": name,
        "nodename": name,
        "ansible_local": {},
        "hvlab": {**observed, **changes},
    }
    return PreflightHost(name=name, facts=facts, address=address, network="198.18.0.0/24", interface="host0")


def with_facts(node, **changes):
    return replace(node, facts={**node.facts, **changes})


def recorded(node):
    return with_facts(node, ansible_local={"hvlab_common": {"hosts": {"n9": {"address": "198.18.0.19"}}}})


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(preflight.time, "time", lambda: NOW + 1)


def found(*nodes, limits=LIMITS):
    hosts = lab_hosts(list(nodes), {node.name: node.address for node in nodes})
    errors, _ = check(list(nodes), hosts, limits, {node.name: node.address for node in nodes})
    return [(problem.host, problem.observed) for problem in errors]


def test_nothing_is_wrong():
    assert found(make(1), make(2)) == []


LINK = {"cidrs": ["198.18.0.11/24"], "up": True}
TMP = {"writable": True, "noexec": False, "mode": "1777"}


@pytest.mark.parametrize(
    ("changes", "observed"),
    [
        ({"tmp": {**TMP, "noexec": True}}, "/tmp is mounted noexec"),
        ({"tmp": {**TMP, "writable": False}}, "/tmp cannot be written"),
        ({"tmp": {**TMP, "mode": "0755"}}, "/tmp has mode 0755"),
        ({"tmp": None}, "/tmp cannot be written"),
        ({"unfinished": ["nvidia-dkms-580"]}, "packages are half configured: nvidia-dkms-580"),
        ({"disk_free_mb": {"/": 9000, "/opt": 100}}, "/opt has 100 MiB free, 3000 are needed"),
        ({"interfaces": None}, "its interfaces cannot be read"),
        ({"interfaces": {"eth0": LINK}}, "it has no interface host0, it has eth0 (198.18.0.11/24)"),
        ({"interfaces": {"host0": {**LINK, "up": False}}}, "host0 is down"),
        (
            {"interfaces": {"host0": {**LINK, "cidrs": []}}},
            "host0 has no address in lab_network 198.18.0.0/24",
        ),
        (
            {"interfaces": {"host0": {**LINK, "cidrs": ["198.18.0.99/24"]}}},
            "host0 carries 198.18.0.99, the inventory says 198.18.0.11",
        ),
        ({"ssh_host_key": None}, "sshd has no Ed25519 host key"),
        ({"now": NOW + 60}, "its clock is at least 59 s ahead of the controller's"),
        ({"now": NOW - 60}, "its clock is at least 59 s behind the controller's"),
    ],
)
def test_one_thing_is_wrong(changes, observed):
    assert found(make(1, **changes), make(2)) == [("n1", observed)]


def test_a_host_in_fips_mode_is_not_told_to_make_a_key_that_it_cannot_make():
    [problem] = check_host_key(PreflightLab([make(1, ssh_host_key=None)]))
    assert "a host in FIPS mode makes none" in problem.remedy


@pytest.mark.parametrize("now", [NOW + 5, NOW - 5])
def test_a_clock_is_off_only_when_that_is_certain(now):
    assert found(make(1, now=now)) == []


def test_the_python_that_few_hosts_have_is_named():
    nodes = [make(1), make(2), with_facts(make(3), python_version="3.9.2")]
    (problem,) = check_pythons(nodes)
    assert (problem.host, problem.observed) == ("n3", "its Python is 3.9, that of most hosts 3.11")
    assert not list(check_pythons(nodes[:2]))


def test_clocks_apart_from_each_other():
    assert found(make(1, now=NOW + 5), make(2, now=NOW - 5)) == [
        ("n1, n2", "their clocks are at least 8 s apart")
    ]


def test_a_host_with_the_software_needs_less_room():
    full = {"disk_free_mb": {"/opt": 300}}
    assert found(make(1, **full, packs={"/opt/hvlab/x": {}})) == []
    assert found(make(1, **full)) != []


@pytest.mark.parametrize(
    ("gpu", "changes", "observed"),
    [
        (True, {"driver": "580.95.05"}, ["/opt has 8000 MiB free, 8400 are needed"]),
        (True, {"driver": "580.95.05", "packs": {"/opt/hvlab/x": {}}}, []),
        (
            True,
            {"packs": {"/opt/hvlab/x": {}}},
            ["/boot has 60 MiB free; 71 are needed for a new initramfs"],
        ),
        (True, {"packs": {"/opt/hvlab/x": {}}, "initramfs_mb": None}, []),
        (False, {}, []),
    ],
    ids=["torch with CUDA", "installed", "a driver to come", "no initramfs", "no GPU"],
)
def test_room_that_the_gpu_stack_needs(gpu, changes, observed):
    room = {"disk_free_mb": {"/": 8000, "/boot": 60}, "initramfs_mb": 71}
    node = replace(make(1, **room | changes), gpu=gpu)
    assert found(node) == [("n1", text) for text in observed]
    remedies = [problem.remedy for problem in check_disk(PreflightLab([node], LIMITS))]
    assert any("preflight_disk_free_gpu_mb" in remedy for remedy in remedies) is ("/opt" in str(observed))


@pytest.mark.parametrize(
    ("distribution", "version", "supported"),
    [("Ubuntu", "18.04", True), ("Scientific", "7.9", True), ("Fedora", "40", False), ("Debian", "1", False)],
)
def test_supported_systems_are_those_of_the_catalogue(distribution, version, supported):
    node = with_facts(make(1), distribution=distribution, distribution_version=version)
    problems = [problem.observed for problem in check_system(PreflightLab([node]))]
    assert (f"{distribution} {version}: unsupported OS" not in problems) is supported


@pytest.mark.parametrize(
    ("facts", "observed"),
    [
        ({"distribution": "Fedora", "distribution_version": "40"}, "Fedora 40: unsupported OS"),
        ({"distribution_version": "10.1", "distribution_major_version": "10"}, "Debian 10.1: unsupported OS"),
        ({"python_version": "3.7.3"}, "its Python is 3.7.3; Ansible needs 3.8 there, or later"),
        ({"nodename": "a_b", "hostname": "a_b"}, "its own host name is 'a_b'"),
        ({"nodename": "localhost", "hostname": "localhost"}, "its own host name is 'localhost'"),
    ],
)
def test_system_and_names(facts, observed):
    assert found(with_facts(make(1), **facts), make(2)) == [("n1", observed)]


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["198.18.0.12"], ["127.0.1.1", "198.18.0.12"]])
def test_a_name_that_resolves_wrongly(addresses):
    bad = recorded(make(1, resolves=json.dumps({"n1": addresses, "n2": []})))
    problem = ("n1", f"n1 resolves to {', '.join(addresses)}, not to 198.18.0.11")
    assert found(bad, make(2)) == [problem]


@pytest.mark.parametrize("before", [recorded, lambda node: node], ids=["recorded", "fresh"])
@pytest.mark.parametrize("addresses", [["127.0.1.1"], ["127.0.1.1", "198.18.0.11"]])
def test_what_an_installer_writes_of_a_hosts_own_name_is_mended_by_the_role(addresses, before):
    bad = before(make(1, resolves=json.dumps({"n1": addresses})))
    assert found(bad) == []
    observed = f"n1 resolves to {', '.join(addresses)}, not to 198.18.0.11"
    _, warnings = check([bad], {"n1": {"address": "198.18.0.11"}}, LIMITS, {})
    assert [problem.observed for problem in warnings] == [observed]
    assert found(bad, limits=replace(LIMITS, names_managed=False)) == [("n1", observed)]


@pytest.mark.parametrize(("line", "mended"), [("198.18.0.99 n2", True), ("198.18.0.98 n2", False)])
def test_a_wrong_line_of_hvlabs_own_in_etc_hosts_is_mended_by_the_role(line, mended):
    text = f"198.18.0.99 n1\n# BEGIN hvlab\n{line}\n# END hvlab\n"
    bad = recorded(make(1, resolves=json.dumps({"n2": ["198.18.0.99"]})))
    bad = with_facts(bad, hvlab_managed={"files": {"/etc/hosts": {"text": text}}})
    problem = ("n1", "n2 resolves to 198.18.0.99, not to 198.18.0.12")
    assert found(bad, make(2)) == ([] if mended else [problem])


def test_the_interfaces_all_hosts_share_are_named():
    nodes = [
        replace(make(n, interfaces={"eth0": {"cidrs": [f"198.18.0.1{n}/24"], "up": True}, f"x{n}": LINK}))
        for n in (1, 2)
    ]
    errors, _ = check(nodes, {}, LIMITS, {})
    assert {problem.remedy for problem in errors} == {"set lab_interface to eth0, which all hosts have"}


@pytest.mark.parametrize(
    ("skew", "errors", "warnings"), [("warning", 0, 1), ("error", 1, 0), ("ignore", 0, 0)]
)
def test_compilers_of_different_versions(skew, errors, warnings):
    nodes = [make(1), make(2), make(3, gcc="13.1.0"), make(4, gcc=None)]
    told = check(nodes, {}, replace(LIMITS, gcc_skew=skew), {})
    assert tuple(map(len, told)) == (errors, warnings)


def test_hosts_left_out_keep_the_address_that_was_recorded():
    hosts = lab_hosts([recorded(make(1))], {"n1": "198.18.0.11", "n8": "198.18.0.18", "n9": None, "n7": None})
    assert {name: host["address"] for name, host in hosts.items()} == {
        "n1": "198.18.0.11",
        "n8": "198.18.0.18",
        "n9": "198.18.0.19",
    }


def test_ranks_use_the_address_of_the_labs_network():
    node = replace(make(1), address="10.0.0.5")
    assert node.lab_address == "198.18.0.11"
    assert lab_hosts([node], {"n1": "10.0.0.5"})["n1"]["aliases"] == ["10.0.0.5"]
    assert found(node) == []


def test_one_report_names_what_hosts_share_once():
    wrong = report_missing(["n1", "n2", "n3", "n4"], ["n3", "n4"])
    wrong += check_tmp(PreflightLab([make(3, tmp=None), make(4, tmp=None)]))
    lines = report(wrong).splitlines()
    assert [line.split(":")[0] for line in lines] == ["n1, n2", "  what to do", "n3, n4", "  what to do"]
    assert "--limit 'all:!n1:!n2'" in lines[1]


def test_a_machine_alone_needs_no_name_key_or_network_of_its_own():
    changes = {"resolves": json.dumps({"n1": ["198.18.0.11"]}), "interfaces": {}, "ssh_host_key": None}
    one = replace(make(1, **changes), network="127.0.0.0/8", interface="lo", address="127.0.0.1")
    hosts = {"n1": {"address": "127.0.0.1"}}
    limits = replace(LIMITS, names_managed=False)
    assert len(check([one], hosts, limits, {})[0]) == 3
    assert check([replace(one, alone=True)], hosts, limits, {}) == ([], [])


def claiming(number, **facts):
    return with_facts(make(number), **facts)


@pytest.mark.parametrize(
    ("facts", "observed"),
    [
        ({"hostname": "n3,n1,198.18.0.11"}, "its own host name is 'n3', and 'n3,n1,198.18.0.11' for short"),
        (
            {"hostname": "n3\n* ssh-ed25519 AAAA"},
            "its own host name is 'n3', and 'n3\\n* ssh-ed25519 aaaa' for",
        ),
        ({"nodename": "n3\nHealthCheckProgram=/p"}, "its own host name is 'n3\\nHealthCheckProgram=/p'"),
        ({"nodename": "n1"}, "its own host name is 'n1', and 'n3' for short"),
        ({"nodename": "n1", "hostname": "n1"}, "it goes by n1, which is n1's in the inventory"),
        ({"nodename": "N1.lab", "hostname": "N1"}, "it goes by N1, which is n1's in the inventory"),
    ],
)
def test_a_host_that_goes_by_another_ones_name_is_refused(facts, observed):
    problems = found(make(1), claiming(3, **facts))
    assert {host for host, _ in problems} == {"n3"}
    assert problems[0][1].startswith(observed)


def test_a_host_that_goes_by_another_ones_address_is_refused():
    """Its own network's address is not in the inventory, which names another one."""
    hidden = replace(make(3, interfaces={"host0": LINK}), address="10.0.0.3")
    assert found(make(1), hidden) == [("n3", "it goes by 198.18.0.11, which is n1's in the inventory")]
    others = [
        replace(make(number, interfaces={"host0": LINK}), address=f"10.0.0.{number}") for number in (1, 3)
    ]
    assert found(*others) == [("n1, n3", "they have one address: 198.18.0.11")]


def test_hosts_behind_one_address_keep_it():
    nodes = [replace(make(number), address="192.0.2.1") for number in (1, 2)]
    assert found(*nodes) == []
    assert lab_hosts(nodes, dict.fromkeys(["n1", "n2"], "192.0.2.1"))["n2"]["aliases"] == ["192.0.2.1"]


@pytest.mark.parametrize(
    ("nodename", "aliases"),
    [
        ("mirror.example", ["mirror"]),
        ("n3.cs.example", ["n3.cs.example"]),
        ("desk-7", ["desk-7"]),
    ],
)
def test_a_host_has_no_name_of_a_domain_that_the_inventory_does_not_give_it(nodename, aliases):
    node = claiming(3, nodename=nodename, hostname=nodename.split(".")[0])
    assert found(make(1), node) == []
    assert lab_hosts([make(1), node], {"n1": "198.18.0.11", "n3": "198.18.0.13"})["n3"]["aliases"] == aliases


def recording(number, **entries):
    return with_facts(make(number), ansible_local={"hvlab_common": {"hosts": entries}})


def test_the_inventory_outranks_what_a_host_recorded():
    hostile = recording(3, n1={"address": "198.18.0.13", "aliases": ["mirror.example", "n2", "n1.lab"]})
    reached = {"n1": "198.18.0.11", "n2": "198.18.0.12", "n3": "198.18.0.13", "n4": None}
    assert lab_hosts([make(2), hostile], reached)["n1"] == {
        "address": "198.18.0.11",
        "aliases": ["n1.lab"],
        "port": 22,
    }
    hostile = recording(3, n4={"address": "198.18.0.11"})
    assert "n4" not in lab_hosts([make(2), hostile], reached)


def test_hosts_that_recorded_different_addresses_are_refused():
    nodes = [recording(2, n9={"address": "198.18.0.19"}), recording(3, n9={"address": "198.18.0.66"})]
    reached = {"n2": "198.18.0.12", "n3": "198.18.0.13", "n9": None}
    errors, _ = check(nodes, lab_hosts(nodes, reached), LIMITS, reached)
    observed = "earlier runs recorded different addresses of n9: 198.18.0.19 (n2), 198.18.0.66 (n3)"
    assert [(problem.host, problem.observed) for problem in errors] == [("n2, n3", observed)]


def owned(number, authority):
    return with_facts(
        make(number), ansible_local={"hvlab_ssh_trust": {"lab": "lab1", "authority": authority}}
    )


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return trust.ensure_lab_trust("lab1")


def test_a_host_that_somebody_else_provisioned_is_refused(lab):
    """A second folder of keys took the lab over, without a word."""
    nodes = [make(1), owned(2, OTHER), owned(3, lab.authority)]
    (problem,) = check_owner(nodes, lab)
    assert problem.host == "n2"
    assert {OTHER, lab.authority, str(lab.folder)} <= set(re.split(r"[ ;]", problem.observed))
    assert f"`hvlab keys init --take-over {OTHER}`" in problem.remedy
    trust.take_over(lab, OTHER)
    assert list(check_owner(nodes, lab)) == []


def test_whoever_lost_the_keys_is_told_what_to_do(lab):
    node = owned(1, lab.authority)
    shutil.rmtree(lab.folder)
    (problem,) = check_owner([node], lab)
    assert problem.observed.endswith("has no keys yet")
    assert "put it back from a backup; if they are lost" in problem.remedy
    assert list(check_owner([replace(node, alone=True)], lab)) == []


def test_a_host_that_missed_a_rotation_is_still_the_labs(lab):
    node = owned(1, lab.authority)
    rotation.announce(lab)
    rotation.replace(lab)
    trust.ensure_lab_trust("lab1")
    rotation.retire(lab)
    rotation.finish(lab)
    assert lab.authority != node.authority
    assert list(check_owner([node, owned(2, lab.authority)], lab)) == []


MALFORMED = {
    "cidrs": {"hvlab": {"interfaces": {"host0": {"cidrs": ["x"], "up": True}}}},
    "interfaces": {"hvlab": {"interfaces": ["host0"]}},
    "resolves": {"hvlab": {"resolves": "no JSON"}},
    "resolved": {"hvlab": {"resolves": json.dumps({"n1": ["x"]})}},
    "tmp": {"hvlab": {"tmp": "yes"}},
    "mode": {"hvlab": {"tmp": {"writable": True, "noexec": False, "mode": "rwx"}}},
    "space": {"hvlab": {"disk_free_mb": {"/": "many"}}},
    "now": {"hvlab": {"now": "noon"}},
    "key": {"hvlab": {"ssh_host_key": "ssh-ed25519 AAAA\n* ssh-ed25519 BBBB"}},
    "gcc": {"hvlab": {"gcc": ["12"]}},
    "hostname": {"hostname": ["n3"]},
    "python": {"python_version": 3},
    "recorded": {"ansible_local": {"hvlab_common": {"hosts": {"n1": {"address": "10.0.0.1\n6.6.6.6 x"}}}}},
    "authority": {"ansible_local": {"hvlab_ssh_trust": {"authority": f"{OTHER}\n"}}},
    "aliases": {
        "ansible_local": {"hvlab_common": {"hosts": {"n1": {"address": "10.0.0.1", "aliases": "n2"}}}}
    },
}


def checked(monkeypatch, **facts):
    """Return the result of the plugin, which runs on n1 for all hosts; ``facts`` are of n3."""
    usual = {"lab_network": "198.18.0.0/24", "lab_interface": "host0", "groups": {"all": ["n1", "n3"]}}
    hostvars = {node.name: {**usual, "ansible_facts": dict(node.facts)} for node in (make(1), make(3))}
    for number in (1, 3):
        hostvars[f"n{number}"]["ansible_host"] = f"198.18.0.1{number}"
    sent = hostvars["n3"]["ansible_facts"]
    for name, value in facts.items():
        sent[name] = {**sent[name], **value} if isinstance(sent[name], dict) else value
    plugin = object.__new__(action.ActionModule)
    plugin._task = SimpleNamespace(check_mode=False)
    monkeypatch.setattr(plugin_base.ActionBase, "run", lambda *_: {})
    plugin.validate_argument_spec = lambda **_: (None, asdict(LIMITS))
    hosts = ["n1", "n3"]
    variables = {"hostvars": hostvars, "groups": usual["groups"], "ansible_play_hosts": hosts}
    return plugin.run(task_vars={**variables, "ansible_play_hosts_all": hosts})


def test_the_group_gpu_is_known():
    variables = {"lab_network": "198.18.0.0/24", "lab_interface": "", "groups": {"all": [], "gpu": ["n1"]}}
    assert [action.as_host(name, variables).gpu for name in ("n1", "n2")] == [True, False]


def test_the_lab_of_another_owner_is_refused_before_anything_is_changed(lab, monkeypatch):
    result = checked(monkeypatch, ansible_local={"hvlab_ssh_trust": {"authority": OTHER}})
    assert "nothing was changed" in result["msg"]
    assert result["problems"].startswith("n3: it was provisioned with other keys")
    assert not checked(monkeypatch).get("failed")


@pytest.mark.parametrize("hashed", [False, True])
def test_a_host_key_that_ssh_does_not_know_the_host_by_is_refused_before_it_is_signed(
    lab, monkeypatch, tmp_path, hashed
):
    """A host could have any key signed for itself that is in no file here, such as a user's own."""
    ssh_keys.make_key(tmp_path / "known", "x")
    ssh_keys.make_key(tmp_path / "other", "x")
    known, other = (" ".join(ssh_keys.public(tmp_path / name).split()[:2]) for name in ("known", "other"))
    assert not checked(monkeypatch, hvlab={"ssh_host_key": other}).get("failed")
    host = Host("n3", "198.18.0.13", 22, None, 1, frozenset(), {})
    key = paramiko.Ed25519Key.from_private_key_file(str(tmp_path / "known"))
    known_hosts.record(tmp_path / "home/.ssh/known_hosts", [(host, [key])], hashed=hashed)
    assert not checked(monkeypatch, hvlab={"ssh_host_key": known}).get("failed")
    for stated in (other, "ssh-ed25519 AAAA", known[:-4]):
        result = checked(monkeypatch, hvlab={"ssh_host_key": stated})
        assert "nothing was changed" in result["msg"]
        assert result["problems"].startswith("n3: it states the host key ")
        assert ssh_keys.fingerprint(known) in result["problems"]
        assert ssh_keys.fingerprint(stated) in result["problems"]


@pytest.mark.parametrize("facts", MALFORMED.values(), ids=MALFORMED)
def test_malformed_facts_fail_the_host_that_sent_them(facts, monkeypatch):
    result = checked(monkeypatch, **facts)
    assert result["failed"]
    assert result["problems"].lstrip().startswith("n3: its facts: ")


LOCAL = {"hvlab_common": {"hosts": {"n9": {"address": "198.18.0.19", "aliases": ["n9.lab"], "port": 22}}}}


@given(path=st.lists(st.integers(0, 40), min_size=1, max_size=5), value=VALUES)
@QUICK
def test_facts_with_anything_in_them_are_checked_or_refused(path, value):
    facts = _replaced({**make(3).facts, "ansible_local": LOCAL}, path, value)
    if mismatch(facts, Facts):
        return
    nodes = [make(1), replace(make(3), facts=facts)]
    reached = {"n1": "198.18.0.11", "n3": "198.18.0.13", "n9": None}
    hosts = lab_hosts(nodes, reached)
    check(nodes, hosts, LIMITS, reached)
    json.dumps(hosts)


def test_two_hosts_with_one_key_are_refused():
    key = "ssh-ed25519 AAAA"
    problems = found(make(1, ssh_host_key=key), make(2), make(3, ssh_host_key=key))
    assert problems == [("n1, n3", "they have the same ssh host key")]
