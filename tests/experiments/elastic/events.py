"""An event log as a training writes it: four nodes, one killed, a recovery cut short by a second failure, a join."""

import json
from pathlib import Path
from typing import Any

import msgspec

from tests.runtime.elastic.jobs import costs

Event = dict[str, Any]


def generation(at_s: float, number: int, nodes: list[int], pipelines: list[Event], step: int, **more: Any) -> Event:
    """The call of a generation."""
    said = {
        "layout": f"layout {number}",
        "lost": [],
        "joined": [],
        "moved": 0,
        "restored": "",
        "failed": [],
        "moves": [],
    }
    return {
        "at_s": at_s, "event": "generation", "number": number, "nodes": nodes, "pipelines": pipelines, "step": step,
        **said, **more,
    }  # fmt: skip


def pipeline(layers: list[int], nodes: list[int], microbatches: int) -> Event:
    """A pipeline as events tell it."""
    return {"layers": layers, "nodes": nodes, "microbatches": microbatches}


def moment(at_s: float, event: str, node: int, **more: Any) -> Event:
    """Something of one node."""
    return {"at_s": at_s, "event": event, "node": node, **more}


def step(at_s: float, number: int, took_us: int, nodes: int) -> Event:
    """A step that counted."""
    return {"at_s": at_s, "event": "step", "step": number, "loss": 2.5, "took_us": took_us, "nodes": nodes}


def log() -> list[Event]:
    """Node 1 is killed in step 3; while node 3 receives, node 2 is killed too; node 4 joins before step 5."""
    parts = {"detect": 10_000, "decide": 1000, "regroup": 9000, "transfer": 20_000, "redo": 100_000}
    two = [pipeline([3, 3], [0, 1], 4), pipeline([3, 3], [2, 3], 4)]
    return [
        {"at_s": 0.5, "event": "costs", "problem": msgspec.to_builtins(costs(4))},
        generation(1.0, 1, [0, 1, 2, 3], two, 0, joined=[0, 1, 2, 3]),
        *(moment(1.1, "grouped", node, generation=1) for node in range(4)),
        step(1.5, 0, 500_000, 4), step(2.0, 1, 50_000, 4), step(2.5, 2, 60_000, 4),
        moment(2.6, "injected", 1, moment="forward", how="kill", step=3),
        {"at_s": 2.61, "event": "lost", "generation": 1, "why": "node 1 has ended (signal 9)"},
        *(moment(2.62, "left", node, generation=1, step=3) for node in (0, 2, 3)),
        generation(2.63, 2, [0, 2, 3], [pipeline([2, 2, 2], [0, 2, 3], 8)], 3, lost=[1], moved=1, moves=[[2, 0, 2]]),
        *(moment(2.64, "grouped", node, generation=2) for node in (0, 2, 3)),
        moment(2.65, "injected", 2, moment="transfer", how="kill", step=3),
        {"at_s": 2.66, "event": "lost", "generation": 2, "why": "node 2 has ended (signal 9)"},
        *(moment(2.67, "left", node, generation=2, step=3) for node in (0, 3)),
        generation(
            2.68, 3, [0, 3], [pipeline([3, 3], [0, 3], 8)], 3, lost=[2], moved=2, moves=[[1, 0, 3], [2, 0, 3]]
        ),
        *(moment(2.69, "grouped", node, generation=3) for node in (0, 3)),
        moment(2.7, "transferred", 0, generation=3, received_bytes=0),
        moment(2.72, "transferred", 3, generation=3, received_bytes=1_500_000),
        step(2.82, 3, 100_000, 2),
        {"at_s": 2.82, "event": "recovered", "generation": 3, "parts_us": parts, "stop_us": 10_000},
        step(3.0, 4, 90_000, 2),
        {"at_s": 3.1, "event": "lost", "generation": 3, "why": ""},
        generation(3.2, 4, [0, 3, 4], [pipeline([2, 2, 2], [0, 3, 4], 8)], 5, joined=[4]),
        *(moment(3.3, "grouped", node, generation=4) for node in (0, 3, 4)),
        *(moment(3.4, "transferred", node, generation=4, received_bytes=0) for node in (0, 3, 4)),
        step(3.6, 5, 80_000, 3),
        {"at_s": 3.6, "event": "recovered", "generation": 4, "parts_us": {**parts, "detect": 0}, "stop_us": 1000},
        {"at_s": 3.7, "event": "done", "steps": 6},
    ]  # fmt: skip


def written(folder: Path) -> Path:
    """A run's folder with that log."""
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in log()))
    return folder
