"""``python -m hvlab``."""

from __future__ import annotations

import os
import sys

from hvlab.base import sudo

# Which extra of setup.py brings a module.
EXTRAS = {
    "ansible": "hosts",
    "ansible_runner": "hosts",
    "matplotlib": "pictures",
    "optuna": "tune",
    "paramiko": "hosts",
    "pip": "hosts",
    "pysequoia": "hosts",
    "pytest": "hosts",
    "testinfra": "hosts",
}


def main() -> None:
    """Run the command line; say what to do when hvlab's own packages are missing."""
    _open_streams()
    _speak_english()
    sudo.spare_home()
    try:
        # The import itself is the test.
        from hvlab.cli import cli, completion, run  # noqa: PLC0415

        code = completion.answer(cli) if completion.is_requested() else run(sys.argv[1:])
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "hvlab"):
            raise
        print(missing_extra(module), file=sys.stderr)
        code = 2
    sys.exit(code)


def missing_extra(module: str) -> str:
    """Return the missing package, and the command that installs it."""
    from importlib.util import find_spec  # noqa: PLC0415 - most calls have no use for it

    package = f"'hvlab[{EXTRAS[module]}]'" if module in EXTRAS else "--force-reinstall hvlab"
    pip = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install -p {sys.executable}"
    return (
        f"hvlab: this needs the Python package {module}, which {sys.executable} lacks\n"
        f"  what to do: {pip} {package}; in the clone: make install"
    )


def _open_streams() -> None:
    """Lead closed outputs to the null device, of what is started, too: a file would get their numbers."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, number)
            if null != number:
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))


def _speak_english() -> None:
    """Have what is started speak English, which doctor reads, in UTF-8, which Ansible wants."""
    os.environ["LC_ALL"] = "C.UTF-8"


if __name__ == "__main__":
    main()
