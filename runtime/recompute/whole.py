"""Plans of a whole step (kind `recompute-graph`: Lynx-OPT, Checkmate), decided from the measured one and carried out.

The measured step is the problem; a solver of the kind decides, the judge looks at the plan and at its schedule, and the
schedule says what is done: what a block stores from its forward to its backward pass, what runs again before which
block's backward pass or in which of its waits, and what is let go in between. Each block has a policy of its own, and
blocks need not be alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from runtime.recompute.graph import Place, Step, again
from runtime.recompute.layer import Layer
from runtime.recompute.policy import BlockPolicy
from runtime.recompute.results_apart import other_results, results_together, units_deed
from runtime.recompute.tape import StorePolicy
from runtime.recompute.work import Deed, Work
from solvers.check.plan import judge_of
from solvers.ir.errors import BayplanError, InfeasibleBudget
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.recompute import RecomputeGraphPlan, RecomputeGraphProblem, RecomputeOp
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits, Solution, Status
from solvers.planner import AnySolver, Checked, lower_plan, require_clean, solve
from solvers.timeline.simulate import simulate

WholeProblem = RecomputeGraphProblem | JointProblem


def problem_of(step: Step, budget_bytes: int) -> RecomputeGraphProblem:
    """The problem of a measured step, op by op: what `bayplan make recompute-graph` makes of its graph."""
    graph = step.graph
    made = {op.outputs[0]: index for index, op in enumerate(graph.ops)}
    sizes = {tensor.id: tensor.bytes for tensor in graph.tensors}
    ops = tuple(
        RecomputeOp(
            name=op.name, time_us=op.time_us, output_bytes=sizes[op.outputs[0]],
            inputs=tuple(sorted({made[one] for one in op.inputs})), comm=op.kind == "comm",
            replay=op.replay is not False,
        )
        for op in graph.ops
    )  # fmt: skip
    return RecomputeGraphProblem(
        name=graph.name, budget_bytes=budget_bytes, ops=ops, replays_from=begin_of(step),
        static_bytes=sum(tensor.bytes for tensor in graph.tensors if tensor.born is None),
    )  # fmt: skip


def begin_of(step: Step) -> int:
    """The first op of the backward pass."""
    return next(index for index, place in enumerate(step.places) if place.kind == "begin")


def nothing_stored(step: Step, layers: Sequence[Layer], problem: WholeProblem) -> RecomputeGraphPlan:
    """The plan of the measured step: each block's units run again right before its backward pass, where they may."""
    units = {(place.block, place.index): op for op, place in enumerate(step.places) if place.kind == "unit"}
    compute: list[tuple[int, int]] = []
    keep: set[tuple[int, int]] = set()
    latest: dict[int, int] = {}
    for stage, place in enumerate(step.places):
        due = {units[place.block, one] for one in again(layers[place.block])} if place.kind == "begin" else set()
        for op in sorted({one for one in due if problem.ops[one].replay} | {stage}):
            compute.append((stage, op))
            for read in problem.ops[op].inputs:
                keep |= {(t, read) for t in range(latest[read] + 1, stage + 1)}
            latest[op] = stage
    return RecomputeGraphPlan(compute=tuple(compute), keep=tuple(sorted(keep)))


def answer_of_nothing(step: Step, layers: Sequence[Layer], problem: WholeProblem, solver: str) -> Solution[Any]:
    """Instead of a solver's answer the plan that stores nothing, whatever room that takes; judged."""
    found = nothing_stored(step, layers, problem)
    plan = JointPlan(compute=found.compute, keep=found.keep) if isinstance(problem, JointProblem) else found
    verdict = judge_of(problem.KIND).decision(replace(problem, budget_bytes=2**53), plan)
    if verdict.violations:
        raise BayplanError(
            f"storing nothing is no plan of this step ({verdict.violations[0]}): a fault of Bayplan, report it"
        )
    return Solution(
        status=Status.FEASIBLE, plan=plan, solver=solver, objective=verdict.objective_us,
        base=sum(op.time_us for op in problem.ops),
        reason="nothing is stored: no plan was found that keeps the budget in all backward passes (retain_graph)",
    )  # fmt: skip


def decide_step(solver: AnySolver, step: Step, layers: Sequence[Layer], budget_bytes: int, limits: Limits) -> Checked:
    """The solver's plan, or the one that stores nothing where it has none; raises `InfeasibleBudget` where that fails.

    Both are judged, and lowered to schedules that are judged.
    """
    problem = problem_of(step, budget_bytes)
    answer = solve(solver, problem, limits)
    if answer.schedule is not None:
        return answer
    plan = nothing_stored(step, layers, problem)
    base = sum(op.time_us for op in problem.ops)
    roomy = RecomputeGraphProblem(
        name=problem.name, budget_bytes=2**53, static_bytes=problem.static_bytes, ops=problem.ops,
        replays_from=problem.replays_from,
    )  # fmt: skip
    least = simulate(roomy, lower_plan(roomy, plan)).peak_bytes
    if least > budget_bytes:
        raise InfeasibleBudget(
            f"no plan was found for a budget of {budget_bytes} bytes, and storing nothing takes {least}, reckoned "
            "from the step that was measured: raise it to that, or give the solver more time",
            least,
        )
    units = [op for stage, op in plan.compute if stage != op]
    solution = Solution(
        status=Status.FEASIBLE, plan=plan, solver=answer.solution.solver, bound=base, base=base,
        objective=base + sum(problem.ops[op].time_us for op in units),
        reason=f"nothing is stored; the solver had no plan ({answer.solution.reason or answer.solution.status.value})",
    )  # fmt: skip
    require_clean(problem, solution)
    return Checked(solution, lower_plan(problem, plan))


@dataclass(frozen=True)
class Asked:
    """An action of a schedule and its op: "recompute", or "release" of what comes again later.

    `others` stand for other results of the same nodes, and are not there before and behind a "recompute", or stay where
    this one is released.
    """

    does: str
    op: int
    others: frozenset[int]


@dataclass(frozen=True)
class _Units:
    """Which nodes of which block's tape an op of the graph stands for."""

    step: Step
    layers: Sequence[Layer]

    def deeds(self, asked: Sequence[Asked]) -> tuple[Deed, ...]:
        """What is asked in a row of one block is one deed."""
        rows = groupby(asked, key=lambda one: (one.does, self.step.places[one.op].block))
        return tuple(self._deed(does, list(row)) for (does, _), row in rows)

    def _deed(self, does: str, row: Sequence[Asked]) -> Deed:
        others = {op for one in row for op in one.others}
        return units_deed(self.step, self.layers, does, [one.op for one in row], others)


class _Reading:
    """Reads a schedule: `before[b]` is what stands before block b's backward pass, `waits[b, w]` what its wait does.

    `early` are the ops whose results go in the forward pass: these are not stored.
    """

    def __init__(self, step: Step, layers: Sequence[Layer], schedule: Schedule) -> None:
        self.places, actions = step.places, results_together(step, layers, schedule.actions)
        self._parts, self._there = other_results(step, layers), set[int]()
        self.before: dict[int, list[Asked]] = {}
        self.waits: dict[tuple[int, int], list[Asked]] = {}
        self.early: set[int] = set()
        last = {action.op: at for at, action in enumerate(actions) if action.do == "recompute"}
        asked: list[Asked] = []
        window: Place | None = None
        begun, first = False, begin_of(step)
        for at, action in enumerate(actions):
            op = action.op
            assert op is not None
            if action.do == "recompute":
                begun = True
                into = asked if window is None else self._in(window.block, window.index)
                into.append(Asked("recompute", op, frozenset(self._parts.get(op, set()) - self._there)))
                self._there.add(op)
            elif action.do in ("compute", "collective_start"):
                begun = begun or op >= first
                self._there.add(op)
                self._turn(self.places[op], asked)
                asked, window = [], self.places[op] if action.do == "collective_start" and begun else None
            elif action.do == "collective_wait":
                window = None
            else:
                self._there.discard(op)
                if self.places[op].kind == "unit" and not begun:
                    self.early.add(op)
                elif self.places[op].kind == "unit" and last.get(op, -1) > at:
                    asked.append(Asked("release", op, frozenset(self._parts.get(op, set()) & self._there)))

    def _in(self, block: int, wait: int) -> list[Asked]:
        return self.waits.setdefault((block, wait), [])

    def _turn(self, place: Place, asked: list[Asked]) -> None:
        """An op runs first: what was asked since the last one did stands before it.

        Before the rest of a block's backward pass, behind a wait, there is no moment to do it but that wait; what is to
        go waits for the next block.
        """
        if place.kind == "begin":
            self.before.setdefault(place.block, []).extend(asked)
            return
        again = [one for one in asked if one.does == "recompute"]
        if again and place.kind in ("part", "end") and place.index >= 0:
            self._in(place.block, place.index).extend(again)
            asked = [one for one in asked if one.does == "release"]
        if asked and place.block > 0:
            self.before.setdefault(place.block - 1, []).extend(asked)


def policies_of(step: Step, layers: Sequence[Layer], schedule: Schedule) -> list[BlockPolicy]:
    """What each block stores, and what is done before its backward pass and in its waits."""
    units, read = _Units(step, layers), _Reading(step, layers, schedule)
    found = []
    for block, layer in enumerate(layers):
        waits = {wait: units.deeds(asked) for (where, wait), asked in read.waits.items() if where == block}
        work = Work(units.deeds(read.before.get(block, ())), waits)
        found.append(BlockPolicy(stored_by(step, layer, block, read.early), {}, {}, work))
    return found


def stored_by(step: Step, layer: Layer, block: int, early: set[int]) -> StorePolicy:
    """What a block stores in its forward pass: all units but those whose results go `early`."""
    keep = [0] * len(layer.names)
    for op, place in enumerate(step.places):
        if place.kind == "unit" and place.block == block and op not in early:
            unit = layer.units[place.index]
            for node in unit.nodes:
                keep[node] = 2 if keep[node] else 1 if unit.saved else 3
    return layer.storing(keep)


class WholeStep:
    """The decision about a whole step, and what blocks do by it; made again only where the problem is another one."""

    def __init__(self, solver: AnySolver, limits: Limits) -> None:
        self._solver, self._limits = solver, limits
        self.step: Step | None = None
        self.problem: RecomputeGraphProblem | None = None
        self.answer: Checked | None = None
        self.policies: list[BlockPolicy] = []

    def asked(self, step: Step, layers: Sequence[Layer], budget_bytes: int) -> RecomputeGraphProblem:
        """What the solver is asked."""
        return problem_of(step, budget_bytes)

    def decide(self, step: Step, layers: Sequence[Layer], budget_bytes: int) -> Solution[RecomputeGraphPlan]:
        """The plan; raises `InfeasibleBudget` as `decide_step` does."""
        problem = problem_of(step, budget_bytes)
        if self.answer is None or problem != self.problem:
            self.answer = decide_step(self._solver, step, layers, budget_bytes, self._limits)
        assert self.answer.schedule is not None
        self.step, self.problem = step, problem
        self.policies = policies_of(step, layers, self.answer.schedule)
        return self.answer.solution

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use by the plan."""
        assert self.problem is not None and self.answer is not None and self.answer.schedule is not None
        return simulate(self.problem, self.answer.schedule).peak_bytes
