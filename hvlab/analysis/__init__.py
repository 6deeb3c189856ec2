"""Conclusions from records: two runs compared, a run against a baseline, scaling, predictions. Pure.

In: records of `hvlab.results`. Out: answers with their certainty, for reports and the command line. Read
`compare` first, which `baseline` and `scaling` use; `model` stands alone.
"""
