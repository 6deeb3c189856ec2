"""Everything that talks to hosts.

``probe`` asks whether they answer, ``trust`` makes and keeps the keys, ``playbook`` runs a playbook
through ansible-runner (nothing else imports that), ``facts`` gathers, ``verify`` runs the checks of
tests/node. The first contact is made by ``host_keys``, which asks for keys and compares them,
``known_hosts``, which reads and records them, and ``ssh_client``, which logs in.
"""
