"""Profiles one training step and writes it down as an operator graph."""

import gc
from collections.abc import Callable

import msgspec
import torch

from runtime.device import memory_stats, shapes_only
from runtime.device.held import held_memory
from runtime.device.native import core
from runtime.device.settling import settled
from runtime.profile.alike import Ran, unlike
from runtime.profile.assembly import Measured, assemble_graph
from runtime.profile.launches import operator_launches
from runtime.profile.place import place_of
from runtime.profile.recording import detailed_recording
from runtime.profile.requests import RecordedStep, request_of, requests_of
from runtime.profile.returning import step_requests
from runtime.profile.temporaries import doubtful_temporaries, temporaries_remarks
from runtime.profile.tensors import untouched
from runtime.profile.timing import operator_times_us
from runtime.storage.garbage import without_collector
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph

SIM_SHAPES = "sim-shapes"
"""How the source of a graph begins that was profiled with shapes only: no number in it was ever computed."""
BLOCK_GRANULE_BYTES = 512
"""Sim's allocator and CUDA's give memory in multiples of this."""


def profile_step(
    step: Callable[[], object],
    device: torch.device | str,
    *,
    name: str = "step",
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    warmup: int = 2,
) -> OpGraph:
    """The graph of one call of `step`, which trains for one step; it is called `warmup` times before.

    The warm-up lets optimizers create their state and allocators settle; all calls train for real. `model` and
    `optimizer` tell parameters, gradients and states apart exactly, where the profiler would else infer them; what
    the model holds on the device and the step does not touch is listed, too, under its name and without uses.
    Memory is everything on the device. Raises `InvalidInput` if the step runs compiled code or a torch.profiler; what
    `step` raises passes through, with the profiler removed.
    """
    return record_step(step, device, name=name, model=model, optimizer=optimizer, warmup=warmup).graph


def record_step(
    step: Callable[[], object],
    device: torch.device | str,
    *,
    name: str = "step",
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    warmup: int = 2,
) -> RecordedStep:
    """As `profile_step`, with every request of the profiled call to the device's allocator."""
    if not callable(step):
        raise InvalidInput(f"step is {step!r}: give a function without parameters that trains for one step")
    place = place_of(device)
    remarks: list[str] = []
    for _ in range(warmup - 1):
        step()
    before = None if warmup == 0 else _warmed_up(step, place)
    doubtful = doubtful_temporaries(place)
    recorder, resident_bytes, allocator_peak_bytes = _record(step, place)
    remarks += temporaries_remarks(place, doubtful)
    held = None if place.type == "cpu" else held_memory(place)
    if recorder.saw_compiled_code:
        raise InvalidInput(
            "the step runs code of torch.compile, whose kernels no profiler of operators sees: profile the eager model"
        )
    operators = recorder.operators()
    ran = Ran.of(recorder)
    remarks += () if before is None else unlike(before, ran)
    memory = tuple(record.peak_bytes for record in operators)
    if allocator_peak_bytes is not None and memory and allocator_peak_bytes != max(memory):
        remarks.append(f"the allocator's own peak is {allocator_peak_bytes} bytes")
    graph = assemble_graph(
        recorder,
        Measured(times_us=operator_times_us(recorder.elapsed_ns()), launches=operator_launches(recorder, place)),
        name=name,
        source="; ".join([_source(place, warmup), *remarks]),
        model=model,
        optimizer=optimizer,
    )
    idle = () if model is None else untouched(recorder.storage_number, model, place)
    graph = msgspec.structs.replace(
        graph,
        tensors=(*graph.tensors, *idle),
        resident_bytes=resident_bytes,
        granule_bytes=None if resident_bytes is None else BLOCK_GRANULE_BYTES,
    )
    requests, taken_by = requests_of(recorder), request_of(recorder)
    if held is not None:
        sizes = {tensor.id: tensor.bytes for tensor in graph.tensors}
        again = step_requests(requests, taken_by, sizes, held)
        graph = msgspec.structs.replace(graph, requests=again)
    return RecordedStep(graph, requests, taken_by, ran)


def _warmed_up(step: Callable[[], object], device: torch.device) -> Ran:
    """What the step before the recorded one runs and makes."""
    with detailed_recording(device, (), timed=False) as recorder:
        step()
    return Ran.of(recorder)


def _record(step: Callable[[], object], device: torch.device) -> tuple[core.DetailedRecorder, int | None, int | None]:
    """Run the step once under the recorder; bytes in use before, and the allocator's own peak, where it has any.

    Garbage in cycles is collected before and not during the step, so that no chance decides what is in use when.
    """
    if device.type == "cpu":
        gc.collect()
        with without_collector(), detailed_recording(device) as recorder:
            step()
        return recorder, None, None
    torch.accelerator.synchronize(device)
    resident_bytes = settled(lambda: memory_stats(device).allocated_bytes)
    torch.accelerator.reset_peak_memory_stats(device)
    with without_collector(), detailed_recording(device) as recorder:
        step()
    return recorder, resident_bytes, torch.accelerator.max_memory_allocated(device)


def _source(device: torch.device, warmup: int) -> str:
    clock = "host clock less the profiler's own time" if device.type == "cpu" else "events on the compute stream"
    memory = "allocator reports on top of live tensors" if device.type == "cpu" else "allocator reports"
    provenance = f"{SIM_SHAPES}: " if shapes_only(device) else ""
    return (
        f"{provenance}one step profiled on {device} with torch {torch.__version__} after {warmup} warm-up steps; "
        f"time by {clock}, memory by {memory}"
    )
