"""Which releases fit together: pure predicates over the catalogue, whose files name their sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hvlab.lab.pin_variables import AUTO
from hvlab.stack.resolver import versions
from hvlab.stack.resolver.catalogue import (
    Catalogue,
    CudaRelease,
    DriverBranch,
    LibraryRelease,
    OperatingSystem,
    TensorflowRelease,
    TorchRelease,
)
from hvlab.stack.resolver.model import Candidate

# From here on libraries of one major work together regardless of the minor.
# Source: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
FIRST_COMPATIBLE_MAJOR = 11
# CUDA 11.0 has libcusolver.so.10, and 11.1 to 11.8 libcusolver.so.11.
# Source: https://github.com/kundajelab/chrombpnet/issues/49
_FIRST_LASTING_NAMES = (11, 1)


def runs(codes: Sequence[str], ptx: bool, capability: str) -> bool:
    """Whether a GPU runs a program with code for these capabilities (and PTX of the highest one).

    Code for X.Y runs on X.Z with Z >= Y. Source:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility
    """
    if not codes:
        return True
    own = versions.numbers(capability)
    has = [versions.numbers(code) for code in codes]
    return any(code[0] == own[0] and code <= own for code in has) or (ptx and max(has) <= own)


def cuda_has_code(cuda: str, capability: str, catalogue: Catalogue) -> bool:
    """Whether a CUDA release makes code for a compute capability."""
    return versions.is_within(versions.minor(cuda), catalogue.capabilities[capability].cuda)


def branch_of(version: str, catalogue: Catalogue) -> DriverBranch | None:
    """Return the branch a driver version belongs to; None if the catalogue lacks it."""
    return catalogue.branches.get(str(versions.major(version)))


def support(driver: str, release: str, catalogue: Catalogue) -> int:
    """Return 0 if a driver fully supports a CUDA release, 1 by minor-version compatibility, 2 if not at all.

    Source: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    known = catalogue.cuda.get(versions.minor(release))
    if driver == "none" or (known and known.driver and versions.is_at_least(driver, known.driver)):
        return 0
    floor = catalogue.minor_compatibility.get(versions.major(release))
    return 1 if floor and versions.is_at_least(driver, floor) else 2


def driver_order(
    driver: str, branch: DriverBranch | None, release: str, catalogue: Catalogue
) -> tuple[bool, int]:
    """Return a sort key of drivers for a CUDA release: discontinued ones last, then by support."""
    ended = branch is not None and branch.kind == "legacy"
    return ended, support(driver, release, catalogue)


def driver_runs(driver: str, branch: DriverBranch | None, capability: str, catalogue: Catalogue) -> bool:
    """Whether a driver runs GPUs of a compute capability."""
    if driver == "none":
        return True
    lowest, last = catalogue.capabilities[capability].driver
    # Windows counts on within a branch: 581.29, the driver of WSL2, is of 580.
    older = [name for name in catalogue.branches if int(name) <= versions.major(driver)]
    name = branch.name if branch else max(older, key=int, default="0")
    inside = branch is None or versions.is_within(capability, branch.capabilities)
    return inside and versions.is_at_least(driver, str(lowest)) and int(name) <= int(last or name)


def compiles(driver: str, kernel: str | None, catalogue: Catalogue) -> bool:
    """Whether a driver's modules compile on a kernel, as far as known."""
    own, running = versions.numbers(driver), versions.numbers(kernel or "")
    branch = branch_of(driver, catalogue)
    # A branch without an end was given up for the next one: it lacks what later branches lack.
    left = branch is not None and branch.kind == "legacy" and not branch.end
    return not any(
        (left or own[:1] == versions.numbers(limit.version)[:1])
        and own <= versions.numbers(limit.version)
        and running >= versions.numbers(limit.kernel)
        for limit in catalogue.kernels
    )


def torch_builds(torch: TorchRelease, cuda: str, architecture: str, *, exact: bool) -> list[str]:
    """Return the wheels of a torch release that a CUDA toolkit can build for, the best first.

    The same minor, or from CUDA 11 on any of the same major (torch itself only warns of that).
    """
    minor, major = versions.minor(cuda), versions.major(cuda)
    wheels = torch.codes(architecture)
    same = [minor] if minor in wheels else []
    if exact or major < FIRST_COMPATIBLE_MAJOR:
        return same
    others = [build for build in wheels if versions.major(build) == major and build != minor]
    return [*same, *sorted(others, key=lambda build: _distance(build, minor))]


def _distance(build: str, cuda: str) -> tuple[int, int]:
    """Return the distance of a build from a CUDA release of its major: the same minor, older, newer."""
    apart = versions.numbers(versions.minor(cuda))[1] - versions.numbers(build)[1]
    return (0 if apart == 0 else 1 if apart > 0 else 2, abs(apart))


def torch_fits(
    torch: TorchRelease, cuda: str, capabilities: Iterable[str], architecture: str, *, exact: bool
) -> list[str]:
    """Return the builds of a torch release for a toolkit that have code for all these capabilities."""
    codes, needed = torch.codes(architecture), list(capabilities)
    return [
        build
        for build in torch_builds(torch, cuda, architecture, exact=exact)
        if all(runs(codes[build], build in torch.ptx, capability) for capability in needed)
    ]


def cudnn_serves(cudnn: LibraryRelease, cuda: str) -> bool:
    """Whether a cuDNN release is made for a CUDA release."""
    if versions.major(cuda) not in cudnn.majors:
        return False
    return not cudnn.builds or cudnn_build(cudnn, cuda) is not None


def cudnn_build(cudnn: LibraryRelease, cuda: str) -> str | None:
    """Return the CUDA release in the name of the cuDNN package for a toolkit; None without a package."""
    minor, major = versions.minor(cuda), versions.major(cuda)
    if minor in cudnn.builds or major < FIRST_COMPATIBLE_MAJOR:
        return minor if minor in cudnn.builds else None
    return next((build for build in reversed(cudnn.builds) if versions.major(build) == major), None)


def tensorflow_loads(tensorflow: TensorflowRelease, cuda: str) -> bool:
    """Whether TensorFlow loads a CUDA release: the one it was compiled with, or a newer one of its major."""
    own, other = versions.numbers(tensorflow.cuda), versions.numbers(versions.minor(cuda))
    return own == other or (takes_newer_cuda(tensorflow) and own[0] == other[0] and own < other)


def takes_newer_cuda(tensorflow: TensorflowRelease) -> bool:
    """Whether TensorFlow's CUDA libraries keep their names in newer releases of the major."""
    return versions.numbers(tensorflow.cuda) >= _FIRST_LASTING_NAMES


def tensorflow_takes(tensorflow: TensorflowRelease, cudnn: str) -> bool:
    """Whether TensorFlow runs with a cuDNN: the major it was compiled with, at least its minor."""
    same = versions.major(cudnn) == versions.major(tensorflow.cudnn)
    return same and versions.is_at_least(cudnn, tensorflow.cudnn)


def nccl_build(version: str) -> str | None:
    """Return the CUDA release an NCCL package is built for; None for a wheel."""
    return version.partition("+cuda")[2] or None


def nccl_serves(version: str, nccl: LibraryRelease, cuda: str) -> bool:
    """Whether an NCCL build runs with a CUDA release: the same major; before CUDA 11 the same minor."""
    build, major = nccl_build(version), versions.major(cuda)
    if build is None:
        return major in nccl.wheels
    if major < FIRST_COMPATIBLE_MAJOR:
        return build == versions.minor(cuda)
    return versions.major(build) == major


def nccl_distance(version: str, cuda: str) -> tuple[int, int]:
    """Return the distance of an NCCL build from a CUDA release: the same minor, older, newer."""
    build = nccl_build(version)
    return (0, 0) if build is None else _distance(build, cuda)


def release_distance(nccl: LibraryRelease, cuda: str) -> tuple[int, int]:
    """Return the distance of the best build of an NCCL release from a CUDA release."""
    same = [build for build in nccl.builds if versions.major(build) == versions.major(cuda)]
    return min((nccl_distance(f"+cuda{build}", cuda) for build in same), default=(3, 0))


def gcc_fits(cuda: CudaRelease, gcc: str) -> bool:
    """Whether nvcc takes a host compiler."""
    return cuda.gcc_min <= int(gcc) <= cuda.gcc


def offers_driver(
    driver: str, branch: DriverBranch | None, system: OperatingSystem, method: str, architecture: str
) -> bool:
    """Whether a method offers a driver on a system."""
    if branch is None:
        return False
    if method == "distro":
        own = [str(version) for version in system.distro.get("driver") or ()]
        return driver in own or branch.name in own
    if method == "elrepo":
        built = architecture == system.elrepo.get("architecture")
        return built and branch.name in map(str, system.elrepo["branches"])
    if method != "repo":
        return True
    named = any(
        versions.is_within(branch.name, (rule["from"], rule["to"])) for rule in system.naming["driver"]
    )
    return named and branch.name in system.drivers and architecture in system.repository


def has_drivers(system: OperatingSystem, method: str) -> bool:
    """Whether a method's source has drivers for a system: the distribution, ELRepo or NVIDIA's repository."""
    own = {"distro": system.distro.get("driver"), "elrepo": system.elrepo.get("branches")}
    return bool(own.get(method, system.drivers))


def offers_cuda(
    cuda: str, system: OperatingSystem, method: str, architecture: str, catalogue: Catalogue
) -> bool:
    """Whether a method offers a CUDA release on a system."""
    release = versions.minor(cuda)
    distro = release == system.distro.get("cuda")
    repo = release in system.cuda and architecture in system.repository
    if method == "wheel":
        return release in catalogue.cuda_wheels
    return {"distro": distro, "repo": repo, AUTO: repo or distro}.get(method, True)


def offers_library(
    candidate: Candidate, limits: Sequence[str | None] | None, *, method: str, distro: str | None
) -> bool:
    """Whether a cuDNN or NCCL release is available; without packages in the repository, as a wheel."""
    library: LibraryRelease | None = candidate.data
    if library is None:
        return True
    wheel = bool(library.wheels)
    if method == "distro":
        return bool(distro) and versions.is_prefix(str(distro), candidate.version)
    if method == "wheel" or (method == "repo" and limits is None):
        return wheel and nccl_build(candidate.version) is None
    if method == "none":
        return True
    release = candidate.version.partition("-")[0]
    packaged = candidate.key[0] == "cudnn" or nccl_build(candidate.version) is not None
    return packaged and versions.is_within(release, limits or (None, None))


def runs_library(library: LibraryRelease | None, capabilities: Iterable[str]) -> bool:
    """Whether cuDNN or NCCL has code for these capabilities."""
    least = library.capability if library else None
    return least is None or all(versions.is_at_least(capability, least) for capability in capabilities)
