"""What is known of failures, and what a log shows of them. Pure; imports nothing of hvlab but its errors.

``cause`` says what an entry is, ``known`` holds the entries by family, ``text`` turns a log into lines that
can be searched, ``reading`` searches them and ranks what is there. What hosts answer when they are asked
belongs beside ``reading``: the entries serve both.
"""
