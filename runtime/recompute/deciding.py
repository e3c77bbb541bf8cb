"""Asks a solver for plans until one's peak, as reckoned from the measured step, fits the budget as closely as it can.

The layer problem states memory with one static part, and a working set that is a sum over what runs again. Measured
steps differ: the largest peak may be the loss's, where no block runs again, or an early block's, before which little is
stored; and of what runs again of a block only some is there at a time. So the problem is stated several times: what
runs again counts in full, in part, or not at all, and each time the problem is given more or less room, by halves. The
plan is taken that costs least among those whose peak fits; of equally fast ones the smallest. All these questions
together have the limits' time, each a share of what is left, so that layers of hundreds of operators take no longer.
"""

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from runtime.recompute.layer import Layer
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.recompute import RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution
from solvers.planner import build_solver
from solvers.planner import solve as solve_with

ROUNDS, MORE_ROUNDS, MOST_ROUNDS = 10, 8, 14
"""Halvings of the room: to a thousandth of all that could be stored, fewer where less counts; more while none fits."""
AGAIN: tuple[tuple[float, float] | None, ...] = (None, (1.0, 0.0), (0.5, 0.5), (0.5, 0.0), (0.25, 0.0), (0.0, 0.0))
"""How much of what runs again counts: of what autograd saved, and of what only later operators read. None: all."""
SHARE = 0.5
"""Of the time that is left, what one question has."""

Solve = Callable[[RecomputeLayerProblem, Limits], Solution[Any]]
Decided = tuple[RecomputeLayerProblem, Solution[RecomputeLayerPlan]]


def decide(
    solve: Solve,
    limits: Limits,
    layer: Layer,
    blocks: int,
    budget_bytes: int,
    peak_of: Callable[[RecomputeLayerPlan | None], int],
) -> Decided:
    """The problem and its solution; `peak_of` a plan, or of nothing stored. Raises `InfeasibleBudget`.

    `limits.time_s` is the time of all that `solve` is asked, `limits.work` of each question.
    """
    search = _Search(solve, limits, layer, blocks, budget_bytes, peak_of)
    inputs = blocks * (layer.input_bytes + layer.fixed_bytes())
    one = sum(layer.units[unit].bytes for unit in layer.decided())
    for again in AGAIN:
        low, high = inputs, inputs + (blocks + 1) * one
        if search.fits(high, again) is not False:
            break  # everything fits
        for tried in range(MOST_ROUNDS):
            if search.best is not None and tried >= (ROUNDS if again is None else MORE_ROUNDS):
                break
            middle = (low + high) // 2
            low, high = (low, middle) if search.fits(middle, again) is False else (middle, high)
    if search.best is not None:
        return search.best
    found = search.nothing_stored(inputs + one)
    nothing = peak_of(found[1].plan)
    if nothing <= budget_bytes:
        return found
    least = nothing if search.lowest is None else min(nothing, search.lowest)
    at_which = "the blocks store nothing" if least == nothing else "a plan of those that were tried peaks"
    raise InfeasibleBudget(
        f"the budget is {budget_bytes} bytes, the least feasible one {least}, at which {at_which} in the step that was "
        "measured: raise it",
        least,
    )


class _Search:
    """The best plan so far, among rooms that were tried, and the `lowest` peak of any, within the budget or not."""

    def __init__(
        self,
        solve: Solve,
        limits: Limits,
        layer: Layer,
        blocks: int,
        budget_bytes: int,
        peak_of: Callable[[RecomputeLayerPlan | None], int],
    ) -> None:
        self._solve, self._layer, self._blocks = solve, layer, blocks
        self._limits, self._ends = limits, time.perf_counter() + limits.time_s
        self._budget_bytes, self._peak_of = budget_bytes, peak_of
        self._least: tuple[float, int] | None = None
        self.best: Decided | None = None
        self.lowest: int | None = None

    def fits(self, room_bytes: int, again: tuple[float, float] | None) -> bool | None:
        """Whether the plan for that room has a peak within the budget; None: the solver has none for so little."""
        problem = self._problem(room_bytes, again)
        left_s = max(0.0, self._ends - time.perf_counter())
        solution = self._solve(problem, replace(self._limits, time_s=SHARE * left_s))
        if solution.plan is None or solution.objective is None:
            return None
        peak = self._peak_of(solution.plan)
        self.lowest = peak if self.lowest is None else min(self.lowest, peak)
        if peak > self._budget_bytes:
            return False
        if self._least is None or (solution.objective, peak) < self._least:
            self._least, self.best = (solution.objective, peak), (problem, solution)
        return True

    def nothing_stored(self, room_bytes: int) -> Decided:
        """What fits where none of the solver's plans does."""
        problem = self._problem(room_bytes, None)
        return problem, solve_with(build_solver("full", {}), problem, Limits()).solution

    def _problem(self, room_bytes: int, again: tuple[float, float] | None) -> RecomputeLayerProblem:
        return self._layer.problem(
            layers=self._blocks, inflight=1, last_stage=True, budget_bytes=max(self._budget_bytes, room_bytes),
            static_bytes=max(self._budget_bytes - room_bytes, 0), again=again,
        )  # fmt: skip
