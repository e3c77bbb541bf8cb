"""One line for an ordinary loop: `with plan(model, budget="20GiB"): …` trains within the budget, losses unchanged.

One file: what a session measures, decides and keeps is one state.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from runtime.device import memory_stats
from runtime.device.settling import settled
from runtime.recompute.asked import (
    JOINT,
    WHOLE,
    blocks_of,
    budget_bytes_of,
    device_of,
    limits_of,
    parameters_of,
    require_solver,
    require_whole_parameters,
)
from runtime.recompute.deciding import decide
from runtime.recompute.footprint import Footprint, Peaks
from runtime.recompute.graph import Step, step_of
from runtime.recompute.joint import JointStep, trim_host
from runtime.recompute.joint_problem import peaks_all_there
from runtime.recompute.layer import GRAIN_BYTES, BlockPolicy, Layer, policy_of
from runtime.recompute.outside import Uses, held_units
from runtime.recompute.report import RecomputeReport
from runtime.recompute.segments import Segments
from runtime.recompute.session import Counts, PassClock, Walk, store_nothing
from runtime.recompute.together import Together
from runtime.recompute.whole import WholeStep
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.joint import JointProblem
from solvers.ir.recompute import RecomputeGraphProblem, RecomputeLayerPlan, RecomputeLayerProblem
from solvers.ir.solution import Limits, Solution
from solvers.planner import build_solver, solve, solver_entry

AnyProblem = RecomputeLayerProblem | RecomputeGraphProblem | JointProblem
Decided = tuple[AnyProblem, Solution[Any]]
MOST_CORRECTIONS = 3
"""How often a plan that took more than the budget is made again."""
MOST_WAITED = 32
"""For how many passes of the first step at most the decision waits for the optimizer's states."""


class RecomputeSession:
    """Trains a model's blocks by a plan that it makes after the first step; see `plan`."""

    def __init__(
        self,
        model: nn.Module,
        budget: int | str,
        solver: str,
        parameters: Mapping[str, object],
        blocks: Sequence[nn.Module],
        limits: Limits,
    ) -> None:
        self._device = device_of(model)
        self._budget_bytes = budget_bytes_of(budget, self._device)
        self._solver_name = solver
        self._solver = build_solver(solver, parameters)
        self.whole = self._whole(solver_entry(solver).kind, limits)
        self._blocks, self._limits = list(blocks), limits
        self._walk: Walk | None = None
        self._measured_level_bytes = 0
        self._level_bytes = 0
        self._estimated = True
        self._waited, self._accumulated_bytes = 0, 0
        self._versions: list[int] = []
        self._beyond_bytes = 0
        self._footprint: Footprint | None = None
        self._peaks, self._uses = Peaks(), Uses()
        self._parameters = list(model.parameters())
        self._promised_bytes = 0
        self._planned_steps = 0
        self._first_peak_bytes = 0
        self._peak_bytes = 0
        self._segments = Segments(self._device)
        self._replanned = self._corrected = 0
        self._counts = Counts()
        self._timed_pass: PassClock | None = None
        self.layers: list[Layer] = []
        self._decided: Decided | None = None
        if isinstance(self.whole, JointStep):
            weakref.finalize(self, trim_host, self._device).atexit = False

    def _whole(self, kind: str, limits: Limits) -> WholeStep | JointStep | None:
        """Who decides about the whole step, where not a solver of layers does."""
        if kind == JOINT:
            return JointStep(self._solver, limits, self._device)
        return WholeStep(self._solver, limits) if kind == WHOLE else None

    def __enter__(self) -> Self:
        if self._walk is not None:
            raise InvalidInput("the session is open already: leave it before you enter it again")
        if not self.layers:
            settled(self._in_use)  # what earlier training left behind would be measured, too
        else:
            self._waited = MOST_WAITED  # the first step is over
        self._open()
        self._begin_peak()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._walk is not None
        walk, self._walk = self._walk, None
        walk.__exit__(kind, error, trace)
        try:
            if error is None:
                self._look(walk)
            else:
                self._end_peak()
        except BaseException:
            self.close()
            raise
        if error is not None:
            self.close()

    def close(self) -> None:
        """Give back the page-locked host memory that a joint plan keeps from step to step; entering takes it again.

        An error that ends a step does so, and so does the end of the session's own life.
        """
        if self._walk is not None:
            raise InvalidInput("the session is open: leave it before you close it")
        if isinstance(self.whole, JointStep):
            trim_host(self._device)

    def _open(self) -> None:
        """The blocks' tapes from now on: of the plan, or of the first step, which is measured."""
        count = len(self._blocks)
        policies = self._policies() if self.layers else store_nothing(count)
        first = not self.layers
        walk = Walk(self._blocks, self._device, policies, timed=first, intervals=first, counts=self._counts)
        walk.clocked = isinstance(self.whole, JointStep)
        walk.on_pass = self._next_pass
        walk.on_peak = self._end_peak  # somebody else may begin the statistics anew between steps
        self._walk = walk.__enter__()
        self._reserve_host()

    def _reserve_host(self) -> None:
        """What is decided outside the session page-locks nothing: nobody would give it back."""
        if self._walk is not None and isinstance(self.whole, JointStep):
            self.whole.reserve_host()

    def _next_pass(self) -> None:
        """A forward pass begins: after a complete step the plan is made, or looked at."""
        walk = self._walk
        if walk is None:
            return
        self._meet(walk)
        ready = not walk.calls or walk.idle
        if not (ready if self._together is None else self._together.all(ready)):
            return
        if walk.idle:
            self._look(walk)
        level = settled(self._in_use) if self.layers and self._estimated else self._in_use()
        if not self.layers:
            self._measured_level_bytes = level
            return
        self._begin_at(level)
        if self._segments.judged:
            self._segments.begin()
            self._begin_peak()
        walk.follow(self._policies())

    def _begin_at(self, level_bytes: int) -> None:
        """So much is in use as a pass begins: the optimizer's states are known now, and gradients that stay."""
        grown = level_bytes - self._level_bytes
        if self._estimated:
            gradient_bytes = self._gradient_bytes()
            goes_on = self._accumulates(gradient_bytes)
            if goes_on if self._together is None else self._together.any(goes_on)[0]:
                return
            self._estimated = False
            self._level_bytes = level_bytes + max(0, self._accumulated_bytes - gradient_bytes)
            self._decide()
            self._segments.judge()
            return
        if grown > 0:
            self._level_bytes = level_bytes
            self._promised_bytes += grown
        over = grown > 0 and self._promised_bytes > self._budget_bytes
        if self._together is not None:
            in_bytes, in_segments, over = self._together.any(*self._broken, over)
            over = not self._correct(in_bytes, in_segments) and over
        if over:
            self._decide_again()

    def _accumulates(self, gradient_bytes: int) -> bool:
        """Whether the first step goes on, as gradients stay and no parameter has changed: the next pass adds to them.

        Later steps have as much of gradients at once, and the optimizer's states, which nobody knows before it has
        made them.
        """
        self._waited += 1
        if self._waited > MOST_WAITED or not gradient_bytes or self._versions != self._parameter_versions():
            return False
        self._accumulated_bytes = max(self._accumulated_bytes, gradient_bytes)
        return True

    def _parameter_versions(self) -> list[int]:
        return [one._version for one in self._parameters]

    def _look(self, walk: Walk) -> None:
        """A step has ended: decide after the first one, and again where a plan took more than the budget."""
        if walk.timed:
            self._meet(walk)
            self.layers = walk.layers()
            if self.layers:
                self._uses = walk.uses()
                self._decide_first(walk.footprint())
        elif self._estimated:  # another pass of the first step
            self._end_peak()
            self._first_peak_bytes, self._peak_bytes = max(self._first_peak_bytes, self._peak_bytes), 0
        else:
            self._end_peak()
            self._segments.settle(self._budget_bytes)
            self._planned_steps += 1
            self._timed_pass = walk.timed_pass or self._timed_pass
            if self._together is None:
                self._correct(*self._broken)
        self._begin_peak()

    @property
    def _broken(self) -> tuple[bool, bool]:
        """Whether the plan took more than the budget of bytes, or of segments, and may be made again."""
        in_bytes = self._corrected < MOST_CORRECTIONS and self._peak_bytes > self._budget_bytes
        return in_bytes, self._segments.breaks(self._budget_bytes)

    def _correct(self, in_bytes: bool, in_segments: bool) -> bool:
        """Decide again, with less, where the plan took more than the budget, here or on a rank that decides with us."""
        if not in_bytes and not in_segments:
            return False
        mine = self._broken
        if in_bytes:
            self._beyond_bytes += max(0, self._peak_bytes - self._promised_bytes) if mine[0] else 0
            self._corrected += 1
        elif mine[1]:
            self._segments.leave(self._peak_bytes)
        self._peak_bytes = 0
        self._replanned += 1
        self._decide_again()
        return True

    def _decide_again(self) -> None:
        """Segments alone end no training: what no plan leaves them, they take beyond the budget."""
        self._segments.judge()
        try:
            self._decide()
        except InfeasibleBudget as error:
            spare = self._segments.spare_bytes > 0
            if not (spare if self._together is None else self._together.any(spare)[0]):
                raise
            if self._together is not None or not self._segments.leave_all_but_least(self._budget_bytes, error):
                self._segments.give_up(self._budget_bytes, error)
            self._decide()

    @property
    def _together(self) -> Together | None:
        """The ranks that decide with this one; they do so where a pass begins on all of them."""
        return self.whole.together if isinstance(self.whole, JointStep) else None

    def _meet(self, walk: Walk) -> None:
        """The ranks with whom blocks have communicated."""
        if isinstance(self.whole, JointStep):
            self.whole.meet(walk.groups)

    def _decide_first(self, footprint: Footprint) -> None:
        """By what memory is there now but gradients; how much it is, the next pass tells, and asks the solver."""
        if self.whole is None:
            self._alike()  # refused by name, where the first step ends
        else:
            self.layers = [layer.held(held_units(self._uses, block, layer)) for block, layer in enumerate(self.layers)]
        self._footprint, self._first_peak_bytes, self._peak_bytes = footprint, footprint.most_bytes, 0
        joint = isinstance(self.whole, JointStep)
        self._peaks = peaks_all_there(footprint, self.layers) if joint else footprint.peaks
        self._level_bytes = self._in_use() - self._gradient_bytes()
        self._versions = self._parameter_versions()

    @property
    def problem(self) -> AnyProblem | None:
        """What the solver was asked last; before the second step, what it would be. None: nothing is measured yet.

        Ranks that decide together are asked when their second step begins, and nothing is known before.
        """
        decided = self._decision()
        return None if decided is None else decided[0]

    @property
    def solution(self) -> Solution[Any] | None:
        """What it answered; None: nothing is measured yet, or the budget is too small."""
        decided = self._decision()
        return None if decided is None else decided[1]

    def _decision(self) -> Decided | None:
        if self._decided is None and self.layers and self._together is None:
            try:
                self._decide()
            except InfeasibleBudget:
                return None
        return self._decided

    def _in_use(self) -> int:
        return memory_stats(self._device).allocated_bytes

    def _gradient_bytes(self) -> int:
        gradients = (one.grad for one in self._parameters if one.grad is not None)
        sizes = (getattr(one, "_local_tensor", one).untyped_storage().nbytes() for one in gradients)
        return sum(-(-size // GRAIN_BYTES) * GRAIN_BYTES for size in sizes)

    @property
    def _within_bytes(self) -> int:
        """What plans are made for: the budget, less what segments take beside the bytes in use."""
        return self._budget_bytes - self._segments.spare_bytes

    def _decide(self) -> None:
        if self.whole is not None:
            solution = self.whole.decide(self._step("whole step"), self.layers, self._within_bytes)
            assert self.whole.problem is not None
            self._decided, self._promised_bytes = (self.whole.problem, solution), self.whole.peak_bytes
            self._reserve_host()
            return
        layer = self._alike()
        beyond = self._beyond_bytes + self._level_bytes - self._measured_level_bytes

        def peak_of(plan: RecomputeLayerPlan | None) -> int:
            assert self._footprint is not None
            return self._footprint.walk(self._policies_of(layer, plan)).peak_bytes + beyond

        decided = decide(
            lambda problem: solve(self._solver, problem, self._limits).solution, layer, len(self._blocks),
            self._within_bytes, peak_of,
        )  # fmt: skip
        self._decided = decided
        self._promised_bytes = peak_of(decided[1].plan)

    def _alike(self) -> Layer:
        """The blocks' common layer: the slowest of each operator, of blocks that run the same."""
        first = self.layers[0]
        for index, other in enumerate(self.layers):
            if other.names != first.names:
                raise InvalidInput(
                    f"block {index} runs other operators than block 0: give blocks= the ones that are alike"
                )
        return self.layers[len(self.layers) // 2].decided_alone()

    def _policies(self) -> list[BlockPolicy]:
        if self.whole is not None:
            return store_nothing(len(self._blocks)) if self._decided is None else self.whole.policies
        return self._policies_of(self._alike(), None if self._decided is None else self._decided[1].plan)

    def _policies_of(self, layer: Layer, plan: RecomputeLayerPlan | None) -> list[BlockPolicy]:
        """What each block does by a plan; without one nothing is stored."""
        if plan is None:
            return store_nothing(len(self._blocks))
        each: list[BlockPolicy] = []
        for group in plan.groups:
            each += [policy_of(layer, group)] * group.layers
        return each

    def _begin_peak(self) -> None:
        torch.accelerator.reset_peak_memory_stats(self._device)

    def _end_peak(self) -> None:
        stats = memory_stats(self._device)
        self._peak_bytes = max(self._peak_bytes, stats.peak_bytes)
        self._segments.look(stats)

    def graph(self, name: str = "blocks") -> OpGraph:
        """What was measured, as a graph (`bayplan-graph/1`); raises `InvalidInput` before the first step has ended."""
        if not self.layers:
            raise InvalidInput("nothing is measured yet: train one step within the session first")
        return self._step(name).graph

    def _step(self, name: str) -> Step:
        """The measured step, with what later ones have in use beside it."""
        beyond = self._beyond_bytes + self._level_bytes - self._measured_level_bytes
        source = f"the tapes of {len(self.layers)} blocks on {self._device}"
        return step_of(self.layers, self._peaks, beyond_bytes=beyond, name=name, source=source, uses=self._uses)

    def _beside_base_us(self, solution: Solution[Any]) -> tuple[float, float | None]:
        """A step's recomputation on the critical path by the plan, and the solver's bound of it."""
        assert solution.objective is not None
        base, bound = solution.base or 0 if self.whole is not None else 0, solution.bound
        return solution.objective - base, None if bound is None else bound - base

    def report(self) -> RecomputeReport:
        """What was decided and done so far; raises `InvalidInput` before the first step has ended."""
        solution = self.solution
        if solution is None or solution.objective is None:
            steps = "one step" if self._together is None else "two steps, since ranks decide when the second begins,"
            raise InvalidInput(f"nothing is decided yet: train {steps} within the session first")
        if self._walk is not None:
            self._walk.settle()
            self._end_peak()
        exposed_us, bound_us = self._beside_base_us(solution)
        joint = self.whole if isinstance(self.whole, JointStep) else None
        return RecomputeReport(
            solver=solution.solver,
            status=solution.status,
            exposed_us=round(exposed_us),
            bound_us=bound_us,
            budget_bytes=self._budget_bytes,
            first_peak_bytes=self._first_peak_bytes,
            peak_bytes=self._peak_bytes,
            reserved_peak_bytes=self._segments.most_bytes,
            predicted_peak_bytes=self._promised_bytes,
            **{name: getattr(self._counts, name) for name in ("on_demand", "ahead", "left_out", "diverged")},
            replanned=self._replanned,
            **asdict(self._counts.moves),
            host_bytes=0 if joint is None else joint.host_bytes,
            predicted_pass_us=None if joint is None else round(solution.objective),
            pass_us=None if self._timed_pass is None else self._timed_pass.took_us,
        )


def plan(
    model: nn.Module,
    *,
    budget: int | str,
    solver: str = "heu",
    parameters: Mapping[str, object] | None = None,
    blocks: Sequence[nn.Module] | None = None,
    limits: Limits | None = None,
) -> RecomputeSession:
    """A session in which a model trains within a memory budget, with the losses and gradients of plain training.

    `with plan(model, budget="20GiB") as session:` around a loop, or around each of its steps. The first step stores
    nothing of the model's repeated blocks and measures their operators; then `solver` decides what later steps store,
    and what runs again, when: any of kind `recompute-layer`, or of kind `recompute-graph`, which decides for each block
    of the step by itself (`runtime.recompute.whole`) and needs no blocks that are alike.

    `budget` is the device's peak allocated bytes, parameters and all; where its allocator holds segments, these too: a
    plan that takes more of them is made again, up to three times, and where none takes less, the report and a warning
    say how much it takes. `blocks` are found by structure unless given.
    Raises `InvalidInput` where the model has no repeated blocks, the solver is of another kind or an argument cannot
    mean anything, and, after the first step, `InfeasibleBudget` with the least budget.
    """
    require_solver(solver)
    chosen, given = blocks_of(model, blocks), parameters_of(parameters)
    require_whole_parameters(chosen, solver_entry(solver).kind)
    return RecomputeSession(model, budget, solver, given, chosen, limits_of(limits))
