"""Whether a device's segments hold a planned step, replayed before the first one begins."""

import torch

from runtime.device import memory_limit_bytes, memory_stats, segment_settings
from runtime.device.held import held_memory
from solvers.ir.errors import InvalidInput
from solvers.ir.graph import OpGraph
from solvers.ir.requests import StepRequests
from solvers.ir.schedule import Schedule
from solvers.timeline.segments import SegmentSettings, held_by_steps, least_held


class HeldSteps:
    """Steps under a schedule on an allocator that holds segments; nothing to require where it holds exact bytes."""

    def __init__(self, schedule: Schedule, graph: OpGraph, device: torch.device) -> None:
        self._schedule, self._graph, self._device = schedule, graph, device
        self._held_within: int | None = None

    def require_segments(self) -> None:
        """Refuse a step that the allocator would refuse memory, with the least limit that suffices (`InvalidInput`).

        What it caches is given back before, and the rest is where the replay begins. Once done, only a lower limit is
        looked at again.
        """
        limit = memory_limit_bytes(self._device)
        if self._held_within is not None and limit >= self._held_within:
            return
        settings = segment_settings(self._device, limit)
        if settings is not None:
            torch.accelerator.empty_cache()
            self._require(settings, limit)
        self._held_within = limit

    def _require(self, settings: SegmentSettings, limit: int) -> None:
        held = held_memory(self._device) if isinstance(self._graph.requests, StepRequests) else None
        runs = None if held is None else held.runs
        done = held_by_steps(self._graph, self._schedule, settings, runs)
        if done.refusal is None:
            return
        least = least_held(self._graph, self._schedule, settings, runs)
        needs = f"need {least} bytes of segments, but the allocator of {self._device} may hold {limit} bytes"
        if held is None:
            raise InvalidInput(
                f"the plan's tensors {needs}, as far as a profile in exact bytes tells, which takes what no tensor "
                "explains for one block: profile the step on this allocator, as bayplan fit does, and plan it again"
            )
        raise InvalidInput(
            f"the plan's tensors {needs}: give it that much, or profile the step and plan it again for the limit"
        )

    def told(self) -> str | None:
        """What the allocator holds now, in segments; None where it holds exact bytes."""
        limit = memory_limit_bytes(self._device)
        if segment_settings(self._device, limit) is None:
            return None
        stats = memory_stats(self._device)
        return (
            f"the allocator of {self._device}, which may hold {limit} bytes, holds {stats.reserved_bytes} bytes of "
            f"segments for {stats.allocated_bytes} bytes of tensors"
        )
