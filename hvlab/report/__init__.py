"""A run as a report: `data` reads it, `document` puts it together, `html`, `markdown` and `pdf` write it.

A document is of no language (`blocks`); `words` says it. Nothing here is imported by naming the package, for
a report's parts take long to load.
"""
