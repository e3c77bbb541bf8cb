"""A small Llama on real text as an elastic job: rotary positions, root-mean-square norms, gated MLPs, grouped heads."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.models.gpt import VOCABULARY
from experiments.models.rank import RankLayer, future_mask, make_norm, rotary_angles
from experiments.models.text import Batches
from runtime.elastic import ElasticJob
from solvers.workload import ModelShape

TINY = ModelShape(
    name="llama-tiny", layers=8, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=VOCABULARY, sequence=32,
    gated=True, tied_embeddings=False, dropout=False, bias=False, positions="rotary", norm="rmsnorm",
)  # fmt: skip
MICROBATCHES, DROPOUT, RATE, SEED = 16, 0.1, 1e-3, 0


class LlamaLayer(nn.Module):
    """One layer, with the embedding in front if it is the first, and norm and head behind if it is the last.

    Between layers travel hidden states of shape (sequence, microbatch, hidden), as Megatron has them; the first one
    takes tokens of shape (microbatch, sequence).
    """

    def __init__(self, shape: ModelShape, number: int, device: torch.device) -> None:
        super().__init__()
        options: dict[str, Any] = {"device": device, "dtype": torch.float32}
        self.table = nn.Embedding(shape.vocab, shape.hidden, **options) if number == 0 else None
        self.block = RankLayer(shape, 1, options)
        self.dropout = nn.Dropout(DROPOUT)
        last = number == shape.layers - 1
        self.norm = make_norm(shape, options) if last else None
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False, **options) if last else None
        # Constants of the shape: no state, so they do not travel.
        self.register_buffer("mask", future_mask(shape, device), persistent=False)
        for name, part in zip(("cosine", "sine"), rotary_angles(shape, options), strict=True):
            self.register_buffer(name, part, persistent=False)

    def forward(self, given: Tensor) -> Tensor:
        """Hidden states, or the last layer's logits."""
        hidden: Tensor = given if self.table is None else self.table(given.t())
        constants = self.get_buffer("mask"), self.get_buffer("cosine"), self.get_buffer("sine")
        hidden = self.dropout(self.block(hidden, *constants))
        if self.norm is None or self.head is None:
            return hidden
        logits: Tensor = self.head(self.norm(hidden))
        return logits


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean nats per byte; logits are (sequence, microbatch, vocabulary), targets (microbatch, sequence)."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.t().flatten())


def job(device: torch.device, shape: ModelShape = TINY, microbatches: int = MICROBATCHES) -> ElasticJob:
    """The small Llama with AdamW; a microbatch is one window of Python's language reference."""
    text = Batches(batch=1, context=shape.sequence, seed=SEED)
    return ElasticJob(
        layers=[partial(LlamaLayer, shape, number, device) for number in range(shape.layers)],
        loss=loss,
        batches=lambda step, microbatch: text[step * microbatches + microbatch],
        optimizer=partial(torch.optim.AdamW, lr=RATE),
        microbatches=microbatches,
        seed=SEED,
    )
