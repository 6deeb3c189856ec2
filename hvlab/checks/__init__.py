"""Is a host as it should be? Questions to hosts, and judges that report faults, causes and the role to run.

One file per subject, at four stages: see :mod:`registry` first. Nodes run the code in :mod:`node`.
"""
