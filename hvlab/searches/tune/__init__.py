"""The best settings for a lab, proved: `hvlab tune`.

In: a case, a space of settings (``space``; ``space_file`` reads it, and takes of the data in ``spaces`` what
acts), a budget. ``search`` proposes settings and races them, ``autotune`` asks Horovod's own, ``trials``
measures them in turn with those of today. Out: the best of them as a settings file, only where
``confirmation``, a run of its own, shows that it is better than those of today; and in ``result`` which
setting mattered. Settings of the hosts (``host.yml``) are searched in the same way: ``host_session``, with
``host_space`` (what they may be) and ``host_state`` (what each host has, and back).
"""
