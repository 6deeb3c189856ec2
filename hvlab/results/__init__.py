"""What was measured.

In: records, one for each figure. Out: the append-only ``store`` (SQLite, raw files beside it),
``configurations`` (a case without its repeat, with the values of all repeats), a short ``summary``, the
iterations behind the figures (``samples``), and ``tables`` to print.
"""
