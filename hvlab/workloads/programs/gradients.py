"""How gradients are made small for their way between the ranks, and large again: one rank's side of it.

8bit            One scale for each tensor, the same on all ranks, from the largest gradient anywhere; whole
                numbers so small that their sum over all ranks fits into 8 bits; what rounding took away is
                kept and added to the next step's gradient (error feedback: Seide et al. 2014, Interspeech;
                Karimireddy et al. 2019, arXiv:1901.09847). Four numbers make one 32 bit word, and words are
                summed up: as no number's sum leaves its 8 bits, none runs into another.
bf16, naive8    Each rank gets its share of the small numbers from all ranks, averages them in 32 bits, makes
                the averages small, and gives them to all.

Nothing is sent here, so that ranks can be simulated. Needs Python 3.8+ and torch 1.10+.
"""

from __future__ import annotations

from typing import Sequence

import torch

LARGEST = 127
NUMBERS = 4


class EightBit:
    """One rank's side of the 8 bit exchange. Raises ValueError for more ranks than 8 bits have levels."""

    def __init__(self, ranks: int) -> None:
        if ranks > LARGEST:
            raise ValueError("8 bits hold the sums of at most {} ranks, not of {}".format(LARGEST, ranks))
        self.ranks = ranks
        self.levels = LARGEST // ranks
        self.residuals: list[torch.Tensor] = []

    def take(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Take this step's gradients, and return the largest magnitude in each: one number a tensor."""
        if not self.residuals:
            self.residuals = [torch.zeros_like(gradient) for gradient in gradients]
        for residual, gradient in zip(self.residuals, gradients):
            residual.add_(gradient)
        return torch.stack([residual.abs().max() for residual in self.residuals])

    def pack(self, maxima: torch.Tensor) -> torch.Tensor:
        """Return all gradients as 32 bit words, scaled by the maxima over all ranks; keep the rest."""
        parts = []
        for residual, largest in zip(self.residuals, maxima):
            part = quantised(residual, largest, self.levels)
            residual.sub_(part * (largest / self.levels))
            parts.append((part + self.levels).to(torch.uint8).flatten())
        numbers = torch.cat(parts)
        return torch.nn.functional.pad(numbers, (0, -numbers.numel() % NUMBERS)).view(torch.int32)

    def unpack(self, total: torch.Tensor, maxima: torch.Tensor) -> list[torch.Tensor]:
        """Return the averaged gradients from the sum of what all ranks packed."""
        offset, steps = self.levels * self.ranks, self.levels * self.ranks
        parts = split(total.view(torch.uint8), [residual.shape for residual in self.residuals])
        return [(part.to(largest.dtype) - offset) * (largest / steps) for part, largest in zip(parts, maxima)]


def quantised(values: torch.Tensor, largest: torch.Tensor, levels: int) -> torch.Tensor:
    """Return whole numbers from -levels to levels, in steps of largest / levels."""
    scale = levels / torch.where(largest > 0, largest, torch.ones_like(largest))
    return (values * scale).round().clamp(-levels, levels)


def split(flat: torch.Tensor, shapes: Sequence[torch.Size]) -> list[torch.Tensor]:
    """Return tensors of these shapes that lie one after the other in ``flat``."""
    sizes = [shape.numel() for shape in shapes]
    return [part.reshape(shape) for part, shape in zip(torch.split(flat[: sum(sizes)], sizes), shapes)]


class Shares:
    """One rank's side of the exchange of shares; the gradients are sent as ``dtype``, in bytes."""

    def __init__(self, ranks: int, dtype: torch.dtype) -> None:
        self.ranks, self.dtype = ranks, dtype
        self.shapes: list[torch.Size] = []

    def pack(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the bytes of all gradients, with so many zeros that all ranks' shares are equal."""
        self.shapes = [gradient.shape for gradient in gradients]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        return self.small(torch.nn.functional.pad(flat, (0, -flat.numel() % self.ranks)))

    def reduce(self, received: torch.Tensor) -> torch.Tensor:
        """Return the average of this rank's share, of which ``received`` holds every rank's."""
        return self.small(self.large(received).reshape(self.ranks, -1).mean(dim=0))

    def unpack(self, gathered: torch.Tensor) -> list[torch.Tensor]:
        """Return the averaged gradients from all ranks' shares."""
        return split(self.large(gathered), self.shapes)

    def small(self, values: torch.Tensor) -> torch.Tensor:
        """Return the bytes that stand for the values. Cast to integers, all below 1 is lost."""
        return values.to(self.dtype).view(torch.uint8)

    def large(self, small: torch.Tensor) -> torch.Tensor:
        """Return the values that the bytes stand for."""
        return small.view(self.dtype).to(torch.float32)
