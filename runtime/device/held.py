"""What a device's allocator holds now: its segments, and the blocks in them."""

from typing import Any, NamedTuple

import torch

from runtime.device.caching import snapshot
from runtime.device.device import memory_limit_bytes, segment_settings
from runtime.device.native import load
from solvers.ir.requests import HeldRun
from solvers.timeline.segments import SegmentSettings


class Held(NamedTuple):
    """Runs of memory, whose addresses count from `base`, and by which rules it is held."""

    settings: SegmentSettings
    base: int
    runs: tuple[HeldRun, ...]


def held_memory(device: torch.device) -> Held | None:
    """What the allocator of an accelerator holds; None where it holds exact bytes."""
    settings = segment_settings(device, memory_limit_bytes(device))
    if settings is None:
        return None
    told = (
        torch.cuda.memory._snapshot(device)
        if device.type == "cuda"
        else snapshot(load("runtime._sim"), device.index or 0)
    )
    segments = [one for one in told["segments"] if one["device"] == (device.index or 0)]
    base = min((segment["address"] for segment in segments), default=0)
    return Held(settings, base, tuple(_run(segment, base) for segment in segments))


def _run(segment: dict[str, Any], base: int) -> HeldRun:
    """A block that waits for another stream is not free yet."""
    return HeldRun(
        address=segment["address"] - base,
        stream=segment["stream"],
        small=segment["segment_type"] == "small",
        expandable=segment["is_expandable"],
        blocks=tuple((block["size"], block["state"] != "inactive") for block in segment["blocks"]),
    )
