"""Is a host right? Questions to hosts, and judges that say what is wrong, why, and which role mends it.

A file a subject, at four stages: see :mod:`registry` first. What runs on a node by itself is in :mod:`node`.
"""
