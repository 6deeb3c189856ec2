"""Everything that talks to hosts.

``probe`` asks whether they answer, ``trust`` makes and keeps the keys, ``playbook`` runs a playbook
through ansible-runner (nothing else imports that), ``facts`` gathers, ``verify`` runs the checks of
tests/node.
"""
