"""What happens between two iterations: look at the one that ended, decide what the next one executes and records.

One file: each decision reads what the ones before it have left in the kind of iteration that ended.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime.device.native import core
from runtime.loop.log import LOGGER
from runtime.swap.cost import SwapCost
from runtime.swap.engine import Engine
from runtime.swap.generation import Generation
from runtime.swap.journal import Remarks, beyond_reach, log_chosen, log_policy, log_return, log_stage
from runtime.swap.policy import Policy
from runtime.swap.profiled import Profiled
from runtime.swap.recorder import Recorder
from runtime.swap.recurrence import FAR_WAITS, LARGER, SPARINGS, WAITS, Kind, Kinds
from runtime.swap.report import IterationSummary, PolicyResult, SessionCounts, counts_of
from runtime.swap.sizes import Sizes
from runtime.swap.stages import Sampling, Stage, StageSettings, relative_change
from runtime.swap.tightening import ran_last
from solvers.ir.errors import BayplanError

LISTED = 1000
"""Number of latest policies that are reported; a loop without end may try any number."""


@dataclass(frozen=True)
class Around:
    """What else is to be done where the policy changes, and where one is kept: `settle_host` is told what all kept ones
    need of the host, `gather` that this one did not run last.
    """

    changing: Callable[[], None] = lambda: None
    settle_host: Callable[[int], None] = lambda _: None
    gather: Callable[[], None] = lambda: None


class Control:
    """The state of a session from boundary to boundary; `begin` opens an iteration, `end` closes it and opens the next.

    `generations(number)` makes the next generation, `recorder` a recorder for one iteration.
    """

    def __init__(
        self,
        engine: Engine,
        generations: Callable[[int], Generation],
        recorder: Callable[[], Recorder],
        stages: StageSettings,
        sampling: Sampling,
        watch: Callable[[IterationSummary], None] | None = None,
        around: Around | None = None,
    ) -> None:
        self.counts = SessionCounts()
        self.iterations = self.generations = self.returns = 0
        self.peak_bytes = self.reserved_peak_bytes = self.host_peak_bytes = 0
        self.unswapped_peak_bytes: int | None = None
        self.unplanned_us: float | None = None
        self._remarks = Remarks()
        self._engine = engine
        self._generations = generations
        self._new_recorder = recorder
        self._kinds = Kinds(stages)
        self._ranks: tuple[int, ...] = ()
        self._sampling = sampling
        self._watch = watch
        self._around = around or Around()
        self._host_bytes = 0
        self._tried: deque[tuple[Generation, int]] = deque(maxlen=LISTED)
        self._forgotten = 0
        self._recorder: Recorder | None = None
        self._running: int | None = None
        self._on_demand = False
        self._in_stage = 0
        self._whole = True
        self._latest: Kind | None = None

    @property
    def stage(self) -> Stage:
        """Stage of the running iteration, if it is of the kind that is expected."""
        return self._kinds.expected.stage

    @property
    def results(self) -> list[PolicyResult]:
        """The latest `LISTED` policies of all generations, as they were made."""
        return [generation.results[number] for generation, number in self._tried]

    @property
    def remarks(self) -> list[str]:
        """Remarks on what did not go as planned; of sentences that differ in numbers only, the first."""
        return self._remarks.sentences

    def begin(self, *, whole: bool) -> None:
        """An iteration begins; one that is not `whole`, since the session rested in its midst, decides nothing."""
        self._whole = whole
        self._record_next()

    def _time(self, ended: core.SwapIteration, summary: IterationSummary, recorder: Recorder | None) -> None:
        """Decide, and keep the times of the iteration's kind; the first one of all makes the optimizer's states."""
        ran, settled = self._kinds.expected, self._kinds.expected.settled
        self._latest = self._decide(ended, summary, recorder) or ran
        if self.iterations > 1:
            swapped = summary.counts.swapped_out + summary.counts.swapped_in > 0
            settled = settled and self._latest is ran
            self._latest.times.ended(ended.clock, swapped=swapped, settled=settled, operators=len(ended.phases))

    def cost(self) -> SwapCost | None:
        """What swapping costs an iteration of the latest kind; None where it is not known."""
        return None if self._latest is None else self._latest.times.cost()

    def interrupt(self) -> bool:
        """The session rests: what runs is no iteration. Answers whether an iteration had begun to work."""
        return bool(self._close().phases)

    def end(self) -> None:
        """The iteration ended: count it, decide, and begin the next."""
        recorder, stage, whole = self._recorder, self.stage, self._whole
        ended = self._close()
        self._whole = True
        summary = self._count(ended, stage, recorded=recorder is not None) if ended.phases else None
        if summary is not None and whole:
            self._time(ended, summary, recorder)
        self._record_next()
        if summary is not None and self._watch is not None:
            self._watch(summary)

    def give_way(self) -> None:
        """A profiler of the program's needs what the recorder has: record another iteration."""
        if self._recorder is not None:
            self._stop_recorder()
            self.remark("an iteration was not recorded to its end: the program started a torch.profiler")

    def _close(self) -> core.SwapIteration:
        self._stop_recorder()
        return self._engine.end_iteration()

    def _stop_recorder(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()

    def _record_next(self) -> None:
        """Open a detailed record where a generation waits for one; mark times where none was marked yet."""
        expected = self._kinds.expected
        if not expected.generating and expected.records_left == 0:
            if self.iterations > 0 and expected.times.lacks_marks(settled=expected.settled):
                self._engine.measure_swapping()
            return
        recorder = self._new_recorder()
        try:
            recorder.start()
        except BayplanError as error:
            self.remark(f"an iteration was not recorded: {error}")
            return
        self._engine.record_sightings(True)
        self._recorder = recorder

    def _count(self, ended: core.SwapIteration, stage: Stage, *, recorded: bool) -> IterationSummary:
        counts = counts_of(ended)
        self.iterations += 1
        self._in_stage += 1
        self.counts += counts
        self.peak_bytes = max(self.peak_bytes, ended.peak_bytes)
        self.reserved_peak_bytes = max(self.reserved_peak_bytes, ended.reserved_peak_bytes)
        self.host_peak_bytes = max(self.host_peak_bytes, ended.host_peak_bytes)
        return IterationSummary(
            number=self.iterations,
            stage=stage.value,
            operators=len(ended.phases),
            policy=self._running,
            recorded=recorded,
            duration_us=ended.duration_us() if recorded or self._watch is not None else None,
            peak_bytes=ended.peak_bytes,
            host_peak_bytes=ended.host_peak_bytes,
            counts=counts,
            backward=ended.backward,
        )

    def _decide(self, ended: core.SwapIteration, summary: IterationSummary, recorder: Recorder | None) -> Kind | None:
        """The iteration's kind; None where it was not compared, and is taken to be what all before it were."""
        ran, before = self._kinds.expected, self.stage
        generating = ran.generating
        if self._kinds.steady and not generating and not self._sampling.due(before, self._in_stage - 1):
            return None
        kind = self._compare(ended, summary, recorder)
        known = kind.settled and not (generating and kind is ran)
        if self._kinds.follow(kind) and known:
            self.returns += 1
        log_stage(self.iterations, before, self.stage, self._kinds.last)
        if kind is not ran and known:
            log_return(self.iterations, kind.place)
        if self.stage is not before:
            self._in_stage = 0
        self._prepare(ran)
        return kind

    def _look_back(self, kind: Kind, counts: SessionCounts) -> None:
        """Say where policies do not help: what an iteration then costs stands in the report."""
        kind.returns.append((counts.fallbacks, counts.fallbacks + counts.in_time))
        if kind.unforeseen is None:
            return
        late, of = kind.unforeseen
        if kind.policy is None:
            why = "no policy is kept for these iterations"
        elif kind.changes:
            why = "no policy foresees these iterations, whose operators or sizes change from one to the next"
        else:
            why = "the policy that is kept foresees few of them, though operators and sizes stay the same"
        self.remark(
            f"{late} of {of} tensors came back on demand: {why}, so passive swaps keep the budget "
            "(cost: see the report)"
        )

    def _evaluate_again(self, kind: Kind, counts: SessionCounts) -> None:
        """A larger iteration than the policy is for has come, or one that needs a policy where none is kept."""
        generation = kind.generation
        larger = relative_change(kind.planned_bytes, kind.largest) >= LARGER and kind.largest > kind.planned_bytes
        if generation is None:
            return
        if kind.varies_by_now and counts.passive + counts.fallbacks > 0:
            self._open_again(kind, generation)
        elif kind.policy is not None and generation.kept is not None:
            if larger or (kind.records_left > 0 and kind.recorded.most >= kind.enough) or kind.recorded_more:
                self._make_again(kind, generation)
            elif kind.records_left == 0 and counts.passive > 0 and kind.outgrown:
                kind.records_left = FAR_WAITS
            elif self._spared_too_much(kind, counts):
                kind.sparing_left -= 1
                self._replace_policy(kind, kind.policy.sparing_less(1 - LARGER))
        elif not generation.fits:
            if larger or (counts.passive > 0 and kind.outgrown):
                self._open_again(kind, generation)
        elif counts.passive > 0 and self._running is None and (larger or kind.reopenings_left > 0):
            kind.reopenings_left -= not larger
            self.remark("an iteration did not fit after all: it was recorded again, for a policy", expected=True)
            self._open_again(kind, generation)

    def _spared_too_much(self, kind: Kind, counts: SessionCounts) -> bool:
        return self._running == kind.place and kind.sparing_left > 0 and counts.spared > 0 and counts.passive > 0

    def _make_again(self, kind: Kind, generation: Generation) -> None:
        """Make the kept policy for the largest iteration, from what was recorded."""
        kind.planned_bytes = kind.largest
        kind.reached_bytes = kind.recorded.reach(kind.largest)
        kind.sparing_left = SPARINGS
        generation.varies, generation.shares = kind.varies, kind.shares
        kind.records_left = kind.records_more
        try:
            profiled = kind.recorded.at(kind.largest)
            policy = None if profiled is None else generation.planned_again(profiled, anew=kind.records_left == 0)
        except Exception as error:  # the policy that stands goes on
            self.remark(f"the policy was not made again for a larger iteration: {str(error) or repr(error)}")
            LOGGER.debug("making the policy again failed", exc_info=True)
            return
        if policy is not None and policy != kind.policy:
            self._replace_policy(kind, policy)
            if generation.kept is not None and (generation, generation.kept) in self._tried:
                kind.place = self._place(generation, generation.kept)

    def _replace_policy(self, kind: Kind, policy: Policy) -> None:
        kind.policy = policy
        self._settle_host(policy)
        self._running = None if self._running == kind.place else self._running

    def _note(self, kind: Kind, generation: Generation, ended: core.SwapIteration, recorder: Recorder) -> None:
        """An iteration was recorded which no policy is made from now."""
        try:
            self._profiled(kind, generation, ended, recorder)
        except Exception as error:  # the policy that stands goes on
            self.remark(f"an iteration was not recorded: {str(error) or repr(error)}")
            LOGGER.debug("the iteration's profile failed", exc_info=True)
        kind.records_left = max(kind.records_left - (kind.recorded.most < kind.enough), 0)

    def _profiled(
        self, kind: Kind, generation: Generation, ended: core.SwapIteration, recorder: Recorder
    ) -> Profiled | None:
        """A recorded iteration in detail, noted for its kind; None where nobody knows how long one takes."""
        if (fastest_us := generation.fastest_us_of(ended.forward_bytes)) is None:
            return None
        if self._engine.only_small and not generation.varies:
            fastest_us = kind.times.at_most(fastest_us)
        profiled = recorder.profiled(ended, fastest_us)
        kind.recorded.note(profiled, ended.forward_bytes)
        return profiled

    def _open_again(self, kind: Kind, generation: Generation) -> None:
        """Begin a new generation: what was recorded was smaller, needed less, or did not vary. Ranks stay."""
        generation.close()
        kind.policy = kind.place = None
        if kind.largest <= kind.planned_bytes:
            kind.recorded = Sizes()  # of the same size, but no longer of the same need
        kind.planned_bytes = kind.largest
        kind.waits_left, kind.far_left = WAITS, FAR_WAITS
        kind.returns.clear()
        self.generations += 1
        kind.generation = self._generations(self.generations)

    def _compare(self, ended: core.SwapIteration, summary: IterationSummary, recorder: Recorder | None) -> Kind:
        """Advance the stage of the iteration's kind; what was recorded counts only for the kind that was expected."""
        ran = self._kinds.expected
        operators = np.asarray(ended.operators, dtype=np.int64)
        kind = self._kinds.sort(operators, ended.forward_bytes, ended.phases)
        if kind.stage is Stage.WARM_UP:
            kind.forget()
        elif kind.generation is None:
            self._begin_generation(kind, operators)
        elif kind is ran and kind.generating and recorder is not None:
            self._go_on(kind, kind.generation, ended, summary, recorder)
        elif kind.settled:
            if kind is ran and recorder is not None and kind.generation is not None:
                self._note(kind, kind.generation, ended, recorder)
            self._evaluate_again(kind, summary.counts)
            if kind.settled:
                self._look_back(kind, summary.counts)
        return kind

    def _prepare(self, ran: Kind) -> None:
        """What the next iteration executes.

        A policy that stood goes on for one iteration of a kind that has none yet: most changes pass, and a wrong policy
        costs only time. One that is for iterations of any size goes on until that kind makes its own.
        """
        generation = (expected := self._kinds.expected).generation
        if generation is not None and expected.ranks != self._ranks:
            self._engine.set_ranks(expected.ranks)
            self._ranks = expected.ranks
        if generation is not None and generation.open:
            self._try(generation)
        elif generation is not None:
            self._execute(expected.policy, expected.place)
        elif not self._on_demand and (not ran.settled or self._running != ran.place):
            self._execute(None, None)

    def _begin_generation(self, kind: Kind, operators: npt.NDArray[np.int64]) -> None:
        self.generations += 1
        kind.generation = self._generations(self.generations)
        counts = np.bincount(operators)
        by_frequency = np.argsort(-counts, kind="stable")
        kind.ranks = tuple(int(operator) for operator in by_frequency if counts[operator] > 0)

    def _go_on(
        self,
        kind: Kind,
        generation: Generation,
        ended: core.SwapIteration,
        summary: IterationSummary,
        recorder: Recorder,
    ) -> None:
        """The iteration was recorded for a generation: measure its policy, then propose the next one or choose.

        One that tells nothing new is as if it had not been recorded.
        """
        if kind.tells_nothing(ended.forward_bytes):
            return
        if self._running is not None or not generation.results:
            generation.measured(summary.duration_us, summary.counts, ended.forward_bytes)
        made = len(generation.results)
        proposed = self._proposed(kind, generation, ended, recorder)
        new = [(generation, number) for number in range(made, len(generation.results))]
        self._forgotten += max(len(self._tried) + len(new) - LISTED, 0)
        self._tried.extend(new)
        self.unswapped_peak_bytes = max(self.unswapped_peak_bytes or 0, generation.unswapped_peak_bytes or 0) or None
        self.unplanned_us = generation.unplanned_us
        self.remark(generation.remark, expected=generation.fits)
        if proposed is not None:
            log_policy(self.iterations, len(generation.results), generation.size, len(proposed.targets), proposed.bytes)
        elif not generation.open:
            self._keep_best(kind, generation)

    def _keep_best(self, kind: Kind, generation: Generation) -> None:
        kind.policy = generation.best()
        if kind.policy is not None:
            kind.records_left = kind.records_more
            self._settle_host(kind.policy)
            if not ran_last(generation.results, generation.kept):
                self._around.gather()
        self.remark(generation.remark, expected=generation.fits)
        if generation.kept is not None:
            kind.place = self._place(generation, generation.kept)
            log_chosen(self.iterations, generation.kept + 1, generation.results[generation.kept].duration_us or 0.0)
        self._kinds.settle()

    def _settle_host(self, policy: Policy) -> None:
        self._host_bytes = max(self._host_bytes, policy.host_bytes)
        self._around.settle_host(self._host_bytes)

    def _proposed(
        self, kind: Kind, generation: Generation, ended: core.SwapIteration, recorder: Recorder
    ) -> Policy | None:
        """The next policy, made from the iteration that ended; None where there is none, for now or for good.

        Where sizes vary it is made for the largest iteration, and what an iteration took says little of its policy.
        """
        generation.varies, generation.shares = kind.varies, kind.shares
        if generation.exhausted:
            generation.open = False
            if kind.varies:
                self._note(kind, generation, ended, recorder)
            return None
        try:
            kind.planned_bytes = max(kind.planned_bytes, kind.largest)
            profiled = self._profiled(kind, generation, ended, recorder)
            if profiled is None:
                return None
            if not generation.results and kind.waits(ended.forward_bytes):
                return None
            return self._proposed_from(kind, generation, profiled)
        except Exception as error:  # a policy only saves time, and the program trains on without
            generation.fail(f"no policy was made from an iteration: {str(error) or repr(error)}")
            LOGGER.debug("the iteration's profile failed", exc_info=True)
            return None

    def _proposed_from(self, kind: Kind, generation: Generation, profiled: Profiled) -> Policy | None:
        """Likewise from what was recorded; where that fits and tells nothing of the largest, another one may follow."""
        reached_bytes = kind.recorded.reach(kind.largest)
        kind.reached_bytes = min(kind.reached_bytes, reached_bytes) if generation.results else reached_bytes
        if not kind.varies:
            return generation.propose(profiled)
        waits = kind.far and kind.far_left > 0 and self.counts.passive > 0
        proposed = generation.propose(kind.recorded.at(kind.largest) or profiled, waits=waits)
        if waits and generation.fits:
            kind.far_left -= 1
        elif kind.far:
            self.remark(beyond_reach(reached_bytes, kind.largest))
        return proposed

    def _try(self, generation: Generation) -> None:
        trial = generation.trial
        self._execute(trial, None if trial is None else self._place(generation, len(generation.results) - 1))

    def _place(self, generation: Generation, number: int) -> int:
        """The number of a policy, counted from the session's first."""
        return self._forgotten + self._tried.index((generation, number))

    def _execute(self, policy: Policy | None, place: int | None) -> None:
        if place != self._running:
            self._around.changing()
            self._engine.set_policy(None if policy is None else policy.native())
            self._on_demand = policy is not None and policy.on_demand
        self._running = place

    def remark(self, sentence: str | None, *, expected: bool = False) -> None:
        """Say a sentence once, in the log and in the report; a warning, unless it is `expected`."""
        self._remarks.add(self.iterations, sentence, expected=expected)
