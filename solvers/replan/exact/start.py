"""Even splits to start from: as level as memory and the extras of the first and the last stage allow."""

import heapq

from solvers.replan.exact.bounds import StageLimits


def level_split(limits: StageLimits, depth: int, microbatches: int) -> tuple[int, ...] | None:
    """Layers given one at a time to the stage that is then the quickest (ties: the first); None if memory is full."""
    problem = limits.problem
    room = limits.rooms(depth, microbatches)[::-1].tolist()
    if min(room) < 1 or sum(room) < problem.layers:
        return None
    extras = [sum(problem.first_extra_us) * (stage == 0) for stage in range(depth)]
    extras[-1] += sum(problem.last_extra_us)
    one = max(1, limits.one_us)
    layers = [1] * depth
    queue = [(extra + 2 * one, stage) for stage, extra in enumerate(extras) if room[stage] > 1]
    heapq.heapify(queue)
    for _ in range(problem.layers - depth):
        time_us, stage = heapq.heappop(queue)
        layers[stage] += 1
        if layers[stage] < room[stage]:
            heapq.heappush(queue, (time_us + one, stage))
    return tuple(layers)
