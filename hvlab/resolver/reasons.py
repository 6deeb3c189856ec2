"""Why each version was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hvlab.resolver import domains, rules, versions
from hvlab.resolver.about import About
from hvlab.resolver.built import ONE_CUDA, ONE_NCCL
from hvlab.resolver.pins import TITLES, meets


def reasons(about: About) -> dict[str, str]:
    """Return component -> why this version, for one group's hosts."""
    told = {}
    for name, version in about.found.items():
        if version is None:
            told[name] = _absent(name, about)
            continue
        wishes = about.solution.built.wishes.of(about.group)
        asked = dict.fromkeys(pin.text for pin in wishes if pin.name == name and meets(pin, version))
        because = _WHY[name](about)
        told[name] = f"asked for ({', '.join(asked)}); {because}" if asked else because
    return told


def _absent(name: str, about: About) -> str:
    if name in ("torch", "tensorflow"):
        return "not asked for"
    if not about.group.gpus:
        return "no GPU"
    if name == "driver":
        return "its GPUs are told, not seen, and lab_driver_method is none"
    return f"no {TITLES[name]} fits, and nothing here needs it"


def _driver(about: About) -> str:
    cuda, driver = about.version("cuda"), about.version("driver")
    level = domains.support(driver, cuda, about.catalogue)
    fits = f"supports CUDA {cuda}" + (" by minor-version compatibility" if level else " in full")
    if driver == about.group.host.driver:
        return f"installed, and {fits}"
    branch = domains.branch_of(driver, about.catalogue)
    kind = branch.kind if branch else "known"
    return f"of the first {kind} branch that runs {about.sms}, is there for {about.group.title}, and {fits}"


def _cuda(about: About) -> str:
    cuda = about.version("cuda")
    parts = []
    if about.torch and versions.minor(cuda) in about.torch.cuda:
        parts.append(f"torch {about.torch.version} has a wheel for it")
    if about.found["tensorflow"]:
        parts.append(f"TensorFlow {about.found['tensorflow']} is built for it")
    if (ONE_CUDA, None) in about.solution.chosen and not about.solution.gave_up(ONE_CUDA):
        parts.append("the same on all hosts with GPUs")
    return "; ".join([*parts, f"it has code for {about.sms}"])


def _cudnn(about: About) -> str:
    if about.torch and about.found["cudnn"] in about.torch.cudnn.values():
        return f"the one torch {about.torch.version} brings"
    made = f"made for CUDA {versions.major(about.version('cuda'))}"
    tensorflow = about.found["tensorflow"]
    return f"{made}, and new enough for TensorFlow {tensorflow}" if tensorflow else f"the newest {made}"


def _nccl(about: About) -> str:
    build, cuda = rules.nccl_build(about.version("nccl")), about.version("cuda")
    if build is None:
        return f"a wheel for CUDA {versions.major(cuda)}"
    same = build == versions.minor(cuda)
    told = f"built for CUDA {build}" + ("" if same else f", the nearest to {cuda} there is")
    one = (ONE_NCCL, None) in about.solution.chosen and not about.solution.gave_up(ONE_NCCL)
    return f"{told}; the same release on all hosts" if one else told


def _openmpi(about: About) -> str:
    if about.group.methods["openmpi"] == "distro":
        return f"what {about.group.title} has (lab_openmpi_method: distro)"
    default = about.catalogue.defaults.get("openmpi")
    return (
        "the default; the same on all hosts" if about.found["openmpi"] == default else "the same on all hosts"
    )


def _python(about: About) -> str:
    present = about.group.host.python
    own = present and versions.minor(present) == about.found["python"]
    return f"{'present' if own else f'{about.group.title} has it'}; the same on all hosts"


def _gcc(about: About) -> str:
    if str(about.gcc) == about.found["gcc"]:
        told = "present"
    else:
        told = f"{about.group.title} has it" + (f", beside gcc {about.gcc}" if about.gcc else "")
    cuda = about.data("cuda", about.number)
    return f"{told}; CUDA {cuda.version} takes up to gcc {cuda.gcc}" if cuda else told


def _torch(about: About) -> str:
    fits = [f"Python {about.found['python']}", f"Horovod {about.found['horovod']}"]
    fits += [f"CUDA {about.found['cuda']}"] if about.found["cuda"] else []
    proven = about.found["torch"] in about.catalogue.proven.values()
    told = "hvlab has built Horovod on it; it goes with" if proven else "the newest that goes with"
    return f"{told} {', '.join(fits)}; the same on all hosts"


def _tensorflow(about: About) -> str:
    data = about.data("tensorflow", None)
    return f"built for CUDA {data.cuda} with cuDNN {data.cudnn}; the same on all hosts"


def _horovod(about: About) -> str:
    used = [f"{TITLES[name]} {about.found[name]}" for name in ("torch", "tensorflow") if about.found[name]]
    patched = " with hvlab's patches" if about.data("horovod", None).patched else ""
    return f"builds with {' and '.join(used)}{patched}; the same on all hosts"


_WHY: Mapping[str, Callable[[About], str]] = {
    "driver": _driver,
    "cuda": _cuda,
    "cudnn": _cudnn,
    "nccl": _nccl,
    "openmpi": _openmpi,
    "python": _python,
    "gcc": _gcc,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "horovod": _horovod,
}
