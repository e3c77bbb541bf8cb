"""PyTorch's own FSDP2 with what a layout plan says of it: for training without this room's store."""

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from runtime.blocks.blocks import find_blocks
from solvers.ir.errors import InvalidInput

if TYPE_CHECKING:
    from solvers.planner import Fsdp2Settings


def shard_by(
    model: nn.Module, settings: "Fsdp2Settings", mesh: DeviceMesh, device: torch.device, *, pin_memory: bool = True
) -> nn.Module:
    """Shard a model over a mesh as `solvers.planner.lower_to_fsdp2` says; make its optimizer afterwards.

    Blocks are units of their own; what is around them, which the settings list first and last, is the root's. Each unit
    comes to the device by itself before it is sharded, so the device need not hold the whole model.

    Raises:
        InvalidInput: the settings name other blocks than the model has.
    """
    blocks = find_blocks(model)
    inside = {unit.name: unit for unit in settings.units if unit.name in blocks}
    around = [unit for unit in settings.units if unit.name not in blocks]
    if list(inside) != list(blocks) or len(around) != 2 or settings.units[1:-1] != tuple(inside.values()):
        raise InvalidInput(
            f"the settings are of {', '.join(settings.names[:4])}…, but the model {type(model).__name__} has the "
            f"blocks {', '.join(list(blocks)[:4])}…: make them of a plan for this model"
        )
    for name, block in blocks.items():
        unit = inside[name]
        if unit.checkpoint:
            owner, _, attribute = name.rpartition(".")
            block = checkpoint_wrapper(block)
            model.get_submodule(owner).register_module(attribute, block)
        _to_device(block, device)
        policy = _policy(unit.offload, pin_memory)
        fully_shard(block, mesh=mesh, reshard_after_forward=unit.reshard, offload_policy=policy)
    _to_device(model, device)
    root = _policy(any(unit.offload for unit in around), pin_memory)
    fully_shard(model, mesh=mesh, reshard_after_forward=any(unit.reshard for unit in around), offload_policy=root)
    return model


def _policy(offload: bool, pin_memory: bool) -> OffloadPolicy:
    return CPUOffloadPolicy(pin_memory=pin_memory) if offload else OffloadPolicy()


def _to_device(module: nn.Module, device: torch.device) -> None:
    """Move what is not sharded yet."""
    for one in module.modules():
        if not any(isinstance(parameter, DTensor) for parameter in one.parameters(recurse=False)):
            one._apply(lambda tensor: tensor.to(device), recurse=False)  # type: ignore[no-untyped-call]
