"""Lets the tests import what modules share, under the name that Ansible gives it on a host."""

import ansible.module_utils

from hvlab.paths import project_dir

ansible.module_utils.__path__.append(str(project_dir() / "hvlab/ansible/module_utils"))
