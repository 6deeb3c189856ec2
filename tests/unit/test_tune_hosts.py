"""Settings of hosts, on hosts in memory whose kernels take what a playbook writes; launches are replaced."""

from __future__ import annotations

import copy
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hvlab.base.answers import AnswerError
from hvlab.base.errors import CheckError, UsageError
from hvlab.base.paths import project_dir
from hvlab.bench.settings import SettingsFile
from hvlab.checks.ask import Answered
from hvlab.cli import cli
from hvlab.lab.inventory import Lab
from hvlab.results import searches
from hvlab.results.store import Store
from hvlab.searches.tune import host_session, host_space, host_state, session, space_file, trials
from hvlab.searches.tune import space as spaces
from hvlab.searches.tune.host_session import HostTuneResult, lines
from hvlab.searches.tune.host_state import BEFORE, State
from hvlab.searches.tune.session import TuneRequest
from hvlab.workloads.case import Case
from tests.unit import labs
from tests.unit.plays import play, program
from tests.unit.test_tune_session import Hosts

WMEM, RMEM = "/proc/sys/net/ipv4/tcp_wmem", "/proc/sys/net/ipv4/tcp_rmem"
CORE = ("/proc/sys/net/core/rmem_max", "/proc/sys/net/core/wmem_max")
MTU = "/sys/class/net/eth0/mtu"
GOVERNORS = [f"/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor" for number in range(2)]
SMALL = "4096 4096 4096"
FILES: State = {
    WMEM: SMALL,
    RMEM: "4096 131072 6291456",
    **dict.fromkeys(CORE, "212992"),
    MTU: "1500",
    "/sys/class/net/lo/mtu": "65536",
}


class Kernels:
    """The hosts n1 and n2. n2 refuses the value ``refuses``; larger packets than ``widest`` are lost."""

    def __init__(self, files: State = FILES) -> None:
        self.files = {host: dict(files) for host in ("n1", "n2")}
        self.read_only: tuple[str, ...] = ()
        self.resets = 0
        self.refuses, self.widest, self.pings = "", 9000, True
        self.governors = "performance schedutil"
        self.written: list[tuple[str, State]] = []
        self.links = [{"ifname": "eth0", "min_mtu": 68, "max_mtu": 9000}]

    def put(self, lab: Lab, questions: Mapping[str, Mapping[str, Any]]) -> Answered:
        readings = {
            host.name: {name: self._reply(host.name, each) for name, each in questions.items()}
            for host in lab.hosts
        }
        return Answered(readings, {}, {}, (0, 0))

    def _reply(self, host: str, question: Mapping[str, Any]) -> Any:
        if "run" in question:
            out = json.dumps(self.links) if question["run"][0] == "ip" else ""
            return {"rc": 0 if self._runs(host, question["run"]) else 1, "out": out, "err": ""}
        pattern = question.get("read") or question["stat"]
        if pattern.endswith("available_governors"):
            return {path.replace("governor", "available_governors"): self.governors for path in GOVERNORS}
        own = {
            path: value for path, value in self.files[host].items() if host_space._paths([path], pattern, "")
        }
        if "read" in question:
            return {path: value.replace(" ", "\t") + "\n" for path, value in own.items()}
        return {path: {"mode": "0444" if path in self.read_only else "0644"} for path in own}

    def _runs(self, host: str, argv: list[str]) -> bool:
        if argv[0] == "ping" and "-s" in argv:
            return int(argv[argv.index("-s") + 1]) + 28 <= self.widest
        return argv[0] != "ping" or self.pings

    def write(self, playbook: str, variables: Mapping[str, Any]) -> str:
        """Do what the playbook does; return what was refused."""
        if playbook == "reset-connections.yml":
            self.resets += 1
            return ""
        assert playbook == "host-settings.yml"
        refused = ""
        for host in variables["hvlab_hosts"].split(","):
            for item in variables["hvlab_writes"][host]:
                if item["argv"][0] == "ip":
                    state = {f"/sys/class/net/{item['argv'][4]}/mtu": item["argv"][6]}
                else:
                    state = dict.fromkeys(item["argv"][1:], item["value"])
                if host == "n2" and self.refuses in state.values():
                    refused = f"{host}: tee: {next(iter(state))}: Invalid argument"
                    continue
                self.files[host] |= state
                self.written.append((host, state))
        return refused

    def play(self, playbook: str, login: Any, variables: Mapping[str, Any]) -> Played:
        return Played(self.write(playbook, variables))


class Played:
    """A playbook that has run."""

    def __init__(self, refused: str) -> None:
        self.refused = refused

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def finish(self) -> None:
        pass

    def check(self, failed: str, *, remedy: str) -> None:
        if self.refused:
            raise CheckError(f"{failed}:\n  {self.refused}", remedy=remedy)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    hosts = Kernels()
    monkeypatch.setattr(host_space, "ask_hosts", hosts.put)
    monkeypatch.setattr(host_state, "ask_hosts", hosts.put)
    monkeypatch.setattr(host_state, "Play", hosts.play)
    monkeypatch.setattr(host_state, "login_of", lambda _: None)
    return hosts


def _tune(
    kernels: Kernels,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    launches: Hosts | None = None,
    *,
    notes: list[str] | None = None,
) -> tuple[HostTuneResult, Hosts, Path]:
    launches = launches or Hosts(lambda _: _slow(kernels))
    monkeypatch.setattr(trials, "measure", launches)
    clock = iter(range(10**6))
    monkeypatch.setattr(trials.time, "monotonic", lambda: float(next(clock)))
    spec, space = labs.spec("mpi", sizes=(1024,)), spaces.Space((), SettingsFile())
    request = host_session.of_hosts(TuneRequest(spec, labs.lab(2), space, "tpe", 0, 60))
    store = Store(folder)
    place = searches.folder_of(folder, "tune", request.key(), restart=False)
    note = [].append if notes is None else notes.append
    return host_session.tune_hosts(request, store, place, note=note), launches, place


def _slow(kernels: Kernels) -> float:
    """The time of a launch: small buffers to send from cost a half."""
    return 1.5 if any(files[WMEM] == SMALL for files in kernels.files.values()) else 1.0


def test_small_buffers_are_improved_proved_and_put_back(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = set()

    def cost(_: Case) -> float:
        [file] = tmp_path.glob(f"tune/*/{BEFORE}")
        modes.add(stat.S_IMODE(file.stat().st_mode))
        assert json.loads(file.read_text())["hosts"]["n2"][WMEM] == SMALL
        return _slow(kernels)

    before = copy.deepcopy(kernels.files)
    result, launches, place = _tune(kernels, tmp_path, monkeypatch, Hosts(cost))
    assert result.proved
    assert result.answer.startswith("Better, and proved: socket_buffers=")
    assert "% lower" in result.gains
    assert modes == {0o600}
    assert kernels.files == before
    assert not (place / BEFORE).exists()
    assert len(set(launches.runs)) == len(launches.runs)
    report = (place / session.REPORT).read_text()
    assert "# /etc/sysctl.d/90-hvlab.conf\nnet.core.rmem_max = " in report
    assert "These settings end with a restart" in report
    document = json.loads((place / session.RESULT).read_text())
    assert document["best"] == result.space.changes(result.search.best)
    assert "net.ipv4.tcp_wmem = 4096 65536" in " ".join(document["keep"])
    # The governor is not there.
    assert any(sentence.startswith("governor is left out") for sentence in document["left_out"])


def test_each_round_of_the_proof_switches_once(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = []
    launches = Hosts(lambda _: sides.append(kernels.files["n1"][WMEM] == SMALL) or _slow(kernels))
    _tune(kernels, tmp_path, monkeypatch, launches)
    proof = [side for side, run in zip(sides, launches.runs, strict=True) if "-proof-" in run]
    assert proof == [True, False, False, True] * 3


def test_where_nothing_helps_the_hosts_stay_as_they_are(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.deepcopy(kernels.files)
    result, _, _ = _tune(kernels, tmp_path, monkeypatch, Hosts(lambda _: 1.0))
    assert not result.proved
    assert not result.keeping
    assert result.answer.startswith("Nothing better is proved")
    assert kernels.files == before


def test_an_interrupted_search_puts_back_and_goes_on(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.deepcopy(kernels.files)
    whole, all_launches, _ = _tune(kernels, tmp_path / "whole", monkeypatch)
    launches = Hosts(lambda _: _slow(kernels))
    launches.dies_after = 3
    with pytest.raises(KeyboardInterrupt):
        _tune(kernels, tmp_path / "cut", monkeypatch, launches)
    assert kernels.files == before
    assert not host_state.find_leftovers(tmp_path / "cut", "t")
    result, _, _ = _tune(kernels, tmp_path / "cut", monkeypatch, launches)
    assert sorted(launches.runs) == sorted(all_launches.runs)
    assert result.answer == whole.answer or result.proved


def test_what_a_killed_search_left_is_put_back(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.deepcopy(kernels.files)
    launches = Hosts(lambda _: _slow(kernels))
    launches.dies_after = 3
    with monkeypatch.context() as killed:
        killed.setattr(host_state, "restore", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            _tune(kernels, tmp_path, monkeypatch, launches)
    assert kernels.files != before
    [file] = host_state.find_leftovers(tmp_path, "t")
    assert host_state.find_leftovers(tmp_path, "another") == []
    # What the hosts have now is not what they had: it must not take that file's place.
    with pytest.raises(CheckError, match="not restored yet"):
        _tune(kernels, tmp_path, monkeypatch, launches)
    assert host_state.restore(labs.lab(3), file) == ["n1", "n2"]
    assert kernels.files == before
    assert not file.exists()


def test_a_host_that_cannot_be_put_back_keeps_the_file(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cost(_: Case) -> float:
        kernels.refuses = SMALL
        return _slow(kernels)

    notes: list[str] = []
    with pytest.raises(CheckError, match=r"n2: tee: .*tcp_wmem: Invalid argument"):
        _tune(kernels, tmp_path, monkeypatch, Hosts(cost), notes=notes)
    assert "`hvlab tune --restore` tries again" in notes[-1]
    [file] = host_state.find_leftovers(tmp_path, "t")
    with pytest.raises(CheckError, match="n2: settings were changed there"):
        host_state.restore(labs.lab(1), file)
    file.write_text(file.read_text().replace(SMALL, "{{ 1 }}"))
    with pytest.raises(CheckError, match=r"tcp_wmem: string should match"):
        host_state.find_leftovers(tmp_path, "t")
    file.write_text(json.dumps({"lab": "t", "hosts": {"n1": {"/sys/class/net/eth0/device/remove": "1"}}}))
    with pytest.raises(CheckError, match=r"remove.*: string should match"):
        host_state.find_leftovers(tmp_path, "t")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"refuses": "4096 65536 67108864"}, "n2: tee: /proc/sys/net/ipv4/tcp_wmem: Invalid argument"),
        ({"widest": 8999}, "packets of 9000 bytes do not pass whole from n1 to n2, n2 to n1 (ping -M do)"),
    ],
)
def test_what_hosts_refuse_fails_alone(
    kernels: Kernels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    reason: str,
) -> None:
    for name, value in change.items():
        setattr(kernels, name, value)
    before = copy.deepcopy(kernels.files)
    result, _, _ = _tune(kernels, tmp_path, monkeypatch)
    assert result.proved
    assert len(result.search.board.failed) == 1
    [text] = result.refused
    assert reason in text
    assert reason in result.markdown()
    assert kernels.files == before


@pytest.mark.parametrize(
    ("change", "left_out", "searched"),
    [
        ({}, "governor is left out: /sys", {"socket_buffers", "mtu"}),
        ({"pings": False}, "mtu is left out: n1, n2: no ping", {"socket_buffers"}),
        ({"links": [{"ifname": "eth0", "min_mtu": 68, "max_mtu": 1500}]}, "mtu=9000 is left out: eth0 of n1",
         {"socket_buffers"}),
        ({"read_only": CORE}, f"socket_buffers goes without {CORE[0]}, missing or read-only on n1, n2",
         {"socket_buffers", "mtu"}),
        ({"read_only": (*CORE, WMEM, RMEM)}, "socket_buffers is left out: /proc", {"mtu"}),
        ({"files": {host: FILES | dict.fromkeys(GOVERNORS, "schedutil") for host in ("n1", "n2")}}, "",
         {"socket_buffers", "mtu", "governor"}),
        ({"files": {host: FILES | dict.fromkeys(GOVERNORS, "performance") for host in ("n1", "n2")}}, "",
         {"socket_buffers", "mtu"}),
        ({"files": {host: FILES | dict.fromkeys(GOVERNORS, "userspace") for host in ("n1", "n2")},
          "governors": "userspace"}, "governor=performance is left out: n1 has userspace",
         {"socket_buffers", "mtu"}),
    ],
)  # fmt: skip
def test_what_hosts_cannot_have_is_left_out_with_a_sentence(
    kernels: Kernels, change: dict[str, Any], left_out: str, searched: set[str]
) -> None:
    for name, value in change.items():
        setattr(kernels, name, value)
    known = host_space.survey(labs.lab(2), host_space.load())
    assert {setting.name for setting in known.settings} == searched
    assert left_out in " ".join(known.left_out)
    assert not set(kernels.read_only) & known.before["n1"].keys()


def test_the_mtu_is_that_of_the_ranks_interface_and_between_hosts(kernels: Kernels) -> None:
    known = host_space.survey(labs.lab(2), host_space.load())
    [changes] = {json.dumps(one) for one in known.changes({"mtu": "9000"}).values()}
    assert json.loads(changes) == {MTU: "9000"}
    alone = host_space.survey(labs.lab(1), host_space.load())
    assert "no network between the ranks of one host" in " ".join(alone.left_out)


def test_connections_end_where_hosts_take_smaller_packets_than_before(kernels: Kernels) -> None:
    known = host_space.survey(labs.lab(2), host_space.load())
    states = host_state.HostStates(labs.lab(2), known.before)
    states.apply(known.changes({"socket_buffers": "4M", "mtu": "9000"}))
    assert kernels.resets == 0
    states.apply({})
    # Those of the inventory's user, and those of the lab's user.
    assert kernels.resets == 2
    states.apply(known.changes({"socket_buffers": "4M"}))
    assert kernels.resets == 2
    # Over the connection that ends, nothing is sent any more.
    [*_, last] = host_state._commands({MTU: "1500", WMEM: SMALL})
    assert last["argv"][:2] == ["ip", "link"]


def test_a_template_in_what_a_host_has_is_refused(kernels: Kernels) -> None:
    kernels.files["n2"][WMEM] = "{{ lookup('pipe','id') }}"
    with pytest.raises(AnswerError, match=r"^n2: its kernel settings: .*tcp_wmem"):
        host_space.survey(labs.lab(2), host_space.load())


def test_hosts_that_have_it_all_are_said_so(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels.pings, kernels.read_only = False, (*CORE, WMEM, RMEM)
    with pytest.raises(CheckError, match="nothing can be changed on these hosts"):
        _tune(kernels, tmp_path, monkeypatch)
    assert not kernels.written


def test_lines_that_keep_settings() -> None:
    written = {
        WMEM: "1 2 3",
        "/sys/class/net/{interface}/mtu": "9000",
        "/sys/x/scaling_governor": "performance",
    }
    assert lines(written, ["eth1", "eth0", "eth1"]) == [
        "# /etc/sysctl.d/90-hvlab.conf",
        "net.ipv4.tcp_wmem = 1 2 3",
        "# at each start of a host",
        "ip link set dev eth0 mtu 9000",
        "ip link set dev eth1 mtu 9000",
        "echo performance | tee /sys/x/scaling_governor",
    ]


def test_a_space_of_ones_own_has_no_settings_of_hosts(tmp_path: Path) -> None:
    file = tmp_path / "space.yml"
    file.write_text("parameters: [{name: mtu, to: host, values: ['', '9000'], default: ''}]")
    with pytest.raises(UsageError, match="settings of hosts are hvlab's own"):
        space_file.load(file)


def test_the_playbook_writes_and_says_what_was_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    program(tmp_path / "bin", "ip", f'#!/bin/sh\necho "$@" > {tmp_path}/ip\n')
    file = project_dir() / "playbooks/host-settings.yml"
    writes = [
        {"argv": ["ip", "link", "set", "dev", "eth0", "mtu", "9000"], "value": ""},
        {"argv": ["tee", str(one), str(other)], "value": "4096 1 2"},
    ]
    asked = {"hvlab_hosts": "localhost", "hvlab_writes": {"localhost": writes}}
    play(file, tmp_path / "bin", asked)
    assert (tmp_path / "ip").read_text() == "link set dev eth0 mtu 9000\n"
    assert (one.read_text(), other.read_text()) == ("4096 1 2\n", "4096 1 2\n")
    writes += [
        {"argv": ["tee", f"{one}/no"], "value": "1"},
        {"argv": ["no-such-program"], "value": ""},
        {"argv": ["tee", str(one)], "value": "5"},
    ]
    printed = play(file, tmp_path / "bin", asked, expect=2)
    assert f"tee: {one}/no: Not a directory" in printed
    assert "no-such-program" in printed
    # What comes after it is written all the same.
    assert one.read_text() == "5\n"


def test_the_commands_options() -> None:
    run = CliRunner().invoke
    inventory = ["-i", str(project_dir() / "tests/vlab/tune")]
    done = run(cli, ["tune", *inventory, "--host-settings", "--space", "x.yml"])
    assert "--host-settings has a space of its own" in str(done.exception) + done.output


def test_host_settings_need_no_place_for_a_settings_file(kernels: Kernels, tmp_path: Path) -> None:
    kernels.files, kernels.read_only, kernels.pings = (
        {host: {WMEM: SMALL} for host in ("u1", "u2")},
        (WMEM,),
        False,
    )
    words = ["-i", str(project_dir() / "tests/vlab/tune"), "--results", str(tmp_path), "--backend", "mpi"]
    nowhere = ["--output", str(tmp_path / "no-such-folder/tuned.yml")]
    done = CliRunner().invoke(cli, ["tune", *words, *nowhere, "--host-settings"])
    assert "nothing can be changed on these hosts" in str(done.exception)
    done = CliRunner().invoke(cli, ["tune", *words, *nowhere])
    assert "cannot be written there" in str(done.exception)


def test_restore_puts_back_what_was_left(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels.files = {host: {WMEM: "1 2 3"} for host in ("u1", "u2")}
    folder = tmp_path / "tune/abc"
    folder.mkdir(parents=True)
    state = {"lab": "vtune", "hosts": {host: {WMEM: SMALL} for host in kernels.files}}
    (folder / BEFORE).write_text(json.dumps(state))
    place = ["-i", str(project_dir() / "tests/vlab/tune"), "--results", str(tmp_path)]
    refused = CliRunner().invoke(cli, ["bench", *place, "--backend", "mpi", "--sizes", "1K"]).exception
    assert "the hosts have settings of a search that was killed" in str(refused)
    assert "`hvlab tune --restore`" in refused.remedy
    words = ["tune", "--restore", *place]
    done = CliRunner().invoke(cli, [*words, "--limit", "u1"])
    assert "put back what u1, u2 had before the search" in done.output
    assert kernels.files["u2"][WMEM] == SMALL
    assert "nothing to put back" in CliRunner().invoke(cli, words).output
