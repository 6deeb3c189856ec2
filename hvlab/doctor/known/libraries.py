"""Libraries that the loader does not find, or finds in another version."""

from hvlab.doctor.cause import BREAKDOWN, FACT, SETTING, Cause

_NOT_OPENED = r"[^\n]{0,60}: cannot open shared object file"

CAUSES = (
    Cause(
        id="libmpi-missing",
        title="the loader does not find Open MPI's libraries",
        signs=(
            r"lib(?:mpi|open-pal|open-rte|mpi_cxx|mpi_mpifh|prrte|pmix)\S*\.so\S*: cannot open shared object file",
            r"libmpi\S*\.so\S* => not found",
        ),
        why="The libraries are not in a folder the loader looks in, on this host or in this non-login shell, or another release "
        "(another .so number) is installed than the program was linked with.",
        remedy="Open MPI's lib folder in /etc/ld.so.conf.d and ldconfig on every host (or -x LD_LIBRARY_PATH); after a change of "
        "release build Horovod again.",
        source="https://github.com/horovod/horovod/issues/720",
        weight=FACT,
    ),
    Cause(
        id="libcuda-missing",
        title="there is no driver library libcuda.so.1",
        signs=(
            r"libcuda\.so(?:\.1)?: cannot open shared object file",
            r"libcuda\.so(?:\.1)? => not found",
            r"libnvidia-ml\.so\S*: cannot open shared object file",
        ),
        why="libcuda.so.1 comes with NVIDIA's driver, not with the toolkit; this host has none, or the container was started without GPUs.",
        remedy="Install the driver; docker run --gpus all; on a build host without GPU use the toolkit's stubs for the build only.",
        source="https://horovod.readthedocs.io/en/stable/troubleshooting_include.html",
        weight=FACT,
    ),
    Cause(
        id="libcudart-missing",
        title="the CUDA runtime of another release is missing",
        signs=(
            r"lib(?:cudart|cublas|cublasLt|cufft|curand|cusolver|cusparse|nvrtc|cupti|nvJitLink|npp\w*)\S*\.so\S*: cannot open shared object file",
            r"libcudnn\S*\.so\S*: cannot open shared object file",
            r"Could not load library libcudnn\S*",
            r"libcudart\S* => not found",
        ),
        why="The framework or Horovod was built for another CUDA (the number after .so), or that CUDA's lib64 is not searched.",
        remedy="Install that CUDA (or cuDNN) beside the present one and add its lib64 to ld.so.conf.d; or builds for the CUDA that is there.",
        source="https://www.tensorflow.org/install/source#gpu",
        weight=FACT,
    ),
    Cause(
        id="libnccl-missing",
        title="the loader does not find NCCL",
        signs=(
            r"Unable to load NCCL library",
            r"libnccl\.so\S*: cannot open shared object file",
        ),
        why="NCCL is not installed on this host, or lies in a Python package's folder that is not searched.",
        remedy="Install libnccl2 for this CUDA, or add the folder of nvidia/nccl/lib to LD_LIBRARY_PATH.",
        source="https://docs.nvidia.com/deeplearning/nccl/install-guide/",
        weight=FACT,
    ),
    Cause(
        id="glibcxx",
        title="libstdc++ is older than what the program was built with",
        signs=(r"(?:GLIBCXX|CXXABI)_\S+ not found", r"version `?(?:GLIBCXX|CXXABI)_[\d.]+'? not found"),
        why="It was compiled with a newer gcc than the libstdc++ that is found here, often an old one of the system before conda's.",
        remedy="strings libstdc++.so.6 | grep GLIBCXX; a newer libstdc++ (conda install libstdcxx-ng, its lib first in LD_LIBRARY_PATH), "
        "or build with this host's compiler.",
        source="https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html",
        weight=FACT,
    ),
    Cause(
        id="glibc",
        title="the system's glibc is older than the one it was built for",
        signs=(r"version `?GLIBC_[\d.]+'? not found", r"GLIBC_[\d.]+'? not found"),
        why="It was built on a newer system; glibc cannot be exchanged for one program.",
        remedy="Build it on the oldest system of the cluster, use a package for this one, a container, or a newer system.",
        source="https://sourceware.org/glibc/wiki/FAQ",
        weight=FACT,
    ),
    Cause(
        id="ompi-symbol",
        title="Horovod was built with another MPI than it finds",
        signs=(
            r"undefined symbol: (?:ompi_|MPI_|opal_|orte_|_ZN3MPI|mca_)\w*",
            r"undefined symbol: \S*(?:PMIx|pmix)\w*",
        ),
        why="The symbol belongs to one MPI, and the loader finds the library of another or older one.",
        remedy="ldd on the extension; put the right MPI first, or build again: pip install --no-cache-dir --force-reinstall horovod.",
        source="https://github.com/horovod/horovod/issues/443",
        weight=FACT,
    ),
    Cause(
        id="cudart-symbol",
        title="nvcc and the CUDA runtime are of different releases",
        signs=(
            r"The detected CUDA version \(\S+\) mismatches the version that was used to compile",
            r"undefined symbol: __cuda(?:RegisterFatBinaryEnd|PopCallConfiguration|PushCallConfiguration)\w*",
        ),
        why="nvcc of CUDA 10 or later writes calls that an older libcudart has not.",
        remedy="HOROVOD_CUDA_HOME to the CUDA of torch.version.cuda, and build again.",
        source="https://github.com/horovod/horovod/issues/274",
        weight=FACT,
    ),
    Cause(
        id="nccl-mixed",
        title="two NCCLs are mixed",
        signs=(r"undefined symbol: nccl\w+", r"lib(?:torch_cuda|nccl)\S* undefined symbol: nccl"),
        why="torch or Horovod expects a newer NCCL than the one that is loaded first: nvidia-nccl-cu12 and -cu13 in one environment, "
        "or a system's NCCL in LD_LIBRARY_PATH.",
        remedy="pip list | grep nccl: keep one; take the other NCCL out of LD_LIBRARY_PATH.",
        source="https://github.com/pytorch/pytorch/issues/186591",
        weight=FACT,
    ),
    Cause(
        id="nvjitlink",
        title="CUDA's own libraries are of different releases",
        signs=(
            r"undefined symbol: __nvJitLink\w+",
            r"undefined symbol: (?:cublas|cusparse|cudnn|cufft|cusolver|cuda)\w+",
            r"symbol __nv\w+ version \S+ not defined in file",
            r"symbol \w+,? version \S+ not defined in file lib(?:cu|nv)\S+",
        ),
        why="A library of another CUDA comes first in LD_LIBRARY_PATH, or pip mixed packages.",
        remedy="Empty LD_LIBRARY_PATH of CUDA's folders, reinstall torch with its nvidia-* packages in a fresh environment.",
        source="https://github.com/pytorch/pytorch/issues/111469",
        weight=FACT,
    ),
    Cause(
        id="abi-mismatch",
        title="Horovod was built for another release or ABI of the framework",
        signs=(
            r"undefined symbol: _ZNK?S?t?\d*(?:10tensorflow|2at|5torch|3c10|6caffe2|7mxnet)\w*",
            r"undefined symbol: _Z\w*(?:tensorflow|torch|c10|mxnet|caffe2|absl|StatusOr)\w*",
            r"(?:mpi_lib\S*|mpi_lib_v2\S*|lib_mpi\S*)\.so: undefined symbol: _Z\w+",
        ),
        why="A C++ symbol of the framework is not there: another release than at build time, or the other C++ ABI.",
        remedy="c++filt SYMBOL names it; pip install --no-cache-dir --force-reinstall --no-deps horovod with the compiler that the "
        "framework was built with.",
        source="https://github.com/horovod/horovod/issues/656",
        weight=FACT,
    ),
    Cause(
        id="undefined-symbol",
        title="a library is found in another version than expected",
        signs=(r"undefined symbol: (?!ompi_|MPI_|opal_|nccl|__cuda|__nv|cu)\S+",),
        why="The program was linked with another release of the library than the loader finds.",
        remedy="LD_DEBUG=libs shows which file is taken; put the right one first, or build again.",
        source="https://man7.org/linux/man-pages/man8/ld.so.8.html",
        weight=BREAKDOWN,
        unless=(r"undefined symbol: _Z",),
    ),
    Cause(
        id="library-missing",
        title="the loader does not find a library",
        signs=(
            r"error while loading shared libraries: (?!lib(?:mpi|open-|cuda|cudart|nccl))\S+: cannot open",
            r"\blib(?!mpi|open-|cuda|cudart|cudnn|cublas|cufft|curand|cusolver|cusparse|nccl|nvidia-ml|torch|c10|nvinfer)\w[\w.+-]*\.so[\d.]*: "
            r"cannot open shared object file",
            r"ImportError: lib\w[\w.+-]*\.so[\d.]*: cannot open shared object file",
        ),
        why="The package that holds it is not installed on this host, or its folder is not searched.",
        remedy="apt-file search or dnf provides the name; install it on every host, or add its folder to ld.so.conf.d and run ldconfig.",
        source="https://man7.org/linux/man-pages/man8/ld.so.8.html",
        weight=SETTING,
        unless=(r"lib(?:mpi|open-pal|open-rte|cudart|cudnn|cublas|nccl|torch)\S*\.so\S*: cannot open",),
    ),
    Cause(
        id="python-module-missing",
        title="a Python module is missing on the host where it is imported",
        signs=(
            r"import \w+ failed, is it installed\?",
            r"ModuleNotFoundError: No module named '(?!packaging|distutils|pkg_resources|setuptools|wheel|horovod\.)[\w.]+'",
            r"ImportError: No module named '?(?!packaging|distutils|pkg_resources|setuptools)[\w.]+",
        ),
        why="This rank runs another Python than the one the module was installed for, or this host lacks it.",
        remedy="Name Python in full (/path/venv/bin/python), and install the module in that environment on every host.",
        source="https://docs.python.org/3/library/venv.html",
        weight=SETTING,
    ),
    Cause(
        id="numpy-2",
        title="a module built for NumPy 1 runs with NumPy 2",
        signs=(
            r"A module that was compiled using NumPy 1\.x cannot be run in NumPy 2",
            r"numpy\.core\.multiarray failed to import|_ARRAY_API not found",
            r"numpy\.(?:dtype|ndarray|ufunc) size changed, may indicate binary incompatibility",
        ),
        why="NumPy 2 changed its binary interface.",
        remedy="pip install 'numpy<2', or newer releases of the modules.",
        source="https://numpy.org/doc/stable/dev/depending_on_numpy.html",
        weight=FACT,
    ),
    Cause(
        id="illegal-instruction",
        title="the program was built for another processor",
        signs=(r"Illegal instruction", r"signal 4\b|SIGILL", r"Exited with exit code 132"),
        why="It uses instructions (AVX2, AVX-512) that this host's CPU has not: built with -march=native elsewhere, or a wheel that needs AVX.",
        remedy="HOROVOD_BUILD_ARCH_FLAGS for the oldest CPU of the cluster and build again; lscpu | grep avx on each host.",
        source="https://horovod.readthedocs.io/en/stable/install_include.html",
        weight=FACT,
    ),
    Cause(
        id="exec-format",
        title="the program is for another kind of machine",
        signs=(r"Exec format error", r"exec format error", r"wrong ELF class|ELFCLASS"),
        why="An x86 program or image runs on Arm or the other way round, or the script has no first line #!.",
        remedy="uname -m on the host; the image or package of that architecture.",
        source="https://docs.docker.com/build/building/multi-platform/",
        weight=FACT,
    ),
    Cause(
        id="openmp-twice",
        title="two OpenMP libraries are loaded",
        signs=(
            r"OMP: Error #15: ",
            r"MKL_THREADING_LAYER=\w+ is incompatible with lib\w+",
            r"mkl-service .{0,40}incompatible with libgomp",
        ),
        why="numpy, torch or MKL each bring one, and they exclude one another.",
        remedy="import numpy first, or MKL_THREADING_LAYER=GNU; one source (conda or pip) for both.",
        source="https://github.com/pytorch/pytorch/issues/37377",
        weight=FACT,
    ),
)
