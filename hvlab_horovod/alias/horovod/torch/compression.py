"""How gradients are made smaller on their way."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """A pair of functions: ``compress`` returns a tensor and what ``decompress`` needs beside it."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send, and a context."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor to use."""
        return tensor


class NoneCompressor(Compressor):
    """Sends tensors as they are."""


class FP16Compressor(Compressor):
    """Sends floating point numbers with 16 bits."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor with 16 bits, and its type."""
        return tensor.half() if tensor.is_floating_point() else tensor, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in its first type."""
        return tensor.to(ctx)


class Compression:
    """The ways of compression."""

    none = NoneCompressor
    fp16 = FP16Compressor
