#!/usr/bin/env python3
"""Stands in for NVIDIA's tool: it tells its version and writes the runtime into docker's configuration."""

import json
import pathlib
import sys

if sys.argv[1:] == ["--version"]:
    print("NVIDIA Container Toolkit CLI version <v>")
elif sys.argv[1:3] == ["runtime", "configure"]:
    options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[3:] if "=" in word)
    path = pathlib.Path(options.get("config", "/etc/docker/daemon.json"))
    config = json.loads(path.read_text() or "{}") if path.exists() else {}
    runtimes = config.setdefault("runtimes", {})
    runtimes["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=4) + "\n")
else:
    sys.exit("nvidia-ctk: a stand-in for --version and runtime configure --runtime=docker [--config=FILE]")
