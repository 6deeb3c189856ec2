#!/bin/sh
# As DCGM prints it: https://github.com/NVIDIA/DCGM/issues (dcgmi --version)
if [ "${1:-}" = --version ]; then
	echo
	echo "dcgmi  version: <version>"
	exit 0
fi
echo "Error: unable to establish a connection to the specified host: localhost" >&2
exit 1
