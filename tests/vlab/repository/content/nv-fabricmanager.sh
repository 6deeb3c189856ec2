#!/bin/sh
if [ "${1:-}" = --version ]; then
	echo "Fabric Manager version is : <v>"
	exit 0
fi
echo "fabric manager: there is no NVSwitch device" >&2
exit 1
