"""What an allocator did with known requests: recorded on CUDA, kept as JSON, and repeated by models of it in CI.

A trace is a list of events, and what the allocator held after each: bytes in use (where it says so) and bytes of its
segments. Events are [block, bytes, stream] for a request, [block, 0, stream] for a free, and [block, -1, stream] where
another stream uses the block and the host waits for it.
"""

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch

from experiments.bench.offload.model import RaceShape
from experiments.commands.outputs import writable
from experiments.gpu.requests import SCRIPTS, USED
from experiments.gpu.steps import EXPANDABLE
from experiments.refusals import refusing
from runtime.device import accelerator, limited_memory, memory_stats
from solvers.ir.errors import InvalidInput
from solvers.timeline.segments import Event

FORMAT = "bayplan-allocator-traces/1"
KEPT = Path(__file__).resolve().parents[1] / "results" / "gpu" / "traces"
"""Where traces of real devices are kept, for CI to repeat."""
TRAINED = RaceShape(layers=4, width=1024, heads=16, context=512, batch=8)
"""What is trained for a trace."""
HISTORY = 200_000
"""Entries of PyTorch's memory history that are kept."""


class Held(NamedTuple):
    """Bytes after an event: in use (None where nobody told), and of segments."""

    allocated: int | None
    reserved: int


@dataclass(frozen=True)
class Trace:
    """One program of requests, its settings, and what was held after each event.

    `refused` says that the last event, a request, was refused; what is held then is after that.
    """

    name: str
    device: str
    torch: str
    expandable: bool
    limit_bytes: int | None
    events: tuple[Event, ...]
    held: tuple[Held, ...]
    refused: bool = False
    retries: int = 0

    def __post_init__(self) -> None:
        """Refuse a trace that no allocator can repeat."""
        if len(self.held) != len(self.events):
            raise InvalidInput(f"trace {self.name!r} has {len(self.events)} events and {len(self.held)} answers")
        live: set[int] = set()
        for number, (block, size, _) in enumerate(self.events):
            if (block in live) == (size > 0):
                does = "requests" if size > 0 else "uses" if size == USED else "frees"
                what = f"{does} a block that is {'' if size > 0 else 'not '}there"
                raise InvalidInput(f"trace {self.name!r}, event {number} {what}: record it again")
            if size != USED:
                (live.add if size > 0 else live.remove)(block)


def read_traces(path: Path) -> list[Trace]:
    """The traces of a file; raises `InvalidInput` where it is none, or one of another format."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw.get("format") != FORMAT:
            raise InvalidInput(f"{path} says format {raw.get('format')!r}: give a file of {FORMAT}")
        return [_trace(one) for one in raw["traces"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path} is no file of traces ({error}): record it with experiments.gpu.traces") from error


def _trace(raw: Mapping[str, Any]) -> Trace:
    events = tuple(Event(*event) for event in raw["events"])
    held = tuple(Held(*held) for held in zip(raw["allocated"], raw["reserved"], strict=True))
    plain = {key: raw[key] for key in ("name", "device", "torch", "expandable", "limit_bytes", "refused", "retries")}
    return Trace(events=events, held=held, **plain)


def write_traces(path: Path, traces: Iterable[Trace]) -> None:
    """All of them in one file, a line each."""
    lines = ",\n".join(json.dumps(_raw(trace), separators=(",", ":")) for trace in traces)
    path.write_text(f'{{"format": "{FORMAT}", "traces": [\n{lines}\n]}}\n', encoding="utf-8")


def _raw(trace: Trace) -> dict[str, Any]:
    raw = asdict(trace)
    held = raw.pop("held")
    return {**raw, "allocated": [one[0] for one in held], "reserved": [one[1] for one in held]}


class Answers(NamedTuple):
    """What an allocator held after each event, whether it refused the last one, how often it gave back its cache."""

    held: list[Held]
    refused: bool
    retries: int


def repeat(events: Sequence[Event], device: torch.device, limit_bytes: int | None = None) -> Answers:
    """Ask a device's allocator for the same, and note what it holds after each.

    What was there before is not counted. Raises `InvalidInput` where it refuses an earlier one.
    """
    _emptied()
    before = memory_stats(device)
    streams = {0: None, **{number: torch.Stream(device) for number in {event.stream for event in events} - {0}}}
    live: dict[int, torch.Tensor] = {}
    held: list[Held] = []
    refused = False
    limit = before.reserved_bytes + (limit_bytes or 0)
    with limited_memory(device, limit) if limit_bytes is not None else nullcontext():
        for number, (block, size, stream) in enumerate(events):
            if size == 0:
                del live[block]
                torch.accelerator.synchronize(device)  # the allocator's own events of a block in use are done, too
            elif size == USED:
                with streams[stream] or nullcontext():
                    live[block].record_stream(torch.accelerator.current_stream(device))
                torch.accelerator.synchronize(device)
            else:
                try:
                    with streams[stream] or nullcontext():
                        live[block] = torch.empty(size, dtype=torch.uint8, device=device)
                except torch.OutOfMemoryError as error:
                    refused = True
                    if number < len(events) - 1:
                        raise InvalidInput(f"event {number} was refused ({error}): end the requests there") from error
            now = memory_stats(device)
            held.append(Held(now.allocated_bytes - before.allocated_bytes, now.reserved_bytes - before.reserved_bytes))
        live.clear()
    return Answers(held, refused, memory_stats(device).retries - before.retries)


def record(name: str, device: torch.device, *, expandable: bool = False) -> Trace:
    """One of the scripts, asked of this device's allocator."""
    events, limit_bytes = SCRIPTS[name]()
    answers = repeat(events, device, limit_bytes)
    return Trace(
        name=name,
        device=_name(device),
        torch=torch.__version__,
        expandable=expandable,
        limit_bytes=limit_bytes,
        events=tuple(events),
        held=tuple(answers.held),
        refused=answers.refused,
        retries=answers.retries,
    )


def from_history(entries: Iterable[Mapping[str, Any]]) -> tuple[list[Event], list[Held]]:
    """The requests and frees of PyTorch's memory history, and the segments that were held at each.

    A free counts once it is completed; a block that was there before the history began is left out with its free.
    """
    events: list[Event] = []
    held: list[Held] = []
    blocks: dict[int, int] = {}
    streams: dict[int, int] = {0: 0}
    reserved, numbers = 0, count()
    for entry in entries:
        action, size = entry["action"], int(entry["size"])
        if action in ("segment_alloc", "segment_map"):
            reserved += size
        elif action in ("segment_free", "segment_unmap"):
            reserved -= size
        elif action == "alloc":
            stream = streams.setdefault(int(entry["stream"]), len(streams))
            blocks[entry["addr"]] = number = next(numbers)
            events.append(Event(number, max(size, 1), stream))
            held.append(Held(None, reserved))
        elif action == "free_completed" and entry["addr"] in blocks:
            events.append(Event(blocks.pop(entry["addr"]), 0, 0))
            held.append(Held(None, reserved))
    return events, held


def record_training(
    device: torch.device, *, expandable: bool = False, steps: int = 2, shape: RaceShape | None = None
) -> Trace:
    """A small GPT in bfloat16, built and trained for some steps, as PyTorch's own history tells it."""
    _emptied()
    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=HISTORY)
    try:
        retries = memory_stats(device).retries
        step = (shape or TRAINED).build(device).step
        for _ in range(steps):
            step()
        torch.accelerator.synchronize(device)
        entries = torch.cuda.memory._snapshot()["device_traces"][device.index or 0]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    events, held = from_history(entries)
    return Trace(
        name="training",
        device=_name(device),
        torch=torch.__version__,
        expandable=expandable,
        limit_bytes=None,
        events=tuple(events),
        held=tuple(held),
        retries=memory_stats(device).retries - retries,
    )


def differences(trace: Trace, answers: Answers, *, most: int = 5) -> list[str]:
    """Where a model of the allocator answers otherwise than the device did, in sentences; the first few."""
    held = answers.held
    found = []
    for number, (true, ours) in enumerate(zip(trace.held, held, strict=False)):
        for what in ("allocated", "reserved"):
            was, would = getattr(true, what), getattr(ours, what)
            if was is not None and would is not None and was != would:
                event = trace.events[number]
                found.append(f"{trace.name}, event {number} {tuple(event)}: {what} {would}, on the device {was}")
    if len(held) != len(trace.held):
        found.append(f"{trace.name}: {len(held)} answers, on the device {len(trace.held)}")
    if answers.refused != trace.refused:
        found.append(f"{trace.name}: the last event refused {answers.refused}, on the device {trace.refused}")
    if answers.retries != trace.retries:
        found.append(f"{trace.name}: {answers.retries} retries, on the device {trace.retries}")
    return found[:most]


def _emptied() -> None:
    gc.collect()
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@refusing
def main(arguments: Sequence[str] | None = None) -> int:
    """Record all scripts and a training step into one file; the file's traces under the other setting stay in it."""
    parser = argparse.ArgumentParser(prog="experiments.gpu.traces")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("cuda", "sim"), default="cuda")
    given = parser.parse_args(arguments)
    writable(given.out, "OUT")
    device = accelerator(given.device)
    expandable = EXPANDABLE in os.environ.get("PYTORCH_ALLOC_CONF", "")
    other = [one for one in read_traces(given.out) if one.expandable != expandable] if given.out.is_file() else []
    traces = [record(name, device, expandable=expandable) for name in SCRIPTS]
    write_traces(given.out, [*other, *traces])
    if device.type == "cuda":
        traces.append(record_training(device, expandable=expandable))
        write_traces(given.out, [*other, *traces])
    print(f"{len(traces)} traces of {sum(len(trace.events) for trace in traces)} events on {_name(device)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
