"""A job as small as can be: what is tested is who does what, not how long it takes."""

import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from runtime.elastic import ElasticJob, from_transformers
from solvers.ir.replan import ReplanProblem

LAYERS, WIDTH, MICROBATCHES = 6, 12, 8


class Small(nn.Module):
    """A residual layer with dropout, the first one behind an embedding, the last one in front of a head."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.table = nn.Embedding(32, WIDTH) if number == 0 else None
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 32) if number == LAYERS - 1 else None

    def forward(self, given: Tensor) -> Tensor:
        hidden: Tensor = given if self.table is None else self.table(given)
        hidden = hidden + functional.dropout(torch.tanh(self.inner(hidden)), 0.2)
        return hidden if self.head is None else self.head(hidden)


def batches(step: int, microbatch: int) -> tuple[Tensor, Tensor]:
    """Four tokens, and each one's successor."""
    tokens = (torch.arange(4) * 7 + 3 * step + 5 * microbatch) % 32
    return tokens, (tokens + 1) % 32


def small(device: torch.device) -> ElasticJob:
    """The job."""
    return ElasticJob(
        layers=[partial(Small, number) for number in range(LAYERS)],
        loss=functional.cross_entropy,
        batches=batches,
        optimizer=partial(torch.optim.AdamW, lr=1e-2),
        microbatches=MICROBATCHES,
        seed=3,
    )


def costs(nodes: int) -> ReplanProblem:
    """The job with stated costs: its plans are the same however busy this machine is. Memory is that of the start."""
    return ReplanProblem(
        name="small", nodes=nodes, microbatches=MICROBATCHES, layers=LAYERS, forward_us=1000, backward_us=2000,
        first_extra_us=(100, 200), last_extra_us=(200, 400), p2p_us=50, sync_us=100, memory_bytes=0,
        layer_static_bytes=4000, layer_activation_bytes=500, first_static_bytes=1000, last_static_bytes=1000,
        max_depth=min(nodes, LAYERS), layer_sync_us=100,
    )  # fmt: skip


def uneven(device: torch.device) -> ElasticJob:
    """The same, but the second step's microbatches are longer."""
    longer = torch.arange(5) % 32

    def other(step: int, microbatch: int) -> tuple[Tensor, Tensor]:
        return (longer, longer) if step == 1 else batches(step, microbatch)

    return replace(small(device), batches=other)


def other(device: torch.device) -> ElasticJob:
    """The same with other random numbers."""
    return replace(small(device), seed=4)


def drifting(device: torch.device) -> ElasticJob:
    """The same with the rate that a file says; after some steps all wait until another file is there."""
    folder = Path(os.environ["BAYPLAN_TESTS_DRIFT"])

    def patient(step: int, microbatch: int) -> tuple[Tensor, Tensor]:
        until = time.monotonic() + 120
        while step > 4 and not (folder / "refused").exists() and time.monotonic() < until:
            time.sleep(0.02)
        return batches(step, microbatch)

    rate = float((folder / "rate").read_text())
    return replace(small(device), batches=patient, optimizer=partial(torch.optim.AdamW, lr=rate))


def tiny_llama(device: torch.device) -> ElasticJob:
    """A Llama of transformers with four blocks; its tokens are those of `batches`, in two rows."""
    from transformers import LlamaConfig

    config = LlamaConfig(
        num_hidden_layers=4, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
        vocab_size=32, max_position_embeddings=8, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip

    def rows(step: int, microbatch: int) -> tuple[Tensor, Tensor]:
        found = torch.stack([batches(step, microbatch)[0], batches(step, microbatch + 1)[0]])
        return found, found

    return from_transformers(
        config, rows, partial(torch.optim.AdamW, lr=1e-2), microbatches=MICROBATCHES, seed=5, device=device
    )


IMPORTED = os.getpid()
NAP_S = 3.6


class Sleepy(Small):
    """The same, but slow in workers, which are forked after the import: measuring it here takes no longer."""

    def forward(self, given: Tensor) -> Tensor:
        if os.getpid() != IMPORTED:
            time.sleep(NAP_S)
        return super().forward(given)


def sleepy(device: torch.device) -> ElasticJob:
    """The same, whose first layer takes `NAP_S`."""
    made = small(device)
    return replace(made, layers=[partial(Sleepy, 0), *made.layers[1:]])


def normed(device: torch.device) -> ElasticJob:
    """The job with running statistics, which count the microbatches of one process only."""
    job = small(device)
    return replace(job, layers=[job.layers[0], partial(nn.BatchNorm1d, WIDTH), *job.layers[2:]])
