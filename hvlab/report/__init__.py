"""A run as a report: HTML in both languages, Markdown with plots beside it, or PDF.

In: a run's records and the files in its folder (`data`). Out: a file (`write`). In between stands a document
in no language (`blocks`); `words` says it in English or Chinese from `templates/report/words`. Read
`document` first: it names every section, each made by the module of its name; `answer` is what all begins
with. `html`, `markdown` and `pdf` write it, `figures` (plotly) and `images` (matplotlib) draw it. `history`
is a page on several runs; `fill` and `analysis` fill in a lab sheet.

Nothing is imported here, because the parts of a report take long to load.
"""
