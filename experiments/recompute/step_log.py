"""What one measured step did: operators' times, waits for collectives, and the memory between events."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from runtime.recompute.calls import Call
from runtime.recompute.footprint import Footprint
from runtime.recompute.layer import Layer, node_times
from runtime.recompute.walk import Walk


@dataclass(frozen=True)
class StepLog:
    """A step under a `Walk`; times are virtual microseconds.

    `waits_us` is how long each wait for a collective took, `times_us` what running each node of each call takes (a
    collective's with its wait), `footprint` the step's memory.
    """

    step_us: float
    waits_us: tuple[float, ...]
    times_us: tuple[tuple[float, ...], ...]
    layers: tuple[Layer, ...]
    footprint: Footprint


def with_forwards(everything: StepLog, nothing: StepLog) -> StepLog:
    """The times of a step that stored everything, with the memory of one that stored nothing.

    A step that stored nothing says what running each operator again takes; that is its memory's only, for its waits
    hold what runs again on other devices.
    """
    return replace(everything, footprint=nothing.footprint)


class Recorder:
    """Writes the log of one step of a `Walk`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def used(self, call: Call, value: tuple[int, int]) -> None:
        """Autograd asks for a value: the walk's own log has it."""

    @contextmanager
    def follows(self, walk: Walk) -> Iterator[None]:
        """Within the block, a step of the walk."""
        walk.watch_memory()
        yield

    def log(self, walk: Walk, step_us: float) -> StepLog:
        """All of it; the walk's step has ended."""
        windows = walk.windows
        waits_us = tuple(windows.at_us(last) - windows.at_us(first) for first, last in windows.waits)
        return StepLog(
            step_us=step_us,
            waits_us=waits_us,
            times_us=tuple(_times(call, waits_us) for call in walk.calls),
            layers=tuple(walk.measurement.layers()),
            footprint=walk.measurement.footprint(),
        )


def _times(call: Call, waits_us: Sequence[float]) -> tuple[float, ...]:
    """A collective that runs again is waited for at once."""
    assert call.tape is not None
    return tuple(node_times(call.tape, waits_us[slice(*call.forward_waits)]))
