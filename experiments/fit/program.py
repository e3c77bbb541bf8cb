"""`bayplan fit MODULE:FACTORY`: each technique's step run on the simulated device, and judged against the budget."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from experiments.commands.interrupts import until_asked
from experiments.fit import joint, swapping
from experiments.fit.answer import Row, Technique
from experiments.fit.executed import executed_row
from experiments.fit.judge import Asked, Budget, Told, row_of
from experiments.fit.recompute import FULL, PLANNED, SELECTIVE, planned
from experiments.fit.recording import POLICIES, Policy, Recording, memory_left_bytes, plain, record, too_large
from experiments.fit.sessions import session_row
from experiments.models.own import OwnModel
from experiments.profiled import SESSION, doubts, temporaries_doubts, varies
from runtime.device import memory_stats
from runtime.profile import shapes_refusal
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InfeasibleBudget, InvalidInput
from solvers.ir.hardware import Hardware

WHAT: dict[Technique, str] = {
    "plain": "the step as it is",
    "full": FULL,
    "selective": SELECTIVE,
    "planned": PLANNED,
    "swap": swapping.WHAT,
    "joint": joint.WHAT,
}
TRIES = 3
"""How often a plan is made for less, where the one before keeps the budget in bytes and not in segments."""
RemarkedT = TypeVar("RemarkedT", Row, Recording)
KEEPS_ALL = "everything is kept and nothing runs again, as the plain step fits"
_BY_HEU: dict[str, Any] = {"solver": "heu", "asked": ("heu",), "least_reserved_solver": "heu"}
HOW = "simulated: the step run on the simulated device"
SMALL_BYTES = 1 << 30
"""Up to this peak a step is run with bytes that reads numbers of the device, which may decide what it does, or whose
kernels take temporaries that are not known by shapes alone, which may decide whether it fits."""
SIZED_BY_DATA = "a size in it depends on data, so that it was run with bytes and not by shapes alone"
READS_NUMBERS = "each number that it reads of the device was 1: what depends on one, as GradScaler does, may differ"


def recorded_program(factory: str, hardware: Hardware, policy: Policy = plain) -> Recording:
    """MODULE:FACTORY's step under a policy, by shapes alone, and with bytes where it needs numbers.

    Raises `InvalidInput` where it cannot be run, or cut into blocks.
    """
    model = OwnModel(factory=factory)
    recording = _by_shapes(model, factory, hardware, policy)
    if recording is None:
        return _also(record(model, factory, hardware, policy), (SIZED_BY_DATA,))
    guessed = temporaries_doubts(recording.trace.graph)
    if (recording.reads_numbers or guessed) and max(recording.trace.graph.memory_bytes) <= SMALL_BYTES:
        return record(model, factory, hardware, policy)
    read = (READS_NUMBERS,) if recording.reads_numbers else ()
    return replace(_also(recording, (*read, *guessed)), estimated=bool(guessed))


def _by_shapes(model: OwnModel, factory: str, hardware: Hardware, policy: Policy) -> Recording | None:
    """None where device sim refuses that; its error is gone then, and with it the tensors that it held.

    Raises `InvalidInput` where what it took until then is more than this machine has left.
    """
    try:
        return record(model, factory, hardware, policy, shapes_only=True)
    except InvalidInput as error:
        if shapes_refusal(error):
            if memory_stats(torch.device("sim", 0)).peak_bytes > (left := memory_left_bytes()):
                raise too_large(factory, left) from None
            return None
        raise


def program_rows(factory: str, asked: Asked, recording: Recording, budget: Budget) -> tuple[Row, ...]:
    """A row for each technique, until Ctrl-C; `recording` is the plain step's."""
    return until_asked(partial(_row, factory, one, asked, recording, budget) for one in asked.techniques)


def _row(factory: str, technique: Technique, asked: Asked, recording: Recording, budget: Budget) -> Row:
    other = varies(recording.trace.graph)
    if technique in ("swap", "joint") and other is not None:
        reason = f"cannot be told: {other}, and a plan is of one step: {SESSION}"
        return Row(technique=technique, what=WHAT[technique], how=HOW, reason=reason)
    if technique in ("swap", "joint"):
        if technique == "joint":
            row = executed_row(factory, asked, recording, budget)
        else:
            row = swapping.swap_row(recording.trace, asked.hardware, budget, HOW, asked.solver, asked.limits)
        return _also(_of(row, recording), (*recording.remarks, *doubts(recording.trace.graph)))
    if technique == "session":
        row = session_row(factory, asked.hardware, recording, budget)
        doubted = doubts(recording.trace.graph) if other is None else ()
        return _also(_of(row, recording), (*recording.remarks, *doubted))
    clock = f"sim-executed, virtual time of {asked.hardware.name}"

    def judged(recorded: Recording) -> Row:
        told = Told(technique, WHAT[technique], HOW, clock, recorded.remarks)
        return _of(row_of(recorded.trace, budget, told), recorded)

    try:
        if technique == "planned":
            return _planned_row(factory, asked, budget, recording, judged)
        return judged(
            recording if technique == "plain" else recorded_program(factory, asked.hardware, POLICIES[technique])
        )
    except InfeasibleBudget as error:
        return _refused(Row(technique=technique, what=WHAT[technique], how=HOW, reason=str(error)), error, budget)
    except InvalidInput as error:
        return Row(technique=technique, what=WHAT[technique], how=HOW, reason=f"cannot be told: {error}")


def _refused(row: Row, error: InfeasibleBudget, budget: Budget) -> Row:
    """No session has a plan for so little; what is missing in bytes, if a refusal names the least."""
    least = error.least_budget_bytes
    margin = None if least is None else budget.bytes - least
    return replace(row, fits=False, fits_allocated=False, least_allocated_bytes=least, margin_allocated_bytes=margin)


def _planned_row(
    factory: str, asked: Asked, budget: Budget, plain: Recording, judged: Callable[[Recording], Row]
) -> Row:
    """Plans are made for bytes: where segments take more, for as many bytes less than the last one took.

    Where none fits that a session makes and follows, but the plain step does, that one: it keeps everything.
    """
    plan_bytes, rows = budget.bytes, list[Row]()
    for attempt in range(TRIES):
        try:
            recorded = recorded_program(factory, asked.hardware, planned(plan_bytes))
        except InfeasibleBudget:
            if attempt == 0:
                raise
            break
        row = replace(judged(recorded), plan_budget_bytes=plan_bytes, **_BY_HEU)
        rows.append(row)
        if row.fits or row.least_reserved_bytes is None or row.allocated_bytes is None:
            break
        plan_bytes = min(plan_bytes, row.allocated_bytes) - max(1, row.least_reserved_bytes - budget.bytes)
        if plan_bytes < 1:
            break
    least = min(rows, key=lambda row: row.least_reserved_bytes or 0)
    if rows[-1].fits or not (whole := judged(plain)).fits:
        return rows[-1] if rows[-1].fits else least
    needs = f"the plans of heu that were tried need at least {show_bytes(least.least_reserved_bytes)}"
    return _also(replace(whole, plan_budget_bytes=budget.bytes, **_BY_HEU), (f"{KEEPS_ALL}; {needs}",))


def _of(row: Row, recording: Recording) -> Row:
    return replace(row, estimated=recording.estimated)


def _also(told: RemarkedT, remarks: Sequence[str]) -> RemarkedT:
    return replace(told, remarks=(*told.remarks, *remarks))
