"""What memory a `pipeline` problem surely needs, and what surely suffices (formats.md 15.9)."""

from collections.abc import Callable

from solvers.check.pipeline.step import in_flight
from solvers.ir.pipeline import PipelineProblem


def least_budget_bytes(problem: PipelineProblem) -> tuple[int, int]:
    """The least budget to which lesser ones must be raised is at least and at most this; 0 where none must be."""
    surely, enough = _bytes_of_a_layer(problem)
    return _least(problem, surely), _least(problem, enough)


def is_surely_feasible(problem: PipelineProblem) -> bool:
    """Whether a decision is known that keeps every budget."""
    return least_budget_bytes(problem)[1] == 0


def _bytes_of_a_layer(problem: PipelineProblem) -> tuple[Callable[[int], int], Callable[[int], int]]:
    """For k·n microbatches and layers: what their outputs take at least, and in the better of two plans.

    At least: every needed output is there once. Plans: all needed outputs stored; all that they are computed from
    recomputed on the critical path, one layer at a time.
    """
    wanted = {i for i, op in enumerate(problem.ops) if op.needed}
    needed = sum(problem.ops[i].output_bytes for i in wanted)
    for i in range(len(problem.ops) - 1, -1, -1):
        if i in wanted:
            wanted |= set(problem.ops[i].inputs)
    again = sum(problem.ops[i].output_bytes for i in wanted)
    return lambda copies: needed, lambda copies: min(again, copies * needed)


def _least(problem: PipelineProblem, outputs: Callable[[int], int]) -> int:
    """The least budget under which the stages, each as full as it can be, have room for all layers (bisection).

    A stage's need grows with its layers, so the most that fit tell of all lesser numbers.
    """
    if _fit(problem, outputs, 0):
        return 0
    low, high = 0, max(_need(problem, outputs, stage, problem.layers) for stage in range(len(problem.stages)))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fit(problem, outputs, middle) else (middle, high)
    return high


def _fit(problem: PipelineProblem, outputs: Callable[[int], int], least: int) -> bool:
    """Whether all layers find room where every budget is at least `least`."""
    room = 0
    for stage, own in enumerate(problem.stages):
        budget, low, high = max(own.budget_bytes, least), 0, problem.layers - len(problem.stages) + 1
        while low < high:
            middle = (low + high + 1) // 2
            fits = _need(problem, outputs, stage, middle) <= budget
            low, high = (middle, high) if fits else (low, middle - 1)
        if not low:
            return False
        room += low
    return room >= problem.layers


def _need(problem: PipelineProblem, outputs: Callable[[int], int], stage: int, layers: int) -> int:
    """What a stage with so many layers takes (15.2), with that for the outputs of its layers."""
    own = problem.stages[stage]
    flying = in_flight(stage, len(problem.stages), problem.microbatches, problem.order)
    kept = layers * problem.layer_input_bytes + own.extra_bytes
    return own.static_bytes + layers * own.layer_static_bytes + flying * kept + outputs(flying * layers)
