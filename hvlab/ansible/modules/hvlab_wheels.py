# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Documentation of hvlab_wheels: it runs on the controller alone, as the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = """
module: hvlab_wheels
short_description: Download the Python packages of a host into the controller's cache
description:
  - Uses the controller's own pip configuration; the host needs neither pip nor a package index.
  - Only wheels are taken, so no package runs anything on the controller.
  - The packages go into one tar file. What is in the cache is not downloaded again.
options:
  name: {description: Name of the tar file., type: str, required: true}
  requirements: {description: Text of a requirements file., type: str, required: true}
  python: {description: "The host's Python, as in 3 or 3.11.", type: str, required: true}
  architecture: {description: "The host's architecture, as in x86_64.", type: str, required: true}
  deps: {description: Whether the packages that they require come along., type: bool, default: true}
  folder: {description: A folder on the controller where pip looks as well., type: path}
  fallback_index:
    description: Index asked for the framework alone when pip does not get it without.
    type: str
    default: ""
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Download NCCL's wheel to the controller
  hvlab_wheels:
    name: nccl
    requirements: "nvidia-nccl-cu13==2.29.7\\n"
    python: "3"
    architecture: x86_64
    deps: false
  register: wheels
"""

RETURN = """
path: {description: Path of the tar file on the controller., type: str, returned: success}
sha256: {description: Its sha256; empty in check mode when it is not there yet., type: str, returned: success}
"""
