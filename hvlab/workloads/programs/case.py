"""Run one case on its first host: start the launcher, watch the time, end leftovers, hand over the files.

Reads a JSON object from standard input: {"case": "RUN/CASE", "argv", "env", "hosts", "self", "timeout" (s),
"python" (of this host and the others), "reach" (argv before a host's name, of ssh or srun), "certificate" (of
the key that reaches the other hosts), "after" (argv of the program for launches that failed)}. Writes a tar
of the case's folder ~/.hvlab/runs/RUN/CASE to standard output; case.json in it is the outcome. The launcher's
output goes to files. Needs Python 3.8+ and no package.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
GRACE_S = 5.0
LOCK_WAIT_S = 10.0
AFTER_S = 60.0
REAP_S = 30.0
# How long, and how often, a case that is over its time is looked at.
LOOK_S, LOOKS = 10, 5
BUSY, NO_KEYS = 75, 78
# Lustre without the mount option flock, NFS without lockd.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
LIMIT = 16 * 2**20


def main() -> int:
    """Return 0 however the case ended, BUSY if the host measures another, NO_KEYS without ~/.ssh."""
    begun = time.monotonic()
    job = json.load(sys.stdin)
    folder = os.path.join(os.path.expanduser("~/.hvlab/runs"), job["case"])
    os.makedirs(folder, exist_ok=True)
    outcome: dict[str, Any] = {"rc": None, "timed_out": False, "error": None, "reaped": {}}
    outcome["started_at"] = time.time()
    # Hosts may share the home.
    with open(os.path.expanduser("~/.hvlab/lock-{}".format(platform.node())), "a+") as lock:
        holder = take(lock, job["case"])
        if holder is not None:
            sys.stderr.write(
                "this host is measuring another case, {}; what to do: wait for its end\n".format(holder)
            )
            return BUSY
        clear(folder)
        # The part that others may read.
        shown = job.get("shown", job)
        write(folder, "argv.json", shown["argv"])
        write(folder, "env.json", shown["env"])
        try:
            renew(job["certificate"])
        except OSError as error:
            remedy = "`hvlab provision -t lab_user,ssh_trust` brings its keys back"
            sys.stderr.write("~/.ssh cannot be used ({}): {}\n".format(error.strerror, remedy))
            return NO_KEYS
        supervise(job, folder, outcome)
    # By a clock that nobody sets: the wall clock may be set while the case runs.
    outcome["ended_at"] = outcome["started_at"] + time.monotonic() - begun
    write(folder, "case.json", outcome)
    sys.stdout.buffer.write(pack(folder))
    sys.stdout.buffer.flush()
    return 0


def clear(folder: str) -> None:
    """Empty the case's folder of an earlier try."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            # A running process may remove its own files.
            with suppress(FileNotFoundError):
                os.unlink(entry.path)


def take(lock: Any, case: str) -> str | None:
    """Take the host's lock; return its holder if it stays taken.

    On a file system without locks nobody holds it.
    """
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                lock.seek(0)
                return str(lock.read().strip()) or "unknown"
            time.sleep(0.1)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return None
        else:
            lock.truncate(0)
            lock.write(case)
            lock.flush()
            return None


def renew(certificate: str) -> None:
    """Replace an older certificate by this one, if given. Raises OSError."""
    if not certificate:
        return
    path = os.path.expanduser("~/.ssh/id_ed25519-cert.pub")
    try:
        with open(path) as file:
            if file.read() == certificate:
                return
    except FileNotFoundError:
        pass
    with open(path + ".part", "w") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(certificate)
    os.replace(path + ".part", path)


def supervise(job: dict[str, Any], folder: str, outcome: dict[str, Any]) -> None:
    """Run the launcher to its end or time limit; fill in ``outcome``."""
    env = {**os.environ, "LC_ALL": "C.UTF-8", **job["env"], "HVLAB_CASE": job["case"]}
    with open(os.path.join(folder, "stdout"), "wb") as out, open(os.path.join(folder, "stderr"), "wb") as err:
        try:
            launcher = subprocess.Popen(
                job["argv"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            outcome["error"] = "{}: {}".format(job["argv"][0], error.strerror)
            return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(stop(launcher)))
    try:
        outcome["rc"] = launcher.wait(timeout=job["timeout"])
    except subprocess.TimeoutExpired:
        outcome["timed_out"] = True
        seconds = min(LOOK_S, int(job["timeout"]) // LOOKS)
        seen = on_hosts(job, ["standing.py", str(seconds), str(LOOKS)], seconds + REAP_S)
        write(folder, "standing.json", seen)
        outcome["rc"] = stop(launcher)
    # mpirun may end with 0 after SIGTERM, before its ranks have ended.
    if outcome["rc"] != 0 or outcome["timed_out"]:
        if job.get("after"):
            outcome["step"] = look_after(job["after"], env, folder)
        outcome["reaped"] = on_hosts(job, ["reap.py", job["case"]], REAP_S)


def stop(launcher: subprocess.Popen[bytes]) -> int:
    """End the launcher's session: TERM, a grace, KILL. Return its exit status."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(launcher.pid, number)
        except ProcessLookupError:
            break
        try:
            return launcher.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    return launcher.wait()


def look_after(argv: list[str], env: dict[str, str], folder: str) -> dict[str, Any]:
    """Run a program in the case's folder; return its JSON about a launch that failed."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=env,
            timeout=AFTER_S,
            check=False,
        )
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)}
    return dict(answer)


def on_hosts(job: dict[str, Any], words: list[str], seconds: float) -> dict[str, Any]:
    """Run one of these programs on each host of the case; return their JSON by host."""
    # All at the same time: hosts that do not answer are waited for once.
    with ThreadPoolExecutor(max_workers=len(job["hosts"])) as pool:
        return dict(
            zip(job["hosts"], pool.map(lambda host: on_host(host, job, words, seconds), job["hosts"]))
        )


def on_host(host: str, job: dict[str, Any], words: list[str], seconds: float) -> Any:
    """Run one of these programs on one host; return its JSON, or why there is none."""
    argv = [job["python"], os.path.join(HERE, words[0]), *words[1:]]
    if host != job["self"]:
        argv = [*job["reach"], host, *argv]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name != "HVLAB_CASE"},
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no answer within {:.0f} s".format(seconds)
    except OSError as error:
        return "{}: {}".format(argv[0], error.strerror)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return done.stderr.decode(errors="replace").strip()[-500:]


def write(folder: str, name: str, data: object) -> None:
    """Write a JSON file atomically."""
    path = os.path.join(folder, name)
    with open(path + ".part", "w") as file:
        json.dump(data, file, indent=1)
    os.replace(path + ".part", path)


def pack(folder: str) -> bytes:
    """Return a tar of the folder's files, of each at most the last ``LIMIT`` bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in sorted(os.listdir(folder)):
            try:
                handle = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                # Ranks may rename or remove their files at any time.
                continue
            try:
                state = os.fstat(handle)
                if stat.S_ISREG(state.st_mode):
                    os.lseek(handle, max(0, state.st_size - LIMIT), os.SEEK_SET)
                    with os.fdopen(handle, "rb", closefd=False) as file:
                        content = file.read(LIMIT)
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mtime = len(content), int(state.st_mtime)
                    tar.addfile(entry, io.BytesIO(content))
            finally:
                os.close(handle)
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main())
