#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Documentation of hvlab_fetch; the work is done by the action plugin of that name."""

DOCUMENTATION = """
module: hvlab_fetch
short_description: Fetch what roles will build from, for all hosts of the play, before anything is built
description:
  - Runs once, on the controller, and fills its cache, several things at a time. What is there already, or is
    not needed because its pack is there or a host has it, is not fetched. All that is missing fails together.
  - A role lists in C(__ROLE_fetch), in its C(vars/main.yml), the arguments of C(hvlab_source) or
    C(hvlab_wheels). C(each) names a variable and its values; C(when) leaves an entry out; C(pack) has C(name)
    and C(path) of what is built from it, and C(inputs) where they are known before.
options:
  roles: {description: Roles in the order of the playbook., type: list, elements: str, required: true}
  gpu_roles: {description: Roles of the hosts with GPUs alone., type: list, elements: str, default: []}
  to: {description: "A folder that gets a copy of it all, and of the packs.", type: path}
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Fetch what is to be built
  hvlab_fetch:
    roles: [openmpi, python_env, horovod]
  run_once: true
"""

RETURN = """
fetched: {description: "What is needed, each with its files.", type: dict, returned: success}
new: {description: Packs that do not exist yet., type: list, elements: str, returned: success}
"""
