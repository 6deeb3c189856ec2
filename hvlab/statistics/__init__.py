"""Statistics on plain numbers: what is noise, and what is not.

In: the figures of repeats or of the iterations of one launch. Out: where the warm-up ends, a median with its
interval, the ratio of two medians, a verdict, the hosts that are stragglers. Nothing here knows a record.

Read `verdict` first: it defines "faster". `welch` takes out the effect of a round on all launches; the
chances come from it (sides with unlike noise) and from `permutation` (all pairs as one family), medians and
their ratio from `interval`. `between` judges a run against several. `sequential` judges a run that is looked
at while it is measured (`looks`), and says how many repeats would decide. `distribution` describes
iterations and finds where their warm-up ends; `straggler` stands alone. `alpha` is everywhere the share of
comparisons that may hold a false alarm.
"""
