"""The shape of a host's facts, as far as hvlab reads them: Ansible's, ours, and what the roles recorded."""

from __future__ import annotations

from typing import Any

from hvlab.answers.shapes import Shape, entries, many, maybe, number, scalar, table, text

_HVLAB = entries(
    {
        "nics": maybe(
            many(
                entries(
                    {
                        "model": scalar,
                        "driver": scalar,
                        "driver_version": scalar,
                        "speed_mbit": maybe(number(0)),
                    }
                )
            )
        ),
        "interfaces": maybe(table(entries({}))),
        "packages": maybe(table(scalar)),
        "rdma": maybe(entries({"way": maybe(text), "gdr_reason": scalar})),
        "topology": maybe(entries({"link": maybe(text)})),
        "gpus": maybe(many(entries({"name": scalar, "pci_device": scalar, "memory_mib": maybe(number(0))}))),
        **dict.fromkeys(("driver", "cuda", "cudnn", "nccl", "gcc"), maybe(text)),
        "open_modules": scalar,
    }
)


def _recorded(inner: Shape) -> Shape:
    """Accept what ``inner`` does; a text, too: Ansible's words on a file of facts that it cannot read."""

    def shape(value: Any, where: str) -> str | None:
        return inner(value, where) if isinstance(value, dict) else scalar(value, where)

    return shape


_FRAMEWORK = entries({"framework": text, "version": scalar, "build": scalar}, needed=("framework",))
_BUILD = entries({"version": scalar, "operations": maybe(many(text))})
_BY_ROLE = {
    "hvlab_openmpi": entries({"version": maybe(text), "ucx": scalar, "cuda": scalar}),
    "hvlab_python_env": entries(
        {"environments": maybe(table(_FRAMEWORK)), "torch": scalar, "python": scalar}
    ),
    "hvlab_horovod": entries({"version": scalar, "variants": maybe(table(_BUILD))}),
}
FACTS = entries(
    {
        "hvlab": maybe(_HVLAB),
        "ansible_local": maybe(entries({name: _recorded(inner) for name, inner in _BY_ROLE.items()})),
        **dict.fromkeys(("distribution", "distribution_version", "kernel", "architecture"), scalar),
        "processor_vcpus": maybe(number(0)),
    }
)
