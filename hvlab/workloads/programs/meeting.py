"""Where the ranks of Horovod over Gloo meet when Slurm starts them: Slurm and Horovod do not know each other.

    meeting.py start PYTHON h1:2,h2:2 INTERFACE srun ...   beside srun: has PYTHON, which has Horovod, serve;
                                                           it may be a line such as 'srun ... python3'
    meeting.py serve h1:2,h2:2                             prints its port, serves until its input ends
    meeting.py rank PROGRAM ...                            as each rank: says which it is, becomes PROGRAM

Needs Python 3.8+; ``serve`` needs horovod. PYTHON may be in a container, where there is no srun.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
from importlib import import_module
from typing import Mapping, Sequence

# Horovod's name for the number of slots of a host, from its plan of hosts.
SLOTS = "HVLAB_SLOTS"
_SIOCGIFADDR = 0x8915


def main() -> int:
    kind, *words = sys.argv[1:]
    if kind == "rank":
        os.environ.update(rank(os.environ))
        os.execvp(words[0], words)  # noqa: S606 - a shell would be one more process
    if kind == "serve":
        return serve(words[0])
    python, hosts, interface, *argv = words
    return start(python, hosts, interface, argv)


def rank(given: Mapping[str, str]) -> dict[str, str]:
    number, size, slots = (int(given[name]) for name in ("SLURM_PROCID", "SLURM_NTASKS", SLOTS))
    variables = {
        "RANK": number,
        "SIZE": size,
        "LOCAL_RANK": given["SLURM_LOCALID"],
        "LOCAL_SIZE": slots,
        "CROSS_RANK": number // slots,
        "CROSS_SIZE": size // slots,
        "HOSTNAME": given["SLURMD_NODENAME"],
    }
    return {"HOROVOD_" + name: str(value) for name, value in variables.items()}


def serve(hosts: str) -> int:
    """Be Horovod's meeting place for the ranks on these hosts until the input ends."""
    # The ranks, which run this too, need not wait for these.
    plan = import_module("horovod.runner.common.util.hosts")
    http = import_module("horovod.runner.http.http_server")
    listed = plan.parse_hosts(hosts)
    server = http.RendezvousServer()
    port = server.start()
    server.init(plan.get_host_assignments(listed, sum(host.slots for host in listed)))
    sys.stdout.write("{}\n".format(port))
    sys.stdout.flush()
    sys.stdin.read()
    return 0


def start(python: str, hosts: str, interface: str, argv: Sequence[str]) -> int:
    """Run ``argv``, and Horovod's meeting place for its ranks until it has ended."""
    command = [*shlex.split(python), os.path.abspath(__file__), "serve", hosts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        # Before the port, the image of a container may print a greeting.
        lines = (line.strip() for line in server.stdout or ())
        port = next((line for line in lines if line.isdigit()), "")
        if not port:
            return server.wait() or 1
        variables = {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": address(interface),
            "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
            "HOROVOD_GLOO_IFACE": interface,
            SLOTS: hosts.partition(",")[0].rpartition(":")[2],
        }
        step = subprocess.Popen(argv, env={**os.environ, **variables})
        # srun ends its ranks; this process stays until it has.
        signal.signal(signal.SIGTERM, lambda *_: step.terminate())
        status = step.wait()
    return status if status >= 0 else 128 - status


def address(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    return socket.inet_ntoa(answer[20:24])


if __name__ == "__main__":
    sys.exit(main())
