"""Known failures, and their traces in logs. Pure.

Read ``cause`` first: it defines an entry of ``knowledge``. ``text`` turns a log into searchable lines,
``reading`` searches them and ranks the causes. ``hvlab.checks`` finds the same causes in hosts' answers,
and ``proofs`` says how to put a cause into hosts.
"""
