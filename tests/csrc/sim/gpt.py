"""A small GPT that trains on one fixed batch: the program that runs on both devices in these tests."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """Pre-norm attention and MLP with dropout outside the attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, time, width)))
        out: Tensor = x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))
        return out


class Gpt(nn.Module):
    """Embeddings, blocks (each recomputed in backward if asked), head."""

    def __init__(self, layers: int, width: int, vocabulary: int, time: int, dropout: float, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(time, width)
        self.blocks = nn.ModuleList(Block(width, 2, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


@dataclass(frozen=True)
class Run:
    """What a training run leaves: every loss and every parameter, on the CPU."""

    losses: list[Tensor]
    parameters: list[Tensor]

    def equals(self, other: "Run") -> bool:
        pairs = zip(self.losses + self.parameters, other.losses + other.parameters, strict=True)
        return all(torch.equal(mine, theirs) for mine, theirs in pairs)


class Trainer:
    """The model, its optimizer and a step on one batch."""

    def __init__(
        self,
        device: str,
        *,
        optimizer: dict[str, Any] | None = None,
        layers: int = 2,
        width: int = 32,
        batch: int = 2,
        time: int = 16,
        recompute: bool = False,
    ) -> None:
        torch.manual_seed(0)
        self.model = Gpt(layers, width, 50, time, 0.1, recompute).to(device)
        tokens = torch.randint(50, (batch, time + 1))
        self.tokens = tokens.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, **(optimizer or {}))

    def step(self) -> Tensor:
        logits = self.model(self.tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def run(self, steps: int = 4) -> Run:
        torch.manual_seed(1)
        losses = [self.step() for _ in range(steps)]
        return Run([loss.cpu() for loss in losses], [p.detach().cpu() for p in self.model.parameters()])
