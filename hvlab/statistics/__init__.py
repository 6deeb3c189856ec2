"""Statistics on plain numbers: what is noise, and what is not.

In: the figures of repeats or of the iterations of one launch. Out: where the warm-up ends, a median with its
interval, the ratio of two medians, a verdict, the hosts that are stragglers. Nothing here knows a record.

Read `verdict` first: it says what "faster" rests on. `rounds` takes out what a round does to all launches;
the chances come from `permutation` (all pairs as one family) and `welch` (sides with unlike noise), the
interval from `ratio`. `between` judges a run against several. `sequential` judges a run that is looked at
while it is measured (`looks`), `power` says how many repeats would decide; `distribution` describes
iterations. `interval`, `warmup` and `straggler` stand alone. `alpha` is everywhere the share of comparisons
that may hold a false alarm.
"""
