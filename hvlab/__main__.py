"""``python -m hvlab``."""

from __future__ import annotations

import os
import sys

from hvlab.base import sudo


def main() -> None:
    """Run the command line; say what to do when hvlab's own packages are missing."""
    _open_streams()
    _speak_english()
    sudo.spare_home()
    try:
        # The imports are what is being tried.
        from hvlab.cli import cli, completion, run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hvlab"):
            raise
        sys.exit(
            f"hvlab: this Python ({sys.executable}) lacks the package {error.name}.\n"
            "Run `make install` in the clone, then `. .venv/bin/activate`."
        )
    sys.exit(completion.answer(cli) if completion.asked() else run(sys.argv[1:]))


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
