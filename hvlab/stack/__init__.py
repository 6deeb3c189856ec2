"""Which versions belong on a host, why, and what it takes to install them.

Read ``resolver`` first: it chooses among the releases of ``catalogue``. ``provision`` decides what to change
on a host.
"""
