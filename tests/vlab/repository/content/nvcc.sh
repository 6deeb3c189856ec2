#!/bin/sh
# Stands in for NVIDIA's compiler: it tells its version and compiles nothing.
case "${1:-}" in
--version | -V)
	cat <<END
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2024 NVIDIA Corporation
Built on Thu_Mar_28_02:18:24_PDT_2024
Cuda compilation tools, release <dot>, V<nvcc>
Build cuda_<dot>.r<dot>/compiler.34097967_0
END
	;;
*)
	echo "nvcc fatal   : this is a stand-in that compiles nothing" >&2
	exit 1
	;;
esac
