# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Documentation of hvlab_packages; the work is done by the action plugin of that name."""

DOCUMENTATION = """
module: hvlab_packages
short_description: Install, pin, hold or remove packages with apt, dnf or yum
description:
  - Costs no round trip if the facts show that nothing has to be done.
  - The package manager simulates the change first. What it cannot do, and what it would remove besides, is
    refused before anything is changed; so are packages that somebody else holds.
  - Packages go and come in one transaction, where the package manager can do that.
options:
  name:
    description: Packages, each a name or a dict of name and version. A version is exact or ends in C(*).
    type: list
    elements: raw
    required: true
  state:
    description:
      - C(present) installs, C(absent) removes and purges.
      - C(possible) has the package manager say that the packages could be installed. It enables the module
        streams and changes nothing else.
    type: str
    choices: [present, absent, possible]
    default: present
  hold:
    description: Keep the packages at their version. Without it holds stay as they are.
    type: bool
    default: false
  replaces:
    description: Patterns of names of installed packages that are removed for those that come.
    type: list
    elements: str
    default: []
  modules:
    description: Module streams of dnf to enable before, each as C(name:stream).
    type: list
    elements: str
    default: []
  allow_removal:
    description:
      - Patterns of names of further packages that may be removed.
      - Installing removes no others by default; with C(absent) all may go that need the removed ones.
    type: list
    elements: str
  remedy:
    description: What a refusal tells the user to do where other packages would be removed.
    type: str
    default: list what may go in `replaces` or `allow_removal` of the task
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Install NCCL and keep it at its version
  hvlab_packages:
    name:
      - {name: libnccl2, version: 2.21.5-1+cuda12.4}
      - {name: libnccl-dev, version: 2.21.5-1+cuda12.4}
    hold: true
"""

RETURN = """
packages:
  description: The packages that were installed, removed or held, or would be in check mode.
  type: list
  elements: str
  returned: always
removed:
  description: The packages that are gone, or would be in check mode.
  type: list
  elements: str
  returned: changed
comes: {description: The packages that would come, with their versions., type: dict, returned: in check mode}
"""
