"""A transformer cut over devices as Megatron-LM cuts it: plain modules, and torch.distributed for what they exchange.

A layer's matrices are split by columns, then by rows; an all-reduce follows the rows forwards and the columns backwards
(Shoeybi et al. 2019, section 3). The vocabulary is split too: of the look-up, the logits and their cross entropy.
"""

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from experiments.models.rank import GatedSilu, Rank, RankLayer, future_mask, make_norm, rotary_angles


class _IntoColumns(torch.autograd.Function):
    """The same hidden states for each device's columns; the gradients are summed."""

    @staticmethod
    def forward(context: Any, hidden: Tensor, group: Any) -> Tensor:
        context.group = group
        return hidden.view_as(hidden)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class _OutOfRows(torch.autograd.Function):
    """The sum of what the devices' rows give; every device has its gradient."""

    @staticmethod
    def forward(context: Any, partial: Tensor, group: Any) -> Tensor:
        context.mark_dirty(partial)
        dist.all_reduce(partial, group=group)
        return partial

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _SplitCrossEntropy(torch.autograd.Function):
    """Mean cross entropy of logits in single precision whose last dimension, the vocabulary, is split over devices.

    Keeps the probabilities, 4 bytes each, and where this device's targets are.
    """

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor, group: Any) -> Tensor:
        highest = logits.amax(-1)
        dist.all_reduce(highest, dist.ReduceOp.MAX, group)
        places, elsewhere = _own_part(targets, logits.shape[-1], group)
        shifted = logits - highest.unsqueeze(-1)
        wanted = shifted.gather(-1, places.unsqueeze(-1)).squeeze(-1).masked_fill_(elsewhere, 0.0)
        dist.all_reduce(wanted, group=group)
        chances = shifted.exp_()
        total = chances.sum(-1)
        dist.all_reduce(total, group=group)
        chances.div_(total.unsqueeze(-1))
        context.save_for_backward(chances, places, elsewhere)
        return (total.log_() - wanted).mean()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        chances, places, elsewhere = context.saved_tensors
        here = elsewhere.to(chances.dtype).sub_(1.0)  # −1 where this device has the target, else 0
        found = chances.scatter_add(-1, places.unsqueeze(-1), here.unsqueeze(-1))
        return found.mul_(gradient / places.numel()), None, None


def into_columns(hidden: Tensor, group: Any) -> Tensor:
    """Goes before matrices that are split by columns."""
    return cast(Tensor, _IntoColumns.apply(hidden, group))  # type: ignore[no-untyped-call]


def out_of_rows(partial: Tensor, group: Any) -> Tensor:
    """Goes behind a matrix that is split by rows; takes the place of its argument."""
    return cast(Tensor, _OutOfRows.apply(partial, group))  # type: ignore[no-untyped-call]


def split_cross_entropy(logits: Tensor, targets: Tensor, group: Any) -> Tensor:
    """Mean loss in nats. `logits` (…, own part of the vocabulary) in any type, `targets` (…) of the whole one."""
    return cast(Tensor, _SplitCrossEntropy.apply(logits.float(), targets, group))  # type: ignore[no-untyped-call]


def _own_part(words: Tensor, rows: int, group: Any) -> tuple[Tensor, Tensor]:
    """Where words stand in this device's part of the vocabulary (0 for others'), and which are others'."""
    places = words - rows * dist.get_rank(group)
    elsewhere = (places < 0) | (places >= rows)
    return places.masked_fill_(elsewhere, 0), elsewhere


class ParallelLayer(RankLayer):
    """A rank's part of a layer, joined to the others'."""

    def __init__(self, rank: Rank, options: dict[str, Any], group: Any) -> None:
        super().__init__(rank.shape, rank.cut.tensor, options)
        self.group = group

    def forward(self, hidden: Tensor, mask: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Hidden states in and out, of shape (sequence, microbatch, hidden)."""
        inner = into_columns(self.norm_attention(hidden), self.group)
        mixed = self._attend(self.qkv(inner), mask, cosine, sine)
        hidden = hidden + functional.dropout(out_of_rows(self.projection(mixed), self.group), self.dropout)
        wide = self.fc1(into_columns(self.norm_mlp(hidden), self.group))
        narrow: Tensor = GatedSilu.apply(wide) if self.gated else functional.gelu(wide)  # type: ignore[no-untyped-call]
        result: Tensor = hidden + functional.dropout(out_of_rows(self.fc2(narrow), self.group), self.dropout)
        return result


class ParallelStage(nn.Module):
    """A stage of a pipeline on one device: tokens or hidden states in, hidden states or its part of the logits out.

    Tokens come as (1, sequence, microbatch), which is how torch.distributed.pipelining cuts a batch into microbatches.
    """

    def __init__(self, rank: Rank, device: torch.device, group: Any) -> None:
        super().__init__()
        shape, self.group = rank.shape, group
        options: dict[str, Any] = {"device": device, "dtype": rank.dtype}
        rows, columns = -(-shape.vocab // rank.cut.tensor), shape.hidden
        self.table = nn.Embedding(rows, columns, **options) if rank.first else None
        learned = rank.first and shape.positions == "learned"
        self.positions = nn.Parameter(torch.zeros(shape.sequence, 1, columns, **options)) if learned else None
        self.layers = nn.ModuleList(ParallelLayer(rank, options, group) for _ in range(rank.layers))
        self.norm = make_norm(shape, options) if rank.last else None
        self.head = nn.Linear(columns, rows, bias=False, **options) if rank.last else None
        self.register_buffer("mask", future_mask(shape, device))
        for name, part in zip(("cosine", "sine"), rotary_angles(shape, options), strict=True):
            self.register_buffer(name, part)

    def forward(self, given: Tensor) -> Tensor:
        """One microbatch."""
        hidden = given if self.table is None else self._look_up(given.squeeze(0))
        constants = (self.get_buffer(name) for name in ("mask", "cosine", "sine"))
        mask, cosine, sine = constants
        for layer in self.layers:
            hidden = layer(hidden, mask, cosine, sine)
        if self.norm is None or self.head is None:
            return hidden
        logits: Tensor = self.head(into_columns(self.norm(hidden), self.group))
        return logits

    def _look_up(self, tokens: Tensor) -> Tensor:
        assert self.table is not None
        places, elsewhere = _own_part(tokens, self.table.num_embeddings, self.group)
        hidden = out_of_rows(self.table(places).masked_fill(elsewhere.unsqueeze(-1), 0.0), self.group)
        return hidden if self.positions is None else hidden + self.positions
