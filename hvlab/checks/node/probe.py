"""Runs on a node as root, by any Python from 3.8 on: answers many questions in one round trip.

Its one argument is a JSON object of questions by name; it prints a JSON object of answers by name.
A question is one of

    {"run": [argv], "user": name or null, "env": {}, "timeout": seconds, "queue": name or null}
        -> {"rc", "out", "err"}; rc is 124 when it ran too long and 127 when there is no such program;
        "python3" as the program is the Python that runs this one
    {"read": glob}  -> {path: text}, without files that cannot be read
    {"stat": glob}  -> {path: {"mode": "0644", "owner", "group", "link": target or null}}

What cannot be read within READ_S is left out. Commands run side by side, except that those of one queue run
one after another, and those with "alone": true after all others, one by one.
"""

import concurrent.futures
import contextlib
import glob
import grp
import json
import os
import pwd
import select
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Tuple

# Seconds after SIGKILL until a process is abandoned: one in the kernel (state D) survives it.
GRACE_S = 2
AT_ONCE = 8
# What runs now.
RUNNING: List["subprocess.Popen[bytes]"] = []
# Reading takes milliseconds unless a device or a file server hangs.
READ_S = 10


def as_user(account: pwd.struct_passwd, argv: List[str], env: Mapping[str, str]) -> List[str]:
    """Put an argv into a clean environment of one user."""
    clean = {
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        # Under WSL nvidia-smi lies apart.
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/wsl/lib",
        "LC_ALL": "C.UTF-8",
    }
    clean.update(env)
    argv = ["env", "-i", *[f"{name}={value}" for name, value in sorted(clean.items())], *argv]
    return argv if account.pw_uid == os.getuid() else ["runuser", "-u", account.pw_name, "--", *argv]


def output(process: "subprocess.Popen[bytes]", seconds: float) -> Tuple[bytes, bytes]:
    """Return the output of a process; one that does not end in time is abandoned."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        process.kill()
        process.poll()
        raise


def run(question: Mapping[str, Any]) -> Dict[str, Any]:
    """Run one command in its user's home and return its output."""
    limit = question.get("timeout", 20)
    user = question.get("user")
    try:
        account = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
        program, *words = question["run"]
        program = sys.executable if program == "python3" and sys.executable else program
        argv = as_user(account, [program, *words], question.get("env", {}))
        process = subprocess.Popen(
            ["timeout", f"--kill-after={GRACE_S}", str(limit), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=account.pw_dir if os.path.isdir(account.pw_dir) else "/",
        )
        RUNNING.append(process)
        out, err = output(process, limit + 2 * GRACE_S)
    except KeyError:
        return {"rc": 127, "out": "", "err": f"there is no user {user}"}
    except OSError as error:
        return {"rc": 127, "out": "", "err": str(error)}
    except subprocess.TimeoutExpired:
        return {"rc": 124, "out": "", "err": f"did not finish within {limit} s, nor after SIGKILL"}
    return {
        "rc": process.returncode,
        "out": out.decode(errors="replace"),
        "err": err.decode(errors="replace"),
    }


def read(pattern: str) -> Dict[str, str]:
    """Return the text of every file that matches and can be read."""
    texts = {}
    for path in sorted(glob.glob(pattern)):
        with contextlib.suppress(OSError), open(path, errors="replace") as file:
            texts[path] = file.read()
    return texts


def _name(lookup: Callable[[int], Any], number: int) -> str:
    try:
        return str(lookup(number)[0])
    except KeyError:
        return str(number)


def stat(pattern: str) -> Dict[str, Dict[str, Any]]:
    """Return mode and owners of every matching file; links are not followed."""
    files = {}
    for path in sorted(glob.glob(pattern)):
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            files[path] = {
                "mode": f"{status.st_mode & 0o7777:04o}",
                "owner": _name(pwd.getpwuid, status.st_uid),
                "group": _name(grp.getgrgid, status.st_gid),
                "link": os.readlink(path) if os.path.islink(path) else None,
            }
    return files


def start_reading(
    questions: Mapping[str, Mapping[str, Any]], replies: Dict[str, Any]
) -> List[threading.Thread]:
    """Answer what only reads, each in a thread of its own, and return the threads."""

    def answer(name: str, question: Mapping[str, Any]) -> None:
        replies[name] = read(question["read"]) if "read" in question else stat(question["stat"])

    threads = []
    for name, question in questions.items():
        if "run" not in question:
            replies[name] = {}
            threads.append(threading.Thread(target=answer, args=(name, question), daemon=True))
            threads[-1].start()
    return threads


def answers(questions: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    """Return the answers by name."""
    replies: Dict[str, Any] = {}
    queues: Dict[str, List[str]] = {}
    threads, end = start_reading(questions, replies), time.monotonic() + READ_S
    with concurrent.futures.ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for name, question in questions.items():
            if "run" in question and not question.get("alone"):
                queues.setdefault(question.get("queue") or f"only {name}", []).append(name)
        for queue in pool.map(lambda names: {name: run(questions[name]) for name in names}, queues.values()):
            replies.update(queue)
    for name, question in questions.items():
        if question.get("alone"):
            replies[name] = run(question)
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(replies)


def end_unread() -> None:
    """End with all that runs as soon as nobody can read the answers: the asker is gone."""
    reader = select.poll()
    # Its end is always told.
    reader.register(1, 0)
    reader.poll()
    # Twice: what began meanwhile, too.
    for _ in range(2):
        for process in list(RUNNING):
            if process.poll() is None:
                process.terminate()
        time.sleep(GRACE_S / 4)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_unread, daemon=True).start()
    json.dump(answers(json.loads(sys.argv[1])), sys.stdout)
