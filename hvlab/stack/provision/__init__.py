"""What the action plugins of ``hvlab.ansible`` decide with, apart from Ansible so that it can be tested.

In: what a host has and what a role asks for. Out: what to do, or why not. ``packages`` and ``managers`` are
about apt, dnf and yum; ``driver`` plans a change of NVIDIA's driver; ``requirements`` lists the Python
packages of an environment; ``packs`` keeps what one host built, and says which host gets it from which.
"""
