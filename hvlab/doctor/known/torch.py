"""torch.distributed: the store, torchrun, processes that die."""

from hvlab.doctor.cause import BREAKDOWN, END, FACT, Cause

_DIST = "https://docs.pytorch.org/docs/stable/distributed.html"

CAUSES = (
    Cause(
        id="port-in-use",
        title="a port is taken, often by a run that was left over",
        signs=(
            r"EADDRINUSE",
            r"[Aa]ddress already in use",
            r"The server socket has failed to (?:bind|listen)",
            r"Unable to find a port to bind to",
        ),
        why="Another process listens on the port: an earlier run that did not end, or a second job on the host.",
        remedy="ss -ltnp | grep PORT; end what is left over, or another port (--master-port, MASTER_PORT, --rdzv-endpoint HOST:0).",
        source="https://docs.pytorch.org/docs/stable/elastic/run.html",
        weight=FACT,
    ),
    Cause(
        id="store-timeout",
        title="ranks do not reach the first one's store",
        signs=(
            r"RuntimeError: (?:No route to host|Connection refused|Connection timed out|Connection reset by peer|Broken pipe)$",
            r"The client socket has (?:timed out|failed) .{0,60}(?:while trying to connect|after) .{0,60}",
            r"[Ss]ocket [Tt]imeout",
            r"DistStoreError|Stop_waiting response is expected",
            r"RendezvousConnectionError|RendezvousTimeoutError",
            r"TCPStore .{0,80}(?:timed out|timeout|failed|refused)",
            r"connect\(\) timed out\. Original timeout was",
            r"Timed out initializing process group in store based barrier",
            r"failed to recv, got 0 bytes|recvValue failed",
            r"The IPv[46] network addresses of \(\S+, \d+\) cannot be retrieved",
        ),
        why="MASTER_ADDR or MASTER_PORT is wrong or closed by a firewall, the first rank is not there (yet, or any more), or fewer ranks were "
        "started than the world has.",
        remedy="nc -vz MASTER_ADDR MASTER_PORT from every host; the same values and WORLD_SIZE everywhere; look for a rank that ended.",
        source=_DIST,
        weight=BREAKDOWN,
    ),
    Cause(
        id="unused-parameters",
        title="DDP waits for gradients of parameters that were not used",
        signs=(
            r"Expected to have finished reduction in the prior iteration before starting a new one",
            r"[Pp]arameters which did not receive grad",
        ),
        why="Part of the model took no part in the loss, so that its gradients never came.",
        remedy="Use every output in the loss, or DistributedDataParallel(find_unused_parameters=True).",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        weight=FACT,
    ),
    Cause(
        id="ddp-shapes",
        title="the ranks have different models",
        signs=(
            r"DDP expects same model across all ranks",
            r"Detected mismatch between collectives on ranks",
            r"params\[\d+\] in this process with sizes .{0,80}appears not to match",
        ),
        why="Shapes or order of parameters or collectives differ between ranks.",
        remedy="Build the model from the same configuration everywhere (classes from data differ!); TORCH_DISTRIBUTED_DEBUG=DETAIL.",
        source=_DIST,
        weight=FACT,
    ),
    Cause(
        id="process-group-missing",
        title="torch.distributed is used before it was set up",
        signs=(
            r"Default process group has not been initialized",
            r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) expected, but not set",
            r"(?:Horovod|horovod) has not been initialized(?: properly| or MPI has not been enabled)?; use hvd\.init",
        ),
        why="The script was started without a launcher, or calls a collective before init.",
        remedy="Start with torchrun, mpirun or horovodrun, and call init_process_group or hvd.init() first.",
        source=_DIST,
        weight=FACT,
    ),
    Cause(
        id="no-nccl-in-torch",
        title="this torch has no NCCL (or no MPI)",
        signs=(
            r"Distributed package doesn't have (?:NCCL|MPI|UCC) built in",
            r"ProcessGroupNCCL is only supported with GPUs, no GPUs found",
        ),
        why="torch of pip has Gloo and, in CUDA builds on Linux, NCCL; MPI only where torch was built with it. Without a GPU NCCL refuses.",
        remedy="The CUDA build of torch, a host with GPU, or the backend gloo.",
        source=_DIST,
        weight=FACT,
    ),
    Cause(
        id="child-failed",
        title="a rank ended, and torchrun ended the others",
        signs=(
            r"ChildFailedError",
            r"torch\.multiprocessing\.spawn\.Process(?:Exited|Raised)Exception",
            r"Sending process \d+ closing signal SIGTERM",
            r"failed \(exitcode: -?\d+\) local_rank: \d+",
        ),
        why="The launcher shows which rank ended first (Root Cause) and its exit code; -9 is the kernel's memory killer as a rule, -11 a crash.",
        remedy="Read that rank's traceback; @record on main() lets torchrun print it; dmesg for -9.",
        source="https://docs.pytorch.org/docs/stable/elastic/errors.html",
        weight=END,
    ),
    Cause(
        id="local-rank-argument",
        title="the script does not know --local-rank",
        signs=(r"unrecognized arguments: --local[-_]rank",),
        why="torch.distributed.launch hands --local-rank (from torch 2.0 on with a hyphen) to the script, whose parser has another name or none.",
        remedy="Start with torchrun and read os.environ['LOCAL_RANK']; or parser.add_argument('--local-rank', '--local_rank', type=int).",
        source="https://docs.pytorch.org/docs/stable/distributed.html#launch-utility",
        weight=FACT,
    ),
)
