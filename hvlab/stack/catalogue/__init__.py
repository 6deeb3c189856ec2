"""Which releases there are and what each needs: data with sources, and what keeps it up to date.

Data: one file for each component, `systems` for operating systems, `gpus` and `capabilities` for GPUs.
`hvlab.stack.resolver` reads them. `differences` compares them with the package index (`index`); `update`
writes what differs into them, or into a user's own file.
"""
