"""A memory budget for an ordinary training loop, in one line."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Unpack

import torch

from runtime.device import accelerator_of, limited_memory, memory_stats, outside_bytes
from runtime.device.native import core
from runtime.device.settling import settled
from runtime.execute.executor import HostMemoryShort
from runtime.loop.boundaries import watch_boundaries
from runtime.loop.nesting import activate, active, deactivate
from runtime.loop.profilers import give_way_to_profilers
from runtime.loop.readers import watch_readers
from runtime.loop.refusals import refuse_at_start, watch_refusals
from runtime.profile.machine import by_direction, device_bytes, hardware_of
from runtime.storage.host import host_limit, host_rounding, settle_host
from runtime.swap.budget import budget_of, planned_bytes
from runtime.swap.control import Around, Control
from runtime.swap.generation import Generation
from runtime.swap.portfolio import PolicyChoice, portfolio
from runtime.swap.recorder import IterationRecorder
from runtime.swap.report import SessionReport, descent, left_out, too_small, unseen
from runtime.swap.segments import SegmentLimit, least_seen_bytes
from runtime.swap.settings import (
    MATCHING,
    RECORD_STREAM,
    SessionOptions,
    SessionParts,
    SessionSettings,
    parts_of,
    require_known,
    settings_of,
)
from runtime.swap.stages import Sampling
from runtime.swap.surroundings import relieved, tensors_on
from solvers.ir.errors import InvalidInput


class Session:
    """Keeps everything that runs on a device within a budget until it is closed; made, and started, by `session`.

    A context manager too: leaving it by an error of the loop raises the reason that PyTorch may have swallowed, a
    `torch.OutOfMemoryError` or `HostMemoryShort`.
    """

    def __init__(
        self,
        budget_bytes: int,
        memory_bytes: int,
        choices: Sequence[PolicyChoice],
        parts: SessionParts,
        settings: SessionSettings,
    ) -> None:
        self.budget_bytes = budget_bytes
        self.memory_bytes = memory_bytes
        self.device = parts.device
        self.settings = settings
        self._optimizer = parts.optimizer
        self._engine = core.SwapSession(
            self.device,
            least_bytes=least_seen_bytes(self.device, budget_bytes),
            matching=MATCHING[settings.matching],
            guard=settings.guard,
            record_stream=RECORD_STREAM[settings.record_stream],
        )
        hardware = by_direction(parts.hardware or hardware_of(self.device))
        planned = planned_bytes(budget_bytes, settings.headroom)
        self._segments = SegmentLimit(self.device, budget_bytes, self._engine)
        self._control = Control(
            self._engine,
            lambda number: Generation(
                number,
                choices,
                hardware,
                planned,
                settings.host_limit_bytes,
                segments=self._segments.replayed(),
                host_rounding=host_rounding(self.device),
            ),
            lambda: IterationRecorder(parts.device, parts.model, parts.optimizer),
            settings.stages,
            Sampling(settings.sample_every),
            parts.watch,
            Around(self._segments.give_cache_back, partial(settle_host, device=self.device), self._segments.settle),
        )
        self._waits_before = core.relief_counts()["waits_under_lock"]
        self._whole, self._left_out_bytes = True, 0
        self._began = self._closed = False
        self._host_short: HostMemoryShort | None = None
        self._entered = ExitStack()
        activate(self)

    @property
    def active(self) -> bool:
        """Whether it follows the program now: not closed, not paused, and no later one of the device suspends it."""
        return active(self.device) is self

    def step(self) -> None:
        """End the iteration, where boundaries are given; raises `InvalidInput` where the optimizer marks them."""
        if self.settings.boundaries != "given":
            raise InvalidInput(
                "boundaries are those of the optimizer's steps in this session: leave step() out, or start it with "
                "boundaries='given'"
            )
        self._require_open()
        if not self.active:
            raise InvalidInput("the session rests: call resume() first")
        self._boundary()

    def pause(self) -> None:
        """Bring everything back and rest: no limit, no hooks. A session that this one suspended goes on."""
        deactivate(self)

    def resume(self) -> None:
        """Go on; the session that is active now rests until this one pauses or closes."""
        self._require_open()
        activate(self)

    def close(self) -> None:
        """Bring everything back and end, for good; raises the engine's first error, if one is still untold.

        The device's last session gives its page-locked memory back to the system.
        """
        if self._closed:
            return
        self._end()
        kept = self._kept_error()
        if kept is not None:
            raise kept

    def report(self) -> SessionReport:
        """What has happened so far, up to the last boundary; peaks up to now."""
        control = self._control
        peak_bytes = memory_stats(self.device).peak_bytes if self.active else 0
        return SessionReport(
            device=str(self.device),
            budget_bytes=self.budget_bytes,
            stage=control.stage.value,
            iterations=control.iterations,
            generations=control.generations,
            regenerations=max(control.generations - 1, 0),
            returns=control.returns,
            policies=tuple(control.results),
            counts=control.counts,
            peak_bytes=max(control.peak_bytes, peak_bytes),
            host_peak_bytes=control.host_peak_bytes,
            unswapped_peak_bytes=control.unswapped_peak_bytes,
            unplanned_us=control.unplanned_us,
            remarks=(*control.remarks, *unseen(control.iterations, self._closed)),
            cost=control.cost(),
            outside_bytes=outside_bytes(self.device),
            reserved_peak_bytes=self._segments.reserved_peak_bytes(control.reserved_peak_bytes, active=self.active),
            waits_under_lock=core.relief_counts()["waits_under_lock"] - self._waits_before,
            left_out_bytes=self._left_out_bytes,
        )

    def __enter__(self) -> "Session":
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        self._end()
        kept = self._kept_error()
        if not isinstance(error, RuntimeError):
            return
        reason = kept or error  # PyTorch says only that a storage is out, not why it could not come back
        if isinstance(reason, torch.OutOfMemoryError):
            raise (self._host_short or self._too_small(reason)) from error
        if kept is not None:
            raise kept from error

    def _end(self) -> None:
        self._closed = True
        deactivate(self)
        if active(self.device) is None:
            core.trim_host(self.device)

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidInput("the session is closed: start another one")

    def _too_small(self, reason: torch.OutOfMemoryError) -> torch.OutOfMemoryError:
        least, asked = self._segments.least_bytes(str(reason)), self._engine.latest_request()
        return torch.OutOfMemoryError(too_small(self.budget_bytes, least, str(reason), asked))

    def _boundary(self) -> None:
        self._host_short = None  # the last one led to nothing
        kept = self._kept_error()
        self._control.end()
        if self.active:
            self._segments.adapt()
        if kept is not None:
            raise kept

    def _kept_error(self) -> Exception | None:
        """The engine's first error since the last call, for PyTorch swallows it; a short host beside it is none yet."""
        first: Exception | None = None
        while True:
            try:
                self._engine.raise_error()
                return first
            except core.HostMemoryShort as error:
                self._host_short = self._host_short or HostMemoryShort(str(error).partition("\n")[0])
                self._control.remark(str(self._host_short))
            except RuntimeError as error:
                first = first or error

    def _enter(self) -> None:
        """Follow the program: tensors that are there, operators, boundaries, requests for memory."""
        settings, engine = self.settings, self._engine
        with ExitStack() as stack:
            engine.start()
            stack.callback(self._stop)
            self._left_out_bytes = 0
            engine.add_resident(tensors_on(self.device))
            stack.enter_context(limited_memory(self.device, self._segments.limit_bytes))
            stack.enter_context(host_limit(settings.host_limit_bytes, self.device))
            stack.enter_context(relieved(self.device))
            engine.set_budget(self._segments.limit_bytes)
            engine.set_segments(self._segments.kind, self._segments.cuts)
            stack.enter_context(watch_readers())
            stack.enter_context(watch_refusals())
            stack.enter_context(give_way_to_profilers(self._control.give_way))
            stack.enter_context(
                watch_boundaries(
                    self._boundary if settings.boundaries == "optimizer" else None,
                    engine.set_optimizer,
                    optimizer=self._optimizer,
                    backward_seen=lambda: engine.backward_seen,
                    owns_thread=lambda: engine.owns_thread,
                )
            )
            self._come_down()
            self._control.begin(whole=self._whole)
            self._entered = stack.pop_all()

    def _stop(self) -> None:
        """Bring everything back, and say what found no room on the device."""
        self._left_out_bytes, storages = self._engine.stop()
        if storages > 0:
            self._control.remark(left_out(self._left_out_bytes, storages, memory_stats(self.device).allocated_bytes))

    def _come_down(self) -> None:
        """Within the budget from the first operator on, whatever was there before; a remark says what it took."""
        if memory_stats(self.device).allocated_bytes > self.budget_bytes:  # what nobody can reach need not be moved
            settled(lambda: memory_stats(self.device).allocated_bytes)
        before, after, storages = self._engine.come_down()
        self._segments.begin()
        if before > self.budget_bytes:
            self._control.remark(descent(self.budget_bytes, before, after, storages, again=self._began))
        self._began = True

    def _leave(self) -> None:
        """Undo `_enter`, last thing first: the limit is lifted before what is out comes back."""
        try:
            worked = self._control.interrupt()
            self._whole = not worked and self._whole
        finally:
            self._entered.close()


def session(budget: int | str | None = None, **options: Unpack[SessionOptions]) -> Session:
    """Keep everything that runs on the device within a memory budget, from now on, without changing a number.

    Each device may have a session: several threads each train under one of their own, or one thread on several devices.
    `budget` is a number of bytes, an amount such as `"20GiB"`, or a share of the device's memory such as `"80%"`; all
    of it unless given. Nothing else in the program changes: iterations end where the first optimizer that steps (or
    `optimizer`) has stepped, or, with `boundaries="given"`, where `step()` is called.

    Policies are made by `solver` and other settings of the portfolio, for `hardware` (sim's own, or the link as
    measured now), with the share `headroom` of the budget left free; `stages` says when (SmartSwap, Algorithm 1), and
    `sample_every=k` compares only every k-th iteration once a policy is kept. `matching="index"` finds tensors by
    operator number and position, as Capuchin does, `guard=False` leaves out what makes a wrong policy harmless, and
    `record_stream` releases blocks as the paper prints it, or lets PyTorch's allocator find out when one is free: for
    comparison, all three. `host_limit_bytes` bounds the page-locked memory. `model` only tells kinds of tensors apart
    exactly. `watch` is called at each boundary.

    Raises:
        InvalidInput: there is no accelerator, or an option means nothing.
    """
    require_known(options)
    place = accelerator_of(options.get("device"))
    parts = parts_of(options, place)
    refuse_at_start(place, parts.model)
    settings = settings_of(options)
    limiting = active(place)
    memory_bytes = limiting.memory_bytes if isinstance(limiting, Session) else device_bytes(place)
    budget_bytes = budget_of(budget, memory_bytes)
    choices = portfolio(options.get("solver", "greedy-swap"), settings.stages.policies)
    return Session(budget_bytes, memory_bytes, choices, parts, settings)
