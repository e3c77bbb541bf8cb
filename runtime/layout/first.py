"""The first forward that trains, as a step to be measured: it leaves nothing behind in what is not the model's."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from runtime.device import shapes_only
from solvers.ir.errors import InvalidInput


def train_once(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A forward and a backward of what it returns: of a loss where there is one, else of the sum of all.

    Only the model's parameters get gradients, and what the forward is given without the graph that it comes from.
    """
    args, kwargs = tree_map(_cut, (args, kwargs))
    result = model(*args, **kwargs)
    loss = getattr(result, "loss", None)
    leaves = [loss] if loss is not None else tree_leaves(result)
    trained = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not trained:
        raise InvalidInput("nothing that the model returns needs gradients: give wrap a step that trains it")
    own = [one for one in (*model.parameters(), *_tensors((args, kwargs))) if one.requires_grad]
    losses = [leaf.float().sum() for leaf in trained]
    if _is_checkpointed(losses):
        raise InvalidInput(
            "the model checkpoints with use_reentrant=True, whose backward passes inside a backward pass cannot be "
            "followed: checkpoint with use_reentrant=False, or not at all, since a layout decides it for each block"
        )
    torch.autograd.backward(losses, inputs=own)


def _is_checkpointed(losses: Sequence[Tensor]) -> bool:
    """Whether a reentrant checkpoint is in the graph."""
    waiting, seen = [loss.grad_fn for loss in losses], set[Any]()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CheckpointFunctionBackward":
            return True
        seen.add(node)
        waiting += [before for before, _ in node.next_functions]
    return False


@contextmanager
def put_back(given: Any) -> Iterator[None]:
    """What a forward that runs several times writes to tensors that it is given is undone behind it."""
    before = [(one, one._version, one.detach().cpu().clone()) for one in _tensors(given) if _is_written_to(one)]
    try:
        yield
    finally:
        for one, version, values in before:
            if one._version != version:
                one.data.copy_(values)


def _is_written_to(tensor: Tensor) -> bool:
    return not tensor.is_inference() and not shapes_only(tensor.device) and tensor.layout is torch.strided


def _tensors(given: Any) -> list[Tensor]:
    return [one for one in tree_leaves(given) if isinstance(one, Tensor)]


def _cut(given: object) -> object:
    if not isinstance(given, Tensor) or not given.requires_grad:
        return given
    return given.detach().requires_grad_()
