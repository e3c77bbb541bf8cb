"""The blocks of a model, found by its structure: children of a container that are built alike (ProTrain §3.2)."""

from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from solvers.ir.errors import InvalidInput

LEAST = 2
"""The least number of alike children that are taken for blocks."""


def find_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The repeated blocks by their names in the model, in the order of its structure.

    Blocks are children of a `ModuleList` or `Sequential` that are built alike: of one class, and PyTorch's own
    classes with the same inside. The outermost such containers count, so that an encoder and a decoder give blocks
    both, and the layers inside a block none. Of alike `ModuleList`s and `ModuleDict`s, which are never called, the
    modules in them count: attention and feed-forward of each layer, say. Bare layers, such as `Linear`, count where
    nothing larger repeats. Raises `InvalidInput` where nothing does.
    """
    found = dict(_repeated_in(model, ""))
    composed = {name: block for name, block in found.items() if next(block.children(), None) is not None}
    if not found:
        raise InvalidInput(
            f"the model {type(model).__name__} has no repeated blocks: put layers that are built alike into a "
            "torch.nn.ModuleList or torch.nn.Sequential"
        )
    return composed or found


def find_parts(model: nn.Module) -> dict[str, nn.Module]:
    """The repeated blocks, or where nothing repeats, as in many U-Nets, the modules of which the model is made.

    These are its children that have parameters, those in lists and dictionaries singly; of a model within another one,
    that one's. They need not be alike: for plans of the whole step. Raises `InvalidInput` where there is but one.
    """
    try:
        return find_blocks(model)
    except InvalidInput:
        parts = dict(_parts_in(model, ""))
        while len(parts) == 1:
            ((name, only),) = parts.items()
            parts = dict(_parts_in(only, f"{name}."))
        if not parts:
            raise
        return parts


def _parts_in(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Lists and dictionaries of modules are never called, so that what is in them counts."""
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _parts_in(child, f"{prefix}{name}.")
        elif isinstance(child, nn.ParameterList | nn.ParameterDict):
            continue
        elif _has_parameters(child):
            yield f"{prefix}{name}", child


def _repeated_in(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """The alike children of a container, and what repeats inside all others."""
    children = {f"{prefix}{name}": child for name, child in module.named_children() if _has_parameters(child)}
    alike = _alike(children) if isinstance(module, nn.ModuleList | nn.Sequential) else {}
    for name, child in children.items():
        if name in alike and isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _parts_in(child, f"{name}.")
        elif name in alike:
            yield name, child
        else:
            yield from _repeated_in(child, f"{name}.")


def _alike(children: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Those of which there are several; parameters alone are no blocks."""
    builds = Counter(_build(child) for child in children.values())
    repeated = {name: child for name, child in children.items() if builds[_build(child)] >= LEAST}
    parameters = nn.ParameterList | nn.ParameterDict
    return {name: child for name, child in repeated.items() if not isinstance(child, parameters)}


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _build(module: nn.Module) -> tuple[object, ...]:
    """What makes modules alike: their class; of PyTorch's own, also the build of what is inside.

    A parametrized module (weight norm, say) has a class of its own, derived from the one that it had.
    """
    kind = type(module).__mro__[int(is_parametrized(module))]
    if kind.__module__.startswith("torch.nn"):
        return (kind, *(_build(child) for child in module.children()))
    return (kind,)


def states_of(module: nn.Module) -> dict[int, torch.Tensor]:
    """Parameters and buffers of a module by the addresses of their storages, each once."""
    tensors = [*module.parameters(), *module.buffers()]
    return {tensor.untyped_storage()._cdata: tensor for tensor in tensors if tensor.layout is torch.strided}
