"""`hvlab lab` for real: a lab of its own with two nodes, on a network of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hvlab.base.paths import images_dir, lab_runtime_dir
from hvlab.base.ranges import format_ranges
from hvlab.lab.inventory import load
from hvlab.vlab import links, packages, reality
from hvlab.vlab.lab import ssh_argv
from hvlab.vlab.plan import make_plan, plan_without_limits
from tests.vlab.labs import leftovers

pytestmark = pytest.mark.lab

PROJECT = Path(__file__).resolve().parents[2]
LAB = "vtest"
RUNTIME = lab_runtime_dir(LAB)
LISTEN = """
import socket, sys
with socket.create_server(("", 5201)) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    while connection.recv(1 << 20):
        pass
"""
SEND = """
import socket, sys, time
begun = time.monotonic()
with socket.create_connection((sys.argv[1], 5201)) as connection:
    for _ in range(int(sys.argv[2])):
        connection.sendall(bytes(1 << 20))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
print(time.monotonic() - begun)
"""


def hvlab(*words, **options):
    argv = [sys.executable, "-m", "hvlab", "lab", *words]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=PROJECT, timeout=600, **options
    )


def limited_ports():
    """Return the lab's links whose traffic is limited."""
    shown = subprocess.run(["tc", "-json", "qdisc", "show"], capture_output=True, text=True, check=True)
    limited = {queue["dev"] for queue in json.loads(shown.stdout) if queue["kind"] in ("tbf", "htb", "netem")}
    return limited & {path.name for path in Path("/sys/class/net/hv-vtest/brif").iterdir()}


@pytest.fixture(scope="module")
def inventory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("inventory")
    shutil.copytree(PROJECT / "inventory/lab", directory, dirs_exist_ok=True)
    hosts = {f"n{number}": {"ansible_host": f"198.18.250.1{number}"} for number in (1, 2)}
    (directory / "hosts.yml").write_text(json.dumps({"all": {"children": {"virtual": {"hosts": hosts}}}}))
    variables = {"lab_name": LAB, "lab_network": "198.18.250.0/24", "lab_interface": "host0", "lab_slots": 2}
    (directory / "group_vars/all.yml").write_text(json.dumps(variables))
    before = {name: os.environ.get(name) for name in ("HVLAB_DATA", "HVLAB_IMAGES")}
    os.environ["HVLAB_IMAGES"] = str(images_dir())
    os.environ["HVLAB_DATA"] = str(tmp_path_factory.mktemp("data"))
    yield str(directory)
    hvlab("down", "-i", str(directory))
    for name, value in before.items():
        os.environ.pop(name)
        os.environ.update({name: value} if value is not None else {})


@pytest.fixture(scope="module")
def lab(inventory):
    done = hvlab("up", "-i", inventory)
    assert done.returncode == 0, done.stderr
    return inventory


def on(inventory, host, *words):
    """Run a command on a node and return what it printed."""
    argv = ssh_argv(plan_without_limits(load(Path(inventory))), host, words)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def state(inventory):
    done = hvlab("status", "-i", inventory, "--format", "json")
    assert done.returncode == 0, done.stderr
    return {row["host"]: row for row in json.loads(done.stdout)}


def seconds(inventory, sender, receiver, megabytes):
    """Return how long a node needs to send so much to another."""
    plan = make_plan(load(Path(inventory)))
    argv = ssh_argv(plan, receiver, ("python3", "-c", LISTEN))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout.readline() == "listening\n"
        address = next(node.address for node in plan.nodes if node.name == receiver)
        return float(on(inventory, sender, "python3", "-c", SEND, address, str(megabytes)))


def killed_after(inventory, step, number):
    """Start `up` and send it a signal once it has told of this step; return its exit code."""
    # What is started in the background ignores Ctrl-C, and so do its children.
    hears = ["env", "--default-signal=INT"]
    argv = [*hears, sys.executable, "-m", "hvlab", "lab", "up", "-i", inventory]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=PROJECT) as process:
        assert any(step in line for line in process.stderr)
        process.send_signal(number)
        process.stderr.read()
    return process.returncode


def test_up_again_is_the_same_lab(lab):
    before = state(lab)
    assert {row["state"] for row in before.values()} == {"up"}
    done = hvlab("up", "-i", lab)
    assert (done.returncode, "make" in done.stderr) == (0, False)
    assert {host: row["pid"] for host, row in state(lab).items()} == {
        host: row["pid"] for host, row in before.items()
    }


def test_another_release_is_refused_while_the_lab_stands(lab):
    done = hvlab("up", "-i", lab, "--release", "trixie")
    assert done.returncode == 2
    assert "runs bookworm, not trixie" in done.stderr


def test_ssh_gives_the_exit_code_and_checks_the_host_key(lab, tmp_path):
    assert hvlab("ssh", "-i", lab, "n1", "--", "exit 7").returncode == 7
    assert on(lab, "n1", "sh", "-c", 'echo "a  b" $0', "$HOME") == "a  b $HOME\n"
    assert on(lab, "n1", "hostname") == "n1\n"
    first, second = (RUNTIME / "ssh/known_hosts").read_text().splitlines()
    wrong = tmp_path / "known_hosts"
    wrong.write_text(f"{first.split()[0]} {second.split(maxsplit=1)[1]}\n")
    argv = ssh_argv(make_plan(load(Path(lab))), "n1", ("true",))
    argv = [
        f"UserKnownHostsFile={wrong}" if word.startswith("UserKnownHostsFile=") else word for word in argv
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_secrets_are_the_owners_alone(lab):
    assert (RUNTIME / "nodes").stat().st_mode & 0o777 == 0o700
    keys = [RUNTIME / "ssh/id_ed25519", *RUNTIME.glob("nodes/*/host_key")]
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert len(keys) == 3


def test_nodes_take_packages_as_the_controller_does(lab):
    on(lab, "n1", "apt-get", "update")
    assert ".deb" in on(lab, "n1", "apt-get", "download", "--print-uris", "hello")
    for path in packages.node_config("bookworm").shared:
        on(lab, "n1", "test", "-e", str(path))


def test_a_node_is_an_ordinary_machine(lab):
    assert on(lab, "n2", "systemctl", "is-system-running", "--wait") == "running\n"
    assert on(lab, "n2", "cat", "/etc/hosts").splitlines()[0] == "127.0.0.1 localhost"
    assert on(lab, "n1", "cat", "/etc/machine-id") != on(lab, "n2", "cat", "/etc/machine-id")


def test_each_node_has_a_control_group_of_its_own(lab):
    groups = {Path(f"/proc/{row['pid']}/cgroup").read_text() for row in state(lab).values()}
    assert len(groups) == 2


def test_a_rate_limits_both_ways_and_is_lifted_again(lab):
    assert hvlab("up", "-i", lab, "--rate", "100mbit").returncode == 0
    assert 0.6 < seconds(lab, "n1", "n2", 10) < 10
    assert 0.6 < seconds(lab, "n2", "n1", 10) < 10
    assert hvlab("up", "-i", lab).returncode == 0
    assert not limited_ports()


def test_each_host_has_cores_of_its_own_and_gives_them_up_on_request(lab):
    cpus = len(os.sched_getaffinity(0))
    each = str(max(1, cpus // 2))
    assert [on(lab, host, "nproc").strip() for host in ("n1", "n2")] == [each, each]
    first, second = (state(lab)[host] for host in ("n1", "n2"))
    assert bool(set(first["cores"]) & set(second["cores"])) is (cpus == 1)
    assert hvlab("up", "-i", lab, "--cpus", "all").returncode == 0
    assert on(lab, "n1", "nproc").strip() == str(cpus)
    assert state(lab)["n1"]["shared_with"] == ["n2"]
    assert hvlab("up", "-i", lab).returncode == 0
    # What runs already is moved, too.
    own = on(lab, "n1", "grep", "Cpus_allowed_list", "/proc/1/status").split()[1]
    assert own == format_ranges(first["cores"])


def test_memory_is_limited(lab):
    take = "python3 -c 'import sys; len(bytearray(int(sys.argv[1]) << 20))'"
    assert hvlab("up", "-i", lab, "--memory", "256m").returncode == 0
    assert state(lab)["n1"]["memory"] == 256 * 2**20
    assert hvlab("ssh", "-i", lab, "n1", "--", f"{take} 512").returncode != 0
    assert hvlab("up", "-i", lab).returncode == 0
    on(lab, "n1", f"{take} 512")


def test_a_topology_limits_directions_pairs_and_uplinks_without_a_restart(lab, tmp_path):
    before = {host: row["pid"] for host, row in state(lab).items()}
    file = tmp_path / "slow.yml"
    file.write_text("{hosts: {n1: {up: 20mbit}}}")
    assert hvlab("up", "-i", lab, "--topology", str(file)).returncode == 0
    # 10 MB over 20 Mbit/s take 4 s; the other way they take as long as a busy machine needs.
    assert seconds(lab, "n1", "n2", 10) > 3.5
    assert seconds(lab, "n2", "n1", 10) < 3
    racks = "racks: {a: {hosts: [n1], uplink: {up: 50mbit}}, b: {hosts: [n2]}}"
    file.write_text(f"{{{racks}, pairs: [{{from: n2, to: n1, rate: 25mbit}}]}}")
    assert hvlab("up", "-i", lab, "--topology", str(file)).returncode == 0
    assert seconds(lab, "n1", "n2", 10) > 1.2
    assert seconds(lab, "n2", "n1", 10) > 2.5
    assert {host: (row["pid"], row["rack"]) for host, row in state(lab).items()} == {
        "n1": (before["n1"], "a"),
        "n2": (before["n2"], "b"),
    }
    assert hvlab("up", "-i", lab).returncode == 0
    assert not limited_ports()


def test_a_host_with_a_new_link_has_lost_its_limits_until_up(lab, tmp_path):
    file = tmp_path / "rack.yml"
    file.write_text("{rate: 1gbit, racks: {a: {hosts: [n1]}}}")
    assert hvlab("up", "-i", lab, "--topology", str(file)).returncode == 0
    # As systemd-nspawn leaves it where systemd runs this machine and the host reboots itself.
    leader = reality.leader(state(lab)["n1"]["pid"])
    port = links.port_of(leader)
    # Its address comes from the host's name: it stays.
    address = Path(f"/proc/{leader}/root/sys/class/net/host0/address").read_text().strip()
    inside = ["peer", "name", "host0", "address", address, "netns", str(leader)]
    subprocess.run(["ip", "link", "delete", port], check=True)
    subprocess.run(["ip", "link", "add", port, "type", "veth", *inside], check=True)
    subprocess.run(["ip", "link", "set", port, "master", "hv-vtest", "up"], check=True)
    rows = state(lab)
    assert [rows["n1"][name] for name in ("link_lost", "up", "rack")] == [True, None, None]
    assert [rows["n2"][name] for name in ("link_lost", "up", "rack")] == [False, "1gbit", None]
    assert hvlab("up", "-i", lab, "--topology", str(file)).returncode == 0
    row = state(lab)["n1"]
    assert [row[name] for name in ("link_lost", "up", "rack")] == [False, "1gbit", "a"]
    assert hvlab("up", "-i", lab).returncode == 0


def test_what_the_kernel_cannot_do_is_told_before_anything_changes(lab, tmp_path):
    file = tmp_path / "delay.yml"
    file.write_text("{hosts: {n1: {delay: 20ms}}}")
    done = hvlab("up", "-i", lab, "--topology", str(file))
    if done.returncode:
        assert "the delay of n1: it has no netem" in done.stderr
    else:
        assert seconds(lab, "n1", "n2", 1) > 0.02
        assert hvlab("up", "-i", lab).returncode == 0


def test_a_node_that_died_comes_back_with_its_files(lab):
    on(lab, "n1", "touch", "/root/mine")
    before = state(lab)
    os.kill(before["n1"]["pid"], signal.SIGKILL)
    assert state(lab)["n1"]["state"] == "half"
    done = hvlab("up", "-i", lab)
    assert done.returncode == 0, done.stderr
    on(lab, "n1", "test", "-e", "/root/mine")
    assert state(lab)["n2"]["pid"] == before["n2"]["pid"]


def test_lost_network_is_repaired_without_a_restart(lab):
    before = {host: row["pid"] for host, row in state(lab).items()}
    subprocess.run(["ip", "link", "delete", "hv-vtest"], check=True)
    subprocess.run(["nft", "delete", "table", "ip", "hvlab_vtest"], check=True)
    assert hvlab("up", "-i", lab).returncode == 0
    assert {host: row["pid"] for host, row in state(lab).items()} == before
    assert seconds(lab, "n1", "n2", 1) < 5


def test_down_leaves_nothing(lab):
    data = Path(os.environ["HVLAB_DATA"]) / "trust" / LAB
    data.mkdir(parents=True)
    # As a killed `up` leaves it: an uplink that is no port of a bridge.
    uplink = ["hv9u-vtest", "type", "veth", "peer", "name", "hv9d-vtest"]
    subprocess.run(["ip", "link", "add", *uplink], check=True)
    assert leftovers(LAB)
    assert hvlab("down", "-i", lab).returncode == 0
    assert leftovers(LAB) == []
    assert not data.exists()
    done = hvlab("down", "-i", lab)
    assert (done.returncode, done.stderr) == (0, "lab vtest is not up\n")


@pytest.mark.parametrize(
    "step",
    [
        "n2: boot",
        "network is up",
        "n1: make",
        "n1: up",
    ],
)
def test_down_cleans_up_after_a_killed_up(inventory, step):
    assert killed_after(inventory, step, signal.SIGKILL) == -signal.SIGKILL
    assert hvlab("down", "-i", inventory).returncode == 0
    assert leftovers(LAB) == []


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        signal.SIGINT,
        signal.SIGTERM,
    ],
)
def test_up_goes_on_after_a_killed_up(inventory, number):
    code = killed_after(inventory, "n1: make", number)
    assert code == (-number if number == signal.SIGKILL else 130)
    done = hvlab("up", "-i", inventory)
    assert done.returncode == 0, done.stderr
    assert {row["state"] for row in state(inventory).values()} == {"up"}
    assert hvlab("down", "-i", inventory).returncode == 0
    assert leftovers(LAB) == []


def test_a_killed_image_build_leaves_no_process_and_is_made_again(inventory, tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_IMAGES", str(tmp_path))
    assert killed_after(inventory, "running apt-get update", signal.SIGKILL) == -signal.SIGKILL
    deadline = time.monotonic() + 5
    while (left := [pid for pid in reality._pids() if str(tmp_path).encode() in _argv(pid)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert left == []
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".building-")]
    assert hvlab("down", "-i", inventory).returncode == 0
    assert leftovers(LAB) == []


def _argv(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_network_in_use_is_refused(inventory):
    subprocess.run(["ip", "address", "add", "198.18.250.77/32", "dev", "lo"], check=True)
    try:
        done = hvlab("up", "-i", inventory)
    finally:
        subprocess.run(["ip", "address", "delete", "198.18.250.77/32", "dev", "lo"], check=True)
    assert done.returncode == 2
    assert "198.18.250.0/24 is in use on this machine: lo has 198.18.250.77/32" in done.stderr
    assert hvlab("down", "-i", inventory).returncode == 0
    assert leftovers(LAB) == []


def test_without_root_one_sentence_says_what_helps(inventory):
    program = (
        "import os, sys; import hvlab.cli.lab; from hvlab.cli import run; os.setuid(65534);"
        "sys.exit(run(['lab', 'up', '-i', sys.argv[1]]))"
    )
    argv = [sys.executable, "-c", program, inventory]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 2
    assert done.stderr.startswith("hvlab: the virtual lab needs root")
    assert "sudo -E" in done.stderr


def test_a_node_that_is_not_up_is_said_so(inventory):
    done = hvlab("ssh", "-i", inventory, "n1", "--", "true")
    assert done.returncode == 3
    assert "n1 (198.18.250.11) is not up" in done.stderr
