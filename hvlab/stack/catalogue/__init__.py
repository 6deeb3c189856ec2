"""The known releases and their requirements: data with sources, and the code that keeps it current.

Data: one file per component, `systems` for operating systems, `gpus` and `capabilities` for GPUs.
`hvlab.stack.resolver` reads them. `differences` compares them with the package index; `update`
writes what differs into them, or into a user's own file.
"""
