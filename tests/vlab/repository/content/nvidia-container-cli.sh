#!/bin/sh
echo "nvidia-container-cli: initialization error: nvml error: driver not loaded" >&2
exit 1
