"""Horovod's operations for torch, where Horovod has them."""

from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from .asynchronous import *
from .differentiable import *
from .operations import Adasum, Average, Max, Min, Product, Sum
