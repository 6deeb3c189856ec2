"""The code that runs on a node: standard library only, Python 3.8 or later, imports nothing else of hvlab.

One module a subject, each with ``QUESTIONS`` for :mod:`probe`, ``readings(answers)``, ``LEARNED`` and
``findings(readings, expected)``; :mod:`subjects` lists them.
"""
