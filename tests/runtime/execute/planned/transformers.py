"""Transformers written by hand, with dropout wherever there can be one, and those of the library of that name."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from tests.runtime.execute.planned.networks import Network, Tokens
from tests.runtime.swap.models.language import MODELS, VOCABULARY

Attended = Literal["fused", "written out"]


class Adapted(nn.Module):
    """A frozen linear layer with a trained one of low rank beside it (LoRA)."""

    def __init__(self, width: int, out: int, rank: int = 4) -> None:
        super().__init__()
        self.base = nn.Linear(width, out).requires_grad_(False)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, out, bias=False)
        self.dropout = nn.Dropout(0.05)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The base's result, shifted."""
        shifted: torch.Tensor = self.base(hidden) + self.up(self.down(self.dropout(hidden)))
        return shifted


class Attention(nn.Module):
    """Attention of some heads to `context`, with dropout on its weights."""

    def __init__(self, width: int, heads: int, attended: Attended, dropout: float, linear: Callable[..., nn.Module]):
        super().__init__()
        self.heads, self.attended, self.dropout = heads, attended, nn.Dropout(dropout)
        self.query, self.key, self.value = linear(width, width), nn.Linear(width, width), linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: torch.Tensor, context: torch.Tensor, causal: bool) -> torch.Tensor:
        """Of shape (rows, length, width)."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(hidden), self.key(context), self.value(context))
        )
        if self.attended == "fused":
            chance = self.dropout.p if self.training else 0.0
            mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=chance, is_causal=causal)
        else:
            scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
            if causal:
                unseen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
                scores = scores.masked_fill(unseen, float("-inf"))
            mixed = self.dropout(scores.softmax(-1)) @ value
        result: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return result


class Block(nn.Module):
    """Attention to itself, to another text if there is one, and a perceptron; dropout on each residual."""

    def __init__(
        self,
        width: int,
        attended: Attended,
        dropout: float,
        linear: Callable[..., nn.Module] = nn.Linear,
        crossed: bool = False,
    ) -> None:
        super().__init__()
        self.attention = Attention(width, 4, attended, dropout, linear)
        self.crossed = Attention(width, 4, attended, dropout, linear) if crossed else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if crossed else 2))
        self.wide, self.narrow = linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: torch.Tensor, other: torch.Tensor | None = None, causal: bool = True) -> torch.Tensor:
        """Of the same shape."""
        normed = self.norms[0](hidden)
        hidden = hidden + self.dropout(self.attention(normed, normed, causal))
        if self.crossed is not None and other is not None:
            hidden = hidden + self.dropout(self.crossed(self.norms[2](hidden), other, causal=False))
        inner = self.dropout(functional.gelu(self.wide(self.norms[1](hidden))))
        result: torch.Tensor = hidden + self.dropout(self.narrow(inner))
        return result


class Gpt(Tokens):
    """Embeddings with dropout, blocks, a head that may share the embedding's weight; adapters if `lora`."""

    rows, length = 6, 64

    def __init__(
        self,
        attended: Attended = "fused",
        dropout: float = 0.1,
        depth: int = 3,
        width: int = 64,
        tied: bool = False,
        lora: bool = False,
    ) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(self.vocabulary, width), nn.Embedding(self.length, width)
        self.dropout = nn.Dropout(dropout)
        linear: Callable[..., nn.Module] = Adapted if lora else nn.Linear
        self.blocks = nn.ModuleList(Block(width, attended, dropout, linear) for _ in range(depth))
        self.norm, self.head, self.tied = nn.LayerNorm(width), nn.Linear(width, self.vocabulary, bias=False), tied
        if lora:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(".down." in name or ".up." in name)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the next token."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.dropout(self.table(tokens) + self.places(places))
        for block in self.blocks:
            hidden = block(hidden)
        weight = self.table.weight if self.tied else self.head.weight
        logits = functional.linear(self.norm(hidden), weight)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class Translating(Tokens):
    """An encoder and a decoder, which looks at what the encoder read."""

    rows, length = 4, 48

    def __init__(self, attended: Attended = "fused", dropout: float = 0.1, depth: int = 2, width: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(self.vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(Block(width, attended, dropout) for _ in range(depth))
        self.decoder = nn.ModuleList(Block(width, attended, dropout, crossed=True) for _ in range(depth))
        self.head = nn.Linear(width, self.vocabulary)

    def batch(self, drawn: torch.Generator) -> tuple[torch.Tensor, ...]:
        """A text and a shorter one."""
        texts = super().batch(drawn)
        return texts[0], torch.randint(self.vocabulary, (self.rows, self.length // 2), generator=drawn)

    def forward(self, text: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the answer's next token."""
        read = self.dropout(self.table(text))
        for block in self.encoder:
            read = block(read, causal=False)
        hidden = self.dropout(self.table(answer))
        for block in self.decoder:
            hidden = block(hidden, read)
        return functional.cross_entropy(self.head(hidden[:, :-1]).flatten(0, 1), answer[:, 1:].flatten())


class Shipped(Network):
    """A language model of the library `transformers`, tiny and random, with its own dropouts."""

    def __init__(self, name: str, attention: Literal["eager", "sdpa"]) -> None:
        super().__init__()
        self.model: Any = MODELS[name](attention)

    def batch(self, drawn: torch.Generator) -> tuple[torch.Tensor, ...]:
        """Tokens, and a mask that leaves some out."""
        tokens = torch.randint(2, VOCABULARY, (6, 64), generator=drawn)
        mask = torch.ones_like(tokens)
        mask[0, -8:] = 0
        return tokens, mask

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The model's own loss."""
        loss: torch.Tensor = self.model(input_ids=tokens, attention_mask=mask, labels=tokens, use_cache=False).loss
        return loss
