"""Allocator traces: kept, read again, repeated on sim, and by every model of CUDA's allocator that there is.

What a real device did is kept under experiments/results/gpu/traces; each file there is repeated here.
"""

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.bench.offload.model import RaceShape
from experiments.gpu import traces as command
from experiments.gpu.requests import MIB, SCRIPTS, USED
from experiments.gpu.traces import (
    KEPT,
    Answers,
    Held,
    Trace,
    differences,
    from_history,
    main,
    read_traces,
    record,
    record_training,
    repeat,
    write_traces,
)
from runtime.device import CachingAllocator, SimDevice, memory_stats, use_sim
from solvers.ir.errors import InvalidInput
from solvers.timeline.segments import Event, SegmentSettings, replay
from tests.accelerators import ON_EACH, prepared

KIB = 1 << 10
BY_HAND = Trace(
    name="by hand",
    device="the public rules",
    torch="2.11",
    expandable=False,
    limit_bytes=64 * MIB,
    # A small block, of 512 bytes' multiple, is cut from a segment of 2 MiB; 3 MiB from one of 20, of which 17 are left;
    # 30 MiB have a segment of their own, which is kept when they are freed. The 12 MiB fit both, and 17 better than 30.
    events=(Event(0, 700), Event(1, 3 * MIB), Event(2, 30 * MIB), Event(2, 0), Event(3, 12 * MIB), Event(4, 60 * MIB)),
    held=(
        Held(1024, 2 * MIB),
        Held(1024 + 3 * MIB, 22 * MIB),
        Held(1024 + 33 * MIB, 52 * MIB),
        Held(1024 + 3 * MIB, 52 * MIB),
        Held(1024 + 15 * MIB, 52 * MIB),
        Held(1024 + 15 * MIB, 22 * MIB),  # the cached 30 MiB were given back before the request was refused
    ),
    refused=True,
    retries=1,
)
"""Worked out from PyTorch's public rules: c10/cuda/CUDACachingAllocator.cpp, the constants at its head."""


@pytest.fixture
def sim() -> SimDevice:
    prepared("sim")
    return use_sim(races="off")


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    return prepared(request.param)


def kept_traces() -> list[Trace]:
    """All that real devices did, in the order of their files."""
    return [trace for path in sorted(KEPT.glob("*.json")) for trace in read_traces(path)]


def test_a_trace_is_the_same_after_a_file(tmp_path: Path) -> None:
    write_traces(tmp_path / "traces.json", [BY_HAND, BY_HAND])
    assert read_traces(tmp_path / "traces.json") == [BY_HAND, BY_HAND]
    assert len((tmp_path / "traces.json").read_text().splitlines()) == 4  # a line each, between two


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no JSON", "is no file of traces"),
        ('{"format": "bayplan-row/1"}', "says format 'bayplan-row/1': give a file of bayplan-allocator-traces/1"),
        ('{"format": "bayplan-allocator-traces/1", "traces": [{"name": "x"}]}', "is no file of traces"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InvalidInput, match=sentence):
        read_traces(tmp_path / "t.json")
    with pytest.raises(InvalidInput, match="is no file of traces"):
        read_traces(tmp_path / "none.json")


def test_a_trace_that_nobody_could_repeat_is_refused() -> None:
    def trace(*events: Event, answers: int | None = None) -> Trace:
        held = (Held(0, 0),) * (len(events) if answers is None else answers)
        return Trace("bad", "d", "2", False, None, events, held)

    with pytest.raises(InvalidInput, match="event 1 requests a block that is there"):
        trace(Event(0, 5), Event(0, 5))
    with pytest.raises(InvalidInput, match="event 0 frees a block that is not there"):
        trace(Event(3, 0))
    with pytest.raises(InvalidInput, match="event 1 uses a block that is not there"):
        trace(Event(0, 5), Event(1, USED, 2))
    with pytest.raises(InvalidInput, match="has 1 events and 2 answers"):
        trace(Event(0, 5), answers=2)


def test_a_history_of_pytorch_becomes_a_trace() -> None:
    """Its entries in its words: addresses come again, frees count when they are completed, strangers are left out."""

    def entry(action: str, address: int, size: int, stream: int = 0) -> dict[str, Any]:
        return {"action": action, "addr": address, "size": size, "stream": stream}

    history = [
        entry("free_completed", 900, 64),
        entry("segment_alloc", 0, 2 * MIB),
        entry("alloc", 0, 700),
        entry("segment_alloc", 100, 20 * MIB, 77),
        entry("alloc", 100, 3 * MIB, 77),
        entry("free_requested", 0, 700),
        entry("free_completed", 0, 700),
        entry("alloc", 0, 0),
        entry("segment_free", 100, 20 * MIB),
        entry("snapshot", 0, 0),
        entry("free_completed", 0, 0),
    ]
    events, held = from_history(history)
    assert events == [Event(0, 700, 0), Event(1, 3 * MIB, 1), Event(0, 0), Event(2, 1, 0), Event(2, 0)]
    assert [one.reserved for one in held] == [2 * MIB, 22 * MIB, 22 * MIB, 22 * MIB, 2 * MIB]
    assert {one.allocated for one in held} == {None}


def test_a_training_step_is_told_by_pytorchs_history(sim: SimDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """On sim, with a history that is made up: the model trains between its begin and its end."""
    happened: list[str] = []
    entries = [
        {"action": "segment_alloc", "addr": 0, "size": 2 * MIB, "stream": 0},
        {"action": "alloc", "addr": 0, "size": 700, "stream": 0},
    ]

    def remember(enabled: str | None = "all", **_: object) -> None:
        happened.append("begin" if enabled else f"end after training: {sim.counters().kernels > 20}")

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", remember)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [entries]})
    trace = record_training(sim.device, steps=1, shape=RaceShape(layers=1, width=16, heads=2, context=16, batch=2))
    assert happened == ["begin", "end after training: True"]
    assert (trace.name, trace.device) == ("training", "sim")
    assert (trace.events, trace.held) == ((Event(0, 700),), (Held(None, 2 * MIB),))


def test_differences_are_named() -> None:
    held = list(BY_HAND.held)
    assert differences(BY_HAND, Answers(held, True, 1)) == []
    assert differences(BY_HAND, Answers(held, False, 3)) == [
        "by hand: the last event refused False, on the device True",
        "by hand: 3 retries, on the device 1",
    ]
    held[2] = Held(held[2].allocated, 54 * MIB)
    assert differences(BY_HAND, Answers(held, True, 1)) == [
        f"by hand, event 2 (2, {30 * MIB}, 0): reserved {54 * MIB}, on the device {52 * MIB}"
    ]
    assert differences(BY_HAND, Answers(held[:2], True, 1)) == ["by hand: 2 answers, on the device 6"]
    silent = [Held(None, one.reserved) for one in BY_HAND.held]
    assert differences(BY_HAND, Answers(silent, True, 1)) == []


@ON_EACH
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_asked_alike_each_time(device: torch.device, name: str) -> None:
    before = memory_stats(device).allocated_bytes
    first = record(name, device)
    assert memory_stats(device).allocated_bytes == before
    assert record(name, device) == first
    asked: dict[int, int] = {}
    for event, held in zip(first.events, first.held, strict=True):
        refused = first.refused and event == first.events[-1]
        if event.bytes > 0 and not refused:
            asked[event.block] = event.bytes
        elif event.bytes == 0:
            del asked[event.block]
        assert held.allocated is not None
        assert sum(asked.values()) <= held.allocated <= held.reserved
        if first.limit_bytes is not None:
            assert held.reserved <= first.limit_bytes


def test_a_request_that_is_refused_too_early_is_told(sim: SimDevice) -> None:
    with pytest.raises(InvalidInput, match=r"event 0 was refused .* end the requests there"):
        repeat([Event(0, 10 * MIB), Event(1, 1)], sim.device, limit_bytes=MIB)


def test_the_command_writes_them_all(sim: SimDevice, tmp_path: Path) -> None:
    assert main([str(tmp_path / "t.json"), "--device", "sim"]) == 0
    found = read_traces(tmp_path / "t.json")
    assert [trace.name for trace in found] == list(SCRIPTS)
    assert {trace.device for trace in found} == {"sim"}
    assert json.loads((tmp_path / "t.json").read_text())["format"] == "bayplan-allocator-traces/1"


def test_a_second_run_adds_its_setting_to_the_file(
    sim: SimDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third, under the same setting as the first, takes the place of what that recorded."""
    monkeypatch.setattr(command, "SCRIPTS", {"retry": SCRIPTS["retry"]})
    for conf in ("", "expandable_segments:True", ""):
        monkeypatch.setenv("PYTORCH_ALLOC_CONF", conf)
        assert main([str(tmp_path / "t.json"), "--device", "sim"]) == 0
    assert [trace.expandable for trace in read_traces(tmp_path / "t.json")] == [True, False]


GIVEN = pytest.mark.parametrize("trace", [BY_HAND, *kept_traces()], ids=lambda trace: f"{trace.device}-{trace.name}")
CAPACITY = 64 << 30


@contextmanager
def caching(*, expandable: bool) -> Iterator[torch.device]:
    """Sim in mode `caching`."""
    prepared("sim")
    rules = CachingAllocator(expandable_segments=expandable)
    yield use_sim(races="off", capacity_bytes=CAPACITY, allocator=rules).device
    gc.collect()
    use_sim()


def predicted(trace: Trace) -> Answers:
    """What the predictor says of the same events; uses that the host has waited for change nothing of what is held."""
    settings = SegmentSettings(limit_bytes=trace.limit_bytes, expandable=trace.expandable)
    told = replay([event for event in trace.events if event.bytes != USED], settings, moments=True)
    moments = iter(told.moments)
    held: list[Held] = []
    for event in trace.events[: len(trace.events) - (told.refusal is not None)]:
        held.append(held[-1] if event.bytes == USED else Held(*next(moments)[:2]))
    assert next(moments, None) is None
    return Answers([*held, *trace.held[len(held) :]], told.refusal is not None, told.retries)


@GIVEN
def test_sim_holds_what_the_device_held(trace: Trace) -> None:
    """In mode `caching`, after each event: bytes in use, and bytes of segments."""
    with caching(expandable=trace.expandable) as device:
        assert differences(trace, repeat(trace.events, device, trace.limit_bytes)) == []


@GIVEN
def test_the_predictor_tells_what_the_device_held(trace: Trace) -> None:
    """The model of the same rules that `bayplan fit` asks, which shares no code with sim."""
    assert differences(trace, predicted(trace)) == []


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("name", SCRIPTS)
def test_two_models_agree_on_every_script(name: str, expandable: bool) -> None:
    """Until a device has answered, they judge each other."""
    with caching(expandable=expandable) as device:
        trace = record(name, device, expandable=expandable)
        assert differences(trace, predicted(trace)) == []
