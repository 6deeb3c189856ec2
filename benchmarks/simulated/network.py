"""Run a command in a network of its own, in which port 22 of every simulated host answers: ``COMMAND ...``.

Needs root. The network has no way out, and is gone with the command. What listens says only that it is SSH:
enough for a look whether a host is there. Logins are answered by ``bin/ssh``, which connects to nothing.
"""

from __future__ import annotations

import os
import socketserver
import subprocess
import sys
import threading

_HOSTS = "198.18.0.0/15"
_INSIDE = "--inside"


class _Greeter(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Greet as sshd does, and hang up."""
        self.request.sendall(b"SSH-2.0-simulated\r\n")


class _Port(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 1024


def main(argv: list[str]) -> int:
    """Return the command's exit status."""
    if argv[:1] != [_INSIDE]:
        inside = [sys.executable, "-m", "benchmarks.simulated.network", _INSIDE, *argv]
        os.execvp("unshare", ["unshare", "--net", "--", *inside])  # noqa: S606
    for words in (["link", "set", "lo", "up"], ["route", "add", "local", _HOSTS, "dev", "lo"]):
        subprocess.run(["ip", *words], check=True)
    with _Port(("0.0.0.0", 22), _Greeter) as port:  # noqa: S104 - of a network without a way in
        threading.Thread(target=port.serve_forever, daemon=True).start()
        return subprocess.run(argv[1:], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
