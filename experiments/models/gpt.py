"""A byte-level GPT (pre-LN, GELU, causal scaled-dot-product attention) and its training step."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from experiments.models.text import Batches
from experiments.models.workload import Workload

VOCABULARY = 256
"""One token for each byte."""


@dataclass(frozen=True, kw_only=True)
class GptShape:
    """A GPT and the batches that it sees; the defaults are the demo's, whose activations outweigh its parameters."""

    layers: int = 8
    width: int = 128
    heads: int = 4
    context: int = 128
    batch: int = 8
    dropout: float = 0.1
    tied: bool = False
    learning_rate: float = 1e-3
    clip: float = 1.0
    seed: int = 0
    recomputes: ClassVar[bool] = True

    def build(self, device: torch.device, *, recompute: bool = False) -> Workload:
        """The model of this shape on a device, ready to train."""
        return build_gpt(self, device, recompute=recompute)


class Block(nn.Module):
    """Attention and a four-fold wide multilayer perceptron, each behind its own layer norm and residual."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.norm_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states in and out, of shape (batch, context, width)."""
        hidden = hidden + self.dropout(self.projection(self._attend(self.norm_attention(hidden))))
        change: torch.Tensor = self.dropout(self.narrow(functional.gelu(self.widen(self.norm_mlp(hidden)))))
        return hidden + change

    def _attend(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, context, width = hidden.shape
        split = self.queries_keys_values(hidden).view(batch, context, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.transpose(1, 2).reshape(batch, context, width)


class Gpt(nn.Module):
    """The whole model; `recompute` drops each block's activations and computes them again in the backward pass."""

    def __init__(self, shape: GptShape, *, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        self.positions = nn.Parameter(torch.zeros(shape.context, shape.width))
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)
        self.apply(_initialize)
        if shape.tied:
            self.head.weight = self.tokens.weight

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the next byte, in nats."""
        hidden = self.tokens(inputs) + self.positions
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if self.recompute else block(hidden)
        logits = self.head(self.norm(hidden))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def build_gpt(shape: GptShape, device: torch.device, *, recompute: bool = False) -> Workload:
    """The model, its AdamW and its step; weights are drawn on the CPU, so every device starts from the same ones."""
    torch.manual_seed(shape.seed)
    model = Gpt(shape, recompute=recompute).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=shape.learning_rate, fused=True)
    return Workload(model, optimizer, GptStep(shape, model, optimizer, device))


class GptStep:
    """One training step of a GPT; counts its calls: call i trains on batch i."""

    def __init__(
        self, shape: GptShape, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._clip = shape.clip
        self._batches = Batches(shape.batch, shape.context, shape.seed)
        self._inputs = torch.zeros((shape.batch, shape.context), dtype=torch.int64, device=device)
        self._targets = torch.zeros_like(self._inputs)
        self._done = 0

    def __call__(self) -> torch.Tensor:
        """The next batch's loss."""
        inputs, targets = self._batches[self._done]
        self._done += 1
        self._inputs.copy_(inputs)
        self._targets.copy_(targets)
        self._optimizer.zero_grad(set_to_none=True)
        loss: torch.Tensor = self._model(self._inputs, self._targets)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._model.parameters(), self._clip)
        self._optimizer.step()
        return loss.detach()


def demo(device: torch.device) -> Workload:
    """The demo's model (`bayplan profile experiments.models.gpt:demo`)."""
    return build_gpt(GptShape(), device)
