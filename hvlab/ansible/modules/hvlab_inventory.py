# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Documentation of hvlab_inventory; the work is done by the action plugin of that name."""

DOCUMENTATION = """
module: hvlab_inventory
short_description: Judge the inventory itself, before any host is contacted
description:
  - Fails with everything that is wrong in the inventory's files, names and variables.
options: {}
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Judge the inventory
  hvlab_inventory:
  run_once: true
"""

RETURN = """
problems: {description: All that is wrong., type: str, returned: failure}
"""
