"""Which change of the stack made a configuration slower.

In: a fast and a slow stack (read by ``ends``), a benchmark, a lab. Out: a ``BisectResult`` and ``bisect.md``.

Read ``stack`` first: a stack as items, and the changes between two, one item and one release at a time.
``result`` (pure) halves these changes, tries the culprit alone, and all others without it. ``session``
installs a stack beside the one in use, and ``judge`` measures it in turn with the fast one.
"""
