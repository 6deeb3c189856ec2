"""The limits of all checks at all stages: one table, one value a quantity."""

from __future__ import annotations

# --- clocks, in seconds
# torchrun ends if workers' clocks differ by more (utils/setup_timesync.sh in
# aws-samples/awsome-distributed-training). Below it, only the times in logs and records do not compare.
CLOCK_OFFSET_S = 5.0
CLOCK_DOUBTFUL_S = 1.0
# MUNGE, with which Slurm authenticates, fails beyond the life of its credentials (munged(8)). Only then is a
# node drained for what the controller's clock says: that may be a laptop's, and wrong itself.
CLOCK_CONTROLLER_S = 300.0
# Answers of one round trip arrive at different times: clocks may seem to differ by this much.
ANSWERS_APART_S = 55.0

# --- folders and memory
# Docker's default shared memory, with which NCCL fails; and the size that NCCL's guide asks for.
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#docker
SHM_LEAST_MIB = 64
SHM_MIB = 1024
# As sites publish them for LBNL's node health check: 1 % of /tmp and 5 % of /; 100 and 1000 inodes
# (https://curc.readthedocs.io, nhc.conf). One percent of a file server is much, so each has a bound in GiB.
DISK_LEAST, DISK_LITTLE = (0.01, 10), (0.05, 50)
INODES_LEAST, INODES_FEW = 100, 1000
# With less, a launcher cannot write its session's files.
DISK_FULL_MIB = 64
TMP_MODE = "1777"
# A Unix socket's path has 107 characters, and PMIx puts some 50 of its own below TMPDIR.
TMPDIR_LENGTH = 55
# RDMA locks the memory that it registers.
MEMLOCK_KIB = 1024 * 1024
# The kernel's default for a process; and the processes and threads of a few ranks, a thread for each core.
OPEN_FILES, PROCESSES = 1024, 1024
# The kernel keeps about 1.6 % of the memory for its own tables, and one of 32 modules is 3.1 %.
MEMORY_MISSING, MEMORY_MISSING_GIB = 0.03, 1.0
# mcelog acts on a module from the same rate on: ce-error-threshold = 10 / 24h (mcelog.conf).
CORRECTED_A_DAY = 10

# --- networks
# More link losses are "a strong indicator": https://github.com/nebius/soperator/issues/481
LINK_FALLS = 10
# The limit of NodeNetworkReceiveErrs in https://github.com/prometheus/node_exporter (docs/node-mixin).
PACKET_ERRORS = 0.01

# --- GPUs
# A little less than nominal is the driver's own use; a tenth less is memory taken out of use.
GPU_MEMORY = 0.95
# Azure's node health check fails from here on; the table of the infoROM holds 64.
PAGES_RETIRED = 62
# A machine type expects this share of the bandwidths that a good host reached.
BANDWIDTH = 0.95
# Equal GPUs differ by 8 % on average, and the slowest take 1.5 times as long: https://arxiv.org/abs/2208.11035
DEVICE_SLOWER = 0.1

# --- processors
# A share of the time, or of a quota's periods; a host that does nothing else loses less.
CPU_HELD_BACK = 0.1
