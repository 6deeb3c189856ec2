"""Horovod as it runs: what is built in, ranks that meet, ranks that diverge."""

from hvlab.doctor.cause import BREAKDOWN, CRASH, ECHO, END, FACT, SETTING, SYMPTOM, Cause

_TROUBLE = "https://horovod.readthedocs.io/en/stable/troubleshooting_include.html"

CAUSES = (
    Cause(
        id="horovod-not-built",
        title="Horovod was built without this framework",
        signs=(
            r"Extension horovod\.\w+ has not been built",
            r"Horovod was (?:not )?(?:built|installed) without \w+",
            r"[Nn]o module named '?horovod\.(?:torch|tensorflow|mxnet)\.?mpi_lib",
            r"cannot import name '?mpi_lib",
            r"[Nn]o module named '?horovod\.\w+",
            r"set HOROVOD_WITH_\w+=1 to debug the build error",
        ),
        why="The framework was not there (or not found) when pip built Horovod, or Python takes the source folder it stands in "
        "for the package.",
        remedy="horovodrun --check-build; install the framework first, then HOROVOD_WITH_PYTORCH=1 (or _TENSORFLOW) pip install "
        "--no-cache-dir --no-build-isolation --force-reinstall horovod; run from another folder than Horovod's sources.",
        source="https://github.com/horovod/horovod/issues/2389",
    ),
    Cause(
        id="horovod-no-controller",
        title="Horovod was built without MPI and Gloo, or its extension cannot be loaded",
        signs=(
            r"was NOT built with (?:MPI|Gloo)",
            r"Neither MPI nor Gloo support has been built",
            r"(?:MPI|Gloo) support has not been built",
            r"built with (?:neither|MPI|Gloo).{0,60}(?:disabled|not)",
            r"Horovod has not been built with (?:MPI|Gloo)",
            r"If this is not expected, please reinstall Horovod with HOROVOD_WITH_(?:MPI|GLOO)=1",
            r"Failed to determine if (?:Gloo|MPI) support has been built",
            r"No (?:Allreduce|Allgather|Broadcast|Alltoall|Reducescatter) operation enabled",
        ),
        why="horovodrun asks the extension what it can do; the answer is nothing, or not the one asked for, because it was built so "
        "or because it does not load.",
        remedy="python -c 'import horovod.torch' shows why it does not load; else reinstall with HOROVOD_WITH_MPI=1 or "
        "HOROVOD_WITH_GLOO=1 (CMake needed).",
        source="https://github.com/horovod/horovod/issues/1412",
    ),
    Cause(
        id="horovod-version-mismatch",
        title="the framework was changed after Horovod was built",
        signs=(
            r"HorovodVersionMismatch",
            r"installed with version .{1,80}? but found version",
            r"Horovod was (?:built|compiled|installed) with \w+ version",
        ),
        why="Horovod's extension holds on to the release of the framework that it was built with.",
        remedy="Build Horovod again: pip install --no-cache-dir --force-reinstall --no-deps horovod, or go back to that release.",
        source="https://horovod.readthedocs.io/en/stable/troubleshooting_include.html",
        weight=FACT,
    ),
    Cause(
        id="horovod-no-nccl",
        title="Horovod was built without NCCL or without GPU operations",
        signs=(
            r"Requested ReadyEvent with GPU device but not compiled with CUDA",
            r"HOROVOD_GPU_OPERATIONS.{0,60}(?:NCCL|MPI).{0,60}(?:not|invalid|required)",
            r"NCCL (?:support|operations) .{0,40}not been (?:built|compiled)",
            r"You should not specify both HOROVOD_GPU_OPERATIONS and HOROVOD_GPU_",
        ),
        why="Without HOROVOD_GPU_OPERATIONS at build time, Horovod sends data of GPUs through the CPU.",
        remedy="HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_HOME=... pip install --no-cache-dir --force-reinstall horovod.",
        source="https://horovod.readthedocs.io/en/stable/gpus_include.html",
    ),
    Cause(
        id="horovod-hosts-timeout",
        title="horovodrun's tasks on the hosts do not report in time",
        signs=(
            r"Timed out waiting for \S.{0,120}?(?:Please check (?:connectivity|that you have enough)|connectivity between)",
            r"horovodrun was not able to launch|Horovodrun was unable to start all worker",
            r"task(?:s|-to-task)? .{0,60}did not (?:register|complete)",
            r"Failed to (?:start|launch) horovod (?:task|driver) (?:service|server)",
            r"Launching horovod task function was not successful",
            r"Timed out waiting for tasks to \w+",
            r"(?:wait_for_(?:initial_registration|task_to_task_address_updates|task_to_task_addresses)\(|check_time_out_for\('tasks)",
            r"Launching horovodrun? task function was not successful",
            r"'tasks to (?:start|update task-to-task addresses)'",
        ),
        why="Each host gets a small server that answers on a free port; a firewall or a slow start (imports over NFS) keeps it silent, "
        "or ssh to it did not work.",
        remedy="Open the ports between the hosts; horovodrun --start-timeout 120 --network-interfaces NIC; --verbose shows the step.",
        source="https://github.com/horovod/horovod/issues/975",
        weight=BREAKDOWN,
    ),
    Cause(
        id="horovod-no-common-interface",
        title="the hosts have no network interface in common",
        signs=(
            r"Unable to find a set of common task-to-task communication interfaces",
            r"Unable to find a set of common (?:routed|intersection)",
            r"NoValidAddressesFound",
            r"No common network interfaces? (?:found|could be found)",
        ),
        why="horovodrun looks for an interface of one name through which each host reaches the next; names differ, or only bridges "
        "remain.",
        remedy="ip -br address on each host; horovodrun --network-interfaces eth0 (several, comma apart, where names differ).",
        source="https://github.com/horovod/horovod/issues/2421",
        weight=SETTING,
    ),
    Cause(
        id="mpi-not-the-linked-one",
        title="every rank believes it is alone",
        signs=(
            r"(?:hvd\.)?size\(?\)?[:= ]+1\b.{0,200}?(?:hvd\.)?rank\(?\)?[:= ]+0\b[\s\S]{0,400}?(?:hvd\.)?size\(?\)?[:= ]+1\b",
        ),
        needs=(r"mpirun|horovodrun|-np [2-9]",),
        why="mpirun and the MPI that Horovod is linked with are two, or Horovod has Gloo only and was started by mpirun.",
        remedy="ldd on horovod's mpi_lib against which mpirun; remove the duplicate MPI and build Horovod again.",
        source="https://github.com/horovod/horovod/issues/515",
        weight=BREAKDOWN,
    ),
    Cause(
        id="horovod-mismatch",
        title="ranks call different operations on one tensor",
        signs=(
            r"Mismatched (?:data types|MPI operations|\w+ tensor shapes|\w+ (?:root )?ranks?|\w+ CPU/GPU device|"
            r"allreduce|allgather|broadcast|reduction|prescale|postscale)",
            r"One rank (?:sent|had|specified|has) .{1,200}?another rank",
            r"[Dd]uplicate tensor name|Requested to \w+ a tensor with the same name as another tensor",
            r"Shape mismatch: .{0,100}rank",
            r"Invalid rank in root rank",
        ),
        why="A tensor of one name has another shape, type or operation on another rank: models, batches or branches differ.",
        remedy="The same model, framework release and order of calls everywhere; names of one's own for each call; drop an uneven last "
        "batch; look for code that runs on rank 0 only.",
        source="https://github.com/horovod/horovod/issues/403",
        weight=FACT,
    ),
    Cause(
        id="horovod-stall",
        title="some ranks do not take part in a collective",
        signs=(
            r"\[missing ranks: ",
            r"tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",
            r"Stalled (?:tensor|ops|ranks)",
            r"Missing ranks",
            r"Stall(?:ed)? (?:check|tensor)\S* .{0,80}shutdown",
            r"One or more rank \(marked by",
        ),
        why="Ranks wait for a tensor that the ranks named never submit: they run another branch, have fewer batches, are still busy "
        "(data, checkpoint, validation on rank 0), or have died.",
        remedy="Read the missing ranks' own lines; the same number of steps on each rank, hvd.join() for uneven data; "
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS ends a stall.",
        source="https://horovod.readthedocs.io/en/stable/stall_check.html",
        weight=CRASH,
    ),
    Cause(
        id="keras3-ref",
        title="Horovod's Keras code does not know Keras 3",
        signs=(
            r"'Variable' object has no attribute 'ref'",
            r"module 'keras\S*' has no attribute '(?:optimizers\.legacy|_tf_keras)\S*",
            r"'\w+' object has no attribute '_(?:hvd_\w+|aggregate_gradients|compute_gradients)'",
        ),
        why="TensorFlow 2.16 and later bring Keras 3, whose variables and optimizers are other objects.",
        remedy="TensorFlow 2.15 or earlier; or pip install tf-keras and TF_USE_LEGACY_KERAS=1.",
        source="https://github.com/horovod/horovod/issues/4290",
        weight=FACT,
    ),
    Cause(
        id="horovod-import-order",
        title="torch has to be imported before Horovod",
        signs=(
            r"libtorch\S*\.so(?:\.\d+)*: cannot open shared object file",
            r"libc10\S*\.so: cannot open shared object file",
        ),
        why="Horovod's extension needs torch's libraries, which are found once torch is loaded.",
        remedy="import torch first; or torch is another or a broken installation: install torch and Horovod again in one environment.",
        source="https://github.com/horovod/horovod/issues/3476",
    ),
    Cause(
        id="horovod-elastic",
        title="elastic Horovod has too few hosts left",
        signs=(
            r"Reset limit reached|reset_limit \d+",
            r"[Hh]osts? blacklisted|Blacklist host",
            r"Timed out waiting for (?:minimum number of|\d+) slots",
            r"Not enough (?:slots|hosts) .{0,80}(?:min|elastic)",
            r"No hosts from previous set remaining",
            r"failed to activate new hosts",
        ),
        why="Hosts whose workers fail are left out; when fewer than --min-np slots remain it waits, then ends.",
        remedy="Read why the workers failed; --elastic-timeout and --blacklist-cooldown-range set how long it waits.",
        source="https://horovod.readthedocs.io/en/stable/elastic_include.html",
        weight=SYMPTOM,
    ),
    Cause(
        id="horovod-shut-down",
        title="Horovod was shut down because another rank ended",
        signs=(
            r"Horovod has been shut down\. This (?:was|has been) caused by an exception on one of the rank",
            r"HorovodInternalError",
            r"Horovod background loop uncaught exception: (?![^\n]*/gloo/)",
        ),
        why="One rank failed or left early; the others are told so in the collective they wait in.",
        remedy="Look for the first error of any rank, above or in another rank's file.",
        source=_TROUBLE,
        weight=ECHO,
    ),
    Cause(
        id="horovod-rank-ended",
        title="a rank ended, and horovodrun ended the others",
        signs=(
            r"Horovod detected that one or more processes exited with non-zero status",
            r"Process \d+ exit with status code \d+",
            r"mpirun failed with exit code \d+",
        ),
        why="The launcher tells which rank ended first; why stands in that rank's lines.",
        remedy="Read the first error of the rank that is named; --output-filename FOLDER keeps each rank's lines apart.",
        source=_TROUBLE,
        weight=END,
    ),
    Cause(
        id="tf1-script",
        title="the script is for TensorFlow 1",
        signs=(
            r"module 'tensorflow' has no attribute '(?:Session|ConfigProto|placeholder|global_variables_initializer|get_default_graph|app|flags|logging|contrib|log|train|GPUOptions)'",
            r"No module named 'tensorflow\.contrib'",
        ),
        why="TensorFlow 2 moved or dropped what it calls.",
        remedy="import tensorflow.compat.v1 as tf with tf.disable_v2_behavior(), the example for TensorFlow 2, or TensorFlow 1.15.",
        source="https://www.tensorflow.org/guide/migrate",
        weight=FACT,
    ),
    Cause(
        id="horovod-nat",
        title="hosts are seen under another address than their own",
        signs=(r"declared addresses .{0,400}but has connected from a different address",),
        why="Horovod compares the address that a host tells with the one that it comes from; NAT between the hosts (of a pod network, docker or a cloud) changes it.",
        remedy="The host's network for the containers (hostNetwork: true, --network=host), or a pod network without NAT between pods; or mpirun.",
        source="https://github.com/volcano-sh/volcano/issues/859",
        weight=FACT,
    ),
    Cause(
        id="horovod-kvstore",
        title="a host does not reach the server through which horovod.run hands over its function",
        signs=(
            r"(?:Put|Read) data (?:input|from) KVStore server failed",
            r"KVStore server started[^\n]{0,80}\n(?:[^\n]*\n){0,40}?[^\n]*(?:TimeoutError|URLError|ConnectionRefusedError)",
        ),
        why="The function and its result go over HTTP to a port of the host that started: a firewall, an http_proxy in the environment, or the first of the common interfaces is one that the others do not reach.",
        remedy="unset http_proxy and https_proxy (or no_proxy with the hosts); --network-interfaces with the one that all share; open the ports.",
        source="https://github.com/horovod/horovod/issues/1801",
        weight=BREAKDOWN,
    ),
)
