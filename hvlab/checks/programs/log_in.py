"""Runs on a node as the user who runs the ranks: logs in to the hosts that follow it, as a launcher does.

Its arguments are its own name and a JSON object: ``hosts`` (all, each ``name``, ``address`` and ``port``),
``tried`` (how many of those after itself) and ``script``, what is run there.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Mapping

CONNECT_S, LOGIN_S = 8, 25
OPTIONS = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", "ControlPath=none"]


def log_in(host: Mapping[str, Any], script: str) -> Dict[str, Any]:
    """Return the status and the output of the login."""
    argv = ["ssh", *OPTIONS, "-p", str(host["port"]), host["address"], script]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOGIN_S, check=False
        )
    except FileNotFoundError:
        return {"rc": 127, "out": "", "err": "sh: ssh: not found"}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"rc": 124, "out": "", "err": str(error)}
    return {
        "rc": done.returncode,
        "out": done.stdout.decode("utf-8", "replace")[:4000],
        "err": done.stderr.decode("utf-8", "replace")[-4000:],
    }


def main() -> None:
    """Log in to all at once and print what came of it."""
    own, given = sys.argv[1], json.loads(sys.argv[2])
    names = [host["name"] for host in given["hosts"]]
    at = names.index(own)
    ring = (given["hosts"][at + 1 :] + given["hosts"][:at])[: given["tried"]]
    with ThreadPoolExecutor(max_workers=max(1, len(ring))) as pool:
        outcomes = pool.map(lambda host: log_in(host, given["script"]), ring)
        json.dump({host["name"]: outcome for host, outcome in zip(ring, outcomes)}, sys.stdout)


main()
