"""PyTorch's recomputation of blocks: all of a block, or all but what a policy saves."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts, noop_context_fn

PRODUCTS = ("mm", "addmm", "bmm", "linear")
ATTENTION = "scaled_dot_product"


class Recomputed(nn.Module):
    """A block whose activations are computed again in the backward pass, but for what `contexts` keeps."""

    def __init__(self, block: nn.Module, contexts: Callable[[], Any] | None) -> None:
        super().__init__()
        self.block = block
        self._contexts = noop_context_fn if contexts is None else contexts

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The block's result."""
        result: torch.Tensor = checkpoint(self.block, hidden, use_reentrant=False, context_fn=self._contexts)
        return result


def fully(block: nn.Module) -> nn.Module:
    """Nothing of a block is kept but its input."""
    return Recomputed(block, None)


def keeping_attention(block: nn.Module) -> nn.Module:
    """What attention computed is kept, the rest computed again."""
    return Recomputed(block, partial(create_selective_checkpoint_contexts, _attention))


def keeping_products(block: nn.Module) -> nn.Module:
    """What attention and matrix products computed is kept, the rest computed again."""
    return Recomputed(block, partial(create_selective_checkpoint_contexts, _products))


def _attention(_context: object, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    return _kept(ATTENTION in _name(operator))


def _products(_context: object, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    return _kept(ATTENTION in _name(operator) or _name(operator) in PRODUCTS)


def _name(operator: Any) -> str:
    return str(operator).split(".")[1]  # aten.mm.default


def _kept(kept: bool) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
