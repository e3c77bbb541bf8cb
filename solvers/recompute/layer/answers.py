"""What all solvers of `recompute-layer` share: measured plans, answers, and the proof that none exists."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from solvers.ir.recompute import LayerGroup, RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Call, Limits, Solution
from solvers.recompute.layer.layer import Layer

LARGEST = 2**55
"""Bytes or microseconds of all layers and microbatches, beyond which sums might leave 64 bits."""
MOST_LAYERS = 10_000
TOO_LARGE = f"layers × microbatches × sizes exceed 64 bits, or layers exceed {MOST_LAYERS}: give coarser units"


@dataclass(frozen=True)
class Ask:
    """One call of a solver: the problem, who answers, within which limits, since when."""

    problem: RecomputeLayerProblem
    solver: str
    limits: Limits
    began: float

    @property
    def elapsed_s(self) -> float:
        """Seconds since the call."""
        return time.perf_counter() - self.began

    @property
    def left_s(self) -> float:
        """Seconds left of the time limit."""
        return self.limits.time_s - self.elapsed_s

    @property
    def room_bytes(self) -> int:
        """What static bytes and the kept layer inputs leave of the budget."""
        return self.problem.budget_bytes - fixed_bytes(self.problem)

    @property
    def too_large(self) -> bool:
        """Whether 64-bit arithmetic, or lists of layers, would not do."""
        problem = self.problem
        layers, inflight = problem.layers, problem.inflight_microbatches
        most_bytes = layers * inflight * sum(op.output_bytes for op in problem.ops) + abs(self.room_bytes)
        return layers > MOST_LAYERS or max(most_bytes, layers * sum(op.time_us for op in problem.ops)) > LARGEST

    def limits_left(self) -> Limits:
        """The limits with the time that is left."""
        return msgspec.structs.replace(self.limits, time_s=max(0.0, self.left_s))

    def objective(self, groups: Sequence[LayerGroup]) -> int:
        """Recomputation on the critical path, over all layers."""
        return plan_us(self.problem, groups)

    def feasible(
        self,
        groups: Sequence[LayerGroup],
        bound: int | None = None,
        engine: str | None = None,
        reason: str | None = None,
        least_budget_bytes: int | None = None,
    ) -> Solution[RecomputeLayerPlan]:
        """A plan with its exact time; OPTIMAL where the bound meets it."""
        objective = plan_us(self.problem, groups)
        bound = 0 if objective == 0 else bound
        return self._call.found(
            RecomputeLayerPlan(groups=tuple(groups)),
            objective,
            bound,
            engine=engine,
            reason=reason,
            least_budget_bytes=least_budget_bytes,
        )

    def fits(self, groups: Sequence[LayerGroup]) -> bool:
        """Whether the groups need no more than the budget."""
        return plan_bytes(self.problem, groups) <= self.problem.budget_bytes

    def ruled(self, groups: Sequence[LayerGroup], engine: str) -> Solution[RecomputeLayerPlan]:
        """The only plan that a rule has, FEASIBLE without a bound; UNKNOWN where it does not fit."""
        if self.fits(groups):
            return self.feasible(groups, engine=engine)
        return self.unknown(
            f"{self.solver} needs {plan_bytes(self.problem, groups)} bytes, but the budget is "
            f"{self.problem.budget_bytes}: raise it or choose heu",
            engine=engine,
        )

    def infeasible(self, least: int, exact: bool = True, engine: str | None = None) -> Solution[RecomputeLayerPlan]:
        """No plan of any kind fits; `least` is the least budget, or a lower bound on it."""
        how = "exactly" if exact else "at least"
        return self._call.infeasible(
            f"the budget is {self.problem.budget_bytes} bytes, the least feasible one {how} {least} bytes: raise it",
            engine=engine,
            least_budget_bytes=least,
        )

    def unknown(self, reason: str, bound: int | None = None, engine: str | None = None) -> Solution[RecomputeLayerPlan]:
        """Neither a plan nor a proof."""
        return self._call.unknown(reason, bound, engine=engine)

    @property
    def _call(self) -> Call:
        return Call(self.solver, self.limits, self.began, base=0)


def fixed_bytes(problem: RecomputeLayerProblem) -> int:
    """Static bytes and every layer's input, kept for every microbatch in flight."""
    return problem.static_bytes + problem.inflight_microbatches * problem.layers * problem.layer_input_bytes


def plan_us(problem: RecomputeLayerProblem, groups: Sequence[LayerGroup]) -> int:
    """The objective: recomputation on the critical path, and in backward windows of a last layer that has none."""
    layer = Layer.of(problem)
    late = sum(layer.late_us(i, w) for i, w in groups[-1].recomputed) if layer.late and groups else 0
    return late + sum(
        group.layers * sum(problem.ops[i].time_us for i, w in group.recomputed if w == layer.critical)
        for group in groups
    )


def plan_bytes(problem: RecomputeLayerProblem, groups: Sequence[LayerGroup]) -> int:
    """The least budget under which the groups fit."""
    layer = Layer.of(problem)
    size = [op.output_bytes for op in problem.ops]
    shared = working = 0
    for group in groups:
        parts = [(i, layer.unit(w)) for i, w in group.recomputed]
        stored = sum(size[i] for i in group.stored)
        forward = sum(size[i] * unit for i, (unit, _) in parts)
        shared += group.layers * (problem.inflight_microbatches * stored + forward)
        working = max(working, sum(layer.again(i) * unit for i, (_, unit) in parts))
    return fixed_bytes(problem) + shared + working
