"""A pipeline stage in an ordinary script: its layers, one step by 1F1B between two or more processes, log and kills.

The job is `runtime.elastic`'s, layer by layer, with plain sums of gradients; pipelines are alike and stay so, as in any
script that a launcher restarts.
"""

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from runtime.elastic import load_job
from runtime.elastic.layer import Layer, loss_of
from runtime.elastic.messages import Injection
from runtime.elastic.moments import SIGNALS

LOG, ASKED = "events.jsonl", "asked.json"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is trained: `every` steps a checkpoint is written; `hang_s`: no message takes longer."""

    job: str
    nodes: int
    pipeline: int
    steps: int
    every: int
    hang_s: float
    kills: tuple[Injection, ...]


def read_asked(folder: Path) -> Asked:
    """What the driver wrote."""
    return msgspec.json.decode((folder / ASKED).read_bytes(), type=Asked)


class Diary:
    """Events of all processes, a JSON line each, by the machine's monotonic clock."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, event: str, **more: Any) -> None:
        """Something happened now."""
        line = json.dumps({"at_s": time.monotonic(), "event": event, **more}) + "\n"
        os.write(self._file, line.encode())


class Kills:
    """Ends or stops this process where it was asked for, once: a file says that it has happened."""

    def __init__(self, asked: Asked, folder: Path, diary: Diary, rank: int) -> None:
        self._mine = [one for one in asked.kills if one.node == rank]
        self._folder, self._diary = folder, diary

    def at(self, moment: str, step: int) -> None:
        """The process is at this moment of a step."""
        for one in self._mine:
            done = self._folder / f"done-{one.node}-{one.step}"
            if (one.moment, one.step) == (moment, step) and not done.exists():
                done.touch()
                self._diary.add("injected", node=one.node, step=step, how=one.how)
                os.kill(os.getpid(), SIGNALS[one.how])


class Stage:
    """The layers of one stage of pipeline `replica`, and its neighbours in `group` by their ranks there."""

    def __init__(self, asked: Asked, replica: int, stage: int, kills: Kills, peers: list[int]) -> None:
        torch.set_num_threads(1)
        self.job = load_job(asked.job, torch.device("cpu"))
        share, rest = divmod(len(self.job.layers), asked.pipeline)
        first = stage * share + min(stage, rest)
        own = range(first, first + share + (stage < rest))
        self.layers = [Layer(self.job, number, canonical=False) for number in own]
        replicas = asked.nodes // asked.pipeline
        some, more = divmod(self.job.microbatches, replicas)
        begin = replica * some + min(replica, more)
        self.microbatches = range(begin, begin + some + (replica < more))
        self._stage, self._depth, self._peers, self._kills = stage, asked.pipeline, peers, kills
        self._wait = timedelta(seconds=asked.hang_s)
        self._sending: list[tuple[Any, Tensor]] = []

    @property
    def last(self) -> bool:
        """Whether it computes the loss."""
        return self._stage == self._depth - 1

    def gradients(self, step: int) -> Tensor:
        """One step by 1F1B, up to the gradients' sums; returns the sum of its microbatches' losses."""
        total = torch.zeros(1, dtype=torch.float64)
        waiting: list[tuple[int, Tensor | None]] = []
        fill = self._depth - 1 - self._stage
        for microbatch in self.microbatches:
            waiting.append((microbatch, self._forward(step, microbatch, total)))
            if len(waiting) > fill:
                self._backward(*waiting.pop(0), step)
        for microbatch, gradient in waiting:
            self._backward(microbatch, gradient, step)
        for work, _ in self._sending:
            work.wait(self._wait)
        self._sending.clear()
        return total

    def update(self) -> None:
        """The optimizer's step of every layer."""
        for layer in self.layers:
            layer.update()

    def state(self) -> dict[str, Any]:
        """Of all layers, by number."""
        return {str(layer.number): layer.state() for layer in self.layers}

    def load(self, state: dict[str, Any]) -> None:
        """What `state` gave."""
        for layer in self.layers:
            layer.load(state[str(layer.number)])

    def _forward(self, step: int, microbatch: int, total: Tensor) -> Tensor | None:
        """On the last stage the loss's gradient."""
        self._kills.at("forward", step)
        inputs, targets = self.job.batches(step, microbatch)
        hidden = inputs if self._stage == 0 else self._recv(self._stage - 1)
        for layer in self.layers:
            hidden = layer.forward(step, microbatch, hidden)
        if not self.last:
            self._send(hidden, self._stage + 1)
            return None
        loss, gradient = loss_of(self.job, hidden, targets)
        total += loss.double()
        return gradient

    def _backward(self, microbatch: int, gradient: Tensor | None, step: int) -> None:
        self._kills.at("backward", step)
        back = self._recv(self._stage + 1) if gradient is None else gradient
        for layer in reversed(self.layers):
            given = layer.backward(microbatch, back)
            if given is not None:
                back = given
        if self._stage:
            self._send(back, self._stage - 1)

    def _send(self, value: Tensor, stage: int) -> None:
        """Single precision of any shape of up to eight dimensions: its shape goes first."""
        shape = torch.zeros(8, dtype=torch.int64)
        shape[: value.dim()] = torch.tensor(value.shape)
        for one in (shape, value):
            self._sending.append((dist.isend(one, self._peers[stage]), one))

    def _recv(self, stage: int) -> Tensor:
        shape = torch.zeros(8, dtype=torch.int64)
        self._received(shape, stage)
        value = torch.empty([int(size) for size in shape if size])
        self._received(value, stage)
        return value

    def _received(self, value: Tensor, stage: int) -> None:
        work = dist.irecv(value, self._peers[stage])
        assert work is not None, "this process is a member"
        work.wait(self._wait)
