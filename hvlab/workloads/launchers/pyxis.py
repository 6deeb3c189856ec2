"""Where Slurm starts ranks inside containers: the options that pyxis adds to srun. Pure.

Pyxis and its options: github.com/NVIDIA/pyxis, README.md and args.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hvlab.base.masking import hides

_MOUNTS = "--container-mounts"


def options(image: str, *, home: str, read: Sequence[str], more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return srun's options for a step inside ``image``; ``more`` are the user's, which outrank these.

    hvlab's folder in ``home`` and the folders to ``read`` are where they are on the host. Mounts of the user
    are added to these, for pyxis takes one list.
    """
    mounts = [f"{home}/.hvlab:{home}/.hvlab", *(f"{path}:{path}:ro" for path in read)]
    own = (f"--container-image={image}", f"{_MOUNTS}={','.join(mounts)}", "--container-workdir=/tmp")
    chosen: dict[str, str] = {}
    for option in (*own, *more):
        name, _, value = option.partition("=")
        chosen[name] = f"{chosen[name]},{value}" if name == _MOUNTS and name in chosen else option
    return tuple(chosen.values())


def inside(program: Sequence[str], env: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Return the argv of a rank inside: pyxis keeps what the image itself sets, and root's home.

    Secrets come with srun's environment alone, unless the image sets them: every user can read arguments.
    """
    given = (f"{name}={value}" for name, value in env.items() if not hides(name))
    return ("env", f"HOME={home}", *given, *program)
