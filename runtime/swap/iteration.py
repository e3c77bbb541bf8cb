"""What a session learns from one recorded iteration: an operator graph from limited information, and the memory curve.

SmartSwap records no operator's time, which would take a hardware profiler; it knows only how long the iteration took
(§4, Detailed mode). By Eq. 1 a group of operators takes its share by number, T_group = T_iter / N_iter · N_group.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch

from runtime.device.native import core
from runtime.profile.assembly import Measured, assemble_graph
from runtime.profile.timing import operator_times_us
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph

RANGES = ("outside", "outside", "backward", "optimizer")
"""What a graph's phases are told from, by the engine's phase: forward, without gradients, backward, optimizer."""


class Sighting(Protocol):
    """A storage as the swap engine saw it at the end of an operator (`core.SwapSighting`)."""

    @property
    def op(self) -> int:
        """The operator's place in the iteration."""
        ...

    @property
    def storage(self) -> int:
        """The address of the StorageImpl."""
        ...


SightingT = TypeVar("SightingT", bound=Sighting)


class MemoryCurve(NamedTuple):
    """Memory of a recorded iteration in bytes, one value for each operator (SmartSwap, Figure 3)."""

    reconstructed_bytes: tuple[int, ...]
    """The most in use during the operator, had nothing been swapped; frees and allocations before it included."""
    actual_bytes: tuple[int, ...]
    """The most that really was in use on the device."""
    displaced_bytes: tuple[int, ...]
    """What swapping kept off the device when the operator ended."""


def limited_graph(
    recorder: core.DetailedRecorder,
    duration_us: float,
    *,
    name: str = "iteration",
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    phases: Sequence[int] | None = None,
) -> OpGraph:
    """The graph of a recorded iteration that took `duration_us`, its operators' times by Eq. 1's mean.

    Cumulative time is rounded, so any group of operators has Eq. 1's time to within 1 µs (but no operator takes less
    than 1 µs). Memory is that of the iteration without swapping. The recorder has been stopped. `phases` are the
    operators' as the engine tells them: it knows that a closure within an optimizer's step is no part of it.

    Raises `InvalidInput` if it saw no operator or compiled code, or for a duration that is no time.
    """
    count = len(recorder.operators())
    if count == 0:
        raise InvalidInput("no operator ran in the recorded iteration: end an iteration after a training step")
    if recorder.saw_compiled_code:
        raise InvalidInput(
            "the iteration runs code of torch.compile, whose kernels no profiler of operators sees: run the eager model"
        )
    if not 0 < duration_us < float("inf"):
        raise InvalidInput(f"an iteration of {duration_us} us is no duration: measure it between two boundaries")
    return assemble_graph(
        recorder,
        Measured(
            times_us=mean_times_us(count, duration_us),
            arithmetic=False,
            ranges=None if phases is None else [RANGES[phase] for phase in phases],
        ),
        name=name,
        source=f"one iteration recorded with torch {torch.__version__}; times by the mean of {duration_us:.0f} us",
        model=model,
        optimizer=optimizer,
    )


def mean_times_us(operators: int, duration_us: float) -> tuple[int, ...]:
    """Eq. 1 for groups of one operator: `duration_us / operators` each, cumulative time rounded, each at least 1 µs."""
    duration_ns = round(duration_us * 1000)
    ends_ns = [duration_ns * (number + 1) // operators for number in range(operators)]
    return operator_times_us([*ends_ns, duration_ns])


def memory_curve(recorder: core.DetailedRecorder) -> MemoryCurve:
    """The memory of the recorded iteration with its swaps, and as it would be without (Figure 3)."""
    operators = recorder.operators()
    return MemoryCurve(
        reconstructed_bytes=tuple(record.peak_bytes for record in operators),
        actual_bytes=tuple(record.allocated_peak_bytes for record in operators),
        displaced_bytes=tuple(record.displaced_bytes for record in operators),
    )


def sightings_by_use(
    recorder: core.DetailedRecorder, sightings: Iterable[SightingT]
) -> dict[tuple[int, int], SightingT]:
    """The engine's sightings of the recorded iteration by the graph's tensor id and operator.

    Call it before the recorder is let go: while it is there, no other storage gets a dead one's address. Storages that
    the recorder has not numbered are left out.
    """
    found: dict[tuple[int, int], SightingT] = {}
    for sighting in sightings:
        number = recorder.storage_number(sighting.storage)
        if number is not None:
            found[number, sighting.op] = sighting
    return found
