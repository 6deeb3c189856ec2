"""A run as a report: HTML in both languages, Markdown with plots beside it, or PDF.

In: a run's records and the files in its folder (`data`). Out: a file (`write`). In between: `report` analyses
the run once, with a module for each subject: `trainings`, `collectives`, `compression`, `comparison`,
`verdicts`, `answer`, `prediction`, `conditions`, `tuning`. `sections` lists the sections, and gives each
template in `templates/report` what it shows; `words` says it in a language from `phrases`; `page` sets it as
HTML or Markdown. Plots are drawn by plotly (`plots`) or matplotlib (`images`). `history` is a page on several
runs; `fill` and `sheet` fill in a lab sheet.

Nothing is imported here, because the parts of a report take long to load.
"""
