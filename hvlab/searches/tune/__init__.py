"""The best settings for a lab, proved: `hvlab tune`.

In: a case, a space of settings (``space``; of the data in ``spaces``, which ``space_file`` reads,
``selection`` takes what acts), a budget. ``search`` proposes settings and races them, ``proposals`` has the
two ways to propose, ``autotune`` asks Horovod's own, ``trials`` measures them in turn with those of today.
Out: the best of them as a settings file, only where ``confirmation``, a run of its own, shows that it is
better than those of today; and ``importance``: which setting mattered.
Settings of the hosts (``host.yml``) are searched in the same way: ``host_session``, with ``host_space`` (what
they may be), ``host_state`` (what each host has, and back), ``host_trials`` and ``host_result``.
"""
