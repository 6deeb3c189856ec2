"""What was measured.

In: records, one for each figure; ``outcomes`` makes them of how a case ended. Out: the append-only ``store``
(SQLite, raw files beside it), ``configurations`` (a case without its repeat, with the values of all repeats),
a short ``summary``, the iterations behind the figures (``samples``), and ``tables`` to print.
"""
