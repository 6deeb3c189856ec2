"""``hvlab plan``: what it prints where, exit codes, and how facts, inventory and pins meet."""

import json
from pathlib import Path

import pytest

from hvlab.base.errors import UnreachableError
from hvlab.cli import run
from hvlab.remote import gather

pytestmark = pytest.mark.resolver

A100 = {"name": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0", "memory_mib": 81920}
M40 = {"name": "Tesla M40", "compute_capability": "5.2", "memory_mib": 22945}


def host(**changes):
    return {
        "distribution": "Ubuntu",
        "distribution_version": "22.04",
        "kernel": "5.15.0-100-generic",
        "architecture": "x86_64",
        "python": "3.10.12",
        "gcc": "11.4.0",
        "driver": None,
        "gpus": [A100],
        **changes,
    }


@pytest.fixture
def recorded(tmp_path):
    file = tmp_path / "facts.json"
    file.write_text(json.dumps({"n1": host(), "n2": host(), "n3": host(gpus=[M40])}))
    return str(file)


@pytest.fixture
def inventory(tmp_path):
    def write(names, gpu=(), **variables):
        folder = tmp_path / "lab"
        (folder / "group_vars").mkdir(parents=True)
        hosts = {name: {"ansible_host": f"192.0.2.{i}"} for i, name in enumerate(names, start=1)}
        groups = {"gpu": {"hosts": {name: {} for name in gpu}}}
        (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "children": groups}}))
        common = {"lab_network": "192.0.2.0/24", "lab_interface": "eth0", "lab_name": "plan", **variables}
        (folder / "group_vars/all.json").write_text(json.dumps(common))
        return str(folder)

    return write


def test_a_table(recorded, capsys):
    assert run(["plan", "--facts", recorded]) == 0
    out = capsys.readouterr().out
    assert "n1, n2" in out
    assert "branch 580 is the last one for Tesla M40" in out


def test_json(recorded, capsys):
    assert run(["plan", "--facts", recorded, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["resolved"] is True
    assert list(found["hosts"]) == ["n1", "n2", "n3"]
    assert set(found["hosts"]["n1"]) >= {
        *("host", "system", "gpus", "versions", "methods", "packages", "compute_capabilities"),
        *("open_modules", "backends", "torch_index", "reasons", "notes"),
    }
    assert found["hosts"]["n3"]["gpus"][0]["memory_mib"] == 22945


def test_a_refusal_names_the_conflict_and_what_would_work(recorded, capsys):
    assert run(["plan", "--facts", recorded, "--pin", "cuda=13.0"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    message = "CUDA 13.0 has no code for sm_52 (Tesla M40 on n3); with CUDA 12.9 or without n3 it resolves"
    assert message in told.err
    assert run(["plan", "--facts", recorded, "--pin", "cuda=13.0", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["resolved"], found["message"]) == (False, message)
    assert [item["text"] for item in found["nearest"]] == ["with CUDA 12.9", "without n3"]


def test_explain(recorded, capsys):
    assert run(["plan", "--facts", recorded, "--pin", "cuda=12.6", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "n3: Ubuntu 22.04 x86_64, 1x Tesla M40" in out
    assert "pinned (cuda=12.6)" in out
    assert "packages: cuda-toolkit-12-6" in out


def test_what_if(recorded, capsys):
    assert run(["plan", "--facts", recorded, "--pin", "cuda=12.6", "--what-if", "cuda=12.4"]) == 0
    out = capsys.readouterr().out
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["cuda"])
    assert row[:3] == ["cuda", "12.6", "12.4"]
    assert run(["plan", "--facts", recorded, "--what-if", "cuda=13.0"]) == 1
    assert run(["plan", "--facts", recorded, "--pin", "cuda=13.0", "--what-if", "cuda=12.9"]) == 0
    assert "as it is, it does not resolve" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--pin", "cdua=12"], "did you mean cuda"),
        (["--pin", "cuda"], "is not NAME=VERSION"),
        (["--what-if", "cuda=x"], "'x' is not a version"),
        (["--pin", "driver=580-server"], "'580-server' is not a version"),
        (["--limit", "n9"], "n1, n2, n3"),
        (["--limit", "localhost"], "n1, n2, n3"),
        (["--limit", "~("], "Invalid host list pattern"),
        (["--frobnicate"], "No such option"),
    ],
)
def test_usage(recorded, capsys, options, told):
    assert run(["plan", "--facts", recorded, *options]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "not a JSON object"),
        ('{"n1": {"distribution": "Debian"}}', "n1: distribution_version"),
        ('{"n1": {"distribution": "Debian"}, "n1": {}}', "the facts contain 'n1' twice"),
        ("[" * 100_000, "is not JSON: maximum recursion depth"),
        (
            '{"n1": {"distribution": "D", "distribution_version": "12", "driver": "%s"}}' % ("9" * 5000),
            "n1: driver is longer than 200 characters",
        ),
        (
            '{"n1": {"distribution": "D\\u001b[31m", "distribution_version": "12"}}',
            "distribution has characters that cannot be printed: 'D\\x1b[31m'",
        ),
        ('{"n\\u001b[31m1": {"distribution": "Debian"}}', "its name has characters that cannot be printed"),
        (
            '{"n1": {"distribution": "D", "distribution_version": "12", "gpus": [{"name": "x\\u0007"}]}}',
            "gpus[0] has characters that cannot be printed",
        ),
    ],
)
def test_bad_facts(tmp_path, capsys, text, told):
    (tmp_path / "bad.json").write_text(text)
    assert run(["plan", "--facts", str(tmp_path / "bad.json")]) == 2
    assert told in capsys.readouterr().err
    assert run(["plan", "--facts", str(tmp_path / "none.json")]) == 2


@pytest.mark.parametrize(
    ("limit", "chosen"),
    [
        ("all:!n3", ["n1", "n2"]),
        ("n*:&n1", ["n1"]),
        ("~n[12]", ["n1", "n2"]),
        ("!n3", ["n1", "n2"]),
        ("n*[1]", ["n2"]),
    ],
)
def test_limit(recorded, capsys, limit, chosen):
    words = ["plan", "--facts", recorded, "--limit", limit, "--pin", "cuda=13.0", "--format", "json"]
    assert run(words) == 0
    assert list(json.loads(capsys.readouterr().out)["hosts"]) == chosen


def test_the_inventory_adds_its_pins(recorded, inventory, capsys):
    pins = {"lab_cuda": "12.4", "lab_openmpi": "4.1.6", "cuda_version": "{{ __stack.versions.cuda }}"}
    named = inventory(["n1", "n2"], gpu=["n1", "n2"], **pins)
    assert run(["plan", "-i", named, "--facts", recorded, "--format", "json"]) == 0
    hosts = json.loads(capsys.readouterr().out)["hosts"]
    assert hosts["n1"]["versions"]["cuda"] == "12.4"
    assert {stack["versions"]["openmpi"] for stack in hosts.values()} == {"4.1.6"}
    assert run(["plan", "-i", named, "--facts", recorded, "--pin", "cuda=12.6"]) == 1
    assert "cuda=12.4 (n1, n2)" in capsys.readouterr().err


def test_the_group_gpu_counts_as_in_site_yml(recorded, inventory, tmp_path, capsys):
    named = inventory(["n1", "n2"], gpu=["n1"])
    assert run(["plan", "-i", named, "--facts", recorded, "-l", "n1,n2", "--format", "json"]) == 0
    hosts = json.loads(capsys.readouterr().out)["hosts"]
    assert hosts["n1"]["versions"]["cuda"]
    assert hosts["n2"]["versions"]["cuda"] is None
    (tmp_path / "none.json").write_text(json.dumps({"n1": host(gpus=None), "n2": host()}))
    assert run(["plan", "-i", named, "--facts", str(tmp_path / "none.json")]) == 1
    assert "n1: it is in the group gpu, and shows no GPU" in capsys.readouterr().err


def test_a_named_inventory_has_to_be_in_the_facts(recorded, inventory, capsys):
    assert run(["plan", "-i", inventory(["n1", "n8", "n9"]), "--facts", recorded]) == 2
    assert "has no facts about n8, n9" in capsys.readouterr().err


def test_the_usual_inventory_counts_by_name_only(recorded, inventory, capsys, monkeypatch):
    monkeypatch.setenv(
        "ANSIBLE_INVENTORY", inventory(["n1", "other"], lab_openmpi="4.1.6", lab_driver_method="none")
    )
    assert run(["plan", "--facts", recorded, "--format", "json"]) == 0
    hosts = json.loads(capsys.readouterr().out)["hosts"]
    assert hosts["n1"]["versions"]["openmpi"] == "4.1.6"
    assert hosts["n1"]["methods"]["driver"] == "repo"
    monkeypatch.setenv("ANSIBLE_INVENTORY", "/nowhere")
    assert run(["plan", "--facts", recorded]) == 0


def ansible(name, **changes):
    observed = host(distribution="Debian", distribution_version="12.5", python_version="3.11.2")
    link = {"cidrs": [f"192.0.2.{name[1:]}/24"], "up": True}
    own = {
        "gcc": "12.2.0",
        "driver": None,
        "gpus": [A100] if name == "n1" else [],
        "interfaces": {"eth0": link},
        "tmp": {"writable": True, "noexec": False, "mode": "1777"},
        "ssh_host_key": f"ssh-ed25519 {name}",
        **changes,
    }
    return {**observed, "hostname": name, "nodename": name, "hvlab": own}


def test_facts_are_gathered_and_kept(inventory, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gather, "facts", lambda lab: {one.name: ansible(one.name) for one in lab.hosts})
    named, kept = inventory(["n1", "n2"], lab_gpus=[A100]), tmp_path / "kept.json"
    assert run(["plan", "-i", named, "--write-facts", str(kept), "--format", "json"]) == 0
    hosts = json.loads(capsys.readouterr().out)["hosts"]
    # Hosts outside group gpu do not get the GPU stack.
    assert hosts["n1"]["versions"]["cuda"] is None
    assert set(json.loads(kept.read_text())) == {"n1", "n2"}
    assert run(["plan", "--facts", str(kept)]) == 0


def test_hosts_of_another_owner_are_named(inventory, capsys, monkeypatch, tmp_path):
    """Only provisioning said so."""
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "data"))
    other = {"ansible_local": {"hvlab_ssh_trust": {"authority": f"SHA256:{'x' * 43}"}}}
    monkeypatch.setattr(gather, "facts", lambda lab: {"n1": ansible("n1"), "n2": {**ansible("n2"), **other}})
    assert run(["plan", "-i", inventory(["n1", "n2"])]) == 1
    told = capsys.readouterr().err
    assert "`hvlab provision` will refuse:\n  n2: it was provisioned with other keys" in told
    assert "hvlab keys init --take-over SHA256:xxx" in told


@pytest.mark.parametrize(
    "case",
    [
        ({"unfinished": ["nvidia-dkms-550"]}, {}, "packages are half configured: nvidia-dkms-550"),
        ({"disk_free_mb": {"/": 900}}, {}, "/opt has 900 MiB free, 3000 are needed"),
        ({"disk_free_mb": {"/": 900}}, {"preflight_disk_free_mb": {"/opt": 800}}, ""),
        (
            {"disk_free_mb": {"/": 8000}, "gpus": [A100]},
            {"gpu": ["n2"]},
            "/opt has 8000 MiB free, 8400 are needed",
        ),
        ({}, {"lab_interface": "ib0"}, "it has no interface ib0, it has eth0"),
        ({"ssh_host_key": "ssh-ed25519 n1"}, {}, "they have the same ssh host key"),
    ],
)
def test_what_preflight_refuses_plan_refuses(inventory, capsys, monkeypatch, case):
    changes, variables, told = case
    facts = {"n1": ansible("n1"), "n2": ansible("n2", **changes)}
    monkeypatch.setattr(gather, "facts", lambda lab: facts)
    assert run(["plan", "-i", inventory(["n1", "n2"], **variables)]) == (1 if told else 0)
    assert told in capsys.readouterr().err


def test_a_host_that_does_not_answer(inventory, capsys, monkeypatch):
    def silent(lab):
        raise UnreachableError("n2: no answer")

    monkeypatch.setattr(gather, "facts", silent)
    assert run(["plan", "-i", inventory(["n1", "n2"])]) == 3
    told = capsys.readouterr().err
    assert "n2: no answer" in told
    assert "what to do: correct that, leave hosts out with -l, or plan from recorded facts" in told


def test_a_conflict_is_of_pins_and_facts(recorded, capsys):
    assert (
        run(["plan", "--facts", recorded, "--pin", "cuda=13.0", "--pin", "torch=2.0", "--format", "json"])
        == 1
    )
    conflict = json.loads(capsys.readouterr().out)["conflict"]
    assert {item["kind"] for item in conflict} <= {"pin", "fact"}
    assert {item["name"] for item in conflict if item["kind"] == "pin"} == {"cuda", "torch"}


def test_the_facts_of_a_run_are_recorded_facts(tmp_path, capsys):
    said = {
        "distribution": "Debian", "distribution_version": "12.15", "os_family": "Debian", "kernel": "6.1",
        "architecture": "x86_64", "python": {"type": "cpython"}, "python_version": "3.11.2",
        "hvlab": {"gcc": "12.2", "gpus": [], "nics": []},
    }  # fmt: skip
    (tmp_path / "facts.json").write_text(json.dumps({"n1": said}))
    assert run(["plan", "--facts", str(tmp_path / "facts.json"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["hosts"]["n1"]["versions"]["python"] == "3.11"


def test_facts_may_begin_with_a_byte_order_mark(recorded, tmp_path):
    marked = tmp_path / "marked.json"
    marked.write_bytes(b"\xef\xbb\xbf" + Path(recorded).read_bytes())
    assert run(["plan", "--facts", str(marked)]) == 0


@pytest.mark.parametrize("value", ["9" * 5000, "9." * 3000 + "1", "\uff11\uff12"])
def test_a_pin_that_no_version_has(recorded, capsys, value):
    assert run(["plan", "--facts", recorded, "--pin", f"cuda={value}"]) == 2
    said = capsys.readouterr().err
    assert "is not a version" in said
    assert len(said) < 1000
