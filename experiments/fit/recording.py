"""A user's training step run on the simulated device, plain or recomputing, with every request to its allocator."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from experiments.commands.devices import WITHOUT_END_BYTES
from experiments.fit.recompute import checkpointed, selective
from experiments.fit.trace import FirstStep, Kind, Trace, kind_of
from experiments.models.workload import Model, Workload
from experiments.profiled import require_operators
from runtime.device import use_sim
from runtime.profile import Request, record_requests, record_step
from runtime.profile.alike import unlike
from solvers.ir.amounts import show_bytes
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.timeline.segments import Event

STEPS = 3
"""Steps in all; the last one is profiled. The first has no optimizer states and no gradients of a step before."""
Policy = Callable[[torch.nn.Module, torch.device], AbstractContextManager[Any]]


def plain(model: torch.nn.Module, device: torch.device) -> AbstractContextManager[None]:
    """The model as it is."""
    return nullcontext()


POLICIES: dict[str, Policy] = {"plain": plain, "full": checkpointed, "selective": selective}


@dataclass(frozen=True)
class Recording:
    """The trace of a program's first steps, what is odd about it, and whether it read numbers of the device.

    `by_shapes`: no number was computed; `estimated`: with kernels among them whose temporaries are a guess.
    """

    trace: Trace
    remarks: tuple[str, ...]
    reads_numbers: bool = False
    estimated: bool = False
    by_shapes: bool = False


def record(
    model: Model, name: str, hardware: Hardware, policy: Policy = plain, *, shapes_only: bool = False
) -> Recording:
    """Build a model on the simulated device, train `STEPS` steps under a policy, and trace all of it.

    Nothing stays on the device. With `shapes_only` no number is computed, else all bytes are in this machine's memory.
    Raises `InvalidInput` where the program cannot be run or recorded, is too large for that, or has no blocks that
    could be recomputed.
    """
    gc.collect()
    capacity = WITHOUT_END_BYTES if shapes_only else memory_left_bytes()
    sim = use_sim(hardware, capacity_bytes=capacity, races="off", shapes_only=shapes_only)
    device = sim.device
    before = torch.accelerator.memory_allocated(device)
    try:
        recording = _recorded(model, name, device, policy, before)
        return replace(recording, reads_numbers=sim.counters().bytes_to_host > 0, by_shapes=shapes_only)
    except torch.OutOfMemoryError as error:
        raise too_large(name, capacity) from error
    finally:
        gc.collect()


def too_large(name: str, left_bytes: int) -> InvalidInput:
    """What is said of a step whose bytes are more than this machine has left."""
    return InvalidInput(
        f"the step of {name} depends on numbers and runs with bytes, which need more than the "
        f"{show_bytes(left_bytes)} that this machine has left: make it smaller, or its sizes independent of data"
    )


def memory_left_bytes() -> int:
    """What this machine could give a process beside all that run; without end where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return WITHOUT_END_BYTES
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), WITHOUT_END_BYTES)


def _recorded(model: Model, name: str, device: torch.device, policy: Policy, in_use_before: int) -> Recording:
    workload, built = record_requests(lambda: model.build(device), device)
    with policy(workload.model, device):
        _, early = record_requests(lambda: _train(workload, STEPS - 1), device)
        step = record_step(
            workload.step, device, name=name, model=workload.model, optimizer=workload.optimizer, warmup=0
        )
    unlike_before = tuple(unlike(early.ran.last(len(step.operator_ids)), step.ran))
    step = replace(step, graph=_told(step.graph, unlike_before))
    require_operators(step.graph, f"the step of {name}", "sim")
    numbering = Numbering()
    events = [*numbering.events(built.requests)]
    first_begin = len(events)
    events += numbering.events(early.requests)
    before = [request for request, known in zip(early.requests, numbering.known, strict=True) if known]
    begin = len(events)
    kinds = dict(_resident_kinds(workload, numbering.live))
    events += numbering.events(step.requests)
    block_of = {name: numbering.taken[request] for name, request in step.request_of.items()}
    kinds |= {block_of[tensor.id]: kind_of(tensor) for tensor in step.graph.tensors if tensor.id in block_of}
    asked = [request for request, known in zip(step.requests, numbering.known, strict=True) if known]
    ops, begun = tuple(request.op for request in asked), tuple(request.begun for request in asked)
    first_steps = tuple(_first_steps(before, first_begin, early.operator_ids, step.operator_ids))
    trace = Trace(step.graph, tuple(events), begin, ops, block_of, kinds, begun, first_steps)
    return Recording(trace, tuple(_remarks(unlike_before, in_use_before, numbering)))


def _first_steps(
    requests: Sequence[Request], begin: int, early: Sequence[int], profiled: Sequence[int]
) -> Iterator[FirstStep]:
    """The two steps that were recorded together, parted where the second one's operators begin."""
    second = len(early) - len(profiled)
    place = next((at for at, one in enumerate(requests) if (one.op or 0) >= second), len(requests))
    parts = (requests[:place], 0, early[: max(0, second)]), (requests[place:], second, early[max(0, second) :])
    for asked, first_op, ids in parts:
        ops = tuple(None if one.op is None else one.op - first_op for one in asked)
        begun = tuple(max(0, one.begun - first_op) for one in asked)
        alike = next((at for at, pair in enumerate(zip(ids, profiled)) if pair[0] != pair[1]), len(ids))  # noqa: B905
        yield FirstStep(begin, ops, begun, alike)
        begin += len(asked)


def _told(graph: OpGraph, unlike_before: Sequence[str]) -> OpGraph:
    """The graph with the steps that were recorded before it told as the warm-up that they were."""
    source = graph.source.replace("after 0 warm-up steps", f"after {STEPS - 1} warm-up steps")
    return msgspec.structs.replace(graph, source="; ".join([source, *unlike_before]))


def _train(workload: Workload, steps: int) -> None:
    for _ in range(steps):
        workload.step()
    gc.collect()


class Numbering:
    """Gives blocks numbers of their own, as addresses are used again.

    `taken[i]` is the block that request i of the last list took; `known[i]` whether it concerned a block that was seen
    to be taken; `live` the blocks in use by address.
    """

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.known: list[bool] = []
        self.strangers = 0
        self._next = 0

    def events(self, requests: tuple[Request, ...]) -> list[Event]:
        """The events of a recording; frees of blocks that are older than all recordings are left out, and counted."""
        events = []
        self.taken, self.known = {}, []
        for place, request in enumerate(requests):
            if request.bytes > 0:
                block = self.live[request.address] = self.taken[place] = self._next
                self._next += 1
                events.append(Event(block, request.bytes, request.stream))
            elif request.address in self.live:
                events.append(Event(self.live.pop(request.address), 0))
            else:
                self.strangers += 1
                self.known.append(False)
                continue
            self.known.append(True)
        return events


def _resident_kinds(workload: Workload, live: dict[int, int]) -> Iterator[tuple[int, Kind]]:
    """What the blocks hold that are there before the profiled step, by the tensors that lie in them."""
    model, optimizer = workload.model, workload.optimizer
    groups: list[tuple[Kind, list[torch.Tensor]]] = [
        ("optimizer states", [one for state in optimizer.state.values() for one in _tensors(state)]),
        ("gradients", [one.grad for one in model.parameters() if one.grad is not None]),
        ("parameters", [*model.parameters(), *model.buffers()]),
    ]
    for kind, tensors in groups:
        for tensor in tensors:
            if tensor.layout is torch.strided:
                block = live.get(tensor.untyped_storage().data_ptr())
                if block is not None:
                    yield block, kind


def _tensors(state: object) -> Iterator[torch.Tensor]:
    values = state.values() if isinstance(state, dict) else ()
    return (value for value in values if isinstance(value, torch.Tensor))


def _remarks(unlike_before: Sequence[str], in_use_before: int, numbering: Numbering) -> Iterator[str]:
    for one in unlike_before:
        yield f"{one}: another step may need more memory"
    if in_use_before or numbering.strangers:
        yield "something was on the device before the model was built, and is not counted"
