"""What torchrun tells a process by its environment, and the world in which the processes meet."""

import os
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from runtime.ranks.ending import load_what_keeps_the_world
from solvers.ir.errors import InvalidInput

NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Started(NamedTuple):
    """A process's rank, how many there are, and its number among those of its machine."""

    rank: int
    ranks: int
    local: int


def started() -> Started:
    """What the environment says of this process. Raises `InvalidInput` outside torchrun, or for what is no number."""
    missing = [name for name in NAMES if name not in os.environ]
    if missing:
        raise InvalidInput(f"join found no {', '.join(missing)} in the environment: start the program by torchrun")
    rank, ranks = _number("RANK", 0), _number("WORLD_SIZE", 1)
    _number("MASTER_PORT", 1, 65535)
    if rank >= ranks:
        raise InvalidInput(f"RANK is {rank}, but WORLD_SIZE is {ranks}: ranks go from 0 to {ranks - 1}")
    return Started(rank, ranks, _number("LOCAL_RANK", 0) if "LOCAL_RANK" in os.environ else rank)


def _number(name: str, least: int, most: int | None = None) -> int:
    text = os.environ[name]
    bounds = f"{least} to {most}" if most is not None else f"{least} or more"
    if not (text.isascii() and text.isdigit()) or int(text) < least or (most is not None and int(text) > most):
        raise InvalidInput(f"{name} is {text!r}: let it be a whole number, {bounds}, as torchrun sets it")
    return int(text)


def meet(backend: str, who: Started, timeout: timedelta, device: torch.device | None = None) -> dist.ProcessGroup:
    """The group of all ranks. Raises `InvalidInput` where they do not find each other."""
    if dist.is_initialized():
        raise InvalidInput("torch.distributed has a world already: let join make it, and call leave before another")
    load_what_keeps_the_world()
    try:
        dist.init_process_group(backend, timeout=timeout, device_id=device)
    except (dist.DistError, RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InvalidInput(
            f"rank {who.rank} of {who.ranks} could not meet the others at {where} ({said}): let the port be free, and "
            "start all ranks"
        ) from error
    group = dist.group.WORLD
    assert group is not None
    return group
