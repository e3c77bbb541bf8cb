"""One line for an ordinary loop: `with plan(model, budget="20GiB"): …` trains within the budget, losses unchanged.

One file: what a session measures, decides and keeps is one state.
"""

import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import ceil
from types import TracebackType
from typing import Any, Self

from torch import nn

from runtime.device import memory_stats
from runtime.device.settling import settled
from runtime.recompute.alive import if_alive
from runtime.recompute.asked import (
    DEFAULT,
    blocks_of,
    budget_bytes_of,
    device_of,
    frozen_of,
    limits_of,
    names_of,
    parameters_of,
    require_solver,
    require_whole_parameters,
    solver_by_default,
)
from runtime.recompute.calls import Given
from runtime.recompute.counts import Counts, PassClock
from runtime.recompute.decisions import AnyProblem, Decided, Decisions, Kept
from runtime.recompute.first_step import MOST_WAITED, FirstStep, Gradients
from runtime.recompute.joint import JointStep
from runtime.recompute.keeping import Keeping
from runtime.recompute.layer import Layer
from runtime.recompute.measuring import Measuring, Occasion
from runtime.recompute.moves import trim_host
from runtime.recompute.numbering import Numbering
from runtime.recompute.report import RecomputeReport
from runtime.recompute.staying import Staying
from runtime.recompute.together import Together
from runtime.recompute.walk import Walk
from runtime.recompute.whole import WholeStep
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.solution import Limits, Solution
from solvers.planner import solver_entry

LOG = logging.getLogger("bayplan.recompute")
GRAPHS_STAY = 2
"""After so many passes that began while an earlier one's graph stayed (`retain_graph`, its loss kept), it is over."""


class RecomputeSession:
    """Trains a model's blocks by a plan that it makes after the first step; see `plan`."""

    def __init__(
        self,
        model: nn.Module,
        budget: int | str,
        solver: str | None,
        parameters: Mapping[str, object],
        blocks: Sequence[nn.Module],
        limits: Limits,
    ) -> None:
        self._device = device_of(model)
        self._budget_bytes = budget_bytes_of(budget, self._device)
        self._blocks = list(blocks)
        named, self._by_default = solver or DEFAULT, solver is None
        self.plans = Decisions(named, parameters, limits, self._device, len(self._blocks), by_default=self._by_default)
        self._walk: Walk | None = None
        self._estimated, self._doubted = True, False  # whether the pass for which it was decided is an evaluation
        self._before_growth: Kept | None = None
        self._told_within, self._unplanned = False, ""
        self._gradients, self._first_step = Gradients(model), FirstStep(model)
        self._written_before: list[int | None] = []
        self._unready = 0
        self._names = names_of(model, self._blocks)
        self._numbering = Numbering(())
        self._measuring, self._stale = Measuring(), False  # whether the plan is of a step measured before
        self._begun_bytes = 0  # in use where the pass that is measured began
        self._first_peak_bytes = 0
        self._keeping = Keeping(self.plans, self._budget_bytes, self._device)
        self._counts = Counts()
        self._staying = Staying(model, self._is_over, if_alive(self.before_gathering))
        self._timed_pass: PassClock | None = None
        if self._joint is not None or self._by_default:
            weakref.finalize(self, trim_host, self._device).atexit = False

    @property
    def layers(self) -> list[Layer]:
        """The blocks as measured; empty before the first step has ended."""
        return self.plans.layers

    @property
    def whole(self) -> WholeStep | JointStep | None:
        """Who decides about the whole step, where not a solver of layers does."""
        return self.plans.whole

    @property
    def _joint(self) -> JointStep | None:
        return self.plans.joint

    def __enter__(self) -> Self:
        if self._walk is not None:
            raise InvalidInput("the session is open already: leave it before you enter it again")
        if not self.layers:
            settled(self._in_use)  # what earlier training left behind would be measured, too
        else:
            self._first_step.end()
        self._written_before = self._gradients.written()
        if self._keeping.segments.there:
            self._staying.watch()
        self._open()
        self._keeping.begin_peak()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._walk is not None
        walk, self._walk = self._walk, None
        self._staying.stop()
        walk.__exit__(kind, error, trace)
        if not self.layers and not walk.was_called and self._gradients.written() != self._written_before:
            self._unplanned = (
                f"none of the {len(self._blocks)} blocks ({self._names[0]}, ...) was called in training, so nothing "
                "was measured or planned: give blocks= modules whose forward() the model calls, and that train "
                "parameters or are given what does: nothing else stores activations"
            )
            LOG.warning("%s", self._unplanned)
        try:
            if error is None:
                self._look(walk)
            else:
                self._keeping.end_peak()
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
        if self._joint is not None:
            trim_host(self._device)

    def _is_over(self) -> bool:
        """Whether all passes so far have had their backward pass, and one rank decides for itself."""
        return self._walk is not None and self._walk.idle and self._together is None

    def _stand_aside(self) -> None:
        """The model is evaluated between passes."""
        self._keeping.segments.stand_aside()
        if self._walk is not None:
            self._walk.end_requests()

    def _runs_within(self, block: int) -> None:
        """A block runs within a backward pass: say so once."""
        if not self._told_within:
            LOG.warning(
                "%s runs within a backward pass, as under a checkpoint of the model's own (use_reentrant=True): plans "
                "know little of such passes, so switch it off; the plan runs again what it has to",
                self._names[block],
            )
        self._told_within = True

    def before_gathering(self) -> None:
        """What stays is about to be moved."""
        self._keeping.segments.remember()
        if self._walk is not None:
            self._walk.end_requests()

    def _open(self) -> None:
        """The blocks' tapes from now on: of the plan, or of the first step, which is measured."""
        policies = self.plans.policies() if self.layers and not self._stale else self.plans.nothing()
        first = not self.layers
        walk = Walk(self._blocks, self._device, policies, timed=first, intervals=first, counts=self._counts)
        walk.clocked = self._joint is not None or (first and self._by_default)  # who decides is not known before
        walk.numbering = self._numbering
        walk.on_pass, walk.on_aside = self._next_pass, self._stand_aside
        walk.on_other, walk.on_within = self._gives_way, self._runs_within
        walk.on_peak = self._end_part  # somebody else may begin the statistics anew between steps
        self._walk = walk.__enter__()
        self._reserve_host()

    def _end_part(self) -> None:
        """A pass is at its peak; that of one that is measured again is none of the plan's."""
        again = self._walk is not None and self._walk.timed and bool(self.layers)
        self._keeping.end_peak(measured=True) if again else self._keeping.end_part()

    def _reserve_host(self, beside: Decided | None = None) -> None:
        """For what is decided, if that is another thing than before.

        What is decided outside the session page-locks nothing: nobody would give it back.
        """
        if self._walk is not None and self._joint is not None and self.plans.decided is not beside:
            self._joint.reserve_host()

    def _next_pass(self, given: Given) -> None:
        """A forward pass begins, with so much: after a complete step the plan is made, or looked at."""
        walk = self._walk
        if walk is None:
            return
        self._meet(walk)
        ready = not walk.calls or walk.idle or (self._unready >= GRAPHS_STAY and walk.returned)
        if not (ready if self._together is None else self._together.all(ready)):
            self._unready += 1
            if self._unready == MOST_WAITED and not self.layers:
                self._unplanned = (
                    f"{MOST_WAITED} forward passes began before all those before had their backward pass or were "
                    "dropped, so nothing is planned yet: let go of losses that get none, or compute them under "
                    "torch.no_grad()"
                )
                LOG.warning("%s", self._unplanned)
            return
        if walk.calls or walk.idle:
            self._look(walk)
            self._keeping.begin_peak()
        occasion = Occasion(given, *self._gradients.wanted())
        planned = self.plans.decided is not None
        again = bool(self.layers) and self._together is None and self._measuring.wanted(occasion, planned=planned)
        level = settled(self._in_use) if again or (self.layers and self._estimated) else self._in_use()
        if not self.layers:
            self._measuring.begin(occasion)
            self._begun_bytes = level
            self._first_step.begin()
            return
        self._keeping.end_peak()
        if again:
            if self._estimated:
                self._first_step.goes_on(self._gradients.bytes())
            self._measuring.begin(occasion)
            self._begun_bytes = level
            self._keeping.begin_peak()
            walk.measure()
            return
        self._begin_at(level)
        self._keeping.begin_pass()
        self._keeping.begin_peak()
        walk.follow(self.plans.policies())

    def _gives_way(self, strayed: bool, growth: float) -> bool:
        """Whether a planned pass stores nothing, since it is none of the plan's and one like it is to be measured."""
        alone = self._together is None and not self._estimated
        return alone and bool(self.layers) and self._measuring.follows_from(strayed, growth)

    def _begin_at(self, level_bytes: int) -> None:
        """So much is in use as a pass begins: the optimizer's states are known now, and gradients that stay."""
        plans, grown = self.plans, level_bytes - self.plans.level_bytes
        if self._stale and not self._estimated:
            plans.level_bytes = max(plans.level_bytes, level_bytes)
            self._decide_first()
            return
        if self._estimated:
            gradient_bytes = self._gradients.bytes()
            goes_on = self._first_step.goes_on(gradient_bytes)
            if goes_on if self._together is None else self._together.any(goes_on)[0]:
                return
            self._estimated = False
            self._staying.end()
            level_bytes += max(0, self._first_step.gradient_bytes - gradient_bytes)
            if not self._doubted or level_bytes < plans.level_bytes:
                plans.level_bytes, self._stale = level_bytes, True  # until there is a plan
                self._decide_first()
            self._doubted = self._together is None
            return
        self._before_growth = plans.keep() if grown > 0 and self._together is None else None
        if grown > 0:
            plans.level_bytes = level_bytes
            plans.promised_bytes += grown
        over = grown > 0 and plans.promised_bytes > self._budget_bytes
        keeping, last = self._keeping, plans.decided
        if self._together is not None:
            in_bytes, in_segments, over = self._together.any(*keeping.broken, over)
            over = not keeping.correct(in_bytes, in_segments) and over
        if over:
            keeping.decide_for_more()
        self._reserve_host(beside=last)

    def _look(self, walk: Walk) -> None:
        """A pass has ended: decide after the first one, and again where a plan took more than the budget, or less."""
        self._keeping.end_peak()
        if walk.timed:
            self._meet(walk)
            layers = []
            if self._measuring.under_way and any(one.backward_waits is not None for one in walk.calls):
                walk.numbering = walk.numbering.called(walk.calls, frozen_of(self._blocks))
                layers = walk.measurement.layers()
            if layers:
                self._measured(walk, layers)
            elif self.layers:
                walk.numbering = self._numbering  # it was an evaluation
                self._first_step.take_back()
        else:
            self._pass_ended(walk)

    def _pass_ended(self, walk: Walk) -> None:
        """Of the first step, after the measured one, or of a planned one."""
        if not walk.whole:
            self._take_back()
        if self._estimated:
            self._first_peak_bytes = max(self._first_peak_bytes, self._keeping.most_bytes)
            self._keeping.forget_peaks()
        elif walk.whole:
            self._doubted, last = False, self.plans.decided
            self._before_growth = None
            self._first_step.confirm()
            self._timed_pass = walk.timed_pass or self._timed_pass
            again = self._measuring.look(strayed=walk.strayed, growth=walk.growth, given=walk.given)
            if not again or self._together is not None:
                self._keeping.settle(walk.given.bytes)
            self._reserve_host(beside=last)

    def _take_back(self) -> None:
        """A pass without a backward pass was an evaluation: what was in use when it began says nothing of a step."""
        self._estimated = self._estimated or self._doubted
        self._first_step.take_back()
        before, self._before_growth = self._before_growth, None
        if before is not None:
            last = self.plans.decided
            self.plans.level_bytes = before.level_bytes
            self.plans.go_back(before)
            self._reserve_host(beside=last)

    @property
    def _together(self) -> Together | None:
        """The ranks that decide with this one; they do so where a pass begins on all of them."""
        return None if self._joint is None else self._joint.together

    def _meet(self, walk: Walk) -> None:
        """The ranks with whom blocks have communicated."""
        if self._joint is not None:
            self._joint.meet(walk.groups)

    def _by_calls(self, walk: Walk, layers: list[Layer]) -> list[Layer]:
        """The `layers`, or one for each call where several forward passes go back as one and have one plan.

        Not of ranks that decide together, whose passes need not be alike, nor where graphs stay.
        """
        wanted = self._together is None and not walk.stays and self.plans.wholly(layers)
        numbering = walk.numbering.by_calls(walk.calls) if wanted else None
        if numbering is None:
            return layers
        walk.numbering = numbering
        return walk.measurement.layers()

    def _measured(self, walk: Walk, layers: list[Layer]) -> None:
        """A step was measured, the first one or another: the next pass begins with a plan for it."""
        layers = self._by_calls(walk, layers)
        called, measurement = (self._numbering.counts, walk.numbering.counts), walk.measurement
        footprint = measurement.footprint()
        if not self._estimated:
            self._keeping.note_peak(footprint.most_bytes, measured=True)
        if not self._measuring.end(self.layers, layers, called) or not self.plans.takes(layers):
            walk.numbering = self._numbering
            return
        self._numbering = walk.numbering
        untrained = len(frozen_of(self._blocks) - walk.numbering.places)
        uncalled = len(self._blocks) - len(walk.numbering.places) - untrained
        self.plans.measured(
            layers, measurement.uses(), footprint, measurement.at_once(), walk.stays, untrained, uncalled
        )
        self.plans.measured_level_bytes = self._begun_bytes
        self._keeping.left_bytes = self.plans.uncalled_bytes
        self._keeping.foresee(measurement.requests(), footprint, self._staying.tensors)
        if self._estimated:  # by what memory is there now but gradients; how much it is, the next pass tells
            self._first_peak_bytes = max(self._first_peak_bytes, footprint.most_bytes)
            self.plans.level_bytes = self._in_use() - self._gradients.bytes()
            self.plans.decided = None  # of another pass of the first step
        else:
            LOG.info("a step was measured again, since it ran other operators or was given more: another plan follows")
            self._stale = True
            self._keeping.begin_again()
        self._keeping.forget_peaks()

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
        if self.plans.decided is None and self.layers and self._together is None:
            try:
                self._decide()
            except InfeasibleBudget:
                return None
        return self.plans.decided

    def _in_use(self) -> int:
        return memory_stats(self._device).allocated_bytes

    def _decide(self) -> None:
        self._keeping.decide()
        self._reserve_host()

    def _decide_first(self) -> None:
        """For the step that was measured last."""
        self._keeping.decide_first()
        self._reserve_host()
        self._stale = False

    def graph(self, name: str = "blocks") -> OpGraph:
        """What was measured, as a graph (`bayplan-graph/1`); raises `InvalidInput` before the first step has ended."""
        if not self.layers:
            raise InvalidInput("nothing is measured yet: train one step within the session first")
        return self.plans.step(name).graph

    def report(self) -> RecomputeReport:
        """What was decided and done so far; raises `InvalidInput` before the first step has ended."""
        solution = self.solution
        if solution is None or solution.objective is None:
            steps = "one step" if self._together is None else "two steps, since ranks decide when the second begins,"
            raise InvalidInput(self._unplanned or f"nothing is decided yet: train {steps} within the session first")
        if self._walk is not None:
            self._walk.settle()
            self._keeping.end_peak()
        (exposed_us, bound_us), joint = self.plans.beside_base_us(), self._joint
        unknown = self.plans.passes > 1 or self.plans.stays or any(layer.beside for layer in self.plans.layers)
        return RecomputeReport(
            solver=solution.solver,
            status=solution.status,
            exposed_us=round(exposed_us),
            bound_us=bound_us,
            budget_bytes=self._budget_bytes,
            first_peak_bytes=self._first_peak_bytes,
            peak_bytes=self._keeping.kept_bytes,
            plan_peak_bytes=self._keeping.most_bytes,
            within_budget=self._keeping.within_budget,
            blocks=self._names,
            reserved_peak_bytes=self._keeping.segments.most_bytes,
            predicted_peak_bytes=self.plans.promised_bytes,
            **{name: getattr(self._counts, name) for name in ("on_demand", "ahead", "left_out", "diverged")},
            replanned=self._keeping.replanned,
            measured=self._measuring.times,
            **asdict(self._counts.moves),
            host_bytes=0 if joint is None else joint.host_bytes,
            predicted_pass_us=None if joint is None or joint.pass_us is None or unknown else ceil(joint.pass_us),
            pass_us=None if self._timed_pass is None else self._timed_pass.took_us,
        )


def plan(
    model: nn.Module,
    *,
    budget: int | str,
    solver: str | None = None,
    parameters: Mapping[str, object] | None = None,
    blocks: Sequence[nn.Module] | None = None,
    limits: Limits | None = None,
) -> RecomputeSession:
    """A session in which a model trains within a memory budget, with the losses and gradients of plain training.

    `with plan(model, budget="20GiB") as session:` around a loop, or around each of its steps. The first step stores
    nothing of the model's repeated blocks and measures their operators; then `solver` decides what later steps store,
    and what runs again, when: any of kind `recompute-layer`, or of kind `recompute-graph`, which decides for each block
    of the step by itself (`runtime.recompute.whole`) and needs no blocks that are alike, or of kind `joint`, which also
    swaps. None: `heu`, and `greedy-joint` where blocks are not alike, or the model has none that repeat.

    `budget` is the device's peak allocated bytes, parameters and all; where its allocator holds segments, these too: a
    plan that takes more of them is made again for less, before it runs where its requests can be replayed (sim), else
    up to four times; where none takes little enough, the budget is refused, or the report and a warning say how much it
    takes. `blocks` are found by structure unless given; where none repeat, a solver of the whole step takes the modules
    that the model is made of.
    Raises `InvalidInput` where the model has no repeated blocks (nor others that would do), the solver is of another
    kind or an argument cannot mean anything, and, after the first step, `InfeasibleBudget` with the least budget.
    """
    given = parameters_of(parameters)
    if solver is None:
        solver = solver_by_default(model, blocks, given)
    else:
        require_solver(solver)
    kind = solver_entry(solver or DEFAULT).kind
    chosen = blocks_of(model, blocks, kind)
    require_whole_parameters(chosen, kind)
    return RecomputeSession(model, budget, solver, given, chosen, limits_of(limits))
