"""Who is compared: sessions by several solvers, and PyTorch's ways of running blocks again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts, noop_context_fn

from runtime.blocks.replacing import forward_replaced

SHARES = (0.9, 0.75, 0.6, 0.5, 0.4)
"""Budgets, as shares of the plain run's peak."""
COMPILED = (0.8, 0.5, 0.2)
"""Values of `torch._functorch.config.activation_memory_budget`: of what autograd would save, not of a peak."""
PRODUCTS = ("mm", "addmm", "bmm", "linear", "convolution")
ATTENTION = "scaled_dot_product"


@dataclass(frozen=True)
class Way:
    """A session by `solver` at a `share` of the plain peak; or, where there is no solver, what is done to blocks."""

    name: str
    solver: str | None = None
    share: float | None = None
    parameters: dict[str, object] = field(default_factory=dict)
    around: Callable[[Sequence[nn.Module]], Any] | None = None


@contextmanager
def checkpointed(blocks: Sequence[nn.Module], contexts: Callable[[], Any] = noop_context_fn) -> Iterator[None]:
    """Inside, these blocks' activations are computed again in the backward pass, but for what `contexts` keep."""
    with ExitStack() as stack:
        for block in blocks:
            again = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)
            stack.enter_context(forward_replaced(block, again))
        yield


@contextmanager
def compiled(blocks: Sequence[nn.Module], share: float) -> Iterator[None]:
    """Inside, blocks are compiled (autograd ahead of time, eager kernels) with that memory budget."""
    import torch._functorch.config as functorch

    torch._dynamo.reset()
    with ExitStack() as stack:
        stack.enter_context(functorch.patch(activation_memory_budget=share))
        for block in blocks:
            once = torch.compile(block.forward, backend="aot_eager")
            stack.enter_context(forward_replaced(block, once))
        yield


def _keeping(kept: Callable[[str], bool]) -> Callable[[Sequence[nn.Module]], Any]:
    def policy(_context: object, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        name = str(operator).split(".")[1]  # aten.mm.default
        return CheckpointPolicy.MUST_SAVE if kept(name) else CheckpointPolicy.PREFER_RECOMPUTE

    return partial(checkpointed, contexts=partial(create_selective_checkpoint_contexts, policy))


def ours(shares: Sequence[float] = SHARES) -> list[Way]:
    """Sessions, by budget and solver."""
    each = [
        way
        for share in shares
        for way in (
            Way("heu", "heu", share),
            Way("heu, two policies", "heu", share, {"groups": 2}),
            Way("block", "block", share),
        )
    ]
    return [*each, Way("full", "full", shares[-1])]  # whatever the budget


def rivals(blocks: int) -> list[Way]:
    """PyTorch's own: so many blocks checkpointed, two selective policies, compiled with a memory budget."""
    some = [Way(f"checkpoint, {n} of {blocks}", around=partial(_first, n)) for n in range(1, blocks + 1)]
    return [
        *some,
        Way("selective, attention kept", around=_keeping(lambda name: ATTENTION in name)),
        Way("selective, products kept", around=_keeping(lambda name: ATTENTION in name or name in PRODUCTS)),
        *(Way(f"compiled, budget {share}", around=partial(compiled, share=share)) for share in COMPILED),
    ]


def _first(count: int, blocks: Sequence[nn.Module]) -> Any:
    return checkpointed(blocks[:count])
