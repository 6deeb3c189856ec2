"""What `hvlab verify` says of kernels that would boot without the driver's module."""

import pytest

from hvlab.checks import gpu as checks
from hvlab.checks.provisioned import RoleHost, WrongNodeError

FACT = {"method": "repo", "version": "580.95.05", "kernel": "6.1.0-9-amd64"}
MODULES = """\
/lib/modules/6.1.0-9-amd64/updates/dkms/nvidia.ko.xz
/lib/modules/6.1.0-10-amd64/kernel/drivers/video/fbdev/nvidia/nvidiafb.ko
/lib/modules/6.1.0-10-amd64/kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko
/lib/modules/6.1.0-10-amd64/kernel/drivers/perf/arm_cspmu/nvidia_cspmu.ko.xz
"""


def node(*kernels, modules=MODULES):
    answers = {
        "kernels": {f"/boot/vmlinuz-{kernel}": {} for kernel in kernels},
        "modules": {"rc": 0, "out": modules, "err": ""},
    }
    return RoleHost("n1", None, {}, answers=answers)


@pytest.mark.parametrize(
    ("kernels", "bare"),
    [
        (["6.1.0-9-amd64"], ""),
        (["6.1.0-8-amd64", "6.1.0-9-amd64"], ""),
        (["6.1.0-9-amd64", "6.1.0-10-amd64"], "6.1.0-10-amd64"),
        ([], ""),
    ],
)
def test_a_newer_kernel_without_a_module_is_named(kernels, bare):
    if bare:
        with pytest.raises(WrongNodeError, match=f"n1: kernels without a module of the driver: {bare}"):
            checks.the_kernels_that_boot_next_have_a_module(node(*kernels), FACT)
    else:
        checks.the_kernels_that_boot_next_have_a_module(node(*kernels), FACT)


def test_a_module_for_each_is_enough():
    modules = f"{MODULES}/lib/modules/6.1.0-10-amd64/updates/dkms/nvidia-current-open.ko\n"
    host = node("6.1.0-9-amd64", "6.1.0-10-amd64", modules=modules)
    checks.the_kernels_that_boot_next_have_a_module(host, FACT)
    checks.the_kernels_that_boot_next_have_a_module(node("6.1.0-10-amd64"), FACT | {"method": "none"})
