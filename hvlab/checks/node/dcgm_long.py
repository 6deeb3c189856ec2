"""DCGM's diagnostics of level 3: power and stress as well, in about half an hour, on free GPUs."""

from __future__ import annotations

from hvlab.checks.node.dcgm import LEARNED, findings, question, readings

__all__ = ["LEARNED", "QUESTIONS", "findings", "readings"]

QUESTIONS = question(3, 3600)
