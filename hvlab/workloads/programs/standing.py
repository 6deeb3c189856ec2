"""Say where the ranks on this host stand: looks, some seconds apart, that change nothing.

    standing.py SECONDS LOOKS [SPY]     from the first look to the last; how many; a py-spy to use

Prints a JSON object: the ranks that this user may see, with their job, state, stack and what moved; what the
kernel and the disks say; NCCL's own answer (RAS) and torch's flight recorder, where a rank has them. Needs
Python 3.8+ and no package; stacks need py-spy beside this Python, in hvlab's folders, or in the ranks' PATH.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import io
import ipaddress
import json
import os
import pickle
import platform
import re
import shutil
import socket
import stat as stat_of
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Iterable

# Rank, local rank, world size, ranks on the host: as launchers name them, the nearest to the rank first.
RANKS = (
    ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE"),
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMIX_RANK", "", "", ""),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
)
# What the ranks of one job have in common, the surest first.
JOBS = (
    ("HVLAB_CASE",),
    ("PMIX_NAMESPACE",),
    ("OMPI_MCA_ess_base_jobid",),
    ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    ("MASTER_ADDR", "MASTER_PORT"),
)
# Where root keeps py-spy.
TRUSTED = ("/opt/hvlab/bin", "/opt/hvlab/*/bin")
WRAPPERS = ("timeout", "sh", "bash", "dash", "env", "nice", "numactl", "taskset", "srun", "orted", "prted")
PY_SPY_S, RAS_S, LOG_BYTES, MOST_FRAMES, REPEATS = 20, 8, 2**18, 40, 3
# A second SYN goes out after one second.
ANSWER_S, MOST_PEERS = 2.5, 16
STALLS = re.compile(
    r"Stalled ranks|[Mm]issing ranks|^\d+: \[|One or more tensors were submitted|Mismatched \w+ tensor|"
    r"Watchdog caught collective operation timeout"
)
KERNEL = re.compile(
    r"Out of memory: Killed process|oom-kill:|Memory cgroup out of memory|NVRM: Xid|[Ll]ink is [Dd]own|"
    r"blocked for more than \d+ seconds|I/O error|nfs: server \S+ not responding|No space left"
)
# Python's own modules, and torch's loader.
WAITING = re.compile(r"/lib/python3[^/]*/(?!site-packages|dist-packages)|/torch/utils/data/|^<frozen")
# How loops of trainings count.
COUNTER = re.compile(r"step|epoch|iter|batch_idx|^(?:i|it|idx)$")
DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "nfs", "nfs4", "lustre", "overlay", "zfs", "gpfs")
# Seconds of the kernel's log that count.
KERNEL_S = 3600
TICKS = os.sysconf("SC_CLK_TCK")


def text(path: str, size: int = 2**20) -> str:
    """Return a file's text; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(size).decode(errors="replace")
    except OSError:
        return ""


def environment(pid: int) -> dict[str, str]:
    """Return the variables that a process was started with."""
    pairs = (line.partition("=") for line in text("/proc/{}/environ".format(pid)).split("\0"))
    return {name: value for name, _, value in pairs if name}


def stat(pid: int, task: int = 0) -> list[str]:
    """Return /proc/PID/stat from the state on; empty where the process is gone."""
    path = "/proc/{}/task/{}/stat".format(pid, task) if task else "/proc/{}/stat".format(pid)
    return text(path).rpartition(")")[2].split()


def identity(env: dict[str, str]) -> dict[str, Any] | None:
    """Return the rank and the job that an environment names; None if it names none."""
    for names in RANKS:
        # A batch script has a number as well.
        if env.get(names[0], "").isdigit() and (names[0] != "SLURM_PROCID" or "SLURM_STEP_ID" in env):
            numbers = [int(env[name]) if env.get(name, "").isdigit() else None for name in names]
            break
    else:
        return None
    job = next((names for names in JOBS if all(env.get(name) for name in names)), ())
    own: dict[str, Any] = dict(zip(("rank", "local_rank", "size", "local_size"), numbers))
    own["job"] = " ".join("{}={}".format(name, env[name]) for name in job)
    own["names"] = [env[name] for name in ("HVLAB_CASE", "SLURM_JOB_ID") if env.get(name)]
    return own


def find() -> list[dict[str, Any]]:
    """Return the ranks of this host: of each, the first process that is no wrapper, with what is below it."""
    parents, seen = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = stat(int(name))
        if len(fields) > 1:
            parents[int(name)] = int(fields[1])
    mine = [os.getpid(), *above(os.getpid(), parents)]
    for pid in sorted(parents):
        env = environment(pid)
        own = identity(env)
        words = text("/proc/{}/cmdline".format(pid)).split("\0")
        if own and os.path.basename(words[0]) not in WRAPPERS and pid not in mine:
            with suppress(OSError):
                user = os.stat("/proc/{}".format(pid)).st_uid
                program = " ".join(words).strip()[:300]
                seen[pid] = {**own, "pid": pid, "uid": user, "env": env, "program": program}
    ranks = []
    for pid, own in seen.items():
        line = list(above(pid, parents))
        if not any(each in seen and same(seen[each], own) for each in line) and os.getpid() not in line:
            below = [each for each in parents if pid in above(each, parents)]
            own["names"] += [str(each) for each in (pid, *line)]
            ranks.append({**own, "below": below, "above": line})
    return ranks


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Say whether two processes have the same rank of the same job."""
    return (one["job"], one["rank"]) == (other["job"], other["rank"])


def above(pid: int, parents: dict[int, int]) -> Iterable[int]:
    """Yield the ancestors of a process, but the first of the system."""
    while parents.get(pid, 0) > 1:
        pid = parents[pid]
        yield pid


def spy_of(rank: dict[str, Any]) -> str | None:
    """Return a py-spy: another user's ranks do not choose what this user runs."""
    folders = [os.path.dirname(sys.executable), *(path for each in TRUSTED for path in glob.glob(each))]
    if rank["uid"] == os.getuid():
        folders += [os.path.dirname(path) for path in sys.argv[3:]]
        folders += [
            rank["env"].get("PATH", ""),
            os.environ.get("PATH", ""),
            os.path.expanduser("~/.local/bin"),
        ]
    return shutil.which("py-spy", path=os.pathsep.join(filter(None, folders)))


def inspect_rank(rank: dict[str, Any]) -> dict[str, Any]:
    """Return the present state of a rank."""
    pid = rank["pid"]
    fields = stat(pid)
    if not fields:
        return {"state": "X", "cpu": 0, "io": 0, "stack": [], "print": "", "why": "it ended"}
    family = [pid, *rank["below"]]
    seen = {
        "state": fields[0],
        # The main thread's: others may spin while they wait.
        "cpu": sum(int(part) for part in stat(pid, pid)[11:13]),
        "wanted": wanted(pid, pid),
        "threads": wanted(pid),
        # With the children that it took leave of.
        "below": sum(int(part) for part in fields[13:15]) / TICKS + sum(map(wanted, rank["below"])),
        "blocked": blocked(pid, rank["below"]),
        "io": sum(
            int(number)
            for each in family
            for number in re.findall(r"(?:rchar|wchar): (\d+)", text("/proc/{}/io".format(each)))
        ),
        "disk_waits": disk_waits(family),
        **{
            name: [each for each in rank["below"] if stat(each)[:1] == [state]]
            for name, state in (("stopped", "T"), ("ended", "Z"))
        },
        "unacknowledged": list_unacknowledged(pid),
    }
    return {**seen, **stack(rank)}


def wanted(pid: int, task: int = 0) -> float:
    """Return the seconds that a process, or one thread of it, ran or waited for a core to run on."""
    paths = glob.glob("/proc/{}/task/{}/schedstat".format(pid, task or "[0-9]*"))
    own = sum(int(part) for path in paths for part in text(path).split()[:2]) / 1e9
    # Some kernels do not count the second.
    return own or sum(int(part) for part in stat(pid, task)[11:13]) / TICKS


def blocked(pid: int, below: list[int]) -> list[str]:
    """Return where the kernel keeps a main thread, and the file, address or child that its call names."""
    place = text("/proc/{}/wchan".format(pid)).partition(".")[0]
    call = text("/proc/{}/syscall".format(pid)).split()
    # One that runs has none.
    first = int(call[1], 16) if call[1:] else -1
    if first in below:
        return [place, "{} {}".format(text("/proc/{}/comm".format(first)).strip(), first)]
    try:
        named = os.readlink("/proc/{}/fd/{}".format(pid, first))
    except OSError:
        return [place, ""]
    if named.startswith("socket:"):
        ends = ("{}:{}".format(peer, port) for own, peer, port, _ in connections(pid) if own == named)
        return [place, next(ends, named)]
    return [place, named if first else "standard input"]


def disk_waits(family: list[int]) -> list[str]:
    """Return where the kernel keeps the threads that wait for a disk (state D)."""
    waits = set()
    for pid in family:
        for path in glob.glob("/proc/{}/task/[0-9]*".format(pid)):
            if stat(pid, int(os.path.basename(path)))[:1] == ["D"]:
                waits.add(text(path + "/wchan").strip("0") or "the kernel")
    return sorted(waits)


def connections(pid: int) -> Iterable[tuple[str, str, int, bool]]:
    """Yield a rank's sockets, the other end of each, and whether it repeats in vain what it sends there."""
    own = set()
    for path in glob.glob("/proc/{}/fd/*".format(pid)):
        with suppress(OSError):
            own.add(os.readlink(path))
    for kind in ("tcp", "tcp6"):
        for line in text("/proc/{}/net/{}".format(pid, kind), 2**24).splitlines()[1:]:
            fields = line.split()
            name = "socket:[{}]".format(fields[9])
            if fields[3] == "01" and name in own:
                # Its timer is that of retransmissions; their number.
                vain = fields[5][:2] == "01" and int(fields[6], 16) >= REPEATS
                digits, _, port = fields[2].partition(":")
                yield name, address(digits), int(port, 16), vain


def list_unacknowledged(pid: int) -> list[str]:
    """Return the addresses that do not acknowledge what a rank sent, however often it is repeated."""
    return sorted({place for _, place, _, vain in connections(pid) if vain})


def list_unanswered(ranks: list[dict[str, Any]], own: list[str]) -> list[str]:
    """Return the hosts connected to the ranks that answer nothing, not even a refusal."""
    places = {place for rank in ranks for _, place, *_ in connections(rank["pid"])}
    peers = sorted(places - {*own, "127.0.0.1"})
    with ThreadPoolExecutor(max_workers=MOST_PEERS) as pool:
        answered = list(pool.map(answers, peers[:MOST_PEERS]))
    return [peer for peer, good in zip(peers, answered) if not good]


def answers(host: str) -> bool:
    """Say whether a host takes or refuses a connection to a port that nobody uses (discard)."""
    try:
        socket.create_connection((host, 9), timeout=ANSWER_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def address(digits: str) -> str:
    """Return an address of /proc/net/tcp as it is written."""
    raw = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    if raw[:12] == bytes(10) + b"\xff\xff":
        raw = raw[12:]
    return str(ipaddress.ip_address(raw))


def stack(rank: dict[str, Any]) -> dict[str, Any]:
    """Return the main thread's frames, the innermost first, and a print of them that changes as they move."""
    spy = spy_of(rank)
    if not spy:
        return {"stack": [], "print": "", "why": "there is no py-spy on this host"}
    argv = [spy, "dump", "--nonblocking", "--json", "--locals", "--pid", str(rank["pid"])]
    why = ""
    # A process that runs on may be misread.
    for _ in range(3):
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=PY_SPY_S,
                check=False,
            )
            threads = json.loads(done.stdout)
        except (OSError, ValueError) as error:
            why = done.stderr.decode(errors="replace").strip().partition("\n")[0] or str(error)
            continue
        except subprocess.TimeoutExpired:
            return {"stack": [], "print": "", "why": "py-spy did not end within {} s".format(PY_SPY_S)}
        main = next((each for each in threads if each["os_thread_id"] == rank["pid"]), None)
        if main and main["frames"]:
            return filter_frames(main["frames"])
    return {"stack": [], "print": "", "why": why or "py-spy shows no Python in it"}


def filter_frames(frames: list[dict[str, Any]]) -> dict[str, Any]:
    """Return frames as they are sent, without the values of variables: only counters of the user's code."""
    values = [
        [(each["name"], each["repr"]) for each in frame.get("locals") or () if each.get("repr")]
        for frame in frames
    ]
    places = [(frame["name"], frame["filename"], frame["line"]) for frame in frames]
    # What waits with a time limit, such as a loader, moves without coming further.
    own = [pair for pair in zip(places, values) if not re.search(WAITING, pair[0][1])]
    user = next((at for at, place in enumerate(places) if is_user(place[1])), None)
    counters = {
        name: int(value)
        for place, pairs in reversed(list(zip(places, values)))
        for name, value in pairs
        if is_user(place[1]) and COUNTER.search(name) and re.fullmatch(r"\d{1,12}", value)
    }
    return {
        "stack": [list(place) for place in places[:MOST_FRAMES]],
        "user": user,
        "counters": counters,
        "print": hashlib.sha256(repr(own).encode()).hexdigest(),
        "why": "",
    }


def is_user(file: str) -> bool:
    """Say whether a file is the user's own: no library's and not Python's."""
    return not re.search(r"site-packages|dist-packages|/lib/python3|^<frozen|^<string>$", file)


def read_flight_recorder(rank: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the last entries of a rank's flight recorder, asked for through its pipe if it has one."""
    env, number = rank["env"], rank["rank"]
    pipe = env.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE") or env.get("TORCH_FR_DUMP_PIPE_FILE")
    if pipe:
        with suppress(OSError):
            handle = os.open("{}{}.pipe".format(pipe, number), os.O_WRONLY | os.O_NONBLOCK)
            with open(handle, "wb", buffering=0) as file:
                status = os.fstat(handle)
                # A link may lead to a file that only root may write.
                if stat_of.S_ISFIFO(status.st_mode) and status.st_uid == rank["uid"]:
                    file.write(b"1\n")
            time.sleep(2)
    stem = env.get("TORCH_FR_DUMP_TEMP_FILE") or env.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    path = "{}{}".format(stem or os.path.expanduser("~/.cache/torch/comm_lib_trace_rank_"), number)
    try:
        fresh = os.stat(path).st_mtime >= os.stat("/proc/{}".format(rank["pid"])).st_ctime
    except OSError:
        return []
    return dump(path) if fresh and os.path.isfile(path) else []


class Plain(pickle.Unpickler):
    """Reads plain values alone: a dump may come from anybody."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every class."""
        raise pickle.UnpicklingError("{}.{} in a dump".format(module, name))


def dump(path: str) -> list[dict[str, Any]]:
    """Return the last entry of each process group in a flight recorder's dump; [] if it is none."""
    try:
        with open(path, "rb") as file:
            raw = file.read(2**26)
        entries = (json.loads(raw) if raw[:1] == b"{" else Plain(io.BytesIO(raw)).load())["entries"]
        kept = ("collective_seq_id", "profiling_name", "input_sizes", "state", "process_group", "op_id")
        last = {}
        for each in entries:
            if not each.get("is_p2p"):
                last[tuple(each["process_group"])] = {name: each.get(name) for name in kept}
        return list(last.values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, pickle.UnpicklingError):
        return []


def ras(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the answers of NCCL's RAS threads, by address (the protocol of its src/ras/client.cc)."""
    found = {}
    for place in {rank["env"].get("NCCL_RAS_ADDR") or "localhost:28028" for rank in ranks}:
        host, _, port = place.rpartition(":")
        with suppress(OSError, ValueError):
            found[place] = ask_ras(host.strip("[]") or "localhost", int(port))
    return found


def ask_ras(host: str, port: int) -> Any:
    """Return one answer as JSON, or as text from releases before 2.28.7."""
    with socket.create_connection((host, port), timeout=RAS_S) as link, link.makefile("rb") as answer:
        for command in ("CLIENT PROTOCOL 2", "SET FORMAT json"):
            link.sendall(command.encode() + b"\n")
            answer.readline()
        link.sendall(b"VERBOSE STATUS\n")
        said = answer.read(2**26).decode(errors="replace")
    # 2.28.9 leaves a comma out before the status of a missing rank.
    said = re.sub(r'(\d)(\s*\n\s*"status")', r"\1,\2", said)
    return json.loads(said) if said.lstrip().startswith("{") else said


def stall_lines(ranks: list[dict[str, Any]]) -> list[str]:
    """Return the last lines about stalls in the logs that the ranks and their launchers write to."""
    paths = set()
    for pid in {each for rank in ranks for each in (rank["pid"], *rank["above"])}:
        for number in (1, 2):
            with suppress(OSError):
                paths.add(os.path.realpath("/proc/{}/fd/{}".format(pid, number)))
    lines = []
    for path in sorted(paths):
        if os.path.isfile(path):
            with suppress(OSError), open(path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
                said = file.read(LOG_BYTES).decode(errors="replace").splitlines()
                lines += [line.strip()[:500] for line in said if STALLS.search(line)]
    return list(dict.fromkeys(lines))[-20:]


def kernel_lines() -> list[str]:
    """Return the kernel's lines of the last hour about killed processes, GPUs, links and disks."""
    try:
        done = subprocess.run(
            ["dmesg"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=PY_SPY_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    now = float((text("/proc/uptime").split() or ["0"])[0])
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if KERNEL.search(line)]
    timed = [(re.match(r"\[ *(\d+\.\d+)\]", line), line) for line in lines]
    return [line[:300] for match, line in timed if not match or now - float(match[1]) < KERNEL_S][-20:]


def memory_kills(ranks: list[dict[str, Any]]) -> int:
    """Return how many processes the kernel killed for memory in the control groups of the ranks."""
    paths = set()
    for rank in ranks:
        for line in text("/proc/{}/cgroup".format(rank["pid"])).splitlines():
            _, kind, name = line.split(":", 2)
            if kind in ("", "memory"):
                form = (
                    "/sys/fs/cgroup/memory{}/memory.oom_control" if kind else "/sys/fs/cgroup{}/memory.events"
                )
                paths.add(form.format(name))
    return sum(int(number) for path in paths for number in re.findall(r"oom_kill (\d+)", text(path)))


def find_full_disks(full: list[str]) -> None:
    """Add the mounts that can be written to and have no space or no inodes left; one that hangs ends it."""
    for line in text("/proc/self/mounts").splitlines():
        fields = line.split()
        if fields[2] in DISKS and "rw" in fields[3].split(","):
            with suppress(OSError):
                left = os.statvfs(fields[1].replace("\\040", " "))
                none_left = left.f_blocks and left.f_bavail * left.f_frsize < min(2**20, left.f_blocks * 41)
                if none_left or (left.f_files and not left.f_favail):
                    full.append(fields[1])


def dead_links() -> list[str]:
    """Return the interfaces with an address that are switched off or have no carrier."""
    dead = []
    for path in glob.glob("/sys/class/net/*"):
        name = os.path.basename(path)
        state = text(path + "/operstate").strip()
        addressed = os.path.exists("/proc/sys/net/ipv4/conf/" + name) and has_address(name)
        # A container engine's bridge is down while it has no container.
        real = name != "lo" and not os.path.exists(path + "/bridge")
        if real and addressed and state in ("down", "lowerlayerdown"):
            dead.append(name)
    return sorted(dead)


def has_address(name: str) -> bool:
    """Say whether an interface has an IPv4 address (SIOCGIFADDR of netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket.fileno(), 0x8915, struct.pack("256s", name[:15].encode()))
        except OSError:
            return False
    return True


def addresses() -> list[str]:
    """Return this host's IPv4 addresses."""
    return sorted(set(re.findall(r"\|-- (\S+)\s+/32 host LOCAL", text("/proc/net/fib_trie"))))


def main() -> int:
    """Look as often as asked, and print what was seen."""
    seconds, number_of_looks = map(int, sys.argv[1:3])
    ranks = find()
    looks: list[list[dict[str, Any]]] = []
    full: list[str] = []
    threading.Thread(target=find_full_disks, args=(full,), daemon=True).start()
    began = time.monotonic()
    heard = [ras(ranks)]
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(ranks)))) as pool:
        for number in range(number_of_looks):
            due = began + seconds * number / max(1, number_of_looks - 1)
            time.sleep(max(0.0, due - time.monotonic()))
            looks.append(list(pool.map(inspect_rank, ranks)))
        took = time.monotonic() - began
        records = list(pool.map(read_flight_recorder, ranks))
    heard.append(ras(ranks))
    mine = addresses()
    json.dump(
        {
            "host": platform.node(),
            "user": os.getuid(),
            "ptrace_scope": text("/proc/sys/kernel/yama/ptrace_scope").strip() or "0",
            "ranks": [
                summarise(rank, [each[at] for each in looks], took, records[at])
                for at, rank in enumerate(ranks)
            ],
            "ras": heard,
            "stall_lines": stall_lines(ranks),
            "kernel": kernel_lines(),
            "memory_kills": memory_kills(ranks),
            "full_disks": list(full),
            "dead_links": dead_links(),
            "addresses": mine,
            "unanswered": list_unanswered(ranks, mine),
        },
        sys.stdout,
    )
    return 0


def summarise(rank: dict[str, Any], looks: list[dict[str, Any]], took: float, record: Any) -> dict[str, Any]:
    """Return a rank as it is sent: its identity, its last state, and what moved between the samples."""
    first, last = looks[0], looks[-1]
    prints = [each["print"] for each in looks if each["print"]]
    return {
        **{name: rank[name] for name in ("rank", "local_rank", "size", "local_size", "job", "names", "pid")},
        "program": rank["program"],
        "states": "".join(each["state"] for each in looks),
        "moved": len(set(prints)) > 1,
        "cpu": round((last["cpu"] - first["cpu"]) / TICKS / max(took, 0.01), 2),
        **{
            field: round((last.get(name, 0) - first.get(name, 0)) / max(took, 0.01), 2)
            for field, name in (("wanted_cpu", "wanted"), ("threads_cpu", "threads"), ("below_cpu", "below"))
        },
        "io": last["io"] - first["io"],
        "disk_waits": last.get("disk_waits", []) if all(each.get("disk_waits") for each in looks) else [],
        **{name: last.get(name, []) for name in ("stopped", "ended", "unacknowledged")},
        # What it waits for now and then is not what keeps it.
        "blocked": last.get("blocked") if len({str(each.get("blocked")) for each in looks}) == 1 else None,
        **{name: last.get(name) for name in ("stack", "user", "counters", "why")},
        "recorder": record,
    }


if __name__ == "__main__":
    sys.exit(main())
