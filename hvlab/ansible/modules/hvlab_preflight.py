# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Documentation of hvlab_preflight; the work is done by the action plugin of that name."""

DOCUMENTATION = """
module: hvlab_preflight
short_description: Check all hosts from their facts, before anything is changed
description:
  - Runs once, on the controller, for all hosts of the play, and reports every problem of every host at once.
options:
  clock_offset_max: {description: Seconds a clock may be off., type: float, required: true}
  disk_free_mb:
    description: MiB that must be free below each path on a host without the lab's software.
    type: dict
    required: true
  disk_spare_mb:
    description: MiB that must be free there on a host that has the lab's software.
    type: int
    required: true
  python_min: {description: The oldest Python a host may have., type: str, required: true}
  gcc_skew:
    description: What compilers of different major versions are.
    type: str
    choices: [error, warning, ignore]
    required: true
  supported: {description: Versions of each distribution., type: dict, required: true}
  names_managed: {description: Whether a later role writes /etc/hosts., type: bool, required: true}
author: [the hvlab authors]
"""

EXAMPLES = """
# See roles/preflight/tasks/main.yml.
"""

RETURN = """
hosts:
  description:
    - The address, aliases and port of each host.
    - No fact, for Ansible copies all facts of a host for each of its tasks.
  type: dict
  returned: success
problems: {description: All problems, with what to do., type: str, returned: failure}
"""
