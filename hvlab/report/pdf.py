"""A page printed to PDF by a browser that is installed here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hvlab.base import process
from hvlab.base.errors import HvlabError, UsageError
from hvlab.base.temporary import temporary_folder

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
    "microsoft-edge",
)
_PATIENCE_S = 120


def browser() -> str:
    """Return the path of a browser that prints. Raises UsageError where there is none."""
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        raise UsageError(
            f"a PDF is printed by Chromium or Chrome, and neither is in PATH ({', '.join(BROWSERS)})",
            remedy="install one (Debian: chromium), or write --format html and print that from a browser",
        )
    return program


def arguments(program: str, profile: Path, source: Path, output: Path, *, root: bool) -> list[str]:
    """Return the command that prints ``source``; a browser that runs as root has no sandbox."""
    return [
        program,
        "--headless",
        *(["--no-sandbox"] if root else []),
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={profile}",
        "--window-size=1280,1000",
        "--no-pdf-header-footer",
        "--virtual-time-budget=60000",
        f"--print-to-pdf={output}",
        source.as_uri(),
    ]


def printed(html: str) -> bytes:
    """Return a page as PDF. Raises UsageError without a browser, HvlabError where it fails."""
    program = browser()
    with temporary_folder() as folder:
        source, output = folder / "report.html", folder / "report.pdf"
        source.write_text(html, "utf-8")
        argv = arguments(program, folder / "profile", source, output, root=os.geteuid() == 0)
        try:
            ended = process.run(argv, seconds=_PATIENCE_S)
        except HvlabError as error:
            raise _failed(program, str(error)) from error
        if ended.returncode or not output.is_file():
            words = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
            raise _failed(program, words[-1])
        return output.read_bytes()


def _failed(program: str, problem: str) -> HvlabError:
    remedy = "write --format html, and print that from a browser"
    return HvlabError(f"{program} could not print the report: {problem}", remedy=remedy)
