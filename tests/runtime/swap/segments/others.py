"""Programs that nobody looked at while sessions on segments were made: other architectures, other sizes."""

import itertools

import torch
from torch import nn
from torch.nn import functional

from tests.runtime.swap.segments.larger import later
from tests.runtime.swap.segments.programs import Build, regression


class Mixer(nn.Module):
    """An MLP-Mixer's layer: first tokens are mixed, then channels."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        hidden = hidden + self.tokens(self.norms[0](hidden).transpose(1, 2)).transpose(1, 2)
        changed: torch.Tensor = hidden + self.channels(self.norms[1](hidden))
        return changed


class Dense(nn.Module):
    """DenseNet's block: each layer's channels are put behind all that were before."""

    def __init__(self, channels: int, growth: int, layers: int) -> None:
        super().__init__()
        widths = [channels + number * growth for number in range(layers)]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, growth, 3, padding=1)) for width in widths
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """An image of the same height and width, with more channels."""
        for layer in self.layers:
            image = torch.cat([image, layer(image)], 1)
        return image


class Llama(nn.Module):
    """A decoder's layer with grouped keys and a gated linear unit."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.pairs = nn.Linear(width, width // 2, bias=False)
        self.gates, self.down = nn.Linear(width, 5 * width, bias=False), nn.Linear(5 * width // 2, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        normal = self.norms[0](hidden)
        query = self.query(normal).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        pairs = self.pairs(normal).unflatten(-1, (2, self.heads // 4, -1)).permute(2, 0, 3, 1, 4)
        key, value = pairs.repeat_interleave(4, 2)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).flatten(2))
        gate, up = self.gates(self.norms[1](hidden)).chunk(2, -1)
        changed: torch.Tensor = hidden + self.down(functional.silu(gate) * up)
        return changed


class Recurrent(nn.Module):
    """A GRU's cell, step by step over the first dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, width)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """All states."""
        states = [torch.zeros_like(sequence[0])]
        for item in sequence:
            states.append(self.cell(item, states[-1]))
        return torch.stack(states[1:])


class Towers(nn.Module):
    """Three towers of odd widths that meet by products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.towers = nn.ModuleList(map(self._tower, ([4, 12, 8, 4], [4, 5, 4], [4, 4, 16, 8, 4]), [width // 4] * 3))
        self.out = nn.Sequential(nn.LayerNorm(2 * width), nn.Tanh(), nn.Linear(2 * width, width))

    @staticmethod
    def _tower(widths: list[int], unit: int) -> nn.Module:
        pairs = itertools.pairwise(width * unit for width in widths)
        return nn.Sequential(*(nn.Sequential(nn.Linear(one, other), nn.Tanh()) for one, other in pairs))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        one, two, three = (tower(features) for tower in self.towers)
        met: torch.Tensor = self.out(torch.cat([one * two, torch.softmax(two, -1) * three], -1))
        return met


def autoencoder(channels: int) -> nn.Module:
    """Strided convolutions down, transposed ones up."""
    widths = list(itertools.pairwise([3, channels, 2 * channels, 4 * channels]))
    down = [nn.Sequential(nn.Conv2d(one, other, 4, 2, 1), nn.ELU()) for one, other in widths]
    up = [nn.Sequential(nn.ELU(), nn.ConvTranspose2d(other, one, 4, 2, 1)) for one, other in reversed(widths)]
    return nn.Sequential(*down, *up)


def encoder(layers: int, width: int, heads: int) -> nn.Module:
    """PyTorch's own, with dropout."""
    return nn.Sequential(
        *(nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True) for _ in range(layers))
    )


OTHERS_WITH_BYTES: dict[str, Build] = {
    "towers": later(lambda: regression(nn.Sequential(*(Towers(48) for _ in range(3))), 20000, 48)),
    "autoencoder": later(lambda: regression(autoencoder(16), 96, 3, 96, 96)),
    "recurrent": later(lambda: regression(Recurrent(64), 24, 4000, 64)),
    "encoder-small": later(lambda: regression(encoder(3, 96, 4), 64, 96, 96)),
}
OTHERS_BY_SHAPES: dict[str, Build] = {
    "llama": later(lambda: regression(nn.Sequential(*(Llama(1024, 16) for _ in range(8))), 8, 1024, 1024)),
    "mixer": later(lambda: regression(nn.Sequential(*(Mixer(196, 768) for _ in range(10))), 64, 196, 768)),
    "densenet": later(lambda: regression(Dense(64, 32, 12), 16, 64, 96, 96)),
    "encoder": later(lambda: regression(encoder(10, 768, 12), 12, 512, 768)),
    "recurrent-wide": later(lambda: regression(Recurrent(1024), 32, 2048, 1024)),
}
