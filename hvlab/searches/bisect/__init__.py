"""Which change of the stack made a configuration slower.

In: a fast stack and a slow one (``ends`` reads them), what to measure, a lab. Out: a ``BisectResult``, also
written as ``bisect.md``.

Read ``stack`` first: a stack as items, and the changes from one to the other, one item and one release at a
time. ``result`` halves these changes, tries what it finds alone, and all others without it; it is pure.
``install`` brings a stack onto the hosts, beside the one in use; ``judge`` measures it in turn with the fast
one. ``session`` puts them together.
"""
