"""Loads all GPUs of the node, or its CPUs where it has none. A complete program: `python3 -c` runs its text.

Arguments: seconds, and patterns of Pythons that may have torch, separated by colons; the process of one GPU,
which this starts itself, also gets its index. In each of ``ROUNDS`` every kind of work runs for the same
time. Prints JSON, with rates in TFLOPS and GB/s:

    {"torch": version, "cuda": version or null,
     "cpu": {"steal", "quota": shares of the time, "thermal": count},
     "smi": [output of `nvidia-smi -q -x` under load],
     "devices": {name: {"model", "group": devices of one group compute alike,
                        "rates": {kind: [one per round]}, "wrong": {kind: number of differing values},
                        "bits": {kind: sum over the bits of the product}, "left_out": {kind: reason}}}}

It ends with 127 where no Python has torch, and with 1 where a device fails.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Callable, Dict, List, Optional, Tuple

NOTHING_TO_RUN = 127
ROUNDS = 12
# Rows of a product's matrices: some milliseconds on either.
ROWS = {"cpu": 1024, "cuda": 8192}
PATTERNS = (0x55555555, -0x55555556, 0, -1)
COPIED = 256 << 20
PIECE = 64 << 20
SMI = ["nvidia-smi", "-q", "-x"]
# Compute capability from which a GPU has the type.
TYPES: Dict[str, Tuple[int, int]] = {
    "fp32": (0, 0),
    "tf32": (8, 0),
    "fp16": (7, 0),
    "bf16": (8, 0),
    "fp8": (8, 9),
}
ON_CPU = ("fp32", "bf16")

Work = Callable[[], Tuple[float, Any]]


def with_torch(places: str) -> Optional[str]:
    """Return a Python of these patterns that has torch, if possible one that can use GPUs."""
    pythons = [python for place in places.split(":") for python in sorted(glob.glob(place))]
    for library in ("libtorch_cuda.so", "libtorch_cpu.so"):
        for python in pythons:
            folder = os.path.dirname(os.path.dirname(python))
            if glob.glob("%s/lib*/python3*/site-packages/torch/lib/%s" % (folder, library)):
                return python
    return None


class Device:
    """One GPU or all CPUs: its kinds of work, and their results."""

    def __init__(self, torch: Any, index: Optional[int]) -> None:
        self.torch = torch
        self.at = torch.device("cpu" if index is None else "cuda:%d" % index)
        self.rates: Dict[str, List[float]] = {}
        self.wrong: Dict[str, int] = {}
        self.bits: Dict[str, int] = {}
        self.left_out: Dict[str, str] = {}
        if index is None:
            names = processor()
            self.model = names.get("model name") or names.get("CPU part") or os.uname().machine
            # Libraries choose their kernels by the flags, and divide a product among the threads.
            flags = zlib.crc32(names.get("flags", names.get("Features", "")).encode())
            self.group = "%s, %d threads, %x" % (self.model, torch.get_num_threads(), flags)
            self.kinds: List[str] = list(ON_CPU)
        else:
            self.model = self.group = torch.cuda.get_device_name(index)
            capability = torch.cuda.get_device_capability(index)
            self.kinds = [kind for kind, least in TYPES.items() if capability >= least]

    def wait(self) -> None:
        """Wait until the device has done all its work."""
        if self.at.type == "cuda":
            self.torch.cuda.synchronize(self.at)

    def prepare(self) -> Dict[str, Work]:
        """Return the work by kind; what a device cannot do is left out with the reason."""
        works: Dict[str, Work] = {}
        for kind in self.kinds:
            self.set_precision(kind)
            try:
                work = self.product(kind)
                work()
                self.wait()
            except (RuntimeError, AttributeError, TypeError, ValueError) as error:
                if "CUDA error" in str(error):
                    raise
                self.left_out[kind] = str(error).splitlines()[0][:200]
            else:
                works[kind] = work
        works["memory"] = self.memory()
        if self.at.type == "cuda":
            works["host_to_device"], works["device_to_host"] = self.copies()
        return works

    def set_precision(self, kind: str) -> None:
        """Let products of fp32 use TF32, or not: it is torch's setting of the whole process."""
        self.torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"

    def product(self, kind: str) -> Work:
        """Return a matrix product of this type, compared bit by bit with the first one."""
        torch, rows = self.torch, ROWS[self.at.type]
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.rand(rows, rows, generator=generator) - 0.5 for _ in range(2))
        types = {"fp16": torch.float16, "bf16": torch.bfloat16}
        to = torch.float8_e4m3fn if kind == "fp8" else types.get(kind, torch.float32)
        a, b = a.to(self.at).to(to), b.to(self.at).to(to)
        one = torch.ones((), device=self.at)

        def multiply() -> Any:
            if kind == "fp8":
                return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
            return a @ b

        first = multiply()
        bits = first.view({4: torch.int32, 2: torch.int16}[first.element_size()])
        self.bits[kind] = int(bits.long().sum())
        flops = 2.0 * rows**3

        def work() -> Tuple[float, Any]:
            return flops / 1e12, (multiply() != first).sum()

        return work

    def memory(self) -> Work:
        """Return a sweep: a pattern is written, copied and read back."""
        torch = self.torch
        if self.at.type == "cuda":
            size = int(torch.cuda.mem_get_info(self.at)[0] * 0.4)
        else:
            size = min(128 << 20, available() // 8)
        source = torch.empty(size // 4, dtype=torch.int32, device=self.at)
        target = torch.empty_like(source)
        patterns = itertools.cycle(PATTERNS)

        def work() -> Tuple[float, Any]:
            pattern = next(patterns)
            source.fill_(pattern)
            target.copy_(source)
            wrong = sum((piece != pattern).sum() for piece in target.split(PIECE))
            # Written, read and written, read.
            return 4.0 * source.numel() * source.element_size() / 1e9, wrong

        return work

    def copies(self) -> Tuple[Work, Work]:
        """Return the copies from and to pinned memory of the host."""
        torch = self.torch
        sent = torch.arange(COPIED // 4, dtype=torch.int32).pin_memory()
        back = torch.empty_like(sent).pin_memory()
        kept = sent.to(self.at)
        there = torch.empty_like(kept)

        def up() -> Tuple[float, Any]:
            there.copy_(sent, non_blocking=True)
            return COPIED / 1e9, (there != kept).sum()

        def down() -> Tuple[float, Any]:
            back.copy_(kept, non_blocking=True)
            self.wait()
            return COPIED / 1e9, int(not torch.equal(back, sent))

        return up, down

    def burn(self, seconds: float) -> None:
        """Run every kind of work in each round."""
        if self.at.type == "cuda":
            self.torch.cuda.set_device(self.at)
        works = self.prepare()
        piece = seconds / ROUNDS / len(works)
        for _ in range(ROUNDS):
            for kind, work in works.items():
                self.set_precision(kind)
                wrong: List[Any] = []
                amount, began = 0.0, time.perf_counter()
                while not wrong or time.perf_counter() - began < piece:
                    done, differing = work()
                    amount += done
                    wrong.append(differing)
                    if len(wrong) % 8 == 0:
                        self.wait()
                self.wait()
                self.rates.setdefault(kind, []).append(amount / (time.perf_counter() - began))
                self.wrong[kind] = self.wrong.get(kind, 0) + sum(map(int, wrong))

    def result(self) -> Dict[str, Any]:
        """Return the device's entry of the printed JSON."""
        names = ("model", "group", "rates", "wrong", "bits", "left_out")
        return {name: getattr(self, name) for name in names}


def processor() -> Dict[str, str]:
    """Return the rows of /proc/cpuinfo about the first processor."""
    first = text("/proc/cpuinfo").split("\n\n")[0]
    rows = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


def text(path: str) -> str:
    """Return a file's text; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def available() -> int:
    """Return the bytes of memory that may be used: the least of the machine's and the cgroups'."""
    table = dict(line.split(":", 1) for line in text("/proc/meminfo").splitlines() if ":" in line)
    sizes = [int(table.get("MemAvailable", "1048576 kB").split()[0]) * 1024]
    for folder in cgroups():
        limit = text(folder + "/memory.max").strip()
        if limit.isdigit():
            sizes.append(int(limit) - int(text(folder + "/memory.current").strip() or 0))
    return max(64 << 20, min(sizes))


def cgroups() -> List[str]:
    """Return the folders of this process's cgroup and all above it (version 2)."""
    own = next((line[3:] for line in text("/proc/self/cgroup").splitlines() if line.startswith("0::")), "/")
    parts = own.strip("/").split("/")
    return ["/".join(["/sys/fs/cgroup", *parts[:length]]).rstrip("/") for length in range(len(parts) + 1)]


def read_throttling() -> Dict[str, float]:
    """Return counters of what keeps CPUs from work: stolen ticks, periods of a quota, thermal events."""
    ticks = [int(word) for word in text("/proc/stat").partition("\n")[0].split()[1:9]]
    counts = {"ticks": float(sum(ticks)), "stolen": float(ticks[7]) if len(ticks) > 7 else 0.0}
    for folder in cgroups():
        rows = dict(line.split() for line in text(folder + "/cpu.stat").splitlines())
        if int(rows.get("nr_throttled", 0)) >= counts.get("ended", 0):
            counts["ended"] = float(rows.get("nr_throttled", 0))
            counts["periods"] = float(rows.get("nr_periods", 0))
    thermal = glob.glob("/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count")
    counts["thermal"] = float(sum(int(text(path) or 0) for path in thermal))
    return counts


def shares(before: Dict[str, float], after: Dict[str, float]) -> Dict[str, float]:
    """Return the counters' growth as shares of the time, and the number of thermal events."""
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    return {
        "steal": round(grown["stolen"] / max(1.0, grown["ticks"]), 3),
        "quota": round(grown["ended"] / max(1.0, grown["periods"]), 3),
        "thermal": grown["thermal"],
    }


def ask_driver(seconds: float, ended: threading.Event, printed: List[str]) -> None:
    """Ask nvidia-smi three times while the GPUs work."""
    while len(printed) < 3 and not ended.wait(seconds / 4):
        try:
            done = subprocess.run(
                SMI, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return
        printed.append(done.stdout.decode("utf-8", "replace"))


def burn(torch: Any, index: Optional[int], seconds: float) -> Dict[str, Any]:
    """Load one GPU, or all CPUs, and return the results."""
    device = Device(torch, index)
    device.burn(seconds)
    return device.result()


def burn_gpus(count: int, seconds: float) -> Tuple[Dict[str, Any], List[str]]:
    """Load each GPU by a process of its own; return their results, and the driver's reports meanwhile."""
    own = text("/proc/self/cmdline").split("\0")[1:-1]
    printed: List[str] = []
    ended = threading.Event()
    threading.Thread(target=ask_driver, args=(seconds, ended, printed), daemon=True).start()
    started = [
        subprocess.Popen(
            [sys.executable, *own, str(index)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
        for index in range(count)
    ]
    outcomes = [(*process.communicate(), process.returncode) for process in started]
    ended.set()
    failed = [
        "GPU %d: %s" % (index, (err.strip().splitlines() or ["it ended with %d" % code])[-1])
        for index, (_, err, code) in enumerate(outcomes)
        if code
    ]
    if failed:
        sys.exit("; ".join(failed))
    return {"GPU %d" % index: json.loads(out) for index, (out, _, _) in enumerate(outcomes)}, printed


def main() -> None:
    """Load all devices, or one, and print the results."""
    seconds, places = float(sys.argv[1]), sys.argv[2]
    if find_spec("torch") is None:
        python = with_torch(places)
        if python is None or "HVLAB_BURN" in os.environ:
            sys.exit(NOTHING_TO_RUN)
        own = text("/proc/self/cmdline").split("\0")[1:-1]
        os.execve(python, [python, *own], {**os.environ, "HVLAB_BURN": "1"})  # noqa: S606 - in its own place
    os.environ.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUBLAS_WORKSPACE_CONFIG=":4096:8", MKL_DYNAMIC="FALSE")
    torch = import_module("torch")
    if len(sys.argv) > 3:
        json.dump(burn(torch, int(sys.argv[3]), seconds), sys.stdout)
        return
    before = read_throttling()
    printed: List[str] = []
    count = torch.cuda.device_count()
    if count:
        results, printed = burn_gpus(count, seconds)
    else:
        results = {"CPUs": burn(torch, None, seconds)}
    about = {"torch": torch.__version__, "cuda": torch.version.cuda, "cpu": shares(before, read_throttling())}
    json.dump({**about, "smi": printed, "devices": results}, sys.stdout)


if __name__ == "__main__":
    main()
