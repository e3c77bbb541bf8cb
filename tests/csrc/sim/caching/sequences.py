"""Sequences of requests and frees, run on an allocator, simulated or CUDA's, and what it holds after every step.

`run` is the one entry: another implementation of the rules is compared by running the same steps on both.
"""

import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from runtime.device import CachingAllocator, limited_memory, use_sim
from solvers.ir.hardware import Device, Hardware, Link

MIB = 1 << 20
WORK_NS = 1_000_000_000
"""How long `Work` keeps a stream of sim busy."""
WORK_BYTES = 512
IDLE_HOST = Hardware(
    name="idle-host",
    devices=(
        Device(name="0", memory_bytes=4 << 30, bytes_per_s=2 * WORK_BYTES, launch_us=0.0, efficiency={"other": 1.0}),
    ),
    links=(Link(a="0", b="host", bytes_per_s=1_000_000_000),),
)
"""Launching takes nothing, and reading and writing 512 bytes a second: a stream is busy until somebody waits."""
FREE_OF_CHARGE = CachingAllocator(segment_alloc_us=0, segment_free_us=0)


@dataclass(frozen=True)
class Malloc:
    """A request of so many bytes on a stream; 0 is the default stream."""

    bytes: int
    stream: int = 0


@dataclass(frozen=True)
class Free:
    """The sequence's request of that number ends; nothing if it was refused or has ended."""

    index: int


@dataclass(frozen=True)
class Record:
    """Another stream uses what that request got, and says so by `record_stream`."""

    index: int
    stream: int


@dataclass(frozen=True)
class Work:
    """The stream is busy for a second."""

    stream: int


@dataclass(frozen=True)
class Empty:
    """`empty_cache()`."""


Step = Malloc | Free | Record | Work | Empty
Block = tuple[int, str]
"""Bytes and state, as a snapshot names it."""
Run = tuple[int, bool, tuple[Block, ...]]
"""Stream, whether of the small pool, and its blocks in the order of their addresses."""


class State(NamedTuple):
    """What the allocator holds: bytes and counts since the sequence began, and its runs of mapped memory, sorted."""

    allocated_bytes: int
    active_bytes: int
    requested_bytes: int
    reserved_bytes: int
    inactive_split_bytes: int
    segments: int
    retries: int
    ooms: int
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Bench:
    """A device to run sequences on; `limit_bytes` is CUDA's memory fraction, `capacity_bytes` what the device has."""

    device: Literal["sim", "cuda"] = "sim"
    allocator: CachingAllocator = FREE_OF_CHARGE
    capacity_bytes: int = 4 << 30
    limit_bytes: int | None = None


def run(steps: Sequence[Step], bench: Bench | None = None) -> list[State]:
    """The state after each step, from an allocator that has nothing cached; everything is freed in the end."""
    bench = bench or Bench()
    with ExitStack() as stack:
        bound = _bind_sim(bench, stack) if bench.device == "sim" else _bind_cuda(bench, stack)
        return bound.run(steps)


_POOLS: dict[str, list[torch.Stream]] = {}


def stream_of(device: str, number: int) -> torch.Stream:
    """The same streams for all sequences of a process: a device has few."""
    pool = _POOLS.setdefault(device, [])
    while len(pool) < number:
        pool.append(torch.Stream(device=device))
    return pool[number - 1] if number else torch.accelerator.current_stream()


@dataclass(frozen=True)
class _Bound:
    """A device ready for one sequence."""

    device: str
    work: Callable[[], object]
    snapshot: Callable[[], list[dict[str, Any]]]
    handle: Callable[[torch.Stream], int]

    def run(self, steps: Sequence[Step]) -> list[State]:
        if self.device == "sim" and self.snapshot():  # tensors of earlier tests in segments, perhaps in cycles
            gc.collect()
            torch.accelerator.empty_cache()
            assert not self.snapshot(), "tensors that were allocated in mode caching are alive: drop them first"
        start = torch.accelerator.memory_stats()
        tensors: list[torch.Tensor | None] = []
        states = []
        idle = not any(isinstance(step, Work) for step in steps)
        for step in steps:
            self._take(step, tensors)
            if idle:
                torch.accelerator.synchronize()  # so that it is certain which events the next request finds done
            states.append(self._state(start))
        tensors.clear()
        torch.accelerator.synchronize()
        torch.accelerator.empty_cache()
        return states

    def _take(self, step: Step, tensors: list[torch.Tensor | None]) -> None:
        match step:
            case Malloc(size, stream):
                with stream_of(self.device, stream):
                    try:
                        tensors.append(torch.empty(size, dtype=torch.uint8, device=self.device))
                    except torch.OutOfMemoryError:
                        tensors.append(None)
            case Free(index):
                if index < len(tensors):
                    tensors[index] = None
            case Record(index, stream):
                if index < len(tensors) and (tensor := tensors[index]) is not None:
                    tensor.record_stream(stream_of(self.device, stream))
            case Work(stream):
                with stream_of(self.device, stream):
                    self.work()
            case Empty():
                torch.accelerator.empty_cache()

    def _state(self, start: dict[str, Any]) -> State:
        stats = torch.accelerator.memory_stats()

        def since(name: str) -> int:
            return int(stats.get(name, 0) - start.get(name, 0))  # CUDA counts from the first request on

        numbers = {self.handle(stream_of(self.device, i)): i for i in range(len(_POOLS.get(self.device, [])) + 1)}
        return State(
            since("allocated_bytes.all.current"),
            since("active_bytes.all.current"),
            since("requested_bytes.all.current"),
            since("reserved_bytes.all.current"),
            since("inactive_split_bytes.all.current"),
            since("segment.all.current"),
            since("num_alloc_retries"),
            since("num_ooms"),
            tuple(sorted(_run(segment, numbers) for segment in self.snapshot())),
        )


def _run(segment: dict[str, Any], numbers: dict[int, int]) -> Run:
    blocks = tuple((block["size"], block["state"]) for block in segment["blocks"])
    return numbers[segment["stream"]], segment["segment_type"] == "small", blocks


def _bind_sim(bench: Bench, stack: ExitStack) -> _Bound:
    sim = use_sim(IDLE_HOST, races="off")
    spare = torch.empty(WORK_BYTES, dtype=torch.uint8, device="sim")  # outside of all segments
    outside = torch.accelerator.memory_reserved()
    capacity = outside + bench.capacity_bytes
    use_sim(IDLE_HOST, capacity_bytes=capacity, races="off", allocator=bench.allocator)
    stack.callback(use_sim)
    if bench.limit_bytes is not None:
        stack.enter_context(limited_memory(sim.device, outside + bench.limit_bytes))
    return _Bound("sim", spare.neg_, lambda: sim.snapshot()["segments"], lambda stream: stream.stream_id)


def _bind_cuda(bench: Bench, stack: ExitStack) -> _Bound:
    options = bench.allocator
    split = options.max_split_size_bytes
    settings = [f"expandable_segments:{options.expandable_segments}"]
    settings += [] if split is None else [f"max_split_size_mb:{split // MIB}"]
    torch.cuda.memory._set_allocator_settings(",".join(settings))
    stack.callback(torch.cuda.memory._set_allocator_settings, "expandable_segments:False")
    torch.accelerator.empty_cache()
    if bench.limit_bytes is not None:
        reserved = torch.accelerator.memory_reserved()
        device = torch.device("cuda", torch.cuda.current_device())
        stack.enter_context(limited_memory(device, reserved + bench.limit_bytes))
    return _Bound(
        "cuda",
        lambda: torch.cuda._sleep(2_000_000_000),  # type: ignore[no-untyped-call]
        torch.cuda.memory_snapshot,
        _handle,
    )


def _handle(stream: torch.Stream) -> int:
    """What a snapshot of CUDA names a stream by."""
    same = torch.cuda.Stream(stream_id=stream.stream_id, device_type=1, device_index=stream.device_index)  # type: ignore[no-untyped-call]
    return int(same.cuda_stream)
