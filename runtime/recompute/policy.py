"""What the calls of a block do: which operators each stores, and which run again when."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.recompute.tape import NOTHING, StorePolicy
from runtime.recompute.work import Work


@dataclass(frozen=True)
class BlockPolicy:
    """What one call of a block does: which operators it stores, and which run again in which wait, ahead of use.

    `work` is what a plan of the whole step does before the block's own backward pass, and in the waits of that.
    """

    store: StorePolicy
    in_forward: Mapping[int, tuple[int, ...]]
    in_backward: Mapping[int, tuple[int, ...]]
    work: Work | None = None


ON_DEMAND = BlockPolicy(NOTHING, {}, {})
"""Nothing is stored but collectives' results, and all else runs again when autograd asks for it."""


def store_nothing(policies: int) -> list[BlockPolicy]:
    """So many blocks that run again whatever autograd asks for."""
    return [ON_DEMAND] * policies


def store_everything(policies: int) -> list[BlockPolicy]:
    """So many blocks that store all that autograd saves, as plain training does."""
    return [BlockPolicy(StorePolicy(), {}, {})] * policies
