#!/bin/sh
if [ "${1:-}" = --version ]; then
	echo "nvidia-persistenced:  version <v>"
	exit 0
fi
echo "nvidia-persistenced failed to initialize. Check syslog for more details." >&2
exit 1
