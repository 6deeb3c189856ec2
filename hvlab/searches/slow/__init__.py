"""Which host is slow, and which link? A search that starts with all hosts at once and ends with single pairs.

In: a way to measure some steps on the hosts of a lab. Out: the hosts and links that are slower than the
others, each with a ratio, its interval and the chance of a false alarm; and how much was measured for it.

Read `search` first. `steps` says what one launch measures, `suspects` what the first launch points at, and
which hosts are far from each other, `trials` how a suspect is measured beside others, and when it is slow.
All of that is pure. `hosts` runs the steps on a lab, through `programs/transfers.py` on every host; `advice`
says what to do next.
"""
