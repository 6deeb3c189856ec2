"""Is a node fit for work? Questions to the node -> readings -> findings, against what its machine type has.

Read :mod:`node.subjects` first, then :mod:`ask` and :mod:`expected`.
"""
