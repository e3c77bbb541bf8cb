"""Runs training steps under a swap schedule."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Generic, TypeVar

import torch

from runtime.device import accelerator_of
from runtime.device.native import core
from runtime.execute.held import HeldSteps
from runtime.execute.outcome import Marks, SwapCounts, counts_of, marks_of, report_of
from runtime.execute.program import host_need_bytes, host_requests, host_rounded_bytes, swap_program
from runtime.execute.promise import KeptResults, Promise
from runtime.loop.readers import watch_readers
from runtime.storage.garbage import without_collector
from runtime.storage.host import host_limit
from solvers.ir.errors import BayplanError, InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.report import Report
from solvers.ir.schedule import Schedule

T = TypeVar("T")


class HostMemoryShort(BayplanError, MemoryError):
    """The host has no room for a tensor that should leave; the step itself has gone on without swapping."""


class StepDiffers(BayplanError, torch.OutOfMemoryError):
    """A step ran out of memory under a plan that fits: its text says at which operator it differed from the profile."""


class NoSegment(StepDiffers):
    """Bytes would do, but its blocks lie otherwise than in the profiled step, so that a request finds no segment."""


class StepRun:
    """A step in progress; `counts` and `report` are there once its context has ended without an error."""

    counts: SwapCounts
    marks: Marks

    def __init__(self, schedule: Schedule, graph: OpGraph, source: str) -> None:
        self._planned = schedule, graph
        self._source = source

    @cached_property
    def report(self) -> Report:
        """How the step went, and when; made when it is first asked for, since that takes longer than marking did."""
        return report_of(self.marks, *self._planned, self._source)


@dataclass(frozen=True, kw_only=True)
class Executed(Generic[T]):
    """One executed step: what the step function returned, how it went, and when."""

    value: T
    run: StepRun = field(repr=False)

    @property
    def counts(self) -> SwapCounts:
        """How the plan and the step agreed."""
        return self.run.counts

    @property
    def report(self) -> Report:
        """When everything happened, and what memory was in use; made when it is first asked for."""
        return self.run.report


class SwapExecutor:
    """Executes one schedule, step after step, on the graph that it was planned for.

    `device` is the current accelerator unless given. `host_limit_bytes` bounds the page-locked memory of all its
    executors while this one's steps run; `host_bytes` is what this one page-locks before its first step and keeps until
    `close` (or `release_host_memory`). `trace=False` leaves spans, stalls and memory out of the report, and their
    events out of the streams. Raises `InvalidInput` where there is no accelerator, no schedule (an answer without a
    plan), or the schedule needs more of the host than the limit, `InvalidProblem` where the schedule is not one of this
    graph.
    """

    def __init__(
        self,
        schedule: Schedule | None,
        graph: OpGraph,
        device: torch.device | str | None = None,
        host_limit_bytes: int | None = None,
        *,
        trace: bool = True,
    ) -> None:
        if schedule is None:
            raise InvalidInput(
                "there is no schedule to execute, as the solver found no plan: raise the budget or limits"
            )
        if not isinstance(schedule, Schedule):
            raise InvalidInput(f"schedule is a {type(schedule).__name__}: give a Schedule, as the `plan` of an answer")
        self.schedule = schedule
        self.graph = graph
        self.device = accelerator_of(device)
        self.host_limit_bytes = host_limit_bytes
        program = swap_program(schedule, graph)
        exact = core.host_is_exact(self.device)
        tensors = host_need_bytes(schedule, graph)
        self.host_bytes = (
            core.arena_bytes(host_requests(schedule, graph)) if exact else host_rounded_bytes(schedule, graph)
        )
        if host_limit_bytes is not None and self.host_bytes > host_limit_bytes:
            blocks = "side by side" if exact else "in blocks of powers of two"
            raise InvalidInput(
                f"the schedule takes {self.host_bytes} bytes of the host at once (tensors of {tensors} bytes, "
                f"{blocks}), host_limit_bytes is {host_limit_bytes}: raise the limit or plan to swap less"
            )
        self._step = core.SwapStep(program, self.device, trace)
        self._promise = Promise(schedule, graph, self.device)
        self._held = HeldSteps(schedule, graph, self.device)
        self._kept = KeptResults(self.device, graph.granule_bytes)

    def run(self, step: Callable[[], T]) -> Executed[T]:
        """Call `step`, which trains for one step, under the schedule; see `step` for what it may raise.

        What an earlier `run` returned may still be held: it stays where there is room, else it waits on the host.
        """
        with self._kept.away(self._promise.lacking_bytes()), self.step() as run:
            value = step()
        self._kept.remember(value)
        return Executed(value=value, run=run)

    @contextmanager
    def step(self) -> Iterator[StepRun]:
        """Execute the schedule on what runs inside, which is one training step.

        The device is idle before and after. Whatever happens inside, all storages are back at the end (or, where memory
        is short, come back when they are used). Raises `InvalidInput` before the step where the device cannot hold the
        plan's peak or (replayed before the first step) the segments that its blocks need; what the step raises;
        `StepDiffers` where it ran out of memory all the same; `HostMemoryShort`.
        `RuntimeError` if a step is being executed already.
        """
        run = StepRun(self.schedule, self.graph, f"runtime.swap on {self.device}")
        torch.accelerator.synchronize(self.device)
        self._promise.require_room()
        self._held.require_segments()
        with host_limit(self.host_limit_bytes, self.device):
            core.reserve_host(self.host_bytes, self.device)
        self._step.begin()
        try:
            with host_limit(self.host_limit_bytes, self.device), without_collector(), watch_readers():
                yield run
        except BaseException as error:
            self._explain(error, self._step.end())
            raise
        outcome = self._step.end()
        self._raise_kept(None)
        run.counts = counts_of(outcome, self.schedule, len(self.graph.ops))
        run.marks = marks_of(self._step, outcome)

    def close(self) -> None:
        """Give the device's idle page-locked memory back to the system, all executors' and sessions'; usable again."""
        core.trim_host(self.device)

    def __enter__(self) -> "SwapExecutor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _explain(self, error: BaseException, outcome: core.SwapOutcome) -> None:
        """Raise the reason of a step's error where that is known better: what could not come back, or a difference."""
        try:
            if isinstance(error, RuntimeError):  # perhaps only because a storage could not come back: say that
                self._raise_kept(error)
        except torch.OutOfMemoryError as reason:
            raise self._differs(outcome, reason) from reason
        if isinstance(error, torch.OutOfMemoryError):
            raise self._differs(outcome, error) from error

    def _differs(self, outcome: core.SwapOutcome, error: Exception) -> StepDiffers:
        why = outcome.difference or (None if outcome.failed else outcome.departure)
        if why is None:
            ops = self.graph.ops
            name = ops[outcome.followed].name if outcome.followed < len(ops) else "after the last"
            held = self._held.told()
            if held is not None:
                return NoSegment(
                    f"operator {outcome.followed} ({name}) finds no segment for what it asks: {held}; profile the step "
                    f"and plan it again, as its blocks lie elsewhere than after the profile ({_first_line(error)})"
                )
            why = f"operator {outcome.followed} ({name}) finds more memory in use than when it was profiled"
        return StepDiffers(
            f"{why}: the step is not the one that was profiled; profile it again, or where it depends on its data use "
            f"`runtime.swap.session` ({_first_line(error)})"
        )

    def _raise_kept(self, cause: BaseException | None) -> None:
        """Raise the first error of the engine: PyTorch swallows what its observers throw, so the engine keeps it."""
        try:
            self._step.raise_error()
        except core.HostMemoryShort as error:
            raise HostMemoryShort(str(error)) from cause
        except RuntimeError as error:
            raise error from cause


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
