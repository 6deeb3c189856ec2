"""From a request to its records.

In: a suite or the options of ``hvlab bench``, and a lab. Out: records in the store, raw files beside
them. Read ``matrix`` first: suite -> blocks of axes (``suite``, ``placement``) -> cases (``matrix``) ->
a schedule with the command of each (``schedule``) -> ``measure``, which runs the pending ones and
collects their files, from which ``results.outcomes`` makes records. ``looks`` says which cases more repeats
are worth, ``sides`` measures two settings in turn, ``resume`` restores an interrupted run, or one to measure
again. Where Slurm has the hosts, ``allocation`` asks for them, again when one ends too early.
``manifests`` writes a schedule as jobs for Kubernetes instead.
"""
