"""The user's machines and requests, as objects.

In: an Ansible inventory, and the facts of its hosts. Out: a frozen ``Lab`` of ``Host`` objects, or one
error with every problem. Read ``inventory`` first, then ``backends``, the table of data planes, and
``variants``: which of them these hosts can run, by the inventory and by facts. ``environment`` reads facts.
``hvlab init`` writes an inventory with ``host_patterns`` and ``new_inventory``.
"""
