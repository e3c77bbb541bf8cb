"""The GPTs that ranks train: as it is, cut into stages, and with matrices that can be split by heads."""

import torch
from torch import nn
from torch.nn import functional

from experiments.models import Gpt, GptShape
from experiments.models.gpt import Block


class SplitBlock(Block):
    """A block whose queries, keys and values are layers of their own; what is summed over ranks has no bias."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__(shape)
        width = shape.width
        del self.queries_keys_values
        self.queries, self.keys, self.values = (nn.Linear(width, width) for _ in range(3))
        self.projection = nn.Linear(width, width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)
        self.head_width = width // shape.heads

    def _attend(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, context, _ = hidden.shape
        parts = (layer(hidden) for layer in (self.queries, self.keys, self.values))
        query, key, value = (part.view(batch, context, -1, self.head_width).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, context, -1)


class SplitGpt(Gpt):
    """A GPT of such blocks."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__(shape)
        self.blocks = nn.ModuleList(SplitBlock(shape) for _ in range(shape.layers))
        torch.manual_seed(shape.seed)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)


class Stage(nn.Module):
    """Some of a GPT's layers: the first stage embeds, the last one gives logits."""

    def __init__(self, model: Gpt, stage: int, stages: int) -> None:
        super().__init__()
        layers = len(model.blocks)
        first, last = (layers * edge // stages for edge in (stage, stage + 1))
        self.tokens = model.tokens if stage == 0 else None
        self.positions = model.positions if stage == 0 else None
        self.blocks = nn.ModuleList(model.blocks[first:last])
        self.norm = model.norm if stage == stages - 1 else None
        self.head = model.head if stage == stages - 1 else None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Bytes or hidden states in, hidden states or logits out."""
        if self.tokens is not None and self.positions is not None:
            hidden = self.tokens(hidden) + self.positions
        for block in self.blocks:
            hidden = block(hidden)
        return hidden if self.norm is None or self.head is None else self.head(self.norm(hidden))


def next_byte_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the next byte, in nats."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build(style: str, shape: GptShape) -> Gpt:
    """The model of a style on the CPU: the same weights on every rank."""
    torch.manual_seed(shape.seed)
    return SplitGpt(shape) if style == "tp" else Gpt(shape)


def own_seed(style: str, seed: int, rank: int) -> int:
    """The seed of a rank's dropout: ranks that hold parts of the same activations must draw the same."""
    return seed + 1 if style == "tp" else seed + 1 + rank
