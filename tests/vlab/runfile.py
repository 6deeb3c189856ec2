"""The smallest stand-in for NVIDIA's installer: it unpacks itself, builds a module by DKMS, can undo that."""

from __future__ import annotations

import io
import tarfile

MODULE = """
#include <linux/module.h>
static int __init start(void) { return -19; }
static void __exit stop(void) { }
module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_VERSION("%s");
"""
DKMS = """PACKAGE_NAME="nvidia"
PACKAGE_VERSION="%s"
AUTOINSTALL="yes"
MAKE[0]="make -C /lib/modules/${kernelver}/build M=${dkms_tree}/nvidia/${PACKAGE_VERSION}/build modules"
CLEAN="true"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
"""
UNINSTALL = """#!/bin/sh
set -e
dkms remove nvidia/%(version)s --all
rm -rf /usr/src/nvidia-%(version)s /usr/bin/nvidia-uninstall
rm -f /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.%(version)s
"""
INSTALL = """#!/bin/sh
set -e
kernel=$(uname -r) silent= dkms=
for word; do
  case $word in
    --silent) silent=yes ;;
    --dkms) dkms=yes ;;
    --kernel-name=*) kernel=${word#*=} ;;
    -m=kernel-open | --kernel-module-type=*) ;;
    *) echo "ERROR: unknown option $word" >&2; exit 1 ;;
  esac
done
test "$silent$dkms" = yesyes || { echo "ERROR: there is nobody to answer" >&2; exit 1; }
mkdir -p /usr/src/nvidia-%(version)s
sed '1,/^PAYLOAD$/d' "$0" | tar xz -C /usr/src/nvidia-%(version)s
dkms install nvidia/%(version)s -k "$kernel"
touch /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.%(version)s
install -m 755 /usr/src/nvidia-%(version)s/uninstall /usr/bin/nvidia-uninstall
exit 0
PAYLOAD
"""


def runfile(version: str) -> bytes:
    """Return an installer of a version."""
    packed = io.BytesIO()
    files = {
        "nvidia.c": MODULE % version,
        "Makefile": "obj-m := nvidia.o\n",
        "dkms.conf": DKMS % version,
        "uninstall": UNINSTALL % {"version": version},
    }
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return (INSTALL % {"version": version}).encode() + packed.getvalue()
