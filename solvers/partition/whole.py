"""What every solver of whole steps answers alike: a plan with its exact time, or the proof that no budget is kept."""

from dataclasses import dataclass
from typing import Any

from solvers.ir.pipeline import PipelinePlan, PipelineProblem
from solvers.ir.solution import Call, Limits, Solution, Watch
from solvers.partition.bounds import without_recomputation
from solvers.partition.policies import System
from solvers.partition.stages import layer_problem_of
from solvers.partition.steps import PlannedStep, Unfit, step_by
from solvers.recompute.layer import Layer, TooManyStates, front_of
from solvers.recompute.layer.answers import fixed_bytes


@dataclass(frozen=True)
class Least:
    """The least budget, to which lesser ones must be raised: exactly, or at least. 0 where none must be."""

    budget_bytes: int
    exact: bool

    def reason(self, problem: PipelineProblem) -> str:
        """The sentence of an infeasible answer."""
        how = "exactly" if self.exact else "at least"
        return (
            f"the smallest budget of a stage is {problem.budget_bytes} bytes, and all need {how} {self.budget_bytes} "
            "bytes: raise it, or take more stages"
        )


def solved_by(
    name: str, system: System, problem: PipelineProblem, limits: Limits, watch: Watch | None = None
) -> Solution[PipelinePlan]:
    """A system's step as an answer: FEASIBLE without a bound, INFEASIBLE where nothing at all fits, else UNKNOWN."""
    call = Call(name, limits)
    if watch is not None and watch(None, None, call.elapsed_s):
        return call.unknown("its watch ended the search before there was a plan: give it more time")
    step = step_by(problem, system, limits=limits)
    if isinstance(step, Unfit):
        return proven_infeasible(call, problem) or call.unknown(step.reason)
    return found(with_base(call, problem), step)


def with_base(call: Call, problem: PipelineProblem) -> Call:
    """The call, told the fastest step without recomputation, where that is proven to be the fastest."""
    fastest = without_recomputation(problem)
    if not fastest.exact or fastest.makespan_us is None:
        return call
    return call.based(fastest.makespan_us)


def found(
    call: Call, step: PlannedStep, bound: int | None = None, reason: str | None = None, engine: str | None = None
) -> Solution[PipelinePlan]:
    """A step with its exact time; OPTIMAL where the bound meets it."""
    return call.found(step.plan, step.makespan_us, bound, reason, engine=engine)


def proven_infeasible(call: Call, problem: PipelineProblem) -> Solution[Any] | None:
    """The answer where no partition under any policies keeps the budgets; None where some does, or may."""
    least = least_budget(problem)
    if not least.budget_bytes:
        return None
    return call.infeasible(least.reason(problem), least_budget_bytes=least.budget_bytes)


def least_budget(problem: PipelineProblem) -> Least:
    """By bisection: a stage's need grows with its layers, so as many as fit tell of all lesser numbers (README, N)."""
    depth = len(problem.stages)
    needs = [_Need(problem, stage) for stage in range(depth)]

    def room(least: int) -> bool:
        most = [need.most(max(problem.stages[stage].budget_bytes, least)) for stage, need in enumerate(needs)]
        return min(most) >= 1 and sum(most) >= problem.layers

    if room(0):
        return Least(0, True)
    low, high = 0, max(need.bytes(problem.layers - depth + 1) for need in needs)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if room(middle) else (middle, high)
    return Least(high, all(need.exact for need in needs))


class _Need:
    """The least bytes of a stage by its number of layers: exactly from the front, or what must be there at least."""

    def __init__(self, problem: PipelineProblem, stage: int) -> None:
        self.problem, self.stage = problem, stage
        one = layer_problem_of(problem, stage, 1)
        self.flying = one.inflight_microbatches
        self.outputs = sum(op.output_bytes for op in problem.ops if op.needed)
        self.known: dict[int, int] = {}
        try:
            self.front = None if not self.outputs else front_of(Layer.of(one), self.flying)
        except TooManyStates:
            self.front = None
        self.exact = not self.outputs or self.front is not None

    def bytes(self, layers: int) -> int:
        """The least of any policies for so many layers."""
        if layers not in self.known:
            fixed = fixed_bytes(layer_problem_of(self.problem, self.stage, layers))
            own = self.outputs if self.front is None else self.front.least_memory(layers, self.flying)
            self.known[layers] = fixed + own
        return self.known[layers]

    def most(self, budget_bytes: int) -> int:
        """The most layers that fit; 0 where not one does."""
        low, high = 0, self.problem.layers - len(self.problem.stages) + 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.bytes(middle) <= budget_bytes else (low, middle - 1)
        return low
