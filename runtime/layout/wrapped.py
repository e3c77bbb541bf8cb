"""A wrapped model: waiting for its step to be measured, then laid out, and again where a step turns out larger.

A layout is made again between steps, when a forward begins and no graph of an earlier one is left: everything goes to
the host, and from there to its new place. Masters stay the very objects, and no number changes.

One file: what is measured, decided and moved is one state.
"""

import gc
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from runtime.blocks import blocks as found_blocks
from runtime.blocks.replacing import forward_replaced
from runtime.device import reset_peak_memory, shapes_only
from runtime.layout.chunk import Chunk
from runtime.layout.course import Course
from runtime.layout.deciding import Asked, Decided, costs_of, decide
from runtime.layout.first import put_back, train_once
from runtime.layout.gradients import Gradients
from runtime.layout.hooks import Walk, Walked
from runtime.layout.host_lane import host_lane
from runtime.layout.log import Log
from runtime.layout.masters import Build, Places, settle_states
from runtime.layout.measuring import measure
from runtime.layout.refusals import refused, require_plain, uncopied
from runtime.layout.report import LayoutReport, layout_report
from runtime.layout.steps import Given, Steps, beside_after
from runtime.layout.store import Store
from runtime.layout.turns import Turns
from runtime.layout.updates import Updates
from runtime.profile.memory import MemoryProfile, optimizer_bytes
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.timeline.layout_launched import LayoutCosts

LOG = logging.getLogger("bayplan.layout")
SPARE = 15, 16
"""Of the budget, what a layout is made for when forwards have grown twice: not every larger one needs another then."""
MOST_LOOKED = 8
"""How many layouts are made since steps took more than their plan."""


class Wrapped:
    """A model between `wrap` and `unwrap`; `gone` is called where its first step cannot be laid out."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        asked: Asked,
        gone: Callable[[], None],
    ) -> None:
        self.model, self.optimizer, self.device, self.asked, self._gone = model, optimizer, device, asked, gone
        self.decided: Decided | None = None
        self._costs: LayoutCosts | None = None
        self._walk: Walk | None = None
        self._steps, self._turns = Steps(), Turns()
        self._grown = self._looked = self._departures = 0
        self._growth, self._unmeasured, self._told = 1.0, False, False
        self._fixed = asked.plan is not None or shapes_only(device)
        self._first, self._states_there = not self._fixed, False
        self._again: list[str] = []
        self._forward = model.forward
        self._entered = ExitStack()

    def enter(self) -> None:
        """The model's forward is ours from now on, also where the program puts others around it."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._turns.running or self._turns.begun_inside or torch._C._current_graph_task_id() != -1:
                return self._forward(*args, **kwargs)
            with self._turns.lock:
                self._prepare(args, kwargs)
                assert self._walk is not None
                return self._walk.run(args, kwargs, least=self._stores_least(self._walk.graphs.waiting + 1))

        self._entered.enter_context(uncopied([self.model]))
        self._entered.enter_context(forward_replaced(self.model, forward))

    def measure_step(self, step: Callable[[], object]) -> None:
        """Measure this step, which calls the model, and lay it out."""
        self._first = False
        given: list[Given] = []
        hook = self.model.register_forward_pre_hook(
            lambda _, args, kwargs: given.append(Given.of(args, kwargs)), with_kwargs=True
        )
        try:
            profile = measure(self.model, step, self.device, self.asked.compute_dtype)
        finally:
            hook.remove()
        self.lay_out(given[0] if given else None, profile)

    def lay_out(self, given: Given | None, profile: MemoryProfile) -> None:
        """Decide for a step that was measured, whose forward was given this, and move everything to its place."""
        self._first = self._first and given is not None
        self._steps.add(given, profile)
        require_plain(self.model)
        self._install(self._decide(self.asked.device_bytes))

    def _prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A forward is about to run: measure the first one that trains, and make the layout again where it must be."""
        if self._walk is not None:
            if torch.is_grad_enabled():
                self._walk.require_trainable()
                self._keep_budget(args, kwargs)
            return
        if not torch.is_grad_enabled():
            raise InvalidInput(
                "the wrapped model's first forward runs without gradients, so its layout is not decided yet: give wrap "
                "a step, or train one step first"
            )
        try:
            self.lay_out(Given.of(args, kwargs), self._measured(args, kwargs))
        except BaseException:
            self.close()
            self._gone()
            raise

    def _stores_least(self, passes: int) -> bool:
        """Whether a forward, the last of so many at once, is to take as little as it can.

        So do those of the first step, which shows what there is beside the model, and where more graphs than planned
        are there at once and are too many.
        """
        if self._fixed or self.decided is None or passes <= self.decided.passes:
            return self._first and not self.log.stepped
        return replace(self.decided, passes=passes).peak_bytes() > self.asked.device_bytes

    def _measured(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> MemoryProfile:
        """By its own forward: what the program put around ours is around this already."""
        step, own = partial(train_once, self.model, args, kwargs), forward_replaced(self.model, self._forward)
        with put_back((args, kwargs)), self._turns.forward(trains=True), own:
            return measure(self.model, step, self.device, self.asked.compute_dtype, ran=self.decided is not None)

    def _decide(self, budget_bytes: int) -> Decided:
        asked = replace(self.asked, device_bytes=budget_bytes, passes=self._steps.beside.passes)
        return decide(self._steps.profile, self.model, self.optimizer, self.device, asked)

    def _keep_budget(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Make the layout again where this forward is larger than those measured, or steps took more than planned.

        Not where the plan was given, nor while backward passes are to come: what they need lies where it lies.
        """
        assert self._walk is not None and self.decided is not None
        if self._fixed:
            return
        given = Given.of(args, kwargs)
        growth = self._steps.growth(given)
        if self._is_held(growth):
            return
        reasons = [self._look()]
        self._growth = max(self._growth, growth)
        grown = self._is_too_large(growth)
        if grown:
            reasons.append(f"a forward is given {given}, more than any that was measured")
        if any(reasons):
            self._make_again("; ".join(filter(None, reasons)), (given, args, kwargs) if grown else None)

    def _is_too_large(self, growth: float) -> bool:
        """Whether the layout may not keep the budget for a forward that takes so many times what was measured."""
        assert self.decided is not None
        return growth > 1 and self.decided.peak_bytes(growth) > self.asked.device_bytes

    def _is_held(self, growth: float) -> bool:
        """Whether everything stays where it lies, also for a forward that has grown by so much."""
        assert self._walk is not None
        waiting, large = self._walk.graphs.waiting, self._is_too_large(growth)
        if not waiting and not ((large or self.log.peaks.seen) and self._walk.held_elsewhere()):
            return False
        self._unmeasured |= large
        self._growth = max(self._growth, growth)
        if large and not waiting and not self._told:
            self._told = True
            LOG.warning(
                "a larger forward may take more than the budget of %d bytes, since the layout stays as it is while the "
                "program holds parameters' memory (state_dict(), .data), weak references to them, or a graph of theirs "
                "(a penalty): clone the former, and make the latter behind the forward",
                self.asked.device_bytes,
            )
        return True

    def _look(self) -> str:
        """Count what steps took beside what was measured; why the layout is made again for it, "" where it is not."""
        assert self._walk is not None and self.decided is not None
        if self._unmeasured:  # what larger forwards took shows nothing that is beside
            self.log.peaks.seen, self._unmeasured = {}, False
        before, seen = self._steps.beside, self.log.peaks.seen
        passes = max(before.passes, self._walk.graphs.most)
        if not self.log.stepped or not (seen or passes > before.passes):
            return ""
        if not self._states_there:  # the first step had none of the optimizer's states; later ones have
            self._states_there = True
            self.log.peaks.later(optimizer_bytes(self.optimizer, self.device))
        ran = replace(self.decided.storing_least() if self._first else self.decided, passes=passes)
        within = max(self.log.peaks.seen.values(), default=0) <= self.asked.device_bytes
        growth = self._growth if within else 1.0  # forwards that are known to be larger, and fit, show nothing beside
        after = beside_after(before, self.log.peaks.seen, ran.peak_bytes(growth), ran.behind_peak_bytes(growth), passes)
        self.log.peaks.seen, self._first, self._growth = {}, False, 1.0
        if after == before:
            return ""
        self._steps.beside = after
        self.decided = replace(self.decided, profile=self._steps.profile, passes=passes)
        over = self.decided.peak_bytes() - self.asked.device_bytes
        self._looked += over > 0
        if over <= 0 or self._looked > MOST_LOOKED:
            return ""
        if passes > before.passes:
            return f"graphs of {passes} forwards are there at once"
        behind = after.behind_bytes - before.behind_bytes
        where = f", {behind} bytes behind the model" if behind else ""
        return f"a step takes {after.bytes - before.bytes} bytes more than was measured{where}"

    def _make_again(self, why: str, measured: tuple[Given, tuple[Any, ...], Mapping[str, Any]] | None) -> None:
        """Measure a forward, if one is given, decide again, and move; where that fails all is as before."""
        assert self.decided is not None
        before, known = self.decided, self._steps.known
        self._take_apart(replaced=True)
        try:
            if measured is not None:
                given, args, kwargs = measured
                self._steps.add(given, self._measured(args, kwargs))
                self._grown += 1
            decided = self._decided_again(measured is not None, why)
        except BaseException:
            self._steps.known = known
            self._install(before)
            raise
        self._install(decided)
        self._again.append(why)

    def _decided_again(self, grown: bool, why: str) -> Decided:
        """For some memory less where forwards grow again and again; for the least where none that was seen fits."""
        budget_bytes = self.asked.device_bytes
        if grown and self._grown > 1:
            with suppress(InfeasibleBudget, InvalidInput):
                return self._decide(budget_bytes * SPARE[0] // SPARE[1])
        try:
            return self._decide(budget_bytes)
        except (InfeasibleBudget, InvalidInput) as error:
            least: int | None = getattr(error, "least_budget_bytes", None)
            if grown:
                told = f"{why}: {error}; the layout is as before, for smaller ones"
                raise (InvalidInput(told) if least is None else InfeasibleBudget(told, least)) from error
            LOG.warning("%s, and no layout keeps the budget: %s", why, error)
            self._fixed = True
        assert self.decided is not None
        for more in (0, 1, 2):  # in a little more, searches find one, too
            with suppress(InfeasibleBudget, InvalidInput):
                return self._decide((least or budget_bytes) * (SPARE[1] + more) // SPARE[1])
        return self.decided

    def _install(self, decided: Decided) -> None:
        """Move everything to its place."""
        first = self.decided is None
        self.decided = decided
        self._costs = costs_of(decided, self.model, self.optimizer, self.device)
        build = Build(decided.problem.chunk_bytes, self.device, self.asked.compute_dtype)
        chunks = build.chunks(self.model, decided.members, decided.unused, set(decided.plan.persistent))
        settle_states(self.optimizer)
        if first:
            self.lane = host_lane(self.device)
            self.log = Log(self.device, self.asked.device_bytes)
        gradients = Gradients(self.log, self.lane)
        course = Course.of(decided.problem, decided.plan)
        self.store = store = Store(chunks, self.log, decided.plan.buffers, course, gradients)
        store.departures = self._departures
        if first:
            overlap = self.asked.overlap_update
            self.updates = Updates(self.optimizer, chunks, self.lane, gradients.settle, self.log, overlap=overlap)
        else:
            self.updates.move_to(chunks, gradients.settle)
        gradients.on_left, gradients.on_outside = self.updates.left, self.updates.outside
        self._walk = Walk(self._walked(decided, chunks), store, Places(chunks, store.touch), self.updates)
        self._refused = refused(self.model, self.device)
        self._refused.__enter__()
        self._guard = self.model.register_state_dict_pre_hook(lambda *_: self.updates.require_unchanged())  # type: ignore[no-untyped-call]
        self.log.begin_layout()
        reset_peak_memory(self.device)  # what measuring and moving took is no step's

    def _walked(self, decided: Decided, chunks: list[Chunk]) -> Walked:
        blocks = found_blocks.find_blocks(self.model)
        of: Mapping[int, int] = {id(slot.master): chunk.number for chunk in chunks for slot in chunk.slots}
        return Walked(
            model=self.model,
            forward=self._forward,
            turns=self._turns,
            calls=tuple(blocks[block.name] for block in decided.profile.blocks),
            policies=decided.plan.policies[1:-1],
            interval=decided.problem.interval,
            chunks_of={block: tuple(sorted({of[id(one)] for one in block.parameters()})) for block in blocks.values()},
        )

    def report(self) -> LayoutReport:
        """What was decided, and what the last step took."""
        if self.decided is None:
            raise InvalidInput("the layout is not decided before the first step: train one, or give wrap a step")
        return layout_report(self.decided, self._costs, self.store, self.updates, self.log, tuple(self._again))

    def _take_apart(self, *, replaced: bool) -> None:
        """Everything to the host, where there is room, and no chunk is left."""
        assert self._walk is not None
        self._refused.__exit__(None, None, None)
        self._guard.remove()
        self._walk.close(replaced=replaced)
        self.store.gradients.begin()  # a backward that failed may still wait
        self.store.release()
        self.store.gradients.settle()
        self._departures = self.store.departures
        if not replaced:
            self.updates.close()
            self.lane.close()
        buffers = [(one, *named) for one in self.model.modules() for named in one._buffers.items()]
        self.model.to("cpu")
        for chunk in self.store.chunks:
            chunk.replace() if replaced else chunk.give_back()
        settle_states(self.optimizer)
        if replaced:
            for module, name, buffer in buffers:  # the very objects
                module._buffers[name] = buffer
            del self.store
            self._walk = None
            gc.collect()  # page-locked memory, too

    def close(self) -> None:
        """Everything to the host; the model's forward is its own again."""
        self._entered.close()
        if self._walk is not None:
            self._take_apart(replaced=False)
