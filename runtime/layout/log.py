"""When the work of the last step ran: events at its begin and end, on the lanes that ran it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from runtime.device import memory_stats
from runtime.layout.steps import Peaks
from solvers.check.layout.lanes import LANES, TaskSpan


@dataclass(frozen=True)
class _Span:
    lane: str
    what: str
    number: int
    start: torch.Event
    end: torch.Event


LOG = logging.getLogger("bayplan.layout")
REMEDY = "give wrap a step with its loss, of the largest batch"


class Log:
    """The spans of one step; a step begins with its first forward and ends with the optimizer's step.

    The first one of a layout after which the device's peak is above the budget is told in a warning.
    """

    def __init__(self, device: torch.device, budget_bytes: int) -> None:
        self.device, self.peaks = device, Peaks(device)
        self.budget_bytes, self._told = budget_bytes, False
        self._spans: list[_Span] = []
        self._last: list[_Span] = []
        self._begun: torch.Event | None = None
        self._step: tuple[torch.Event, torch.Event] | None = None
        self._pass: tuple[str, int, torch.Event] | None = None

    def begin_layout(self) -> None:
        """The device's statistics begin anew, and so does what is told of them."""
        self.peaks.forget()
        self._told = False

    def mark(self, stream: torch.Stream | None = None) -> torch.Event:
        """Now, on a stream."""
        event = torch.Event(self.device, enable_timing=True)
        event.record(stream or torch.accelerator.current_stream(self.device))
        return event

    def begin_step(self) -> None:
        """A forward that trains begins: the step's first, unless one has begun already."""
        self._pass = None
        if self._begun is None:
            self._spans = []
            self._begun = self.mark()

    def end_step(self) -> None:
        """The optimizer has stepped."""
        self.peaks.to("between")
        if self._begun is not None:
            self._step = self._begun, self.mark()
            self._last, self._begun = self._spans, None
            self._look_at_peak()

    def _look_at_peak(self) -> None:
        peak = 0 if self._told else memory_stats(self.device).peak_bytes
        if peak > self.budget_bytes:
            self._told = True
            LOG.warning(
                "a step took %d bytes, %d more than the layout's budget of %d: steps take more than the one that was "
                "measured; %s",
                peak, peak - self.budget_bytes, self.budget_bytes, REMEDY,
            )  # fmt: skip

    @property
    def stepped(self) -> bool:
        """Whether the optimizer has stepped."""
        return self._step is not None

    def begin_pass(self, what: str, number: int) -> None:
        """The forward or backward of a block is launched from here on."""
        self._pass = what, number, self.mark()

    def end_pass(self) -> None:
        """What was launched so far was the pass that began last."""
        if self._pass is not None:
            what, number, start = self._pass
            self._spans.append(_Span("compute", what, number, start, self.mark()))
            self._pass = None

    def add(self, lane: str, what: str, number: int, start: torch.Event, end: torch.Event) -> None:
        """Work that ran between two events."""
        self._spans.append(_Span(lane, what, number, start, end))

    @contextmanager
    def on(self, stream: torch.Stream | None, lane: str, what: str, number: int) -> Iterator[None]:
        """What is launched on a stream inside is such work."""
        start = self.mark(stream)
        yield
        self.add(lane, what, number, start, self.mark(stream))

    def step_us(self) -> float | None:
        """How long the last whole step took; lets the host wait for it."""
        if self._step is None:
            return None
        begun, ended = self._step
        ended.synchronize()
        return 1000 * begun.elapsed_time(ended)

    def spans(self) -> tuple[TaskSpan, ...]:
        """The last whole step's, from its begin on, lane by lane."""
        if self._step is None:
            return ()
        begun, ended = self._step
        ended.synchronize()
        torch.accelerator.synchronize(self.device)
        spans = [
            TaskSpan(one.lane, one.what, one.number, _since_us(begun, one.start), _since_us(begun, one.end))
            for one in self._last
        ]
        return tuple(sorted(spans, key=lambda span: (LANES.index(span.lane), span.start_us)))


def _since_us(begun: torch.Event, event: torch.Event) -> int:
    return round(1000 * begun.elapsed_time(event))
