"""`hvlab find-slow`: the program that measures, three times on this machine, and the command."""

from __future__ import annotations

import base64
import json
import math
import random
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hvlab.base.errors import CheckError, InterruptedRunError, UnreachableError, UsageError
from hvlab.cli import run
from hvlab.lab.cores import HostCores
from hvlab.remote.playbook import HostFailure
from hvlab.results.lock import measuring
from hvlab.searches.slow import hosts
from hvlab.searches.slow.hosts import HostProbe
from hvlab.searches.slow.programs import devices as devices_program
from hvlab.searches.slow.programs import transfers
from hvlab.searches.slow.steps import ProbeStep
from tests.unit.labs import lab
from tests.unit.test_slow import HOST, PAIR, Links

STEPS = [ProbeStep(1), ProbeStep(), ProbeStep(transfers=((2, 0),))]


def planned(**changes):
    """Return the plan of three hosts that meet at a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return {
        "secret": "s",
        "names": ["n1", "n2", "n3"],
        "meet": [["127.0.0.1", port]],
        "interface": "lo",
        "transfer_s": 0.1,
        "compute_s": 0.1,
        "meet_s": 20,
        "limit_s": 40,
        "steps": [step.content() for step in STEPS],
        **changes,
    }


def launched(places, **changes):
    """Return what each host of three prints, of those that are started."""
    argv, pipe = [sys.executable, transfers.__file__, "mark"], subprocess.PIPE
    plan = json.dumps(planned(**changes))
    started = [
        subprocess.Popen([*argv, str(place)], stdin=pipe, stdout=pipe, text=True)
        for place in reversed(places)
    ]
    with ThreadPoolExecutor() as pool:
        ended = pool.map(lambda process: process.communicate(plan, timeout=60)[0], started)
        printed = list(ended)[::-1]
    return [json.loads(text) if text else None for text in printed]


def test_three_hosts_measure_one_another():
    first, *others = launched([0, 1, 2])
    assert others == [None, None]
    shift, computed, single = first["steps"]
    assert all(rate > 1e6 for rate in shift)
    assert all(blocks > 0 and 0 < share < 1.5 for blocks, share in computed)
    assert single[0] > 1e6
    assert single[1:] == [None, None]


def test_a_device_that_cannot_take_part_is_told():
    """This Python has no torch."""
    devices = {"python": sys.executable, "program": "import torch", "count": 2}
    failed = {"failed": dict.fromkeys(["n1", "n2", "n3"], "the process of a device ended")}
    assert launched([0, 1, 2], devices=devices)[0] == failed
    devices["program"] = (
        Path(transfers.__file__).with_name("devices.py").read_text().replace('"torch"', '"absent_torch"')
    )
    assert launched([0, 1, 2], devices=devices)[0]["failed"]["n2"] == "No module named 'absent_torch'"


def test_of_several_devices_the_slowest_counts():
    """Processes that answer as devices do, each slower than the one before."""
    program = (
        "import json, sys\nslower = 1 + int(sys.argv[3])\n"
        "for line in sys.stdin:\n"
        "    asked, value = json.loads(line), 0\n"
        "    if isinstance(asked, dict):\n"
        "        work, source = asked['work'], asked['from']\n"
        "        assert asked['to'] is None or asked['to'] % 2 == slower - 1\n"
        "    elif asked == 'go':\n"
        "        value = [8 / slower, 1] if work else 4 / slower if source is not None else None\n"
        "    print(json.dumps({'value': value}), flush=True)\n"
    )
    devices = {"python": sys.executable, "program": program, "count": 2}
    planned = [step.content() for step in (*STEPS, ProbeStep(copies=True))]
    first = launched([0, 1, 2], devices=devices, steps=planned)[0]
    assert first["steps"] == [[2.0] * 3, [[4.0, 1]] * 3, [2.0, None, None], [[4.0, 1]] * 3]


@pytest.mark.parametrize(
    ("arrivals", "messages"),
    [
        ([0.1 * number for number in range(1, 16)], 10.0),
        ([0.9], 1.0),
        ([2.0], 0.5),
    ],
    ids=["steady, later ones left out", "one", "one, late"],
)
def test_a_devices_rate_is_that_after_the_warm_up(arrivals, messages):
    assert devices_program.rate(arrivals, 0.0, 1.0) == pytest.approx(messages)


def test_a_host_that_does_not_come_is_named():
    first, second = launched([0, 1], meet_s=0.5)
    assert first == {"missing": ["n3"]}
    assert "error" in second


def test_hosts_without_the_ranks_interface_are_named_and_no_other_network_is_measured():
    assert launched([0, 1, 2], interface="absent0")[0] == {"no_interface": ["n1", "n2", "n3"]}


def test_a_port_that_another_program_has_is_passed_over():
    with socket.socket() as taken:
        taken.bind(("", 0))
        given = planned()["meet"]
        first, *_ = launched([0, 1, 2], meet=[["127.0.0.1", taken.getsockname()[1]], *given])
    assert len(first["steps"]) == len(STEPS)


NONSENSE = [b"", b"[]\n", b"\xff\n", b"GET / HTTP/1.1\n", b"[" * 100_000 + b"\n", b'["s", 0, "a", 1]\n']


def meeting(*words, greetings):
    """Return the addresses of one host's meeting; strangers say these words, then others greet."""
    plan = planned(names=["n1"])

    def greet(greeting):
        with suppress(OSError):
            transfers.reach({**plan, "meet_s": 0}, greeting).close()

    with transfers.meeting_port(plan) as listener, ExitStack() as stack:
        for each in words:
            stranger = stack.enter_context(socket.create_connection(plan["meet"][0]))
            stranger.sendall(each)
        guests = threading.Thread(target=lambda: [greet(greeting) for greeting in greetings])
        guests.start()
        came, addresses = transfers.meet(plan, listener)
        guests.join()
    for each in came.values():
        each.close()
    return addresses


def test_strangers_hold_up_no_meeting():
    start = time.monotonic()
    words = [*NONSENSE, b"0" * 64 + b" [0]\n"]
    assert meeting(*words, greetings=[[0, "127.0.0.1", 1]]) == {0: ["127.0.0.1", 1]}
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "greeting",
    [
        [],
        [[]],
        ["0"],
        [True],
        [-1],
        [1],
        [0, "127.0.0.1"],
        {"0": 0},
        0,
        [0, "192.0.2.1", 1],
        [0, "127.0.0.1", 1 << 16],
    ],
)
def test_a_host_takes_no_place_but_one_and_no_address_but_its_own(monkeypatch, greeting):
    assert not transfers.is_greeting(greeting, 1, "127.0.0.1")
    send, first = transfers.Lines.send, iter([greeting])
    monkeypatch.setattr(transfers.Lines, "send", lambda own, value: send(own, next(first, value)))
    assert meeting(greetings=[[0], [0]]) == {0: []}


def test_a_place_is_not_taken_twice_from_another_address():
    plan = planned(names=["n1", "n2"])
    guests = []
    with transfers.meeting_port({**plan, "interface": "absent0"}) as listener:

        def come():
            for source, place in (("127.0.0.1", 0), ("127.0.0.2", 0), ("127.0.0.1", 1)):
                with suppress(OSError):
                    guests.append(transfers.reach({**plan, "meet_s": 0}, [place, source, 1]))

        coming = threading.Thread(target=come)
        coming.start()
        came, addresses = transfers.meet(plan, listener)
        coming.join()
    for each in (*guests, *came.values()):
        each.close()
    assert addresses == {0: ["127.0.0.1", 1], 1: ["127.0.0.1", 1]}
    assert len(guests) == 2


def test_who_drips_or_never_ends_a_line_is_dropped(monkeypatch):
    monkeypatch.setattr(transfers, "GREET_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
        dripping, loud = (
            stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(2)
        )
        loud.sendall(b"x" * 2 * transfers.GREETING)

        def drip():
            with suppress(OSError):
                while True:
                    dripping.sendall(b"x")
                    time.sleep(0.05)
            with socket.create_connection(listener.getsockname()) as caller:
                caller.sendall(b"hello\n")

        dropped = threading.Thread(target=drip)
        dropped.start()
        connection, _, line = next(transfers.greetings(listener, time.monotonic() + 20))
        connection.close()
        dropped.join()
    assert line == b"hello"


def test_many_silent_callers_are_no_more_than_are_awaited(monkeypatch):
    monkeypatch.setattr(transfers, "MOST_WAITING", 2)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        caller = stack.enter_context(socket.create_connection(listener.getsockname()))
        caller.sendall(b"hello\n")
        connection, _, line = next(transfers.greetings(listener, time.monotonic() + 20))
        connection.close()
    assert line == b"hello"


def test_a_silent_caller_does_not_keep_a_sender_from_a_worker():
    plan = planned(names=["n1"])
    with transfers.meeting_port(plan) as listener:
        came = {}
        first = threading.Thread(target=lambda: came.update(transfers.meet(plan, listener)[0]))
        first.start()
        with closing(transfers.Worker(plan, 0)) as worker:
            first.join()
            came[0].close()
            own = worker.listener.getsockname()
            with socket.create_connection(own), socket.create_connection(own) as sender:
                sender.sendall(worker.header(3) + b"\n")
                accepted = worker.accept(3)
                assert accepted
                accepted.close()


def test_a_program_in_the_middle_changes_nothing_and_learns_no_secret():
    one, other = socket.socketpair()
    first, guest = (transfers.Lines(end, "s", b"n", leads=end is one) for end in (one, other))
    with one, other:
        first.send("go")
        assert guest.receive(5) == "go"
        line = first.proof(True, 1, b'"go"') + b' "go"'
        for wrong in (line.replace(b"go", b"no"), first.proof(True, 0, b'"go"') + b' "go"', b'"go"'):
            with pytest.raises(OSError, match="does not know the secret"):
                guest.value(wrong)
        with pytest.raises(OSError, match="does not know the secret"):
            first.value(line)
        assert guest.value(line) == "go"


@pytest.mark.parametrize(("sent", "arrives"), [(4096, True), (0, False)], ids=["a lost packet", "nothing"])
def test_a_sender_that_waits_for_a_lost_packet_is_slow_and_not_still(sent, arrives):
    """One in ten packets lost: TCP waits 0.2 s and longer before it repeats one, as long as a transfer."""
    sender, receiver = socket.socketpair()
    with sender:
        sender.sendall(bytes(sent))
        assert (transfers.drain(receiver, 0.1) > 1) == arrives


@pytest.mark.parametrize("unreached", [None, [3], ["n1"], [[]], {}, 5])
def test_a_host_that_reports_nonsense_is_lost_and_named(monkeypatch, unreached, dropping):
    monkeypatch.setattr(transfers, "CONNECT_S", 0.1)
    printed, _ = led(planned(), [], unreached, address=dropping)
    assert printed == {"lost": "n3"}


@pytest.fixture
def dropping():
    """The address of a socket whose queue is full: the kernel drops whoever else connects."""
    with socket.socket() as listener, socket.socket() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting.connect(listener.getsockname())
        yield listener.getsockname()


def silent_host(plan, place, address, unreached):
    """Take part in every step without moving anything, as long as the first host goes on."""
    control = transfers.reach(plan, [place, *address])
    answers = [unreached, *["ready", *["ready", None] * len(plan["steps"])]]
    with closing(control), suppress(OSError):
        for answer in answers:
            control.receive(20)
            control.send(answer)


def led(plan, *unreached, address):
    """Return what the first host prints beside two silent ones, and the seconds it took.

    It reaches the second one, and not the third, which has this address. ``unreached`` is what they report.
    """

    def work():
        with closing(transfers.Worker(plan, 0)) as worker, suppress(OSError):
            worker.run()

    with socket.create_server(("127.0.0.1", 0)) as open_to_all, transfers.meeting_port(plan) as listener:
        silent = zip((1, 2), (open_to_all.getsockname(), address), unreached, strict=True)
        parts = [threading.Thread(target=silent_host, args=(plan, *words)) for words in silent]
        parts.append(threading.Thread(target=work))
        for part in parts:
            part.start()
        start = time.monotonic()
        printed = transfers.coordinate(plan, listener)
        seconds = time.monotonic() - start
    for part in parts:
        part.join()
    return printed, seconds


def test_a_blocked_pair_holds_up_no_step(monkeypatch, dropping):
    monkeypatch.setattr(transfers, "CONNECT_S", 0.4)
    plan = planned(transfer_s=0.01, steps=[{"transfers": [pair]} for pair in ([0, 2], [2, 0])] * 6)
    printed, seconds = led(plan, [], [0], address=dropping)
    assert printed == {"steps": [[None] * 3] * 12}
    assert seconds < 6 * 0.4  # half of what the steps wait where each tries


def test_a_host_that_is_cut_off_is_named_before_anything_is_measured(monkeypatch, dropping):
    monkeypatch.setattr(transfers, "CONNECT_S", 0.4)
    printed, _ = led(planned(), [2], [0, 1], address=dropping)
    assert printed == {"cut_off": ["n3"]}


@pytest.mark.parametrize(
    ("unreached", "places"),
    [([[], [], []], []), ([[2], [], [0]], []), ([[2], [2], []], [2]), ([[1, 2], [], []], [0]), ([[]], [])],
)
def test_cut_off_is_who_reaches_none_or_is_reached_by_none(unreached, places):
    assert transfers.find_cut_off(unreached) == places


def answering(monkeypatch, answer, failures=()):
    given = []

    def collect(lab, playbook, variables, *, at_once, shape):
        given.append((playbook, at_once))
        return ({"n1": json.dumps(answer)} if answer else {}, list(failures))

    monkeypatch.setattr(hosts, "collect", collect)
    return given


def test_readings_are_of_receivers(monkeypatch):
    answer = {"steps": [[3.0, 1.0, 2.0], [[9.0, 0.5]] * 3, [5.0, None, None]]}
    given = answering(monkeypatch, answer)
    probe = HostProbe(lab(3))
    assert probe(STEPS) == [
        {(0, 1): 1.0, (1, 2): 2.0, (2, 0): 3.0},
        {(0, 0): 9.0, (1, 1): 9.0, (2, 2): 9.0},
        {(2, 0): 5.0},
    ]
    assert given == [("find-slow.yml", 3)]
    assert probe.shares == {0: [0.5], 1: [0.5], 2: [0.5]}


def test_all_meet_where_the_ranks_reach_the_first_host():
    plans = []

    def start(lab, plan):
        plans.append(plan)
        return {"no_interface": ["n2"]}

    for network in ("10.0.0.0/24", "192.168.0.0/24"):
        with pytest.raises(UsageError, match="n2: eth0 has no"):
            HostProbe(replace(lab(3), network=network), start=start)(STEPS)
    inside, outside = plans
    assert {address for address, _ in inside["meet"]} == {"10.0.0.1"}
    assert [address for address, _ in outside["meet"][:2]] == ["n1", "10.0.0.1"]
    assert len({port for _, port in inside["meet"]}) > 1
    assert inside["limit_s"] > len(STEPS) * 2 * transfers.CONNECT_S


@pytest.mark.parametrize(
    ("failures", "error"),
    [([], KeyboardInterrupt), ([HostFailure("n2", "timed out", True)], InterruptedRunError)],
)
def test_an_interruption_ends_what_runs_on_the_hosts(monkeypatch, failures, error):
    given = []

    def collect(lab, playbook, variables, *, at_once, shape):
        given.append(variables)
        if len(given) == 1:
            raise KeyboardInterrupt
        return {}, failures

    monkeypatch.setattr(hosts, "collect", collect)
    with pytest.raises(error, match="ended on n2" if failures else None):
        HostProbe(lab(3))(STEPS)
    launch, end = given
    assert launch["hvlab_program"] == transfers.__file__
    assert Path(end["hvlab_program"]).name == "reap.py"
    assert launch["hvlab_mark"] == end["hvlab_mark"]
    secret = json.loads(base64.b64decode(launch["hvlab_plan"]))["secret"]
    assert secret not in (launch["hvlab_mark"], end["hvlab_plan"])


@pytest.mark.parametrize(
    ("answer", "failures", "error", "text"),
    [
        ({"missing": ["n3"]}, [], UnreachableError, "n3 cannot reach n1 at 10.0.0.1"),
        ({"lost": "n2"}, [], UnreachableError, "n2 was lost"),
        ({"failed": {"n2": "no torch"}}, [], CheckError, "cannot take part: n2: no torch"),
        ({"cut_off": ["n3"]}, [], UnreachableError, "n3: no other host connects to it over eth0"),
        (None, [HostFailure("n2", "timed out", True)], UnreachableError, "n2: timed out"),
        (None, [HostFailure("n2", "no python", False)], CheckError, "n2: no python"),
    ],
)
def test_what_goes_wrong_is_told_with_the_host(monkeypatch, answer, failures, error, text):
    answering(monkeypatch, answer, failures)
    with pytest.raises(error, match=text):
        HostProbe(lab(3))(STEPS)


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Return a function that runs the command on a lab of that many hosts, with something slow."""

    def call(count, slow, *words, shares=(), cores=()):
        def measure(lab, **options):
            links = Links(count, slow)
            links.shares = dict(shares)
            return links

        monkeypatch.setattr("hvlab.lab.inventory.load", lambda path, limit: lab(count))
        monkeypatch.setattr("hvlab.cli.find_slow.probe.probe", lambda hosts: None)
        monkeypatch.setattr("hvlab.cli.find_slow.HostProbe", measure)
        held = {host: HostCores("here", cpus) for host, cpus in dict(cores).items()}
        monkeypatch.setattr("hvlab.cli.find_slow.host_cores", lambda lab: held)
        return run(["find-slow", *words])

    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path))
    random.seed(1)
    return call


def test_nothing_slow(command, capsys):
    assert command(4, {}, "--ratio", "1.5") == 0
    out = capsys.readouterr().out
    assert "4 hosts, 12 links in 1 launch (9 rounds)" in out
    assert "would need 6 launches" in out
    assert "nothing is slow" in out


def test_something_slow(command, capsys):
    assert command(4, {HOST: 3.0}, "--matrix") == 1
    shown = capsys.readouterr()
    assert "n2 computes slowly" in shown.err
    assert "what to do: compare clock" in shown.out
    row = next(line.split() for line in shown.out.splitlines() if line.startswith("n2 "))
    assert float(row[-1]) == pytest.approx(3, rel=0.2)


ALONE = {"n1": (0,), "n2": (3,), "n3": (1,), "n4": (2,)}
AMONG = ALONE | {"n2": (0, 1)}
ALIKE = dict.fromkeys(ALONE, (0, 1))


@pytest.mark.parametrize(
    ("share", "placed", "status"),
    [(0.6, AMONG, 0), (1.0, AMONG, 1), (0.5, ALONE, 1), (0.5, ALIKE, 1), (0.3, AMONG, 1)],
    ids=["shared", "slow on shared cores", "cores of its own", "all share alike", "less than sharing leaves"],
)
def test_a_host_that_hvlab_placed_on_cores_of_others_is_not_slow(command, capsys, share, placed, status):
    shares = {host: [share if host == 1 else 1.0] for host in range(4)}
    assert command(4, {HOST: 3.0}, shares=shares, cores=placed) == status
    told = "n2 is not at fault: `hvlab lab up` placed it on cores of n1, n3"
    shown = capsys.readouterr()
    assert (told in shown.out) == (not status)
    assert ("n2 computes slowly" in shown.out) == bool(status)
    assert ("n2 computes slowly" in shown.err) == bool(status)


@pytest.mark.parametrize(("placed", "slow", "excused"), [(AMONG, [], ["n2"]), (ALONE, ["n2"], [])])
def test_json_holds_the_hosts_on_shared_cores_apart(command, capsys, placed, slow, excused):
    shares = {host: [0.6 if host == 1 else 1.0] for host in range(4)}
    assert command(4, {HOST: 3.0}, "--format", "json", shares=shares, cores=placed) == bool(slow)
    content = json.loads(capsys.readouterr().out)
    assert [row["host"] for row in content["slow"]] == slow
    assert [row["host"] for row in content["on_shared_cores"]] == excused


def test_a_link_that_carries_nothing_in_the_matrix(command, capsys):
    assert command(4, {PAIR: math.inf}, "--matrix") == 1
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("n1 "))
    assert row[1:5] == ["·", *row[2:4], "none"]


def test_no_data_flows(command, capsys):
    assert command(3, {("down", (place, place)): math.inf for place in range(3)}) == 1
    shown = capsys.readouterr()
    assert "most links carry nothing" in shown.err
    assert "nothing is slow" not in shown.out


def test_as_json(command, capsys):
    assert command(4, {HOST: 3.0}, "--format", "json") == 1
    content = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["host"]) for row in content["slow"]] == [("host", "n2")]
    assert content["alpha"] == 0.01


def test_too_few_hosts(command, capsys):
    assert command(2, {}) == 2
    assert "2 are too few" in capsys.readouterr().err


def test_a_lab_that_is_being_measured_is_left_alone(command, capsys, tmp_path):
    with measuring(tmp_path, "t"):
        assert command(4, {}) == 2
    assert "lab t is being measured by process" in capsys.readouterr().err
