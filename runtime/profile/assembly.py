"""A finished recording as an operator graph, whatever told the operators' times."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from msgspec import UNSET, UnsetType

from runtime.device.native import core
from runtime.profile.phases import settle_phases
from runtime.profile.tensors import graph_tensors, known_kinds
from solvers.ir.graph import Launch, Op, OpGraph, Phase


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is known of the operators of a recording beside the recorder: operator i took `times_us[i]`.

    It was launched as `launches[i]`, if that was measured. `arithmetic` says whether the recorder counted operations
    and bytes; `ranges` are the operators' (`settle_phases`), where the caller knows more of them than the recorder.
    """

    times_us: Sequence[int]
    launches: Sequence[Launch] | None = None
    arithmetic: bool = True
    ranges: Sequence[str] | None = None


def assemble_graph(
    recorder: core.DetailedRecorder,
    measured: Measured,
    *,
    name: str,
    source: str,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> OpGraph:
    """The graph of what the recorder, now stopped, has seen, with what else was measured.

    `model` and `optimizer` tell parameters, gradients and states apart exactly, where the step would else tell. Memory
    is that of the step without swapping.
    """
    operators = recorder.operators()
    ranges = [record.range for record in operators] if measured.ranges is None else measured.ranges
    phases = settle_phases(ranges)
    unknown = [UNSET] * len(operators)
    launches: Sequence[Launch | UnsetType] = unknown if measured.launches is None else measured.launches
    return OpGraph(
        name=name,
        ops=tuple(
            _op(record, phase, time_us, measured.arithmetic, launch)
            for record, phase, time_us, launch in zip(operators, phases, measured.times_us, launches, strict=True)
        ),
        tensors=graph_tensors(
            recorder.storages(), operators, phases, known_kinds(recorder.storage_number, model, optimizer)
        ),
        memory_bytes=tuple(record.peak_bytes for record in operators),
        source=source,
    )


def _op(record: core.OperatorRecord, phase: Phase, time_us: int, arithmetic: bool, launch: Launch | UnsetType) -> Op:
    return Op(
        name=record.name,
        phase=phase,
        time_us=time_us,
        inputs=tuple(record.inputs),
        outputs=tuple(record.outputs),
        kind="comm" if record.communicates else "compute",
        flops=record.flops if arithmetic and record.has_flops else None,
        bytes=record.bytes if arithmetic else None,
        launch=launch,
    )
