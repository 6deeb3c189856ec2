"""The models that are trained, in plain torch: the labs' CNN, ResNet, VGG, an LSTM and a GPT.

Layer sizes are those of the papers: ResNet (He et al. 2015, arXiv:1512.03385, table 1), VGG
(Simonyan and Zisserman 2014, arXiv:1409.1556, table 1, column D), GPT-2 (Radford et al.
2019, section 2.3: normalised before each part, weights of tokens and scores tied); the CNN is the labs' own
for MNIST. Needs Python 3.8+ and torch 1.5+, the GPT torch 2.0+.
"""

from __future__ import annotations

import copy
from typing import Callable

import torch
from torch import nn

VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
VGG_WIDTH = 4096


class Cnn(nn.Module):
    """The labs' CNN for digits of 28 x 28 pixels: two convolutions of 5 x 5, two full layers."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 10, 5)
        self.second = nn.Conv2d(10, 20, 5)
        self.dropout = nn.Dropout2d()
        self.hidden = nn.Linear(20 * 4 * 4, 50)
        self.last = nn.Linear(50, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the classes' scores, (N, classes), of images (N, 1, 28, 28)."""
        x = torch.relu(nn.functional.max_pool2d(self.first(images), 2))
        x = torch.relu(nn.functional.max_pool2d(self.dropout(self.second(x)), 2))
        x = torch.relu(self.hidden(x.flatten(1)))
        return self.last(nn.functional.dropout(x, training=self.training))


class Block(nn.Module):
    """A residual block of two convolutions, or of three with a bottleneck."""

    def __init__(self, channels: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        out = width * expansion
        if expansion == 1:
            parts = [normed(channels, width, 3, stride), nn.ReLU(), normed(width, out, 3)]
        else:
            parts = [normed(channels, width, 1), nn.ReLU(), normed(width, width, 3, stride), nn.ReLU()]
            parts.append(normed(width, out, 1))
        self.body = nn.Sequential(*parts)
        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else normed(channels, out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def normed(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Module:
    """Return a convolution that keeps the image's size (but for the stride), and its normalisation."""
    convolution = nn.Conv2d(channels, out, kernel, stride=stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out))


def resnet(depths: tuple[int, ...], expansion: int, classes: int) -> nn.Module:
    layers: list[nn.Module] = [normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for number in range(depth):
            layers.append(Block(channels, width, 2 if stage and not number else 1, expansion))
            channels = width * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def vgg(plan: tuple[int, ...], image: int, classes: int) -> nn.Module:
    """Return a VGG network for images of ``image`` pixels a side; 0 in ``plan`` halves the image."""
    layers: list[nn.Module] = []
    channels, side = 3, image
    for width in plan:
        if width:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        else:
            layers.append(nn.MaxPool2d(2))
            side //= 2
    widths = (channels * side * side, VGG_WIDTH, VGG_WIDTH)
    layers.append(nn.Flatten())
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(VGG_WIDTH, classes))


class Lstm(nn.Module):
    """A language model: tokens, an LSTM, and the scores of the token that follows each."""

    def __init__(self, vocabulary: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.scores = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores (N, length, vocabulary) of tokens (N, length)."""
        return self.scores(self.lstm(self.tokens(tokens))[0])


class Attending(nn.Module):
    """A block of a decoder: causal attention, then two full layers of four times the width between."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.triple, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        wide = 4 * width
        self.body = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.triple(self.norm(x)).unflatten(-1, (3 * self.heads, -1)).transpose(1, 2).chunk(3, dim=1)
        heard = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(heard.transpose(1, 2).flatten(2))
        return x + self.body(x)


class Gpt(nn.Module):
    """A decoder-only transformer: the scores of the token that follows each."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Attending(width, heads) for _ in range(layers))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.scores.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores (N, length, vocabulary) of tokens (N, length)."""
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


IMAGE_MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "resnet18": lambda _, classes: resnet((2, 2, 2, 2), 1, classes),
    "resnet50": lambda _, classes: resnet((3, 4, 6, 3), 4, classes),
    "vgg16": lambda image, classes: vgg(VGG16, image, classes),
}


def loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of scores (N, ..., classes) for targets (N, ...)."""
    return nn.functional.cross_entropy(scores.float().flatten(0, -2), targets.flatten())


def gradient_bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def flops_per_sample(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float | None:
    """Return the floating point operations of one sample's way there and back, a multiply-add being two.

    Counted on tensors without data; None if torch cannot (before 2.1).
    """
    try:
        from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415 - not there in every torch
    except ImportError:
        return None
    twin = copy.deepcopy(model).to("meta")
    # Two samples, for a normalisation has nothing to go by in one.
    inputs, targets = (
        tensor[:1].repeat(2, *[1] * (tensor.dim() - 1)).to("meta") for tensor in (inputs, targets)
    )
    counter = FlopCounterMode(display=False)
    with counter:
        loss(twin(inputs), targets).backward()
    return float(counter.get_total_flops()) / 2
