"""Many benches to find one thing: the best settings, a slow host, or the change to blame.

``tune``, ``slow`` and ``bisect`` are independent; each says which of its files to read first.
"""
