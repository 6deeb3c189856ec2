"""Runs on a node as root, by any Python from 3.8 on: answers many questions in one round trip.

Its one argument is a JSON object of questions by name; it prints a JSON object of answers by name.
A question is one of

    {"run": [argv], "user": name or null, "env": {}, "timeout": seconds, "queue": name or null}
        -> {"rc", "out", "err"}; rc is 124 when it ran too long and 127 when there is no such program
    {"read": glob}  -> {path: text}
    {"stat": glob}  -> {path: {"mode": "0644", "owner", "group", "link": target or null}}

Commands run side by side, except that those of one queue run one after another, and those with "alone": true
after all others, one by one.
"""

import concurrent.futures
import glob
import grp
import json
import os
import pwd
import subprocess
import sys


def as_user(account, argv, env):
    """Put an argv into a clean environment of one user."""
    clean = {
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
    }
    clean.update(env)
    argv = ["env", "-i", *[f"{name}={value}" for name, value in sorted(clean.items())], *argv]
    return argv if account.pw_uid == os.getuid() else ["runuser", "-u", account.pw_name, "--", *argv]


def run(question):
    """Run one command in its user's home and return what it printed."""
    limit = question.get("timeout", 20)
    user = question.get("user")
    try:
        account = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
        argv = as_user(account, question["run"], question.get("env", {}))
        done = subprocess.run(
            ["timeout", "--kill-after=2", str(limit), *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            cwd=account.pw_dir if os.path.isdir(account.pw_dir) else "/",
        )
    except KeyError:
        return {"rc": 127, "out": "", "err": f"there is no user {user}"}
    except OSError as error:
        return {"rc": 127, "out": "", "err": str(error)}
    return {
        "rc": done.returncode,
        "out": done.stdout.decode(errors="replace"),
        "err": done.stderr.decode(errors="replace"),
    }


def read(pattern):
    """Return the text of every file that matches."""
    texts = {}
    for path in sorted(glob.glob(pattern)):
        with open(path, errors="replace") as file:
            texts[path] = file.read()
    return texts


def _name(lookup, number):
    try:
        return lookup(number)[0]
    except KeyError:
        return str(number)


def stat(pattern):
    """Return who may do what with every file that matches, links not followed."""
    files = {}
    for path in sorted(glob.glob(pattern)):
        status = os.lstat(path)
        files[path] = {
            "mode": f"{status.st_mode & 0o7777:04o}",
            "owner": _name(pwd.getpwuid, status.st_uid),
            "group": _name(grp.getgrgid, status.st_gid),
            "link": os.readlink(path) if os.path.islink(path) else None,
        }
    return files


def main():
    """Answer the questions."""
    questions = json.loads(sys.argv[1])
    answers = {}
    queues = {}
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        for name, question in questions.items():
            if "read" in question:
                answers[name] = read(question["read"])
            elif "stat" in question:
                answers[name] = stat(question["stat"])
            elif not question.get("alone"):
                queues.setdefault(question.get("queue") or f"only {name}", []).append(name)
        for queue in pool.map(lambda names: {name: run(questions[name]) for name in names}, queues.values()):
            answers.update(queue)
    for name, question in questions.items():
        if question.get("alone"):
            answers[name] = run(question)
    json.dump(answers, sys.stdout)


main()
