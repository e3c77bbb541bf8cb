"""One rank of a transformer that is cut over devices, as Megatron-LM runs it, by the shapes of `solvers.workload`.

Collectives are left out: a rank's partial sums stand for the reduced ones, which have the same shapes. What is kept for
the backward pass is what the formulas of `solvers/workload` count, and the statistics of norms, which they leave out.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from experiments.models.workload import Workload
from solvers.ir.errors import InvalidInput
from solvers.workload import ModelShape, Parallelism

EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A device of pipeline stage `stage`, in one data type: that of activations, parameters and gradients."""

    shape: ModelShape
    cut: Parallelism
    stage: int = 0
    dtype: torch.dtype = torch.bfloat16

    def __post_init__(self) -> None:
        """Refuse what has no rank here."""
        if self.shape.attention != "unfused" or self.shape.experts > 1:
            raise InvalidInput(
                f"{self.shape.name} has flash attention or experts: a rank is built of unfused, dense ones"
            )
        if self.shape.layers % self.cut.pipeline or not 0 <= self.stage < self.cut.pipeline:
            raise InvalidInput(
                f"stage {self.stage} of {self.cut.pipeline} stages and {self.shape.layers} layers: choose stages that "
                "divide the layers, and one of them"
            )

    @property
    def layers(self) -> int:
        """Layers of the stage."""
        return self.shape.layers // self.cut.pipeline

    @property
    def first(self) -> bool:
        """Whether it embeds tokens."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """Whether it computes the loss."""
        return self.stage == self.cut.pipeline - 1

    def build(self, device: torch.device) -> Workload:
        """The rank on a device, its AdamW and its step."""
        model = RankStage(self, device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            result: torch.Tensor = model()
            result.backward(None if self.last else model.get_buffer("gradient"))  # type: ignore[no-untyped-call]
            optimizer.step()
            return result.detach()

        return Workload(model, optimizer, step)


class RankStage(nn.Module):
    """Embedding if it is the first stage, layers, and the loss if it is the last; one fixed microbatch."""

    def __init__(self, rank: Rank, device: torch.device) -> None:
        super().__init__()
        shape, cut = rank.shape, rank.cut
        self.rank = rank
        options: dict[str, Any] = {"device": device, "dtype": rank.dtype}
        rows, columns = -(-shape.vocab // cut.tensor), shape.hidden
        here = (shape.sequence, cut.microbatch)
        self.layers = nn.ModuleList(RankLayer(shape, cut.tensor, options) for _ in range(rank.layers))
        self.register_buffer("mask", future_mask(shape, device))
        for name, part in zip(("cosine", "sine"), rotary_angles(shape, options), strict=True):
            self.register_buffer(name, part)
        if rank.first:
            self.table = nn.Embedding(rows, columns, **options)
            nn.init.normal_(self.table.weight, std=0.02)
            learned = shape.positions == "learned"
            self.positions = nn.Parameter(torch.zeros(shape.sequence, 1, columns, **options)) if learned else None
            self.register_buffer("tokens", torch.zeros(here, dtype=torch.int64, device=device))
        else:
            self.register_buffer("received", torch.zeros(*here, columns, **options))
        if rank.last:
            self.norm = make_norm(shape, options)
            self.head = nn.Linear(columns, rows, bias=False, **options)
            if rank.first and shape.tied_embeddings:
                self.head.weight = self.table.weight
            self.register_buffer("targets", torch.zeros(here, dtype=torch.int64, device=device))
        else:
            self.register_buffer("gradient", torch.ones(*here, columns, **options))

    def forward(self) -> torch.Tensor:
        """The mean loss of the microbatch, or what the next stage receives."""
        hidden = self._begin()
        for layer in self.layers:
            hidden = layer(hidden, *self.constants())
        if not self.rank.last:
            return hidden
        logits = self.head(self.norm(hidden)).float()
        return functional.cross_entropy(logits.flatten(0, 1), self.get_buffer("targets").flatten())

    def constants(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Where a place must not look, and the angles of rotary positions."""
        return self.get_buffer("mask"), self.get_buffer("cosine"), self.get_buffer("sine")

    def _begin(self) -> torch.Tensor:
        if not self.rank.first:
            return self.get_buffer("received").clone().requires_grad_()
        hidden: torch.Tensor = self.table(self.get_buffer("tokens"))
        if self.positions is not None:
            hidden = hidden + self.positions
        return functional.dropout(hidden, 0.1) if self.rank.shape.dropout else hidden


class RankLayer(nn.Module):
    """Attention and multilayer perceptron of one rank: its heads, its columns; sequence first, as Megatron has it."""

    def __init__(self, shape: ModelShape, tensor: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.width = shape.hidden // shape.heads
        self.heads, self.groups = shape.heads // tensor, shape.kv_heads // tensor
        self.dropout = 0.1 if shape.dropout else 0.0
        self.rotary, self.gated = shape.positions == "rotary", shape.gated
        self.norm_attention, self.norm_mlp = make_norm(shape, options), make_norm(shape, options)
        linear = {"bias": shape.bias, **options}
        self.qkv = nn.Linear(shape.hidden, shape.qkv_width // tensor, **linear)
        self.projection = nn.Linear(shape.hidden // tensor, shape.hidden, **linear)
        self.fc1 = nn.Linear(shape.hidden, shape.fc1_width // tensor, **linear)
        self.fc2 = nn.Linear(shape.ffn // tensor, shape.hidden, **linear)

    def forward(
        self, hidden: torch.Tensor, mask: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
    ) -> torch.Tensor:
        """Hidden states in and out, of shape (sequence, microbatch, hidden)."""
        mixed = self._attend(self.qkv(self.norm_attention(hidden)), mask, cosine, sine)
        hidden = hidden + functional.dropout(self.projection(mixed), self.dropout)
        wide = self.fc1(self.norm_mlp(hidden))
        narrow: torch.Tensor = GatedSilu.apply(wide) if self.gated else functional.gelu(wide)  # type: ignore[no-untyped-call]
        result: torch.Tensor = hidden + functional.dropout(self.fc2(narrow), self.dropout)
        return result

    def _attend(self, qkv: torch.Tensor, mask: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """Scores and probabilities in memory; heads that share keys stand below one another in one product."""
        sequence, batch, _ = qkv.shape
        parts = torch.split(qkv.view(sequence, batch, -1, self.width), [self.heads, self.groups, self.groups], 2)
        if self.rotary:
            parts = (_rotated(parts[0], cosine, sine), _rotated(parts[1], cosine, sine), parts[2])
        query, key, value = (
            part.permute(1, 2, 0, 3).reshape(batch * self.groups, -1, self.width).contiguous() for part in parts
        )
        scores = torch.bmm(query, key.transpose(1, 2)).mul_(self.width**-0.5).masked_fill_(mask, float("-inf"))
        chances = functional.dropout(scores.softmax(-1), self.dropout)
        del scores
        mixed = torch.bmm(chances, value).view(batch, self.heads, sequence, self.width)
        return mixed.permute(2, 0, 1, 3).reshape(sequence, batch, self.heads * self.width)


class GatedSilu(torch.autograd.Function):
    """silu(gate) · value of the two halves of a projection as one kernel: it keeps the projection and nothing else."""

    @staticmethod
    def forward(context: Any, wide: torch.Tensor) -> torch.Tensor:
        """Half as wide."""
        context.save_for_backward(wide)
        gate, value = wide.chunk(2, -1)
        return functional.silu(gate) * value

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of both halves."""
        (wide,) = context.saved_tensors
        gate, value = wide.chunk(2, -1)
        of_gate = torch.ops.aten.silu_backward(gradient * value, gate)
        return torch.cat([of_gate, gradient * functional.silu(gate)], -1)


class RmsNorm(nn.Module):
    """A norm by the root mean square as one kernel: it keeps its input and one number a token, in single precision."""

    def __init__(self, width: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, **options))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        result: torch.Tensor = ScaledByRms.apply(hidden, self.weight)  # type: ignore[no-untyped-call]
        return result


class ScaledByRms(torch.autograd.Function):
    """x / rms(x) · weight."""

    @staticmethod
    def forward(context: Any, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Of the type of the input."""
        scale = hidden.float().square().mean(-1, keepdim=True).add_(EPSILON).rsqrt_()
        context.save_for_backward(hidden, weight, scale)
        return (hidden * scale.to(hidden.dtype)) * weight

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of input and weight."""
        hidden, weight, scale = context.saved_tensors
        normal = hidden * scale.to(hidden.dtype)
        of_weight = (gradient * normal).flatten(0, -2).sum(0)
        along = gradient * weight
        return (along - normal * (along * normal).mean(-1, keepdim=True)) * scale.to(hidden.dtype), of_weight


def make_norm(shape: ModelShape, options: dict[str, Any]) -> nn.Module:
    """The shape's norm over the hidden width; `options` are type and device."""
    return RmsNorm(shape.hidden, options) if shape.norm == "rmsnorm" else nn.LayerNorm(shape.hidden, **options)


def future_mask(shape: ModelShape, device: torch.device) -> torch.Tensor:
    """True where a place must not look, once for each head that shares keys."""
    square = torch.ones(shape.sequence, shape.sequence, dtype=torch.bool, device=device).triu(1)
    return square.repeat(shape.heads // shape.kv_heads, 1)


def rotary_angles(shape: ModelShape, options: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of rotary positions, each (sequence, 1, 1, width of a head)."""
    width = shape.hidden // shape.heads
    places = torch.arange(shape.sequence, device=options["device"]).float()
    rates = 10000.0 ** (-torch.arange(0, width, 2, device=options["device"]).float() / width)
    angles = torch.outer(places, rates).repeat(1, 2).view(shape.sequence, 1, 1, width)
    return angles.cos().to(options["dtype"]), angles.sin().to(options["dtype"])


def _rotated(part: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = part.chunk(2, -1)
    return part * cosine + torch.cat([-second, first], -1) * sine
