"""What a session is asked for: a model on one device, a budget of that device's memory, who decides, and about what."""

import sys
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from runtime.blocks import blocks as found_blocks
from runtime.device import memory_limit_bytes
from solvers.ir.amounts import parse_budget
from solvers.ir.errors import InvalidInput
from solvers.ir.solution import Limits
from solvers.planner import solver_entry

LAYER, WHOLE, JOINT = "recompute-layer", "recompute-graph", "joint"
DEFAULT, OF_UNLIKE_BLOCKS = "heu", "greedy-joint"
"""Who decides where nobody is named: for blocks that are alike, and for others."""


def device_of(model: nn.Module) -> torch.device:
    """The one device that the model's parameters are on; raises `InvalidInput` where they are on several."""
    devices = {one.device for one in model.parameters()}
    if len(devices) != 1:
        told = ", ".join(sorted(map(str, devices))) or "none"
        raise InvalidInput(f"the model's parameters are on {told}: put them on one device")
    return devices.pop()


def budget_bytes_of(budget: int | str, device: torch.device) -> int:
    """The budget in bytes; raises `InvalidInput` where it is none, or the device counts no memory."""
    if device.type == "cpu":
        raise InvalidInput(
            "the model is on the CPU, where PyTorch counts no memory: put it on an accelerator, or on the simulated "
            "one (runtime.device.use_sim); runtime.recompute.record works on the CPU too"
        )
    found = parse_budget(budget, memory_limit_bytes(device), "budget") if isinstance(budget, str) else budget
    if isinstance(found, bool) or not isinstance(found, int):
        raise InvalidInput(f"the budget is {budget!r}: give whole bytes, or text such as '8GiB'")
    if found < 1:
        raise InvalidInput(f"the budget is {budget!r}, below one byte: give the memory that training may take")
    return found


def require_solver(solver: str) -> None:
    """Raise `InvalidInput` unless that names a solver of a kind that sessions carry out."""
    if not isinstance(solver, str):
        raise InvalidInput(f"solver is {solver!r}: give a name, such as 'heu', 'opt' or 'joint'")
    kind = solver_entry(solver).kind
    if kind not in (LAYER, WHOLE, JOINT):
        raise InvalidInput(f"solver {solver!r} is of kind {kind!r}: give one of kind {LAYER!r}, {WHOLE!r} or {JOINT!r}")


def blocks_of(model: nn.Module, blocks: Sequence[nn.Module] | None, kind: str = LAYER) -> list[nn.Module]:
    """The blocks that were given, or those found by structure; raises `InvalidInput` where there are none.

    Solvers of other kinds than `LAYER` need none that repeat.
    """
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"model is {model!r}: give the torch.nn.Module that trains")
    if blocks is None:
        if kind != LAYER:
            return list(found_blocks.find_parts(model).values())
        try:
            return list(found_blocks.find_blocks(model).values())
        except InvalidInput as error:
            raise InvalidInput(f"{error}, give blocks=, or choose a solver of the whole step (joint, opt)") from error
    if not isinstance(blocks, Iterable):
        raise InvalidInput(f"blocks is {_shown(blocks)}: give a list of the model's modules, or leave it out")
    chosen = list(blocks)
    if not chosen:
        raise InvalidInput("blocks is empty: give the modules whose operators may run again")
    for index, block in enumerate(chosen):
        if not isinstance(block, nn.Module):
            raise InvalidInput(f"blocks[{index}] is {_shown(block)}: give modules, whose operators may run again")
    return chosen


def solver_by_default(
    model: nn.Module, blocks: Sequence[nn.Module] | None, parameters: Mapping[str, object]
) -> str | None:
    """Who decides where nobody is named; None: `DEFAULT`, as long as blocks turn out to be alike.

    Parameters are those of `DEFAULT`.
    """
    if parameters:
        return DEFAULT
    try:
        blocks_of(model, blocks)
    except InvalidInput:
        return OF_UNLIKE_BLOCKS
    return None


def names_of(model: nn.Module, blocks: Sequence[nn.Module]) -> tuple[str, ...]:
    """What the blocks are called in the model; raises `InvalidInput` where one is no part of it."""
    names = {id(module): name or type(model).__name__ for name, module in model.named_modules()}
    for index, block in enumerate(blocks):
        if id(block) not in names:
            raise InvalidInput(
                f"blocks[{index}] is one {type(block).__name__} that is no part of the model {type(model).__name__}: "
                "give modules of model.modules()"
            )
    return tuple(names[id(block)] for block in blocks)


def frozen_of(blocks: Sequence[nn.Module]) -> set[int]:
    """Those of whose parameters none wants gradients, as in a teacher's or a momentum encoder's copy of the model."""
    each = [[one.requires_grad for one in block.parameters()] for block in blocks]
    return {index for index, wanted in enumerate(each) if wanted and not any(wanted)}


def require_whole_parameters(blocks: Sequence[nn.Module], kind: str) -> None:
    """Raise `InvalidInput` where a plan of the whole step would run operators whose parameters are not there then.

    FSDP gathers a block's parameters when autograd comes to it. Such plans run its operators again before, in a wait.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if kind == LAYER or fsdp is None:
        return
    sharded = fsdp.FSDPModule, fsdp.FullyShardedDataParallel
    for index, block in enumerate(blocks):
        if any(isinstance(module, sharded) for module in block.modules()):
            raise InvalidInput(
                f"FSDP shards block {index}, and gives its parameters back between the passes, where plans of kind "
                f"{kind} run operators again: choose a solver of kind {LAYER}, such as heu"
            )


def parameters_of(parameters: Mapping[str, object] | None) -> Mapping[str, object]:
    """The solver's parameters; raises `InvalidInput` where they are no mapping from names."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise InvalidInput(f"parameters is {parameters!r}: give a dict of the solver's fields by name, or leave it out")
    for name in parameters:
        if not isinstance(name, str):
            raise InvalidInput(f"parameters has the key {name!r}: give the solver's fields by name")
    return parameters


def limits_of(limits: Limits | None) -> Limits:
    """When the solver stops; raises `InvalidInput` where those are no limits."""
    if limits is None:
        return Limits()
    if not isinstance(limits, Limits):
        raise InvalidInput(f"limits is {limits!r}: give solvers.ir.solution.Limits, such as Limits(time_s=10)")
    return limits


def _shown(value: object) -> str:
    """A module given where several should be would take pages."""
    return f"one {type(value).__name__}" if isinstance(value, nn.Module) else repr(value)
