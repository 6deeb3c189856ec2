"""Everything that talks to hosts.

``probe`` asks whether they answer, ``playbook`` runs a playbook through ansible-runner (nothing else imports
that), ``gather`` collects facts and other answers, ``verify`` runs the checks of tests/node, ``here`` makes a
lab of the Slurm job that hvlab runs in. ``trust`` keeps and replaces a lab's keys, which ``ssh_keys`` makes
and signs. ``host_keys`` makes the first contact: it asks for keys and compares them, ``known_hosts`` reads
and records them, and ``ssh_client`` logs in.
"""
