"""Whatever hosts answer to Ansible, probes and launches: a reading, or a failure that names the host."""

import io
import json
import math
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.ansible.action import hvlab_case
from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.errors import CheckError
from hvlab.checks import ask
from hvlab.checks.node import subjects
from hvlab.doctor import reading
from hvlab.lab import environment, variants
from hvlab.lab.facts_shape import Facts
from hvlab.remote import gather
from hvlab.remote.playbook import HostFailure, Owner, Play
from hvlab.searches.slow import hosts
from hvlab.searches.slow.steps import ProbeStep
from tests.unit import labs
from tests.unit.fuzzing import QUICK
from tests.unit.test_answers import HOSTILE, VALUES, _replaced

pytestmark = pytest.mark.fuzz

PLAIN = {
    "distribution": "Debian",
    "processor_vcpus": 2,
    "hvlab": {
        "gcc": "12.2",
        "nics": [{"model": "x", "driver": "veth", "speed_mbit": 10000}],
        "interfaces": {"eth0": {"cidrs": ["10.0.0.1/24"], "up": True}},
        "packages": {"libnccl2": "2.2"},
        "gpus": [{"name": "H200", "memory_mib": 141000}],
        "rdma": {"way": "dmabuf"},
        "topology": {"link": "NVLink"},
    },
    "ansible_local": {
        "hvlab_openmpi": {"version": "4.1.8", "cuda": False},
        "hvlab_python_env": {
            "environments": {"torch": {"framework": "torch", "version": "2.12", "build": "cpu"}}
        },
        "hvlab_horovod": {"version": "0.28.1", "variants": {"cpu": {"operations": ["MPI"]}}},
    },
}


class Gathered:
    """A play whose file holds what a test says."""

    content = b""

    def __init__(self, playbook, login, variables, **_):
        self.failures, self.rc = [], 0
        Path(variables["hvlab_file"]).write_bytes(self.content)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    def finish(self):
        pass

    def last_words(self):
        return "last words"


@pytest.fixture
def gathered(monkeypatch):
    monkeypatch.setattr(gather, "Play", Gathered)
    return lambda content: monkeypatch.setattr(Gathered, "content", content)


def test_one_hosts_nonsense_keeps_none_of_the_others(gathered):
    bad = '{"distribution": NaN}'
    gathered(f'{{"n1": {json.dumps(PLAIN)}, "n2": {bad}, "n3": {json.dumps(PLAIN)}}}'.encode())
    found, failures = gather.collect(labs.lab(), "facts.yml", {}, shape=Facts)
    assert list(found) == ["n1", "n3"]
    assert [(one.host, one.unreachable) for one in failures] == [("n2", False)]
    assert "no number" in failures[0].message
    with pytest.raises(AnswerError, match=r"^n2: "):
        gather.collect(labs.lab(), "facts.yml", {}, check=lambda play: None, shape=Facts)


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000, b"\xff", b"[1]", b"3"])
def test_a_file_of_nonsense_is_told(gathered, content):
    gathered(content)
    with pytest.raises(AnswerError, match="the hosts"):
        gather.collect(labs.lab(), "facts.yml", {})


@given(path=st.lists(st.integers(0, 20), min_size=1, max_size=6), value=VALUES)
@QUICK
def test_facts_with_anything_in_them_are_read_or_refused(path, value):
    try:
        facts = answers.load(json.dumps(_replaced(PLAIN, path, value)), "n1", Facts)
    except AnswerError:
        return
    environment.table({"n1": facts})
    json.dumps(environment.stack({"n1": facts}, "cpu")).encode()
    variants.refusal(_case(), {"n1": facts})


def _case():
    case = labs.case()
    return {
        "backend": case.backend,
        "variant": "cpu",
        "stack": "",
        "device": "cuda",
        "slots": 1,
        "launcher": "mpirun",
    }


ANSWERS = {
    name: {"rc": 0, "out": "1, 2, 3\n[N/A]\n", "err": ""} for name in subjects.questions(subjects.list_all())
}


@given(path=st.lists(st.integers(0, 60), min_size=1, max_size=3), value=VALUES, printed=st.text(max_size=60))
@QUICK
def test_a_probes_answer_with_anything_in_it_is_read_or_refused(path, value, printed):
    said = {**_replaced(ANSWERS, path, value), **_replaced(ANSWERS, path, {"rc": 0, "out": printed})}
    try:
        answered = answers.load(json.dumps(said), "n1", ask._Answers)
    except AnswerError:
        return
    values = subjects.readings(subjects.list_all(), answered)
    subjects.findings(subjects.list_all(), values, {})


@pytest.mark.parametrize(
    "answered",
    [
        {"memory corrected": {"rc": "0", "out": "2"}},
        {"network devices": {"rc": 0, "/sys/class/net": 1, "/sys/class/net/a/b/device": {}}},
    ],
)
def test_an_answer_whose_paths_are_none_has_no_device(answered):
    values = subjects.readings(subjects.list_all(), answered)
    assert not any(interface["card"] for interface in values.get("interfaces", {}).values())


def test_a_probe_that_cannot_be_read_is_a_broken_host(gathered, monkeypatch):
    monkeypatch.setattr(ask, "problems", lambda hosts: [])
    said = {"n1": json.dumps({}), "n2": "Welcome!\n{}", "n3": "[" * 9999}
    gathered(json.dumps(said).encode())
    found = ask.ask(labs.lab(), subjects.QUICK)
    assert set(found.readings) == {"n1"}
    assert "no JSON" in found.broken["n2"]
    assert "nested deeper" in found.broken["n3"]


STEPS = [ProbeStep(1), ProbeStep()]
READ = {"steps": [[1e9, 2e9, None], [[5.0, 1.0]] * 3]}


@given(path=st.lists(st.integers(0, 9), min_size=1, max_size=4), value=VALUES)
@QUICK
def test_readings_of_links_with_anything_in_them_are_rates_or_refused(path, value):
    said = _replaced(READ, path, value)

    def start(lab, plan):
        return hosts.read(json.dumps(said), "n1: its readings", plan)

    try:
        rates = hosts.HostProbe(labs.lab(), start=start)(STEPS)
    except CheckError:
        return
    assert all(math.isfinite(rate) and rate >= 0 for each in rates for rate in each.values())


def _tar(*entries: tuple[str, bytes], **odd: object) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            vars_of = odd if name == "odd" else {}
            for field, value in vars_of.items():
                setattr(entry, field, value)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


CASE = ("case.json", b"{}")


def test_files_come_in_and_paths_stay_out():
    sent = _tar(CASE, ("../up", b"x"), ("/etc/x", b"x"), ("a/b", b"x"), (".nfs1", b"x"), ("stdout", b"hello"))
    assert hvlab_case._files(sent, "n1") == {"case.json": b"{}", "stdout": b"hello"}


@pytest.mark.parametrize("printed", [b"Welcome to n1\n", b"x" * 600])
def test_what_a_login_prints_before_the_files_does_no_harm(printed):
    sent = printed + _tar(CASE, ("stdout", b"hello"))
    assert hvlab_case._files(sent, "n1") == {"case.json": b"{}", "stdout": b"hello"}


@pytest.mark.parametrize(
    ("sent", "observed"),
    [
        (b"", "no whole tar"),
        (b"not a tar" * 200, "no whole tar"),
        (_tar(CASE, ("stdout", b"x" * 5000))[:2000], "no whole tar"),
        (_tar(("stdout", b"")), "did not send the case's case.json"),
        (_tar(CASE, ("odd", b""), type=tarfile.SYMTYPE, linkname="/etc/shadow"), "no plain file"),
        (_tar(CASE, ("odd", b""), type=tarfile.LNKTYPE, linkname="case.json"), "no plain file"),
        (_tar(CASE, ("odd", b""), type=tarfile.CHRTYPE), "no plain file"),
        (_tar(CASE, ("odd", b""), type=tarfile.FIFOTYPE), "no plain file"),
        (_tar(CASE, *((f"f{number}", b"") for number in range(1001))), "over 1000 files"),
        (_tar(CASE, ("big", bytes(answers.LIMIT + 1))), "one of over 16 MiB"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tar_that_is_none_of_a_case_is_refused(sent, observed):
    with pytest.raises(AnswerError, match=observed) as caught:
        hvlab_case._files(sent, "n1")
    assert str(caught.value).startswith("n1: ")


@given(st.binary(max_size=2000), st.integers(0, 3000))
@QUICK
def test_a_damaged_tar_is_files_or_an_error(noise, place):
    whole = _tar(CASE, ("stdout", b"hello" * 99))
    try:
        files = hvlab_case._files(whole[:place] + noise + whole[place + len(noise) :], "n1")
    except AnswerError:
        return
    assert all("/" not in name for name in files)


def test_what_ansible_says_of_a_host_steers_no_terminal():
    play = Play("x.yml", Owner(labs.lab()), {})
    play._enqueue({"event": "runner_on_failed", "event_data": {"host": "n1", "res": {"msg": HOSTILE + "!"}}})
    play._drain()
    assert play.failures == [HostFailure("n1", "red!", False)]


def test_a_program_that_is_not_there_is_named():
    """As ansible-core 2.19 reports it: what was wrong stands only in its own output."""
    result = {"cmd": "/usr/bin/python3 -c 1", "msg": "Error executing command.", "rc": 2, "stderr": ""}
    play = Play("ask.yml", Owner(labs.lab()), {})
    play._enqueue({"event": "runner_on_failed", "event_data": {"host": "n1", "res": result}})
    play._drain()
    assert play.failures == [HostFailure("n1", "/usr/bin/python3: No such file or directory", False)]
    known = reading.cause_of(play.failures[0].message)
    assert known is not None
    assert known.cause.id == "no-python"
