"""horovod.torch, answered by torch.distributed."""

from . import elastic
from .compression import Compression
from .functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .mpi_ops import *
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm
