"""Which host is slow, and which link? A search that starts with all hosts at once and ends with single pairs.

In: a way to measure some steps on the hosts of a lab. Out: the hosts and links that are slower than the
others, each with a ratio, its interval and the chance of a false alarm; and how much was measured for it.

Read `search` first. `steps` are the measurements of one launch; `suspects` picks suspects from the first
launch and groups hosts that are far apart; `trials` measures a suspect beside controls and judges it. All of
that is pure. `hosts` runs the steps on a lab, through `programs/transfers.py` on every host; `advice` puts
the outcome into words.
"""
