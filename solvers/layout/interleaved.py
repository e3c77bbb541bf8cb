"""ProTrain's interleaved layout of activations: few numbers stand for a policy of every block (ProTrain §3.1.2)."""

from solvers.ir.errors import InvalidInput
from solvers.ir.layout import LayoutPlan, LayoutProblem, Policy


def interleaved(blocks: int, interval: int, swap: int, checkpoint: int) -> tuple[Policy, ...]:
    """Swap the first `swap` of the blocks 1, 1 + interval, …; checkpoint the first `checkpoint` others; keep the rest.

    Eight blocks, interval 3, swap 2, checkpoint 4: blocks 1 and 4 swap, 2, 3, 5, 6 checkpoint, 7 and 8 keep
    (Figure 2). Raises `InvalidInput` where there are fewer blocks to swap or to checkpoint.
    """
    places = range(0, blocks, max(1, interval))
    if not 0 <= swap <= len(places):
        raise InvalidInput(f"swap is {swap}, but {blocks} blocks every {interval} leave 0…{len(places)} to swap")
    if not 0 <= checkpoint <= blocks - swap:
        raise InvalidInput(f"checkpoint is {checkpoint}, but {blocks - swap} blocks are left: choose at most as many")
    swapped = set(places[:swap])
    others = [block for block in range(blocks) if block not in swapped]
    again = set(others[:checkpoint])
    return tuple("swap" if b in swapped else "checkpoint" if b in again else "keep" for b in range(blocks))


def most_swapped(blocks: int, interval: int) -> int:
    """How many blocks the layout can swap at most."""
    return len(range(0, blocks, max(1, interval)))


def interleaved_plan(problem: LayoutProblem, persist: int, buffers: int, swap: int, checkpoint: int) -> LayoutPlan:
    """The decision that ProTrain's four numbers stand for: the first chunks persist, and the blocks that have a choice
    are laid out; the others (embedding, head) keep. Raises `InvalidInput` where a number is too large.
    """
    if not 0 <= persist <= len(problem.chunks):
        raise InvalidInput(f"persist is {persist}, but there are 0…{len(problem.chunks)} chunks to choose")
    chosen = iter(interleaved(sum(block.choice for block in problem.blocks), problem.interval, swap, checkpoint))
    policies: list[Policy] = [next(chosen) if block.choice else "keep" for block in problem.blocks]
    return LayoutPlan(persistent=tuple(range(persist)), buffers=buffers, policies=tuple(policies))
