"""Watch how a user's own training connects its ranks: loaded by every Python process of the command.

command.py puts this file under the name sitecustomize.py on PYTHONPATH. When a process initialises Horovod or
torch.distributed, their own report goes into a file in $HVLAB_EVIDENCE. Rank 0 of Horovod also writes its
timeline to $HVLAB_TIMELINE, up to a limit. With $HVLAB_EXPLAIN, steps of torch's optimizers are recorded, see
step_parts.py. Nothing else changes. Needs Python 3.8+ and no package.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import Any, Callable

# Maximum size of a timeline.
ENOUGH = 2**20
TICK_S = 0.5
ASKED = ("mpi_enabled", "gloo_enabled", "nccl_built", "ccl_built", "mpi_threads_supported")


class Watcher(MetaPathFinder):
    """Finds modules as Python does, and patches those of ``WATCHED`` after loading."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return the loader of a watched module; None leaves all others to Python."""
        if name not in WATCHED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            WATCHED[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def watch_horovod(module: Any) -> None:
    plain, end = module.HorovodBasics.init, module.HorovodBasics.shutdown
    # The processes that write one: a forked child has no thread that would.
    writing: list[int] = []

    @functools.wraps(end)
    def shutdown(self: Any) -> Any:
        # Horovod drops what its timeline has not written (TimelineWriter::Shutdown); a stop writes it.
        while writing and writing.pop() == os.getpid():
            with contextlib.suppress(Exception):
                self.stop_timeline()
        return end(self)

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **more: Any) -> Any:
        result = plain(self, *args, **more)
        with contextlib.suppress(Exception):
            state = {}
            for name in ASKED:
                with contextlib.suppress(Exception):
                    state[name] = int(getattr(self, name)())
            places = {
                name: int(getattr(self, name)()) for name in ("rank", "size", "local_size", "cross_size")
            }
            note({"framework": "horovod", **places, "state": state, "versions": versions()})
            timeline = os.environ.get("HVLAB_TIMELINE")
            if timeline and places["rank"] == 0 and not os.path.exists(timeline):
                self.start_timeline(timeline)
                writing.append(os.getpid())
                threading.Thread(target=until_enough, args=(self, timeline), daemon=True).start()
        return result

    module.HorovodBasics.init, module.HorovodBasics.shutdown = init, shutdown


def until_enough(basics: Any, timeline: str) -> None:
    """Stop a timeline that has grown large enough."""
    while True:
        time.sleep(TICK_S)
        with contextlib.suppress(OSError):
            if os.path.getsize(timeline) > ENOUGH:
                with contextlib.suppress(Exception):
                    basics.stop_timeline()
                return


def watch_distributed(module: Any) -> None:
    plain = module.init_process_group

    @functools.wraps(plain)
    def init_process_group(*args: Any, **more: Any) -> Any:
        result = plain(*args, **more)
        with contextlib.suppress(Exception):
            about = {"rank": module.get_rank(), "size": module.get_world_size()}
            groups = {"backend": str(module.get_backend()), "size": about["size"]}
            own = getattr(sys.modules.get("horovod"), "LIBRARY", "torch")
            note({"framework": "ddp", **about, "state": groups, "versions": versions(), "library": own})
        return result

    module.init_process_group = init_process_group


WATCHED: dict[str, Callable[[Any], None]] = {
    "horovod.common.basics": watch_horovod,
    "torch.distributed.distributed_c10d": watch_distributed,
}


def watch_optimizer(module: Any) -> None:
    """Record the steps of this process."""
    import step_parts  # noqa: PLC0415 - beside this file

    def report(parts: dict[str, Any]) -> None:
        path = os.path.join(os.environ["HVLAB_EVIDENCE"], "{}.step".format(os.getpid()))
        with open(path, "w") as file:
            json.dump(parts, file)

    step_parts.watch(module, report)


def watch_waiting(module: Any) -> None:
    """Record how long Horovod's collectives are waited for."""
    import step_parts  # noqa: PLC0415 - beside this file

    module.synchronize = step_parts.time_waits(module.synchronize)


if os.environ.get("HVLAB_EXPLAIN"):
    WATCHED.update({"torch.optim.optimizer": watch_optimizer, "horovod.torch.mpi_ops": watch_waiting})


def versions() -> dict[str, str]:
    loaded = {name: sys.modules.get(name) for name in ("horovod", "torch", "tensorflow")}
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        **{name: str(getattr(module, "__version__", "")) for name, module in loaded.items() if module},
    }


def note(evidence: dict[str, Any]) -> None:
    """Write evidence atomically; the first of a process counts."""
    folder = os.environ.get("HVLAB_EVIDENCE")
    path = os.path.join(folder or "", "{}-{}.json".format(evidence["framework"], os.getpid()))
    if not folder or os.path.exists(path):
        return
    with open(path + ".part", "w") as file:
        json.dump(evidence, file)
    os.replace(path + ".part", path)


if os.environ.get("HVLAB_EVIDENCE"):
    sys.meta_path.insert(0, Watcher())
