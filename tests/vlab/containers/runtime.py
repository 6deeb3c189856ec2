#!/usr/bin/python3
"""A container runtime for machines that may neither set device filters nor raise limits, as virtual nodes.

docker calls it in place of runc; it leaves out what is not allowed there, and hands over to crun.
"""

import json
import os
import sys
from pathlib import Path

words = sys.argv[1:]
if "create" in words:
    file = Path(words[words.index("--bundle") + 1], "config.json")
    config = json.loads(file.read_text())
    config["linux"].pop("resources", None)
    config["process"].pop("rlimits", None)
    file.write_text(json.dumps(config))
    words.insert(words.index("create") + 1, "--no-new-keyring")
os.execv("/usr/bin/crun", ["crun", "--cgroup-manager=disabled", *words])  # noqa: S606
