"""Slurm's configuration: what role slurm decides from its options and the facts of the hosts."""
