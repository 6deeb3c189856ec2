"""A host is held by one run at a time: its keeper there, and the owner's end of it."""

import json
import os
import re
import secrets
import subprocess
import sys
import time

import pytest
from ansible.module_utils import hvlab_lock

from hvlab.ansible.callback.hvlab_lock import HostLink, find_owner, program
from hvlab.base.errors import report
from hvlab.checks.before import explain_lock

ANN = {"owner": "ann@laptop", "command": "hvlab provision"}
READ = "exec(__import__('json').loads(input()))"


@pytest.fixture
def name(monkeypatch):
    """A lock of this test alone, here and in programs."""
    own = f"\0hvlab-test-{secrets.token_hex(4)}"
    monkeypatch.setattr(hvlab_lock, "NAME", own)
    monkeypatch.setattr(hvlab_lock, "SILENCE_S", 2.0)
    monkeypatch.setattr(hvlab_lock, "BROKEN_S", 1.0)
    yield own
    end_modules()


def end_modules():
    """Break the links of the modules that took a lock in this process, as their end does."""
    while hvlab_lock._held:
        hvlab_lock._held.pop().close()


def text(name, **changed):
    replaced = {'"\\0hvlab-lock"': repr(name), **changed}
    source = program()
    for before, after in replaced.items():
        assert before in source
        source = source.replace(before, after)
    return source


@pytest.fixture
def link(name, monkeypatch):
    monkeypatch.setattr("hvlab.ansible.callback.hvlab_lock.program", lambda: text(name))
    links = []

    def begin(token):
        links.append(HostLink([sys.executable, "-c", READ]))
        answer = links[-1].speak(json.dumps({"token": token, "owner": ANN}))
        assert answer == ""
        return links[-1]

    yield begin
    for one in links:
        one.process.kill()
        one.process.stdin.close()
        one.process.stdout.close()
        one.process.wait()


def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def named(answer):
    """Who has a host, without since when."""
    return {name: answer[name] for name in ANN if name in answer} if answer else answer


def holder():
    with hvlab_lock.socket.socket(hvlab_lock.socket.AF_UNIX) as asking:
        try:
            return named(hvlab_lock.ask(asking, "other"))
        except ConnectionRefusedError:
            return "nobody"


@pytest.mark.parametrize("end", ["end", "kill"])
def test_the_second_hears_who_has_the_host_until_the_first_has_ended(link, end):
    assert hvlab_lock.take("first", ANN) is None
    answer = hvlab_lock.take("second", {"owner": "bob@desk"})
    assert named(answer) == ANN
    assert answer["seconds"] >= 0
    assert hvlab_lock.take("first", ANN) is None, "a second host of the same run may be the same machine"
    first = link("first")
    end_modules()
    time.sleep(0.3)
    assert holder() == ANN
    if end == "end":
        first.end()
        until(lambda: holder() == "nobody")
    else:
        first.process.kill()
        first.process.wait()
        time.sleep(0.2)
        assert holder() == ANN, "it may connect again"
    assert hvlab_lock.take("second", {"owner": "bob@desk"}) is None, "who comes next waits that long"


def test_a_run_that_is_killed_before_it_made_its_link_lets_go_soon(name):
    facts = text(
        name,
        **{
            "BROKEN_S = 10.0": "BROKEN_S = 1.0",
            "sys.exit(main())": f"take('first', {ANN!r}); time.sleep(60)",
        },
    )
    with subprocess.Popen([sys.executable, "-c", facts]) as module:
        until(lambda: holder() == ANN)
        time.sleep(1.5)
        assert holder() == ANN, "it gathers facts"
        module.kill()
    began = time.monotonic()
    assert hvlab_lock.take("second", {"owner": "bob@desk"}) is None
    assert time.monotonic() - began < 1.9, "well before it would count as silent"


def test_a_link_that_broke_is_made_again_and_one_that_came_too_late_says_who_has_the_host(link):
    lost = link("first")
    until(lambda: holder() != "nobody")  # a host that was restarted is taken again
    link("first")
    lost.process.kill()
    lost.process.wait()
    time.sleep(1.5)
    assert holder() == ANN
    late = link("second")
    assert late.process.wait(10) == 3
    assert named(json.loads(late.speak(""))) == ANN


def test_an_owner_that_is_silent_loses_the_host(name):
    silent = text(name, **{"120.0": "0.3"})
    request = json.dumps({"token": "first", "owner": ANN})
    words = f"{json.dumps(silent)}\n{request}\n\n"
    with subprocess.Popen([sys.executable, "-c", READ], stdin=subprocess.PIPE, text=True) as asleep:
        asleep.stdin.write(words)
        asleep.stdin.flush()
        until(lambda: holder() == ANN)
        until(lambda: holder() == "nobody")
        assert hvlab_lock.take("second", {"owner": "bob@desk"}) is None
        asleep.stdin.write("\n")
        asleep.stdin.flush()
        assert asleep.wait(10) == 3


@pytest.mark.parametrize("answer", ["rubbish", "[1]", "", None])
def test_a_stranger_on_the_socket_is_named_by_process_and_user(name, answer, monkeypatch):
    monkeypatch.setattr(hvlab_lock, "ANSWER_S", 0.2)
    with hvlab_lock.socket.socket(hvlab_lock.socket.AF_UNIX) as stranger:
        stranger.bind(name)
        stranger.listen(8)
        child = os.fork()
        if not child:
            connection = stranger.accept()[0]
            if answer is not None:
                connection.sendall(answer.encode() or b" ")
            # Until the other has heard enough.
            while connection.recv(64):
                pass
            os._exit(0)
        said = hvlab_lock.take("second", {})
        os.waitpid(child, 0)
    assert said == {"owner": f"process {os.getpid()} of UID {os.getuid()}"}


def test_the_refusal_names_the_first_since_when_and_what_to_do():
    said = report([explain_lock("n1", ANN | {"seconds": 90})])
    assert "n1: it is held by ann@laptop, who runs `hvlab provision` " in said
    assert re.search(r"since \d\d:\d\d:\d\d \(this machine's clock\)", said)
    assert "what to do: wait until that has ended" in said
    assert "\x1b" not in find_owner("n1", json.dumps({"owner": "\x1b[2Jann"}))
    assert "n1" in find_owner("n1", "rubbish")
