"""What was measured.

In: records, one for each figure (`record`). Out: the append-only `store` (SQLite, raw files beside it),
`configurations` (cases without their repeat, with the values of all repeats), a short `summary`, the
iterations behind the figures (`samples`), and `tables` to print.
"""
