"""An inventory of hosts that hvlab did not set up: those of a Slurm job, or of a list. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from pathlib import PurePath
from typing import Any

from hvlab.base.errors import CheckError
from hvlab.lab import new_inventory
from hvlab.lab.pin_variables import TORCH

# A machine alone needs no network, and is the same one in any.
_LOOPBACK = new_inventory.RankNetwork(IPv4Network("127.0.0.0/8"), "lo")


@dataclass(frozen=True)
class Installed:
    """The ranks' Python on a host: its prefix, and the record that the roles would have made."""

    prefix: str
    recorded: Mapping[str, Mapping[str, Any]]

    @property
    def operations(self) -> frozenset[str]:
        """Return the operations of its Horovod, in Horovod's words."""
        return frozenset(self._build.get("operations") or ())

    @property
    def frameworks(self) -> list[str]:
        """Return the frameworks that it has, Horovod's own where it was built for some."""
        by_horovod = [
            name.lower().replace("pytorch", "torch") for name in self._build.get("frameworks") or ()
        ]
        return by_horovod or list(self.recorded["hvlab_python_env"]["environments"])

    @property
    def variant(self) -> str:
        """Return the name of its Horovod, or of torch alone."""
        return str(next(iter(self.recorded["hvlab_horovod"]["variants"])))

    @property
    def _build(self) -> Mapping[str, Any]:
        build: Mapping[str, Any] = self.recorded["hvlab_horovod"]["variants"][self.variant]
        return build


def inventory(
    facts: Mapping[str, Mapping[str, Any]],
    installed: Mapping[str, Installed],
    *,
    hosts: Mapping[str, Mapping[str, Any]],
    variables: Mapping[str, Any],
    remedy: str,
) -> dict[str, Any]:
    """Return the inventory as Ansible reads it, in the order of ``hosts``, whose variables it gets.

    ``variables`` are those of all. The address of a host without ``ansible_host`` is that on the network
    that all have. Raises CheckError if they share no network, with this ``remedy``, or have not the same
    Python.
    """
    first, *others = hosts
    one = installed[first]
    for host in others:
        if installed[host].prefix != one.prefix:
            raise CheckError(
                f"the Python of {first} is in {one.prefix}, that of {host} in {installed[host].prefix}",
                remedy="name one that is the same everywhere: --python",
            )
    alone = hosts[first].get("ansible_connection") == "local" and not others
    network = (None if alone else new_inventory.choose(facts, {})) or (None if others else _LOOPBACK)
    if network is None:
        raise CheckError(f"{first}: it has no address", remedy="look at `ip addr` there")
    if network.problems and others:
        obstacles = "; ".join(f"{problem.host}: {problem.observed}" for problem in network.problems)
        raise CheckError(f"the hosts share no network: {obstacles}", remedy=remedy)
    addresses = {host: _address(facts[host], network.interface) or host for host in hosts}
    listed = {
        host: {
            "ansible_host": addresses[host],
            # Where ssh's name or address is another one.
            "hvlab_rank_address": addresses[host],
            "hvlab_recorded": dict(installed[host].recorded),
            **own,
        }
        for host, own in hosts.items()
    }
    common = {
        "lab_network": str(network.network),
        "lab_interface": network.interface,
        "horovod_prefix": str(PurePath(one.prefix).parent),
        "horovod_variants": {one.variant: {"frameworks": one.frameworks, **variant(one.operations)}},
        **({"lab_horovod": TORCH} if one.variant == TORCH else {}),
        **variables,
    }
    with_gpu: dict[str, Any] = {host: {} for host in hosts if gpus(facts[host])}
    return {"all": {"hosts": listed, "vars": common, "children": {"gpu": {"hosts": with_gpu}}}}


def variant(operations: Collection[str]) -> dict[str, Any]:
    """Return a build of Horovod as a variant of the role, by the operations that it states."""
    return {
        **{name.lower(): name in operations for name in ("MPI", "Gloo", "CCL")},
        "gpu_operations": "nccl" if "NCCL" in operations else "",
    }


def gpus(facts: Mapping[str, Any]) -> int:
    """Return the number of usable GPUs of a host."""
    return len([gpu for gpu in (facts.get("hvlab") or {}).get("gpus") or [] if gpu.get("uuid")])


def _address(facts: Mapping[str, Any], interface: str) -> str | None:
    cidrs = ((facts.get("hvlab") or {}).get("interfaces") or {}).get(interface, {}).get("cidrs") or []
    addresses = [IPv4Interface(cidr) for cidr in cidrs if ":" not in cidr]
    return str(addresses[0].ip) if addresses else None
