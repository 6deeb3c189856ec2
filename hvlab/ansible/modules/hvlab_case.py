#!/usr/bin/python
"""Documentation of hvlab_case; the work is done by the action plugin of that name."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: hvlab_case
short_description: Run one case of a benchmark on its first host and fetch its files
description:
  - Hands the case to C(case.py) over one connection, which starts the launcher, ends it
    when it runs over its time, and sends back a tar of the case's folder.
  - The files are on the controller, in a folder named after the case beside the plan, before the task ends.
  - A case that fails does not fail the task; its C(case.json) says so.
options:
  plan:
    description: The file that C(hvlab bench) wrote; it holds every case's argv.
    type: path
    required: true
  case:
    description: The case to run. Not used with O(state=checked).
    type: str
  state:
    description:
      - With V(checked), compare what the cases need with the hosts' facts, which are written beside the plan.
      - A backend that was requested by name and is not built fails; another one is left out.
    type: str
    choices: [run, checked]
    default: run
author: hvlab
"""

EXAMPLES = r"""
- name: Run a case
  hvlab_case:
    plan: /home/me/results/runs/20261120T155301Z-ab12/plan.json
    case: allreduce-mpi-2x1-r1
  delegate_to: node1
"""

RETURN = r"""
cases:
  description: With O(state=checked), the cases to run.
  returned: state=checked
  type: list
heads:
  description: With O(state=checked), the first host of each case, which starts it.
  returned: state=checked
  type: dict
stop:
  description: Further cases are of no use on this host.
  returned: on failure
  type: bool
lost:
  description: The connection to the host broke.
  returned: on failure
  type: bool
"""
