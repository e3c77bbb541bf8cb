"""A layout plan as settings of PyTorch's own FSDP2 (`fully_shard`), for who trains without Bayplan's store."""

from collections import Counter
from dataclasses import dataclass

from solvers.ir.layout import LayoutPlan, LayoutProblem
from solvers.layout.evaluate import instance, moves
from solvers.layout.lower import require_plan


@dataclass(frozen=True)
class Fsdp2Unit:
    """What `fully_shard` is told of a block.

    - `offload`: its shards, gradients and states lie on the host (`CPUOffloadPolicy`).
    - `reshard`: its parameters leave the device after its forward pass (`reshard_after_forward`).
    - `checkpoint`: its forward pass runs again in backward (`checkpoint_wrapper`).
    """

    name: str
    offload: bool
    reshard: bool
    checkpoint: bool


@dataclass(frozen=True)
class Fsdp2Settings:
    """A unit for each block of the problem, in order, and a sentence for each thing that FSDP2 does otherwise."""

    units: tuple[Fsdp2Unit, ...]
    departures: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The blocks' names."""
        return tuple(unit.name for unit in self.units)


def lower_to_fsdp2(problem: LayoutProblem, plan: LayoutPlan) -> Fsdp2Settings:
    """The settings that come nearest to a valid plan; raises `InvalidProblem` where it is none of this problem's.

    A block is a unit: it stays on the device if all of its chunks persist. It is not resharded after its forward pass
    if its backward pass finds them there: persistent, or in buffers still. FSDP2 has no swapping of activations that
    overlaps, so a swapped block, whose activations must leave, is checkpointed.
    """
    given, persistent = instance(problem), set(plan.persistent)
    require_plan(given, plan)
    half = len(problem.blocks)
    again = {move.at for move in moves(given, plan) if move.at is not None and move.at >= half}
    units = []
    for number, (block, policy) in enumerate(zip(problem.blocks, plan.policies, strict=True)):
        units.append(
            Fsdp2Unit(
                name=block.name,
                offload=not persistent.issuperset(block.chunks),
                reshard=2 * half - 1 - number in again,
                checkpoint=policy != "keep",
            )
        )
    return Fsdp2Settings(tuple(units), tuple(_departures(problem, plan, persistent)))


def _departures(problem: LayoutProblem, plan: LayoutPlan, persistent: set[int]) -> list[str]:
    """What FSDP2 does in place of what the plan says."""
    found, swapped = [], plan.policies.count("swap")
    if len(persistent) < len(problem.chunks):
        found.append(
            f"the plan has {plan.buffers} buffers of {problem.chunk_bytes} bytes; FSDP2 allocates each block's "
            "parameters when it prefetches them, and frees them after the block"
        )
        when = "beside backward, chunk by chunk" if problem.overlap_update else "after backward"
        found.append(f"the plan updates on the host {when}; FSDP2 updates when the loop calls optimizer.step()")
    if swapped:
        found.append(f"the plan swaps the activations of {swapped} blocks; they are checkpointed instead")
    users = Counter(chunk for block in problem.blocks for chunk in block.chunks)
    split = sum(
        0 < len(persistent & set(block.chunks)) < len(block.chunks) or any(users[chunk] > 1 for chunk in block.chunks)
        for block in problem.blocks
    )
    if split:
        found.append(f"the chunks of {split} blocks are partly on the host, or shared; FSDP2 shards whole blocks")
    if persistent and problem.ranks == 1:
        found.append("what persists is on the device twice while it is used: FSDP2 gathers shards, its own included")
    return found
