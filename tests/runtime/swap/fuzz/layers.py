"""The model of a program: a byte embedding, the drawn parts, and a head that may share the embedding's weight."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.runtime.swap.fuzz.program import Part, Program

TOKENS = 32
HEADS = 2
Tick = Callable[[torch.Tensor], None]
"""Called with the hidden states after each part."""


class Gated(torch.autograd.Function):
    """x · sigmoid(x), which keeps an input, a result, and a tensor of its own that nobody else knows."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor) -> torch.Tensor:
        """Keep the gate on the context, past `save_for_backward`."""
        ctx.gate = torch.sigmoid(hidden)
        result: torch.Tensor = hidden * ctx.gate
        ctx.save_for_backward(hidden, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """Use all three."""
        saved: tuple[torch.Tensor, torch.Tensor] = ctx.saved_tensors
        gate: torch.Tensor = ctx.gate
        return gradients[0] * (gate + saved[1] * (1 - gate)) + 0 * saved[0]


class Drawn(nn.Module):
    """Every part has modules of its own; `branch` says which parts an iteration with a branch leaves out."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        width = program.width
        self.parts = program.parts
        self.left_out = {place for place in range(len(program.parts)) if (program.seed >> place) % 3 == 0}
        self.table = nn.Embedding(TOKENS, width)
        self.modules_of_parts = nn.ModuleList(_modules(part, width) for part in program.parts)
        self.head = nn.Linear(width, TOKENS, bias=False)

    def tie(self) -> None:
        """Let the head use the embedding's weight: on the device, as `to` makes new parameters for a foreign one."""
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor, *, branch: bool = False, tick: Tick | None = None) -> torch.Tensor:
        """Mean cross-entropy of predicting the tokens, from (rows, length) of them."""
        before = hidden = self.table(tokens)
        for place, (part, modules) in enumerate(zip(self.parts, self.modules_of_parts, strict=True)):
            if branch and place in self.left_out:
                continue
            before, hidden = hidden, self._part(part, modules, before, hidden, tokens)
            if tick is not None:
                tick(hidden)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens.flatten())

    def _part(
        self, part: Part, own: nn.Module, before: torch.Tensor, hidden: torch.Tensor, tokens: torch.Tensor
    ) -> torch.Tensor:
        """One part; those in place write to a fresh tensor, as autograd demands."""
        table: dict[Part, Callable[[], torch.Tensor]] = {
            "linear": lambda: own(hidden),
            "norm": lambda: own(hidden),
            "batch norm": lambda: own(hidden.transpose(1, 2)).transpose(1, 2),
            "conv": lambda: own(hidden.transpose(1, 2)).transpose(1, 2).contiguous(),
            "attention": lambda: hidden + _attended(own, hidden),
            "softmax": lambda: hidden + torch.softmax(hidden @ hidden.transpose(1, 2) / 8, -1) @ hidden,
            "recurrent": lambda: own(hidden)[0],
            "lstm": lambda: own(hidden)[0],
            "dropout": lambda: functional.dropout(hidden, 0.2, self.training),
            "gelu": lambda: functional.gelu(hidden),
            "relu_": lambda: functional.relu(hidden * 1.5, inplace=True),
            "scale_": lambda: (hidden + 0.5).mul_(0.5),
            "residual": lambda: hidden + before,
            "gather": lambda: hidden.flatten(0, 1)[(tokens.flatten() * 7) % tokens.numel()].view_as(hidden),
            "strided": lambda: hidden.flip(1).transpose(0, 1)[::2].repeat(2, 1, 1)[: hidden.shape[1]].transpose(0, 1),
            "lookup": lambda: hidden + self.table(tokens.flip(0)),
            "stack": lambda: torch.stack([hidden, before], 1).sum(1),
            "halves": lambda: torch.cat([half.tanh() for half in hidden.chunk(2, -1)], -1) + hidden,
            "checkpoint": lambda: _checkpointed(own, hidden, reentrant=False),
            "reentrant": lambda: _checkpointed(own, hidden, reentrant=True),
            "function": lambda: Gated.apply(hidden),  # type: ignore[no-untyped-call]
            "masked": lambda: hidden.masked_fill((tokens % 5 == 0)[..., None], 0.1),
        }
        return table[part]()


def _modules(part: Part, width: int) -> nn.Module:
    inner = [nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width)]
    table: dict[str, Callable[[], nn.Module]] = {
        "linear": lambda: nn.Linear(width, width),
        "norm": lambda: nn.LayerNorm(width),
        "batch norm": lambda: nn.BatchNorm1d(width),
        "conv": lambda: nn.Conv1d(width, width, 3, padding=1),
        "attention": lambda: nn.ModuleList([nn.Linear(width, 3 * width), nn.Linear(width, width)]),
        "recurrent": lambda: nn.RNN(width, width, batch_first=True),
        "lstm": lambda: nn.LSTM(width, width, batch_first=True),
        "checkpoint": lambda: nn.Sequential(*inner),
        "reentrant": lambda: nn.Sequential(*inner),
    }
    return table.get(part, nn.Identity)()


def _attended(own: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    widen, project = own.children()
    rows, length, width = hidden.shape
    split = widen(hidden).view(rows, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
    query, key, value = split.unbind(0)
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    projected: torch.Tensor = project(mixed.transpose(1, 2).reshape(rows, length, width))
    return projected


def _checkpointed(own: nn.Module, hidden: torch.Tensor, *, reentrant: bool) -> torch.Tensor:
    recomputed: torch.Tensor = checkpoint(own, hidden, use_reentrant=reentrant)
    return hidden + recomputed


def all_tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    """Parameters and buffers."""
    yield from model.parameters()
    yield from model.buffers()
