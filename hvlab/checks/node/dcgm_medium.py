"""DCGM's diagnostics of level 2: PCIe and memory as well, in about two minutes, on free GPUs."""

from __future__ import annotations

from hvlab.checks.node.dcgm import LEARNED, findings, question, readings

__all__ = ["LEARNED", "QUESTIONS", "findings", "readings"]

QUESTIONS = question(2, 900)
