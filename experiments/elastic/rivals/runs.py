"""Runs the job under each rival and reads what came of it: steps, losses, what a failure cost."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from experiments.elastic.rivals.stage import ASKED, LOG, Asked
from runtime.elastic.children import THREADS
from solvers.ir.errors import BayplanError

Event = Mapping[str, Any]
PATIENCE_S, TICK_S = 900.0, 0.2
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
RESTARTS = 9
"""As many as torchrun may need at most here."""


@dataclass(frozen=True)
class Loss:
    """What one failure cost: until the step it hit had counted, less a median step; steps made again that had counted.

    `lost_us` is None where that step never came.
    """

    how: str
    step: int
    lost_us: int | None
    steps_redone: int


@dataclass(frozen=True)
class Ran:
    """A run: the last loss told of each step, the first time each step counted, and what each failure cost."""

    losses: Mapping[int, float]
    step_us: float
    failures: Sequence[Loss]
    restarts: int
    replicas: Mapping[int, int]


def has_torchft() -> bool:
    """Whether it is installed here."""
    return find_spec("torchft") is not None


def ran(launch: Callable[[Path], list[subprocess.Popen[bytes]]], asked: Asked, folder: Path) -> Ran:
    """Launches and waits; raises `BayplanError` with what was said where the training did not come to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ASKED).write_bytes(msgspec.json.encode(asked))
    (folder / LOG).touch()
    running = launch(folder)
    try:
        _wait(running, asked, folder)
    finally:
        for one in running:
            _end(one)
    done = read(events_of(folder))
    missing = [step for step in range(asked.steps) if step not in done.losses]
    if missing:
        raise BayplanError(f"{folder.name} ended without step {missing[0]}: {_last_words(folder)}")
    return done


def _wait(running: Sequence[subprocess.Popen[bytes]], asked: Asked, folder: Path) -> None:
    """Until all have ended; a replica that comes back after the last step would wait for others for ever."""
    began, ended = time.monotonic(), None
    while any(one.poll() is None for one in running):
        now = time.monotonic()
        if ended is None and asked.steps - 1 in read(events_of(folder)).losses:
            ended = now
        if ended is not None and now - ended > asked.hang_s:
            return
        if now - began > PATIENCE_S:
            raise BayplanError(f"{folder.name} did not end within {PATIENCE_S:.0f} s: see {folder}")
        time.sleep(TICK_S)


def _end(one: subprocess.Popen[bytes]) -> None:
    """The launcher and all that it started: its workers are sessions of their own, so they are looked for first."""
    for pid in [one.pid, *_descendants(one.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    one.wait()


def _descendants(pid: int) -> list[int]:
    """Children of a process, and theirs (Linux)."""
    try:
        told = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    children = [int(child) for some in told for child in some]
    return children + [below for child in children for below in _descendants(child)]


def _last_words(folder: Path) -> str:
    said = [path.read_text(errors="replace").strip().splitlines() for path in sorted(folder.glob("said-*"))]
    return " / ".join(lines[-1] for lines in said if lines) or "it said nothing"


def torchrun(asked: Asked, folder: Path) -> list[subprocess.Popen[bytes]]:
    """All processes under one torchrun, which restarts all of them."""
    return [_launch(folder, 0, asked.nodes, asked, ["experiments.elastic.rivals.torchrun_program", str(folder)], {})]


def torchft(asked: Asked, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Each pipeline under a torchrun of its own, which restarts it; the lighthouse says who is there."""
    replicas, program = asked.nodes // asked.pipeline, ["experiments.elastic.rivals.torchft_program", str(folder)]
    silent_ms = str(round(asked.hang_s * 1000))
    words = ["-m", "experiments.elastic.rivals.lighthouse", str(folder), str(replicas), silent_ms]
    running = [_started(words, folder / "said-lighthouse", {})]
    place = folder / "lighthouse"
    while not place.exists():
        if running[0].poll() is not None:
            raise BayplanError(f"torchft's lighthouse has ended: {_last_words(folder)}")
        time.sleep(TICK_S)
    address = {"TORCHFT_LIGHTHOUSE": place.read_text()}
    return running + [
        _launch(folder, one, asked.pipeline, asked, [*program, str(one)], address) for one in range(replicas)
    ]


def _launch(
    folder: Path, number: int, count: int, asked: Asked, program: list[str], more: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """torchrun ends a stopped process only after a while, 30 s if it is not told otherwise; here after `hang_s`.

    Processes that it restarts share a store with those before, where gloo finds the addresses of the dead (torch 2.13):
    each start needs one of its own.
    """
    words = [
        *("--nproc-per-node", str(count), "--max-restarts", str(RESTARTS), "--monitor-interval", "0.1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"),
        *("--shutdown-timeout", str(round(asked.hang_s)), "-m"),
    ]
    return _started(["-m", "torch.distributed.run", *words, *program], folder / f"said-{number}", more)


def _started(words: list[str], said: Path, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A Python of ours, in a session of its own."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environment = {**os.environ, "PYTHONPATH": paths, **dict.fromkeys(THREADS, "1"), OWN_STORE: "1", **more}
    with said.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment,
            start_new_session=True,
        )  # fmt: skip


def events_of(folder: Path) -> list[Event]:
    """What all processes wrote, in order of time."""
    lines = (folder / LOG).read_text().splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda event: float(event["at_s"]))


def read(events: Sequence[Event]) -> Ran:
    """Figures of a log. With replicas several tell the same step: the first one counts, others within it do not."""
    losses: dict[int, float] = {}
    counted: list[tuple[int, float]] = []
    replicas: dict[int, int] = {}
    for event in events:
        if event["event"] == "step":
            if "replicas" in event and event["step"] in losses:
                continue
            losses[event["step"]] = event["loss"]
            replicas[event["step"]] = event.get("replicas", 0)
            counted.append((event["step"], event["at_s"]))
    took = [(at - before) * 1e6 for (old, before), (new, at) in pairwise(counted) if new == old + 1]
    step_us = median(took) if took else 0.0
    failures = [_cost(event, counted, step_us) for event in events if event["event"] == "injected"]
    starts = sum(event["event"] == "started" for event in events)
    return Ran(losses, step_us, failures, starts, replicas)


def _cost(failure: Event, counted: Sequence[tuple[int, float]], step_us: float) -> Loss:
    done = next((at for step, at in counted if at > failure["at_s"] and step >= failure["step"]), None)
    redone, seen = 0, set[int]()
    for step, at in counted:
        redone += step in seen and at > failure["at_s"] and (done is None or at < done)
        seen.add(step)
    lost = None if done is None else round((done - failure["at_s"]) * 1e6 - step_us)
    return Loss(failure["how"], failure["step"], lost, redone)
