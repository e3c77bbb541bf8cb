"""One step of a node: its actions of the plan's schedule, one after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runtime.elastic.faults import JobFault
from runtime.elastic.groups import Groups
from runtime.elastic.job import ElasticJob
from runtime.elastic.layer import Layer, loss_of
from runtime.elastic.moments import Moments
from runtime.elastic.sums import to_fixed
from solvers.ir.schedule import Action

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Type and shape of what enters each layer."""
LOSS, LEAVING, ENDING, BEHIND = 0, 1, 2, 3
"""What a vote holds in front: the losses' sum, how many want to meet anew, or to end; then each microbatch's count."""


@dataclass
class Held:
    """What a node needs to walk: the job, its layers by number, the groups of each layer, shapes, injections."""

    job: ElasticJob
    layers: Mapping[int, Layer]
    groups: Groups
    owners: Mapping[int, tuple[int, ...]]
    shapes: Shapes
    moments: Moments


@dataclass
class Walk:
    """A step as it is walked; `vote` is what this node adds to the gradients' vote."""

    held: Held
    step: int
    vote: Tensor = field(init=False)
    _messages: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    _sending: list[Any] = field(default_factory=list)  # kept until the vote is over
    _summing: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.vote = torch.zeros(BEHIND + self.held.job.microbatches, dtype=torch.int64)

    def gradients(self, actions: Sequence[Action]) -> None:
        """Everything up to the updates: afterwards this node's gradients are those of the whole step."""
        at = self.held.moments.at
        for action in actions:
            match action.do:
                case "compute":
                    at("forward" if action.direction == "forward" else "backward", self.step)
                    self._compute(action)
                case "send":
                    self._send(action)
                    at("send", self.step)
                case "recv":
                    at("recv", self.step)
                    self._recv(action)
                case "collective_start":
                    layer = _layer_of(action)
                    gradients = self.held.layers[layer].flat_gradients()
                    self._summing[layer] = self.held.groups.add_up(gradients, self.held.owners[layer])
                    at("all-reduce", self.step)
                case "collective_wait":
                    self.held.groups.wait(self._summing.pop(_layer_of(action)))
                case "update":
                    pass
                case _:
                    raise JobFault(
                        f"the plan's schedule holds a {action.do}, which no walk of a step knows: report this"
                    )

    def _compute(self, action: Action) -> None:
        layer, microbatch = _layer_of(action), _microbatch_of(action)
        last = layer == len(self.held.job.layers) - 1
        if action.direction == "forward":
            given = self._messages.pop(("forward", microbatch), None)
            if layer == 0:
                given, _ = self.held.job.batches(self.step, microbatch)
            assert given is not None, "a layer's input was computed here or received"
            output = self.held.layers[layer].forward(self.step, microbatch, given)
            if last:
                self._score(microbatch, output)
            else:
                self._messages["forward", microbatch] = output
            return
        gradient = self.held.layers[layer].backward(microbatch, self._messages.pop(("backward", microbatch)))
        if layer:
            assert gradient is not None, "only the first layer's input has no gradient"
            self._messages["backward", microbatch] = gradient

    def _score(self, microbatch: int, output: Tensor) -> None:
        """The loss, which goes into the vote, and the first gradient."""
        job = self.held.job
        _, targets = job.batches(self.step, microbatch)
        loss, gradient = loss_of(job, output, targets)
        self.vote[LOSS] += to_fixed(loss, job.microbatches, "the loss")
        self.vote[BEHIND + microbatch] += 1
        self._messages["backward", microbatch] = gradient

    def _send(self, action: Action) -> None:
        key = str(action.direction), _microbatch_of(action)
        value = self._messages.pop(key)
        kind, shape = self.held.shapes[self._boundary(action, sent=True)]
        if tuple(value.shape) != tuple(shape) or value.dtype != getattr(torch, kind):
            raise JobFault(
                f"in step {self.step} microbatch {key[1]} has {value.dtype} numbers of shape {tuple(value.shape)} "
                f"between two layers, where the job was measured with {kind} of shape {tuple(shape)}: give all "
                "microbatches the same shape"
            )
        self._sending.append(self.held.groups.send(value, _peer_of(action), _tag(*key)))

    def _recv(self, action: Action) -> None:
        """What arrives has the shape of what the job was measured with; a sender of another shape has been refused."""
        key = str(action.direction), _microbatch_of(action)
        kind, shape = self.held.shapes[self._boundary(action, sent=False)]
        value = torch.empty(shape, dtype=getattr(torch, kind))
        self.held.groups.recv(value, _peer_of(action), _tag(*key))
        self._messages[key] = value

    def _boundary(self, action: Action, *, sent: bool) -> int:
        """The layer that a message enters, or whose input's gradient it is."""
        in_front = sent is (action.direction == "backward")
        return min(self.held.layers) if in_front else max(self.held.layers) + 1


def _tag(direction: str, microbatch: int) -> int:
    """Tells the messages of two nodes apart."""
    return 2 * microbatch + (direction == "backward")


def _layer_of(action: Action) -> int:
    assert action.op is not None, f"a {action.do} has no layer"
    return action.op


def _microbatch_of(action: Action) -> int:
    assert action.microbatch is not None, f"a {action.do} has no microbatch"
    return action.microbatch


def _peer_of(action: Action) -> int:
    assert isinstance(action.peer, int), f"a {action.do} has no peer"
    return action.peer
