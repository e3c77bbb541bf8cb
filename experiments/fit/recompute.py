"""Recomputation of a model's blocks as PyTorch itself offers it: everything again, or all but expensive operators."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from runtime.blocks.blocks import find_blocks
from runtime.blocks.replacing import forward_replaced
from runtime.recompute import plan

PLANNED = (
    "each repeated block keeps and runs again what heu decides for this budget, by operator (runtime.recompute.plan)"
)
KEPT = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "convolution"})
"""Operators of `aten` whose results selective recomputation keeps: matrix products and convolutions."""
KEPT_BEGIN = "_scaled_dot_product"
"""And fused attention, in each of its forms."""
FULL = "each repeated block keeps its inputs only and runs again before its backward (torch.utils.checkpoint)"
SELECTIVE = "blocks keep results of matrix products, convolutions and fused attention, and run the rest again"


def checkpointed(model: torch.nn.Module, device: torch.device) -> AbstractContextManager[None]:
    """Inside, every repeated block is checkpointed; raises `InvalidInput` for a model without such blocks."""
    return _blocks_run(model, partial(checkpoint, use_reentrant=False))


def selective(model: torch.nn.Module, device: torch.device) -> AbstractContextManager[None]:
    """Inside, every repeated block keeps what `KEPT` names, and recomputes the rest; raises as `checkpointed`."""
    return _blocks_run(model, partial(checkpoint, use_reentrant=False, context_fn=_contexts))


def planned(budget_bytes: int) -> Callable[[torch.nn.Module, torch.device], AbstractContextManager[Any]]:
    """Inside, operators of repeated blocks run again as planned for that budget.

    Raises as `checkpointed`, and `InfeasibleBudget` from the second step on where no plan keeps it.
    """

    def inside(model: torch.nn.Module, device: torch.device) -> AbstractContextManager[Any]:
        return plan(model, budget=budget_bytes)

    return inside


@contextmanager
def _blocks_run(model: torch.nn.Module, run: Callable[..., Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for module in find_blocks(model).values():
            stack.enter_context(forward_replaced(module, _under(run, module.forward)))
        yield


def _under(run: Callable[..., Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    def again(*args: Any, **kwargs: Any) -> Any:
        return run(forward, *args, **kwargs) if torch.is_grad_enabled() else forward(*args, **kwargs)

    return again


def _contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call, no-any-return]


def _policy(context: object, operator: Any, *args: object, **kwargs: object) -> CheckpointPolicy:
    name = str(operator.name()).removeprefix("aten::").partition(".")[0]
    kept = name in KEPT or name.startswith(KEPT_BEGIN)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
