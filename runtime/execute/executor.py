"""Runs training steps under a swap schedule."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from runtime.device import accelerator_of
from runtime.device.native import core
from runtime.execute.outcome import SwapCounts, counts_of, explained, report_of
from runtime.execute.program import host_need_bytes, swap_program
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


@dataclass(frozen=True, kw_only=True)
class Executed(Generic[T]):
    """One executed step: what the step function returned, how it went, and when."""

    value: T
    counts: SwapCounts
    report: Report


class StepRun:
    """A step in progress; `counts` and `report` are there once its context has ended without an error."""

    counts: SwapCounts
    report: Report


class SwapExecutor:
    """Executes one schedule, step after step, on the graph that it was planned for.

    `device` is the current accelerator unless given. `host_limit_bytes` bounds the page-locked memory of all executors
    while this one's steps run. `trace=False` leaves spans, stalls and memory out of the report, and their events out of
    the streams. Raises `InvalidInput` where there is no accelerator, no schedule (an answer without a plan), or the
    schedule needs more of the host than the limit, `InvalidProblem` where the schedule is not one of this graph.
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
        need = host_need_bytes(schedule, graph)
        if host_limit_bytes is not None and need > host_limit_bytes:
            raise InvalidInput(
                f"the schedule keeps {need} bytes on the host at once, host_limit_bytes is {host_limit_bytes}: "
                "raise the limit or plan to swap less"
            )
        self._step = core.SwapStep(program, self.device, trace)
        self._promise = Promise(schedule, graph, self.device)
        self._kept = KeptResults(self.device, graph.granule_bytes)

    def run(self, step: Callable[[], T]) -> Executed[T]:
        """Call `step`, which trains for one step, under the schedule; see `step` for what it may raise.

        What an earlier `run` returned may still be held: it stays where there is room, else it waits on the host.
        """
        with self._kept.away(self._promise.lacking_bytes()), self.step() as run:
            value = step()
        self._kept.remember(value)
        return Executed(value=value, counts=run.counts, report=run.report)

    @contextmanager
    def step(self) -> Iterator[StepRun]:
        """Execute the schedule on what runs inside, which is one training step.

        The device is idle before and after. Whatever happens inside, all storages are back at the end (or, where memory
        is short, come back when they are used). Raises `InvalidInput` before the step where the device cannot hold the
        plan's peak; what the step raises; `StepDiffers` where it ran out of memory all the same; `HostMemoryShort`.
        `RuntimeError` if a step is being executed already.
        """
        run = StepRun()
        torch.accelerator.synchronize(self.device)
        self._promise.require_room()
        self._step.begin()
        try:
            with host_limit(self.host_limit_bytes), without_collector(), watch_readers():
                yield run
        except BaseException as error:
            self._explain(error, self._step.end())
            raise
        outcome = self._step.end()
        self._raise_kept(None)
        run.counts = counts_of(outcome, self.schedule, len(self.graph.ops))
        report = report_of(self._step, outcome, self.schedule, self.graph.name, f"runtime.swap on {self.device}")
        run.report = explained(report, self.graph)

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
