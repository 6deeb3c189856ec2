# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Documentation of hvlab_slurm; the work is done by the action plugin of that name."""

DOCUMENTATION = """
module: hvlab_slurm
short_description: Decide what Slurm's files say
description:
  - Decides on the controller, from the options of role slurm and the facts of the hosts, and changes nothing.
    C(hvlab/stack/provision/slurm) has the rules.
  - C(checked) fails where another Slurm, another database or another queue is on the host.
  - C(agreed), run once, fails where the options or the hosts disagree.
  - C(described) returns the host as a node of slurm.conf; C(planned) what its files say.
  - C(associated) returns the commands of sacctmgr that register the lab and its accounts.
options:
  state:
    description: What to decide.
    type: str
    choices: [checked, agreed, described, planned, associated]
    required: true
  request:
    description: The role's options, with the fields of C(hvlab.stack.provision.slurm.host.SlurmRequest).
    type: dict
    required: true
    options:
      cluster: {description: ClusterName., type: str}
      controller: {description: The host that runs slurmctld., type: str}
      hosts: {description: All hosts of the cluster., type: list, elements: str}
      addresses: {description: "The hosts, each with its C(address).", type: dict}
      partition: {description: The default partition., type: str}
      partitions: {description: All partitions., type: list, elements: dict}
      settings: {description: Settings of slurm.conf., type: dict}
      lab_user: {description: The user whose jobs run., type: str}
      munge_key_file: {description: munge's key on the controller., type: str}
      health_check: {description: The program that prints faults., type: str}
      accounting: {description: Whether slurmdbd runs., type: bool}
      accounts: {description: Accounts with shares and users., type: list, elements: dict}
      rest: {description: Whether slurmrestd runs., type: bool}
      slots: {description: Ranks of this host., type: int}
      gpus: {description: GPUs of this host., type: int}
      gpu_type: {description: Their model., type: str}
      features: {description: Features of this host., type: list, elements: str}
      less_hardware: {description: Whether a line may follow lost hardware., type: bool}
  system:
    description: The variables of the role for this operating system.
    type: dict
    required: true
  text:
    description: >-
      The answer of the host: of C(systemctl is-active) for C(checked), of C(slurmd -C) for C(described), of
      C(sinfo) on hosts that are left out for C(planned), of C(sacctmgr) for C(associated).
    type: str
    default: ""
  answers:
    description: >-
      What all hosts of the play registered, in their order: the lab user's UID for C(agreed), their nodes for
      C(planned).
    type: list
    elements: dict
    default: []
  uid:
    description: The lab user's UID on this host, for C(planned).
    type: str
    default: ""
  written:
    description: Whether hvlab wrote the slurm.conf that is there.
    type: bool
    default: false
  database:
    description: Whether hvlab wrote the database's settings that are there.
    type: bool
    default: false
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Decide what Slurm's files say
  hvlab_slurm:
    state: planned
    request: "{{ __slurm_request }}"
    system: "{{ slurm_system }}"
    answers: "{{ ansible_play_hosts | map('extract', hostvars, '__slurm_node') }}"
  register: __slurm_plan
"""

RETURN = """
node: {description: The host's line in slurm.conf., type: dict, returned: for C(described)}
settings: {description: The settings of slurm.conf., type: dict, returned: for C(planned)}
nodes: {description: Its nodes., type: dict, returned: for C(planned)}
partitions: {description: Its partitions., type: list, elements: dict, returned: for C(planned)}
cgroup: {description: The settings of cgroup.conf., type: dict, returned: for C(planned)}
mpi_conf: {description: The settings of mpi.conf., type: dict, returned: for C(planned)}
environment: {description: PMIx's settings where there is no mpi.conf., type: dict, returned: for C(planned)}
gpus: {description: Whether any node has GPUs., type: bool, returned: for C(planned)}
daemons: {description: The host's daemons., type: list, elements: str, returned: for C(planned)}
record: {description: What the role records on the host., type: dict, returned: for C(planned)}
commands: {description: Arguments of sacctmgr., type: list, elements: list, returned: for C(associated)}
"""
