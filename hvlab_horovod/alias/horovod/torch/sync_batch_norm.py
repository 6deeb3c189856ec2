"""Batch normalisation over the samples of all ranks."""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .asynchronous import size
from .differentiable import allreduce
from .operations import Sum


class SyncBatchNorm(_BatchNorm):
    """torch's BatchNorm with the mean and variance of all ranks' samples; on CPUs, too."""

    def _check_input_dim(self, tensor: torch.Tensor) -> None:
        if tensor.dim() < 2:  # noqa: PLR2004
            raise ValueError(f"expected at least 2D input (got {tensor.dim()}D input)")

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return (N, C, ...) normalised for each of C channels."""
        if size() == 1 or not (self.training or self.running_mean is None):
            return super().forward(tensor)
        self._check_input_dim(tensor)
        axes = [0, *range(2, tensor.dim())]
        shape = [1, -1, *[1] * (tensor.dim() - 2)]
        wide = tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
        own = wide.new_tensor([wide.numel() / wide.shape[1]])
        total = allreduce(torch.cat([wide.sum(axes), own]), op=Sum, name="sync_batch_norm.mean")
        count = total[-1].detach()
        mean = total[:-1] / count
        centred = wide - mean.view(shape)
        variance = allreduce((centred * centred).sum(axes), op=Sum, name="sync_batch_norm.variance") / count
        self._track(mean.detach(), variance.detach() * count / (count - 1))
        result = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.weight is not None:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result.to(tensor.dtype)

    def _track(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        if self.track_running_stats and self.training and self.running_mean is not None:
            self.num_batches_tracked.add_(1)
            share = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
            self.running_var.lerp_(variance.to(self.running_var.dtype), share)
