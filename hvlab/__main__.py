"""``python -m hvlab``."""

from __future__ import annotations

import sys

from hvlab import sudo


def main() -> None:
    """Run the command line; say what to do when hvlab's own packages are missing."""
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


if __name__ == "__main__":
    main()
