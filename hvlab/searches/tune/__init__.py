"""The best settings for a lab, proved: `hvlab tune`.

In: a case, a space of settings (``space``; ``space_file`` reads it, and selects from ``spaces`` what acts), a
budget. ``search`` proposes settings and races them, ``autotune`` asks Horovod's own, ``trials`` measures them
in turn with today's. Out: the best as a settings file, if ``confirmation``, a run of its own, proves it
better; and in ``result`` the importance of each setting. Settings of hosts (``host.yml``): ``host_session``,
with ``host_space`` (possible values) and ``host_state`` (each host's state, and its restoration).
"""
