"""A web server for one folder on one address, in a thread of the caller."""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Server:
    """Answers from ``start`` to ``stop``; it keeps its port over both."""

    def __init__(self, folder: Path, address: str, port: int = 0) -> None:
        self._handler = functools.partial(_Quiet, directory=str(folder))
        self.address, self.port = address, port
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        if self._server is None:
            self._server = ThreadingHTTPServer((self.address, self.port), self._handler)
            self.port = self._server.server_address[1]
            threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
