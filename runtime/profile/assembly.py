"""A finished recording as an operator graph, whatever told the operators' times."""

from collections.abc import Sequence

import torch
from msgspec import UNSET, UnsetType

from runtime.device.native import core
from runtime.profile.phases import settle_phases
from runtime.profile.tensors import graph_tensors, known_kinds
from solvers.ir.graph import Launch, Op, OpGraph, Phase


def assemble_graph(
    recorder: core.DetailedRecorder,
    times_us: Sequence[int],
    *,
    name: str,
    source: str,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    arithmetic: bool = True,
    launches: Sequence[Launch] | None = None,
    ranges: Sequence[str] | None = None,
) -> OpGraph:
    """The graph of what the recorder, now stopped, has seen; operator i took `times_us[i]`, launched as `launches[i]`.

    `model` and `optimizer` tell parameters, gradients and states apart exactly, where the step would else tell.
    `arithmetic` says whether the recorder counted operations and bytes; `ranges` are the operators' (`settle_phases`),
    where the caller knows more of them than the recorder. Memory is that of the step without swapping.
    """
    operators = recorder.operators()
    phases = settle_phases([record.range for record in operators] if ranges is None else ranges)
    known: Sequence[Launch | UnsetType] = [UNSET] * len(operators) if launches is None else launches
    return OpGraph(
        name=name,
        ops=tuple(
            _op(record, phase, time_us, arithmetic, launch)
            for record, phase, time_us, launch in zip(operators, phases, times_us, known, strict=True)
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
