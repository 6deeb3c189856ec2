"""Serve the repositories until Ctrl-C: python -m tests.vlab.repository --folder DIR --address 198.18.N.1."""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path

from tests.vlab.repository.repository import DEB_SYSTEMS, RPM_SYSTEMS, Repository

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--folder", type=Path, required=True, help="where the packages and keys are kept")
parser.add_argument("--address", default="127.0.0.1", help="the lab's own gateway")
parser.add_argument("--port", type=int, default=8088)
parser.add_argument("--systems", nargs="+", default=DEB_SYSTEMS + RPM_SYSTEMS)
options = parser.parse_args()
with Repository(options.folder.resolve(), options.address, options.port, options.systems) as repository:
    print(json.dumps(repository.variables | {"site": repository.site}, indent=1), flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
