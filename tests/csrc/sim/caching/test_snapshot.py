"""Snapshots in PyTorch's format: its own viewer's functions read them."""

import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.device import use_sim
from solvers.ir.errors import InvalidInput
from tests.csrc.sim.caching.conftest import SetUp, block
from tests.csrc.sim.caching.sequences import MIB

viewer: Any = importlib.import_module("torch.cuda._memory_viz")  # without type hints


def actions(snapshot: dict[str, Any]) -> list[str]:
    return [event["action"] for event in snapshot["device_traces"][0]]


def test_every_step_is_recorded(cached: SetUp) -> None:
    sim = cached(24)
    sim.record_memory()
    first = block(4)
    del first
    with pytest.raises(torch.OutOfMemoryError):
        block(25)
    kept = block(8)
    assert actions(sim.snapshot()) == [
        *("segment_alloc", "alloc", "free_requested", "free_completed", "segment_free", "oom"),
        *("segment_alloc", "alloc"),
    ]
    events = sim.snapshot()["device_traces"][0]
    assert events[5]["device_free"] == 24 * MIB and events[5]["size"] == 25 * MIB
    assert events[7]["addr"] == kept.data_ptr()
    assert [event["time_us"] for event in events] == sorted(event["time_us"] for event in events)
    sim.record_memory(0)
    assert actions(sim.snapshot()) == []


def test_pages_are_recorded(cached: SetUp) -> None:
    sim = cached(64, expandable_segments=True)
    sim.record_memory()
    block(30)
    torch.accelerator.empty_cache()
    assert actions(sim.snapshot()) == ["segment_map", "alloc", "free_requested", "free_completed", "segment_unmap"]


def test_the_last_steps_are_kept(cached: SetUp) -> None:
    sim = cached(64)
    sim.record_memory(3)
    kept = [block(1) for _ in range(9)]
    assert actions(sim.snapshot())[-1] == "alloc" and len(actions(sim.snapshot())) == 3 and len(kept) == 9


@pytest.mark.parametrize("expandable", [False, True])
def test_pytorchs_own_functions_read_it(cached: SetUp, tmp_path: Path, expandable: bool) -> None:
    sim = cached(256, expandable_segments=expandable)
    sim.record_memory()
    side = torch.Stream(device="sim")
    with sim.label("activations"):
        kept = [block(7), block(30), block(0.25)]
    lent = block(4)
    lent.record_stream(side)
    del kept[1], lent
    sim.dump_snapshot(tmp_path / "snapshot.pickle")
    with (tmp_path / "snapshot.pickle").open("rb") as file:
        snapshot = pickle.load(file)
    total = sum(segment["total_size"] for segment in snapshot["segments"])
    stats = torch.accelerator.memory_stats()
    assert total == sum(stats[f"reserved_bytes.{pool}.current"] for pool in ("small_pool", "large_pool"))
    summary = viewer.segsum(snapshot)  # raises where its sums do not agree
    assert f"segments: {len(snapshot['segments'])}" in summary
    assert f"total_reserved: {viewer.Bytes(total)}" in summary
    assert "[0:7.0MiB]" in viewer.trace(snapshot)
    assert "Active Memory Timeline" in viewer.trace_plot(snapshot)
    assert "Allocator State History" in viewer.segment_plot(snapshot)
    lines: list[str] = []
    viewer.memory(snapshot, format_flamegraph=lambda text: lines.extend(text.splitlines()))
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == total
    states = {block["state"] for segment in snapshot["segments"] for block in segment["blocks"]}
    assert states == {"active_allocated", "active_pending_free", "inactive"}
    frames = [event["frames"] for event in snapshot["device_traces"][0] if event["action"] == "alloc"]
    assert frames[0] == [{"name": "activations", "filename": "label", "line": 0}] and frames[-1] == []


def test_mode_exact_has_none(cached: SetUp) -> None:
    cached(64)
    sim = use_sim()
    for ask in (sim.snapshot, sim.record_memory):
        with pytest.raises(InvalidInput, match="mode exact has no segments"):
            ask()
