"""The native recorders as context managers that always leave the thread as they found it."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from runtime.device.native import core
from solvers.ir.errors import BayplanError, InvalidInput

LIGHT_CAPACITY = 1 << 20
"""Operators that a light recording holds unless told otherwise: more than any single step runs."""


class LightRecording:
    """The operator ids of a light recording; `ids` is there once the recording has ended."""

    def __init__(self) -> None:
        self.ids: tuple[int, ...] = ()

    def names(self) -> tuple[str, ...]:
        """The operators' names, in order."""
        known = core.operator_names()
        return tuple(known[number] for number in self.ids)


@contextmanager
def light_recording(capacity: int = LIGHT_CAPACITY, *, inputs: bool = False) -> Iterator[LightRecording]:
    """Record one integer for each counted operator that runs inside.

    A counted operator is the outermost dispatcher call that does work (csrc/profiler/operators.h). Of jagged tensors
    only a recording with `inputs`, which takes longer, sees what their operators are made of. Raises
    `InvalidInput` if another light recording runs, or if more than `capacity` operators did.
    """
    recording = LightRecording()
    _start(lambda: core.start_light(capacity, inputs))
    try:
        yield recording
    except BaseException:
        core.stop_light()
        raise
    try:
        recording.ids = tuple(core.stop_light())
    except RuntimeError as error:
        raise InvalidInput(_first_line(error)) from error


@contextmanager
def detailed_recording(
    device: torch.device, resident: Sequence[torch.Tensor] | None = None, *, timed: bool = True
) -> Iterator[core.DetailedRecorder]:
    """Record storages, time and memory of each counted operator that runs inside; read the recorder afterwards.

    `device` has an index, unless it is the CPU; `resident` are the tensors to count from the start on a CPU, by default
    all that Python can reach. Not `timed`, neither times nor arithmetic are taken: cheaper, above all on an
    accelerator, whose clock is events. Raises `InvalidInput` if a torch.profiler runs, because both need the
    allocator's reports, and `BayplanError` if the recorder itself failed.
    """
    recorder = core.DetailedRecorder(device, timed)
    if resident is None:
        resident = live_tensors() if device.type == "cpu" else ()
    _start(partial(recorder.start, resident))
    del resident  # the step may free them
    try:
        yield recorder
    finally:
        recorder.stop()
    if recorder.failure:
        raise BayplanError(f"the profiler lost track of the step: {_first_line(recorder.failure)}")


def live_tensors() -> list[torch.Tensor]:
    """Every tensor that Python can reach, and its gradient; storages repeat."""
    tensors = [candidate for candidate in gc.get_objects() if issubclass(type(candidate), torch.Tensor)]
    gradients = [tensor.grad for tensor in tensors if tensor.is_leaf]
    return tensors + [gradient for gradient in gradients if gradient is not None]


def _start(start: Callable[[], None]) -> None:
    """Call a native start function; what it refuses is the caller's mistake."""
    try:
        start()
    except RuntimeError as error:
        raise InvalidInput(_first_line(error)) from error


def _first_line(error: BaseException | str) -> str:
    """The sentence of a native error, without the stack that torch appends."""
    return str(error).split("\n", 1)[0]
