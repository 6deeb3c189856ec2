"""The decisions behind the action plugins of ``hvlab.ansible``, kept apart from Ansible to be testable.

In: the state of a host and a role's options. Out: what to do, or why not. ``packages`` is about
apt, dnf and yum; ``driver`` plans a change of NVIDIA's driver; ``python_env`` lists the Python packages of an
environment; ``packs`` keeps what one host built, and decides which host gets it from which.
"""
