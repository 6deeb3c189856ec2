"""Programs that run on hosts; they need a shell, or Python 3.8 and nothing else."""

from pathlib import Path


def source(name: str) -> str:
    """Return the text of a program."""
    return (Path(__file__).parent / (name if "." in name else f"{name}.py")).read_text("utf-8")
