"""`bayplan fit MODULE:FACTORY`: each technique's step run on the simulated device, and judged against the budget."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from experiments.fit.answer import Row, Technique
from experiments.fit.judge import Asked, Budget, Told, row_of
from experiments.fit.recompute import FULL, SELECTIVE
from experiments.fit.recording import Recording, record
from experiments.fit.swapping import swap_row
from experiments.models.own import OwnModel
from experiments.profiled import doubts, temporaries_doubts
from runtime.profile import shapes_refusal
from solvers.ir.errors import InvalidInput
from solvers.ir.hardware import Hardware

WHAT: dict[Technique, str] = {"plain": "the step as it is", "full": FULL, "selective": SELECTIVE}
RemarkedT = TypeVar("RemarkedT", Row, Recording)
HOW = "simulated: the step run on the simulated device"
SMALL_BYTES = 1 << 30
"""A step that reads numbers of the device is run with bytes up to this peak: the numbers may decide what it does."""
SIZED_BY_DATA = "a size in it depends on data, so that it was run with bytes and not by shapes alone"
READS_NUMBERS = "each number that it reads of the device was 1: what depends on one, as GradScaler does, may differ"


def recorded_program(factory: str, hardware: Hardware, technique: Technique = "plain") -> Recording:
    """MODULE:FACTORY's step under a technique, by shapes alone, and with bytes where it needs numbers.

    Raises `InvalidInput` where it cannot be run, or cut into blocks.
    """
    model = OwnModel(factory=factory)
    recording = _by_shapes(model, factory, hardware, technique)
    if recording is None:
        return _also(record(model, factory, hardware, technique), (SIZED_BY_DATA,))
    if recording.reads_numbers and max(recording.trace.graph.memory_bytes) <= SMALL_BYTES:
        return record(model, factory, hardware, technique)
    read = (READS_NUMBERS,) if recording.reads_numbers else ()
    return _also(recording, (*read, *temporaries_doubts(recording.trace.graph)))


def _by_shapes(model: OwnModel, factory: str, hardware: Hardware, technique: Technique) -> Recording | None:
    """None where device sim refuses that; its error is gone then, and with it the tensors that it held."""
    try:
        return record(model, factory, hardware, technique, shapes_only=True)
    except InvalidInput as error:
        if shapes_refusal(error):
            return None
        raise


def program_rows(factory: str, asked: Asked, recording: Recording, budget: Budget) -> tuple[Row, ...]:
    """A row for each technique; `recording` is the plain step's."""
    return tuple(_row(factory, technique, asked, recording, budget) for technique in asked.techniques)


def _row(factory: str, technique: Technique, asked: Asked, recording: Recording, budget: Budget) -> Row:
    if technique == "swap":
        row = swap_row(recording.trace, asked.hardware, budget, HOW, asked.solver, asked.limits)
        return _also(row, (*recording.remarks, *doubts(recording.trace.graph)))
    clock = f"sim-executed, virtual time of {asked.hardware.name}"
    try:
        recorded = recording if technique == "plain" else recorded_program(factory, asked.hardware, technique)
    except InvalidInput as error:
        return Row(technique=technique, what=WHAT[technique], how=HOW, reason=f"cannot be told: {error}")
    return row_of(recorded.trace, budget, Told(technique, WHAT[technique], HOW, clock, recorded.remarks))


def _also(told: RemarkedT, remarks: Sequence[str]) -> RemarkedT:
    return replace(told, remarks=(*told.remarks, *remarks))
