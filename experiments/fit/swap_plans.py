"""Who plans swaps, and for how many bytes, until there is a plan whose blocks find their segments."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from experiments.fit.first_steps import planned_events, starts_planned
from experiments.fit.judge import Budget
from experiments.fit.trace import Trace
from solvers.ir.hardware import Hardware
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.planner import QUICK, build_solver, make_problem, solve
from solvers.swap.host import host_need
from solvers.timeline import simulate
from solvers.timeline.segments import Event, Requests, least_limit, replay, under_schedule
from solvers.timeline.segments.headroom import in_turns, largest_fitting

FIRST = QUICK[0]
OTHERS = ("capuchin-swap", "milp-swap")
"""Who is asked where the first says no and is not far from yes."""
NEAR = 1.15
"""Not far: its plan needs at most so much of the budget."""
SHORT_S = 2.0
"""What a solver has for each plan that nobody asked for by name."""
AIMS = 4


@dataclass(frozen=True)
class Planned:
    """A plan in a budget of its own: its schedule, the step's requests under it, and all `events` that are replayed.

    `from_the_first`: these are all steps from the first one on, planned; else the step comes several times.
    """

    solver: str
    problem: SwapProblem
    plan: SwapPlan
    schedule: Schedule
    step: Requests
    events: list[Event]
    from_the_first: bool = True

    @property
    def host_bytes(self) -> tuple[int, int]:
        """What it takes of the host; and with blocks of powers of two, shared by tensors of one size only."""
        return host_need(self.problem, self.plan), host_need(self.problem, self.plan, rounded=True)

    @cached_property
    def step_us(self) -> int:
        """The simulated step."""
        return round(simulate(self.problem, self.schedule).makespan_us)


@dataclass(frozen=True)
class Found:
    """What a search found: `fitting`, of the plans that the budget serves the one with the shortest step, None: none.

    `smallest` needs the fewest bytes of segments of all that were tried for less: `least_reserved_bytes`. `asked` are
    the solvers whose plans were tried.
    """

    fitting: Planned | None
    smallest: Planned
    least_reserved_bytes: int
    asked: tuple[str, ...]


@dataclass
class Search:
    """Plans of one step in one budget; `least_bytes` are the fewest for which there is a plan."""

    trace: Trace
    hardware: Hardware
    budget: Budget
    least_bytes: int
    asked: list[str] = field(default_factory=list)
    smallest: tuple[int, Planned] | None = None

    def found(self, solver: str, limits: Limits) -> Found | None:
        """Ask the quick heuristic, then the solver that was named, and the others where the answer is a near no.

        None where nobody has a plan even in the fewest bytes, as where time is too short.
        """
        short = msgspec.structs.replace(limits, time_s=min(SHORT_S, limits.time_s))
        fitting = self._first(short)
        if solver != FIRST:
            aim = None if fitting is None else fitting.problem.budget_bytes
            fitting = _shorter(fitting, self._ask(solver, limits, aim))
        for other in OTHERS:
            if fitting is None and other not in self.asked and self._near():
                fitting = self._ask(other, short, None)
        if fitting is not None:
            self._note(fitting)
        if self.smallest is None:
            return None
        least, smallest = self.smallest
        return Found(fitting, smallest, least, tuple(self.asked))

    def _first(self, limits: Limits) -> Planned | None:
        """How much must be left to segments is found with the quick heuristic."""
        self.asked.append(FIRST)
        self._noted(FIRST, self.least_bytes, limits)
        found = largest_fitting(self.budget.bytes, self.least_bytes, lambda size: self._fitting(FIRST, size, limits))
        return None if found is None else found[1]

    def _near(self) -> bool:
        enough = self.least_bytes <= self.budget.bytes
        return enough and (self.smallest is None or self.smallest[0] <= NEAR * self.budget.bytes)

    def _ask(self, solver: str, limits: Limits, aim: int | None) -> Planned | None:
        """A few plans of a solver: from an aim down that fits by another's plan, else from the budget to the least."""
        self.asked.append(solver)
        if aim is not None:
            between = self.least_bytes, self.budget.bytes
            turns = in_turns(aim, between, lambda size: self._fitting(solver, size, limits))
            return None if turns is None else turns[1]
        for size in self._aims():
            planned = self._noted(solver, size, limits)
            if planned is not None and self._fits(planned):
                return planned
        return None

    def _aims(self) -> Iterator[int]:
        """Sizes from the budget down to the least, or that alone where the budget is smaller."""
        over = max(0, self.budget.bytes - self.least_bytes)
        yield from sorted({self.least_bytes + over * part // (AIMS - 1) for part in range(AIMS)}, reverse=True)

    def _fitting(self, solver: str, size: int, limits: Limits) -> Planned | None:
        planned = self._planned(solver, size, limits)
        return planned if planned is not None and self._fits(planned) else None

    def _fits(self, planned: Planned) -> bool:
        return replay(planned.events, self.budget.settings).refusal is None

    def _noted(self, solver: str, size: int, limits: Limits) -> Planned | None:
        planned = self._planned(solver, size, limits)
        if planned is not None:
            self._note(planned)
        return planned

    def _note(self, planned: Planned) -> None:
        least = least_limit(planned.events, self.budget.endless)
        if self.smallest is None or least < self.smallest[0]:
            self.smallest = least, planned

    def _planned(self, solver: str, budget_bytes: int, limits: Limits) -> Planned | None:
        """A plan for so many bytes; None where the solver finds none within the limits."""
        problem = make_problem("swap", self.trace.graph, self.hardware, budget_bytes)
        assert isinstance(problem, SwapProblem)
        answer = solve(build_solver(solver, {}), problem, limits)
        if answer.schedule is None:
            return None
        assert isinstance(answer.solution.plan, SwapPlan)
        step, events = under_schedule(self.trace.step, answer.schedule), planned_events(self.trace, answer.schedule)
        first = starts_planned(self.trace, answer.schedule) or not self.trace.ran
        return Planned(solver, problem, answer.solution.plan, answer.schedule, step, events, first)


def _shorter(one: Planned | None, other: Planned | None) -> Planned | None:
    plans = [plan for plan in (other, one) if plan is not None]
    return min(plans, key=lambda plan: plan.step_us, default=None)
