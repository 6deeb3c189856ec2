# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Documentation of hvlab_trust; the work is done by the action plugin of that name."""

DOCUMENTATION = """
module: hvlab_trust
short_description: Give a host and its lab user what strict SSH within the lab needs
description:
  - Makes the lab's SSH certificate authority on the controller, signs the host's key and the key of the
    ranks there, and writes all files to the host in one round trip,
    those of sshd and ssh from the templates of role ssh_trust.
options:
  lab: {description: Name of the lab., type: str, required: true}
  user: {description: The user that may log in from host to host., type: str, required: true}
  home: {description: Home directory of that user., type: path, required: true}
  hosts:
    description: The lab's hosts, each name with its address, aliases and port.
    type: dict
    required: true
  host_days: {description: How long the certificate of a host lasts., type: int, required: true}
  user_days: {description: How long the certificate of the lab user lasts., type: int, required: true}
author: [the hvlab authors]
"""

EXAMPLES = """
# See roles/ssh_trust/tasks/main.yml.
"""

RETURN = """
paths: {description: The files that were changed., type: list, elements: str, returned: success}
"""
