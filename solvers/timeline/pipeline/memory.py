"""What each stage of a pipeline holds in memory over time (README, pipelines)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from solvers.ir.errors import InvalidInput
from solvers.ir.fields import Bytes, Record
from solvers.timeline.pipeline.inputs import Hide
from solvers.timeline.pipeline.order import Order, cool_down, stage_order, warm_up
from solvers.timeline.pipeline.times import PipelineTimes


class StageBytes(Record, frozen=True, kw_only=True):
    """What a stage holds: always, for a microbatch, and around a backward pass.

    `static_bytes`: parameters, gradients, optimizer states. `stored_bytes`: kept of each microbatch from the start of
    its forward pass to the end of its backward pass. `forward_hidden_bytes`: recomputed in the windows of the forward
    pass before, until its own backward pass ends. `working_bytes`: the most that a backward pass and the recomputation
    in it hold besides. `early_bytes`: what they hold on top where recomputation starts before the gradient arrives,
    since then all layers of the stage are recomputed ahead, not one after the other.
    """

    static_bytes: Bytes
    stored_bytes: Bytes
    forward_hidden_bytes: Bytes = 0
    working_bytes: Bytes = 0
    early_bytes: Bytes = 0


@dataclass(frozen=True, slots=True)
class StageMemory:
    """A stage's memory: (time in µs, bytes from then on), its peak, and the most microbatches held at once."""

    levels: tuple[tuple[int, int], ...]
    peak_bytes: int
    peak_at_us: int
    in_flight: int


def stage_memory(times: PipelineTimes, stages: Sequence[StageBytes]) -> tuple[StageMemory, ...]:
    """Memory over time of each stage of one pipeline (not of a batch)."""
    if times.forward_us.ndim != 1:
        raise InvalidInput(f"the times are of a batch of shape {times.forward_us.shape[:-1]}: give one pipeline's")
    if len(stages) != times.stages:
        raise InvalidInput(f"there are bytes of {len(stages)} stages for a pipeline of {times.stages}: give one each")
    return tuple(_stage(times, number, held) for number, held in enumerate(stages))


def _stage(times: PipelineTimes, stage: int, held: StageBytes) -> StageMemory:
    """Walks the stage's passes in its order: what they take when they start, what they leave when they end."""
    cool = cool_down(times.stages, times.microbatches, times.order)
    ahead = times.stages - 1 - stage
    forward, recompute = times.forward_start_us[stage].tolist(), times.recompute_start_us[stage].tolist()
    end, gradient = times.backward_end_us[stage].tolist(), times.gradient_us[stage].tolist()
    level, flight, most = held.static_bytes, 0, 0
    levels = [(0, level)]
    for one in stage_order(stage, times.stages, times.microbatches, times.order):
        number = one.microbatch
        if one.kind == "forward":
            flight, most = flight + 1, max(most, flight + 1)
            served = number - ahead  # its backward pass is next: what this pass's windows recompute belongs to it
            windows = ahead > 0 and served >= 0 and not cool[stage, served]
            level += held.stored_bytes + (held.forward_hidden_bytes if windows else 0)
            levels.append((forward[number], level))
            continue
        early = times.recompute_us[stage, number] > 0 and recompute[number] < gradient[number]
        level += held.working_bytes + (held.early_bytes if early else 0)
        levels.append((recompute[number], level))
        flight -= 1
        level = held.static_bytes + flight * held.stored_bytes
        levels.append((end[number], level))
    peak_at, peak = max(levels, key=lambda entry: (entry[1], -entry[0]))
    changes = list(dict(levels).items())
    kept = [changes[0], *(after for before, after in pairwise(changes) if after[1] != before[1])]
    return StageMemory(tuple(kept), peak, peak_at, most)


def in_flight(stage: int, depth: int, microbatches: int, order: Order = "1f1b") -> int:
    """The most microbatches that a stage holds at once: min(P − p, M) in 1F1B, M in GPipe."""
    return microbatches if order == "gpipe" else min(depth - stage, microbatches)


def hiding_fits(
    stages: Sequence[StageBytes], microbatches: int, budget_bytes: int, hide: Hide, order: Order = "1f1b"
) -> tuple[bool, ...]:
    """Which stages have the memory to recompute in stalls (`may_hide` of `pipeline`), whatever the times are.

    In the cool-down at most min(P − 1 − p, M) microbatches are in flight, one less than in the steady state: that is
    the room that the recomputed tensors of a whole stage take. The last stage never waits for a gradient.
    """
    return tuple(
        hide != "none" and _hiding_bytes(held, stage, len(stages), microbatches, hide, order) <= budget_bytes
        for stage, held in enumerate(stages)
    )


def _hiding_bytes(held: StageBytes, stage: int, depth: int, microbatches: int, hide: Hide, order: Order) -> int:
    """The most bytes in use while a stage recomputes early."""
    if stage == depth - 1:
        return 0
    needed = held.static_bytes + held.working_bytes + held.early_bytes
    if order == "gpipe":
        return needed + microbatches * held.stored_bytes
    if hide == "cooldown" or microbatches < depth - stage:  # then every backward pass is one of the cool-down
        return needed + warm_up(stage, depth, microbatches) * held.stored_bytes
    return needed + held.forward_hidden_bytes + in_flight(stage, depth, microbatches) * held.stored_bytes
