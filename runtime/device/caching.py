"""The simulated device's second allocator: PyTorch's rules for CUDA, their options, and snapshots of its segments.

Figures of this mode are *modelled*: the rules are public (c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11 to 2.13),
the costs of the driver's calls are stated. Traces of an H100's allocator are repeated to the byte
(`experiments/results/gpu`); what its calls cost was not compared.
"""

import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from runtime.device.arguments import MOST_BYTES, require_duration, require_integer
from solvers.ir.errors import InvalidInput

LARGE_SEGMENT_BYTES = 20 << 20
"""What a request of 1 to 10 MiB takes from the device; PyTorch's `large_segment_size_mb`, its default."""


@dataclass(frozen=True)
class CachingAllocator:
    """The options of mode `caching`, as `PYTORCH_ALLOC_CONF` has them; PyTorch's defaults.

    `expandable_segments`: one range of addresses for each stream and pool, into which pages of 2 MiB (small pool) or
    20 MiB are mapped. `max_split_size_bytes`: blocks of that size and more are never split; None: all may be.
    `max_non_split_rounding_bytes`: how much larger than a request such a block may be, 20 MiB or more.
    `stitching`: where the device is full, free pages of several segments get common addresses (GMLake's rule; line 6 of
    SmartSwap's Algorithm 3).
    `segment_alloc_us` and `segment_free_us` are what the driver takes, on the host, for a segment, for each page of an
    expandable one, and for each part of a stitch: round numbers, not measured. Giving back waits for the device, too.
    """

    expandable_segments: bool = False
    max_split_size_bytes: int | None = None
    max_non_split_rounding_bytes: int = 20 << 20
    stitching: bool = False
    segment_alloc_us: float = 100.0
    segment_free_us: float = 100.0

    def __post_init__(self) -> None:
        least = f"give bytes, no fewer than PyTorch does ({LARGE_SEGMENT_BYTES} is the segment of small requests)"
        split = self.max_split_size_bytes
        if split is not None:
            require_integer("max_split_size_bytes", split, LARGE_SEGMENT_BYTES + 1, MOST_BYTES, least)
        rounding = self.max_non_split_rounding_bytes
        require_integer("max_non_split_rounding_bytes", rounding, LARGE_SEGMENT_BYTES, MOST_BYTES, least)
        if self.stitching and self.expandable_segments:
            raise InvalidInput(
                "stitching and expandable_segments are two remedies for the same fragmentation: choose one of them"
            )
        require_duration("segment_alloc_us", self.segment_alloc_us)
        require_duration("segment_free_us", self.segment_free_us)


class Stitches(NamedTuple):
    """How often free pages of several segments got common addresses, of how many parts, for how many bytes."""

    times: int
    parts: int
    total_bytes: int


def options_of(allocator: "str | CachingAllocator") -> CachingAllocator | None:
    """What an allocator's name means; None for mode `exact`, `InvalidInput` for an unknown one."""
    if allocator == "exact":
        return None
    if allocator == "caching":
        return CachingAllocator()
    if not isinstance(allocator, CachingAllocator):
        raise InvalidInput(f"allocator={allocator!r} is unknown: choose of 'exact', 'caching', CachingAllocator(…)")
    return allocator


def plain_rules(allocator: CachingAllocator | None) -> dict[str, Any] | None:
    """The options as the numbers that the extension takes."""
    if allocator is None:
        return None
    return {
        "expandable": allocator.expandable_segments,
        "stitching": allocator.stitching,
        "max_split": allocator.max_split_size_bytes,
        "max_non_split_rounding": allocator.max_non_split_rounding_bytes,
        "take_ns": math.ceil(allocator.segment_alloc_us * 1000),
        "return_ns": math.ceil(allocator.segment_free_us * 1000),
    }


def snapshot(native: ModuleType, index: int) -> dict[str, Any]:
    """A device's segments and its allocator's recorded steps in the format of `torch.cuda.memory._snapshot()`.

    Times are virtual, in microseconds; a step's frame is the label that the program gave, if any.
    """
    runs, events = native.memory_snapshot(index)
    return {
        "segments": [_segment(index, *run) for run in runs],
        "device_traces": [*([] for _ in range(index)), [_event(*event) for event in events]],
        "allocator_settings": {},
        "external_annotations": [],
    }


def dump(snapshot: dict[str, Any], path: Path | str) -> None:
    """Writes a snapshot to a file that pytorch.org/memory_viz opens."""
    with Path(path).open("wb") as file:
        pickle.dump(snapshot, file)


def _segment(
    device: int, stream: int, small: bool, expandable: bool, chunks: list[tuple[int, int, int, str]]
) -> dict[str, Any]:
    active = [(size, requested) for _, size, requested, state in chunks if state != "inactive"]
    return {
        "device": device,
        "address": chunks[0][0],
        "total_size": sum(size for _, size, _, _ in chunks),
        "allocated_size": sum(size for _, size, _, state in chunks if state == "active_allocated"),
        "active_size": sum(size for size, _ in active),
        "requested_size": sum(requested for _, requested in active),
        "stream": stream,
        "segment_type": "small" if small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": expandable,
        "frames": [],
        "blocks": [
            {"address": address, "size": size, "requested_size": requested, "state": state, "frames": []}
            for address, size, requested, state in chunks
        ],
    }


def _event(action: str, address: int, size: int, stream: int, time_ns: int, label: str) -> dict[str, Any]:
    frames = [{"name": label, "filename": "label", "line": 0}] if label else []
    where = "device_free" if action == "oom" else "addr"
    return {"action": action, where: address, "size": size, "stream": stream, "time_us": time_ns // 1000} | {
        "frames": frames
    }
