"""What each optimisation is worth (Figure 5), and the phases of a step (Figure 4b)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from experiments.protrain.setting import (
    BASELINES,
    MICROSECONDS,
    PROTRAIN,
    Testbed,
    series_of,
    solved,
    testbed,
    value_of,
)
from experiments.reproduction import Cells, Result, Series
from experiments.reproduction.result import OUT_OF_MEMORY, Value
from solvers.ir.layout import LayoutPlan
from solvers.layout.baselines import offloaded
from solvers.layout.evaluate import Instance, device_bytes, evaluate, instance, least_buffers
from solvers.layout.systems import as_run_by
from solvers.workload import ModelShape

PERCENT = 100
BUFFERS_INSTEAD = 3
"""What takes the place of persistent chunks in the paper's ablation."""
ABLATIONS = ("no persistent chunks", "no overlapped update", "checkpoint all blocks")
SYSTEMS = (PROTRAIN, *BASELINES)


def figure_5(cells: Cells, *, shape: str, hardware: str, ranks: int, sequence: int, batches: Sequence[int]) -> Result:
    """Lane time without an optimisation over that with all; labels `batch N`, and the configuration beside."""
    place, model = testbed(cells, hardware, ranks=ranks, sequence=sequence), cells.shape(shape)
    cells.total(len(batches))
    found = {f"batch {batch}": cells.get({"batch": batch}, ablated, place, model, batch) for batch in batches}
    units = {name: "x" for name in ABLATIONS} | {"step with all": "s"}
    units |= {"persistent": "chunks", "buffers": "chunks", "swapped": "blocks", "checkpointed": "blocks"}
    return Result(series=tuple(series_of(found, units)))


def ablated(place: Testbed, shape: ModelShape, batch: int) -> dict[str, Any]:
    """The ratios of one batch, and the configuration that all of them begin from; None where nothing fits."""
    problem = place.problem(shape, batch)
    given, plan = instance(problem), solved(PROTRAIN, problem).plan
    if plan is None:
        return dict.fromkeys([*ABLATIONS, "step with all", "persistent", "buffers", "swapped", "checkpointed"])
    waiting, whole = instance(msgspec.structs.replace(problem, overlap_update=False)), evaluate(given, plan).end_us
    return {
        "no persistent chunks": evaluate(given, _without_persistent(given, plan)).end_us / whole,
        "no overlapped update": evaluate(waiting, plan).end_us / whole,
        "checkpoint all blocks": min(evaluate(given, one).end_us for one in _all_checkpointed(given, plan)) / whole,
        "step with all": whole / MICROSECONDS,
        "persistent": len(plan.persistent),
        "buffers": plan.buffers,
        "swapped": plan.policies.count("swap"),
        "checkpointed": plan.policies.count("checkpoint"),
    }


def _without_persistent(given: Instance, plan: LayoutPlan) -> LayoutPlan:
    buffers = max(BUFFERS_INSTEAD, least_buffers(given, ()))
    return LayoutPlan(persistent=(), buffers=buffers, policies=plan.policies)


def _all_checkpointed(given: Instance, plan: LayoutPlan) -> list[LayoutPlan]:
    """With the same chunks, and with as many more buffers as the memory that is free then holds."""
    problem = given.problem
    same = LayoutPlan(
        persistent=plan.persistent, buffers=plan.buffers, policies=offloaded(problem, 0, "checkpoint").policies
    )
    room = max(0, problem.device_bytes - device_bytes(given, same)) // problem.chunk_bytes
    most = min(plan.buffers + room, len(problem.chunks) - len(plan.persistent))
    return [same, LayoutPlan(persistent=plan.persistent, buffers=max(plan.buffers, most), policies=same.policies)]


def figure_4b(cells: Cells, *, shape: str, hardware: str, ranks: int, sequence: int, batches: Sequence[int]) -> Result:
    """Seconds of forward passes, of backward passes and of what is left of updates after them, by batch and system."""
    place, model = testbed(cells, hardware, ranks=ranks, sequence=sequence), cells.shape(shape)
    cells.total(len(batches) * len(SYSTEMS))
    found = {
        f"{system} batch {batch}": cells.get({"batch": batch, "system": system}, _phases, place, model, batch, system)
        for system in SYSTEMS
        for batch in batches
    }
    units = {"forward": "s", "backward": "s", "update": "s", "step": "s", "update of the step": "%"}
    saved = {name: _saved(found, name, batches) for name in ("forward", "backward")}
    less = [Series(name=f"{name}, less than DeepSpeed", unit="s", points=points) for name, points in saved.items()]
    return Result(series=(*series_of(found, units), *less))


def _saved(found: Mapping[str, Mapping[str, Any] | None], phase: str, batches: Sequence[int]) -> dict[str, Value]:
    """How much sooner than DeepSpeed ProTrain is done with the phase, by batch."""
    points: dict[str, Value] = {}
    for batch in batches:
        ours, theirs = (value_of(found[f"{system} batch {batch}"], phase) for system in (PROTRAIN, "deepspeed"))
        points[f"batch {batch}"] = (
            theirs - ours if isinstance(ours, float) and isinstance(theirs, float) else OUT_OF_MEMORY
        )
    return points


def _phases(place: Testbed, shape: ModelShape, batch: int, system: str) -> dict[str, Any]:
    problem = place.problem(shape, batch)
    plan = solved(system, problem).plan
    if plan is None:
        return dict.fromkeys(["forward", "backward", "update", "step", "update of the step"])
    run = problem if system == PROTRAIN else as_run_by(BASELINES[system].NAME, problem)
    step = evaluate(instance(run), plan)
    rest = step.end_us - step.backward_us
    return {
        "forward": step.forward_us / MICROSECONDS,
        "backward": (step.backward_us - step.forward_us) / MICROSECONDS,
        "update": rest / MICROSECONDS,
        "step": step.end_us / MICROSECONDS,
        "update of the step": PERCENT * rest / step.end_us,
    }
