"""What speaks for a cause and against it: who says a line, what contradicts it, what its numbers mean."""

import pytest
from click.testing import CliRunner

from hvlab.cli.doctor import command
from hvlab.doctor.reading import diagnose

CONTRADICTED = {
    "a limit that is unlimited": (
        """\
$ ulimit -l
unlimited
n1:77:99 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory
n1:77:99 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<33> with status=5 opcode=0""",
        ("ib-completion", "memlock"),
    ),
    "a fabric manager beside PCIe cards": (
        """\
NVIDIA A100-PCIE-40GB
[  112.111222] NVRM: Xid (PCI:0000:3b:00): 62, pid=1234, 0x2358 0x0 0x0
nvidia-fabricmanager.service: Main process exited, code=exited, status=1/FAILURE""",
        ("xid", "service-failed", "fabric-manager"),
    ),
    "a GID on InfiniBand": (
        """\
n1:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB ib0:10.1.0.1<0>
n1:7:9 [0] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12, opcode 0""",
        ("ib-completion", "roce-gid"),
    ),
    "a missing key that is there and cannot be read": (
        """\
-rw-r----- 1 root root 2794 May  1 10:00 /usr/share/keyrings/nvidia.gpg
W: GPG error: https://a.example  InRelease: The following signatures couldn't be verified because the \
public key is not available: NO_PUBKEY A4B469963BF863CC""",
        ("permission",),
    ),
    "another kernel's module under lockdown": (
        """\
modprobe: ERROR: could not insert 'nvidia': Exec format error
kernel: Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7""",
        ("secure-boot",),
    ),
    "a node that is down, and why": (
        """\
debug*       up   infinite      1   down n1
error: Node configuration differs from hardware: CPUs=2:4(hw)""",
        ("slurm-node-hardware", "slurm-nodes-down"),
    ),
    "a catch-all before the cause": (
        """\
*** An error occurred in MPI_Allreduce
NCCL WARN Cuda failure 'unhandled cuda error'
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB""",
        ("cuda-oom", "nccl-cuda-error", "mpi-error"),
    ),
}


@pytest.mark.parametrize(("log", "causes"), CONTRADICTED.values(), ids=CONTRADICTED)
def test_what_is_contradicted_sinks_or_goes(log, causes):
    assert tuple(each.cause.id for each in diagnose(log.splitlines()).causes) == causes


@pytest.mark.parametrize(
    ("line", "contradiction", "cause"),
    [
        ("Domain socket directory /run: No such file or directory", "slurmd started on Wed", "slurm-folders"),
        ("could not insert 'nvidia': Key was rejected by service", "SecureBoot disabled", "secure-boot"),
        ("Nouveau kernel driver is currently in use", "\tKernel driver in use: nvidia", "nouveau"),
        (
            "Your kernel headers for kernel 6.1.0-1 cannot be found",
            "linux-headers-6.1.0-1 is already the newest version",
            "kernel-headers",
        ),
        (
            "sinfo: error: Unable to contact slurm controller",
            "Slurmctld(primary) at n1 is UP",
            "slurm-controller",
        ),
        ("modprobe: FATAL: Module nvidia-peermem not found", "nvidia_peermem 16384 0", "peermem"),
        ("        Physical state: Polling", "State: Active\nPhysical state: LinkUp", "ib-port-down"),
        ("E: Release file for http://a is not valid yet", "System clock synchronized: yes", "clock"),
        ('"ExitCode": 137,', '"OOMKilled": false,', "killed-137"),
        ("CUDA out of memory.", "Tried to allocate more than 1EB memory.", "cuda-oom"),
        ("pull access denied for a", "Status: Downloaded newer image for b", "image-pull"),
        ("E: are you root?", "uid=0(root) gid=0(root)", "root-needed"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "nvidia 14409728 9",
            "driver-not-loaded",
        ),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
            "docker.service\n Active: active (running)",
            "docker-daemon",
        ),
    ],
)
def test_what_speaks_against_a_cause_is_shown_with_it(line, contradiction, cause):
    alone = diagnose([line]).causes[0]
    assert (alone.cause.id, alone.against) == (cause, ())
    both = diagnose([line, *contradiction.splitlines()]).causes[0]
    assert (both.cause.id, bool(both.against), both.certainty == "certain") == (cause, True, False)


@pytest.mark.parametrize(
    "line",
    [
        "[2024-05-23T12:49:52.123] preempted JobId=77 has been requeued to reclaim resources for JobId=78",
        "slurmctld: Node n2 NodeNotReady",
        "n1:1:1 [0] NCCL INFO cuMemHostAlloc: undefined symbol: cuMemHostAlloc_v3",
        '[  113.345678] audit: type=1701 exe="/bin/x" terminated with signal SIGABRT',
        "Jan  1 00:00:00 n1 kernel: process 7 terminated with signal SIGABRT",
    ],
)
def test_a_sign_in_the_line_of_a_program_that_does_not_say_it_is_none(line):
    assert diagnose([line]).causes == ()


@pytest.mark.parametrize(
    ("line", "cause", "certainty", "says"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 62, pid=1", "xid", "certain", "Xid 62 ("),
        (
            "DistStoreError: Timed out after 61 seconds waiting for clients. 3/4 clients joined.",
            "store-timeout",
            "failure",
            "3 of 4 ranks",
        ),
        (
            "UCX  ERROR ibv_create_cq() failed: Cannot allocate memory (current: 64 kbytes)",
            "memlock",
            "certain",
            "64 kB",
        ),
        ("RuntimeError: CUDA error: unknown error", "cuda-unknown", "possible", ""),
        ("cudaGetDeviceCount returned 802", "fabric-manager", "certain", ""),
        ("CUDA failure 803", "driver-library-mismatch", "certain", ""),
    ],
)
def test_numbers_are_read_and_sure_is_told_from_possible(line, cause, certainty, says):
    first = diagnose([line]).causes[0]
    assert (first.cause.id, first.certainty) == (cause, certainty)
    assert says in " ".join(first.says)


REMEDIES = [
    ("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", "nvidia-ctk cdi generate"),
    ('RuntimeHandler "nvidia" not supported', "containerd"),
    ("package a-1.el10.x86_64 is filtered out by modular filtering", "module_hotfixes"),
    ("Error: \n Problem: package a-1.el9 requires b, but none of the providers can be installed", "dnf"),
    ("Another app is currently holding the yum lock; waiting for it to exit...", "dnf, yum"),
    ("file /usr/bin/a from install of b-1.el9.x86_64 conflicts with file from package c-1.el9.x86_64", "dnf"),
    ("warning: %post(kmod-nvidia-1.x86_64) scriptlet failed, exit status 1", "dnf"),
    ("LibMambaUnsatisfiableError: Encountered problems while solving:\n  - package a requires b", "conda"),
    ("PackagesNotFoundError: The following packages are not available from channels:", "conda search"),
    ("error: cannot find cgroup plugin for cgroup/v2", "dbus"),
    ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "stubs"),
    ("/lib/libc.so.6: version `GLIBC_2.34' not found (required by /.singularity.d/libs/libGL.so.0)", "image"),
]


@pytest.mark.parametrize(("text", "word"), REMEDIES)
def test_the_remedy_works_on_the_system_that_the_text_shows(text, word):
    assert word in diagnose(text.splitlines()).causes[0].cause.remedy


def test_what_slurm_takes_as_written_last_is_no_error():
    text = "slurmctld: error: State 1 specified more than once, latest value used"
    assert not diagnose([text]).causes


def test_at_most_three_are_shown_with_what_speaks_against_them(tmp_path):
    log = tmp_path / "log"
    log.write_text("\n".join(text for text, _ in CONTRADICTED.values()))
    shown = CliRunner().invoke(command, ["--log", str(log)]).stdout
    assert "\n3. " in shown
    assert "\n4. " not in shown
    assert "also seen, further from the root: " in shown
    log.write_text(CONTRADICTED["a limit that is unlimited"][0])
    shown = CliRunner().invoke(command, ["--log", str(log)]).stdout
    assert "2. possibly: the limit of locked memory is too low" in shown
    assert "against it, line 1: $ ulimit -l" in shown
    log.write_text("ncclCommInitRank failed: unhandled cuda error")
    assert (
        "1. no cause found; the failure is: NCCL" in CliRunner().invoke(command, ["--log", str(log)]).stdout
    )
