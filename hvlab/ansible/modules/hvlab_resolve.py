# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Documentation of hvlab_resolve; the work is done by the action plugin of that name."""

DOCUMENTATION = """
module: hvlab_resolve
short_description: Choose the versions of all hosts of the play
description:
  - Runs once, on the controller, from the facts of all hosts and the pins of the inventory. C(hvlab plan)
    prints the same.
  - Where no versions fit together, the failure names the smallest set of pins and facts that exclude one
    another.
  - With C(--limit), the versions in C(.hvlab-lock.json) beside the inventory are pins for the hosts of the
    play. What differs from that file is a warning.
options:
  write_lock:
    description: Whether to keep the versions in that file.
    type: bool
    default: false
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Resolve which versions fit together on all hosts
  hvlab_resolve:
  run_once: true
"""

RETURN = """
stacks:
  description:
    - The versions of each host.
    - No fact, for Ansible copies all facts of a host for each of its tasks.
  type: dict
  returned: success
notes: {description: What there is to know of the choice., type: list, elements: str, returned: success}
"""
