"""What is known of failures, and what a log shows of them. Pure.

Read ``cause`` first: what an entry of ``knowledge`` is. ``text`` turns a log into lines that can be searched,
``reading`` searches them and ranks what is found. ``hvlab.checks`` finds the same causes in what hosts
answer, and ``proofs`` says how to put a cause into hosts.
"""
