"""Several microbatches of a pipeline stage in one graph, in the order of 1F1B, and the step of a whole pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from experiments.reproduction import OUT_OF_MEMORY
from experiments.smartswap.training import Training, judged
from solvers.ir.graph import OpGraph, Phase, Tensor
from solvers.ir.solution import Limits
from solvers.swap import GreedySwap
from solvers.timeline import pipeline_makespan_us
from solvers.workload import inflight, live_bytes

How = Literal["plain", "recompute", "swap"]
SETTLED = 2
"""Microbatches beyond those in flight that show what a stage does in the steady part of 1F1B."""


class Pass(NamedTuple):
    """One microbatch's forward or backward pass."""

    phase: Phase
    microbatch: int


@dataclass(frozen=True)
class StageRun:
    """A stage: pass times of one microbatch, what swapping delays it by, and the most that it needs."""

    forward_us: int
    backward_us: int
    stall_us: int
    peak_bytes: int


def one_forward_one_backward(flight: int, count: int) -> list[Pass]:
    """The passes of a stage that holds `flight` microbatches: as many forwards, then both passes by turns."""
    order = [Pass("forward", number) for number in range(min(flight, count))]
    for number in range(count):
        order.append(Pass("backward", number))
        if number + flight < count:
            order.append(Pass("forward", number + flight))
    return order


def interleaved(graph: OpGraph, order: Sequence[Pass]) -> OpGraph:
    """The microbatch of `graph` run several times, in this order; static memory is there once.

    What a neighbouring stage sends counts from its first use on; an op's workspace, its memory beyond the tensors
    that live, is the same in every microbatch.
    """
    split = sum(op.phase == "forward" for op in graph.ops)
    ranges = {"forward": range(split), "backward": range(split, len(graph.ops))}
    runs = [(number, op) for phase, number in order for op in ranges[phase]]
    place = {run: index for index, run in enumerate(runs)}
    tensors = [msgspec.structs.replace(one, uses=()) for one in graph.tensors if one.kind == "parameter"]  # never freed
    for number in sorted({one.microbatch for one in order}):
        tensors += [_moved(one, number, place) for one in graph.tensors if one.kind != "parameter"]
    workspace = [
        use - live for use, live in zip(graph.memory_bytes, live_bytes(graph.tensors, len(graph.ops)), strict=True)
    ]
    live = live_bytes(tensors, len(runs))
    shared = {one.id for one in graph.tensors if one.kind == "parameter"}
    ops = []
    for number, index in runs:
        op = graph.ops[index]
        renamed = {
            field: tuple(name if name in shared else _name(name, number) for name in getattr(op, field))
            for field in ("inputs", "outputs")
        }
        ops.append(msgspec.structs.replace(op, name=_name(op.name, number), **renamed))
    memory = tuple(use + workspace[index] for use, (_, index) in zip(live, runs, strict=True))
    return msgspec.structs.replace(graph, ops=tuple(ops), tensors=tuple(tensors), memory_bytes=memory, layer_of_op=None)


def _name(name: object, microbatch: int) -> str:
    return f"{name} of microbatch {microbatch}"


def _moved(tensor: Tensor, microbatch: int, place: dict[tuple[int, int], int]) -> Tensor:
    uses = tuple(place[microbatch, use] for use in tensor.uses)
    born = uses[0] if tensor.born is None else place[microbatch, tensor.born]
    return msgspec.structs.replace(tensor, id=_name(tensor.id, microbatch), born=born, uses=uses)


def run_stage(training: Training, stage: int, how: How) -> StageRun | None:
    """A stage's microbatch in the steady part of 1F1B; None where it does not fit the device's memory."""
    graph = training.graph(stage, recompute=how == "recompute")
    flight = inflight(training.cut, stage)
    count = min(training.cut.microbatches, flight + SETTLED) if flight > 1 else 1
    whole = interleaved(graph, one_forward_one_backward(flight, count))
    stall = 0
    if how == "swap":
        answer = judged(GreedySwap(), training.swap_problem(whole), Limits())
        if answer.objective is None or answer.base is None:
            return None
        stall = -(-(answer.objective - answer.base) // count)
    elif max(whole.memory_bytes) > training.budget_bytes:
        return None
    forward, backward = (sum(op.time_us for op in graph.ops if op.phase == name) for name in ("forward", "backward"))
    return StageRun(forward, backward, stall, max(whole.memory_bytes))


@dataclass(frozen=True)
class Step:
    """A whole step of a pipeline: its time, and the most that any device needs before anything is swapped."""

    time_us: int
    stall_us: int
    peak_bytes: int


def run_step(training: Training, how: How) -> Step | str:
    """Every stage's passes in 1F1B, the exchange between replicas and the optimizer's step; or `OUT_OF_MEMORY`.

    What swapping delays a stage by is added to its backward passes.
    """
    stages = [run_stage(training, stage, how) for stage in range(training.cut.pipeline)]
    runs = [stage for stage in stages if stage is not None]
    if len(runs) < len(stages):
        return OUT_OF_MEMORY
    makespan = pipeline_makespan_us(
        [run.forward_us for run in runs],
        [run.backward_us + run.stall_us for run in runs],
        microbatches=training.cut.microbatches,
        p2p_us=training.message_us,
    )
    time_us = int(makespan) + training.replicas_us + training.update_us
    return Step(time_us, max(run.stall_us for run in runs), max(run.peak_bytes for run in runs))
