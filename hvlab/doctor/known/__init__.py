"""What is known, by family: each module's ``CAUSES``."""

from hvlab.doctor.cause import Cause
from hvlab.doctor.known import (
    ansible,
    building,
    containers,
    cuda,
    gloo,
    horovod,
    hosts,
    launch,
    libraries,
    machine,
    nccl,
    noise,
    packages,
    slurm,
    ssh,
    torch,
    transport,
)

FAMILIES = {
    "Reaching hosts": ssh.CAUSES,
    "Hosts that are asked": hosts.CAUSES,
    "Open MPI's launchers": launch.CAUSES,
    "MPI's transports": transport.CAUSES,
    "Slurm": slurm.CAUSES,
    "Horovod": horovod.CAUSES,
    "Gloo": gloo.CAUSES,
    "NCCL": nccl.CAUSES,
    "torch.distributed": torch.CAUSES,
    "Driver, GPUs and CUDA": cuda.CAUSES,
    "Libraries": libraries.CAUSES,
    "Builds": building.CAUSES,
    "Containers and Kubernetes": containers.CAUSES,
    "Ansible": ansible.CAUSES,
    "Packages": packages.CAUSES,
    "The machine": machine.CAUSES,
    "Harmless": noise.CAUSES,
}
CAUSES: tuple[Cause, ...] = tuple(cause for family in FAMILIES.values() for cause in family)
