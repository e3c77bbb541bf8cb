"""Small models to train with and without swapping, and schedules written by hand, right or wrong."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from runtime.profile import profile_step
from solvers.ir.fields import TensorId
from solvers.ir.graph import OpGraph, Tensor
from solvers.ir.schedule import Action, Schedule

WARMUP = 2


class Trainee(NamedTuple):
    """A model with a step that trains it and returns its loss."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], torch.Tensor]


Make = Callable[[torch.device], Trainee]


class Residual(nn.Module):
    """Embedding, then blocks of norm, linear, GELU, dropout and an in-place ReLU, with residual connections."""

    def __init__(self, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.dropout = dropout

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of shape (tokens, 64), the output weight tied to the embedding's."""
        hidden = self.embedding(tokens)
        for norm, wide, narrow in zip(self.norms, self.wide, self.narrow, strict=True):
            inner = functional.gelu(wide(norm(hidden)))
            inner = functional.dropout(inner, self.dropout, self.training)
            hidden = hidden + functional.relu(narrow(inner), inplace=True)
        return functional.linear(hidden, self.embedding.weight)


def small(device: torch.device, *, width: int = 32, depth: int = 2, tokens: int = 48, dropout: float = 0.1) -> Trainee:
    """A small residual network with AdamW and gradient clipping, the same on every device."""
    torch.manual_seed(1)
    model = Residual(width, depth, dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.randint(64, (tokens,)).to(device)
    target = torch.randint(64, (tokens,)).to(device)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(data), target)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return Trainee(model, optimizer, step)


def graph_of(make: Make, device: torch.device) -> OpGraph:
    """The profile of a step; the trainee that was profiled is gone."""
    trainee = make(device)
    return profile_step(trainee.step, device, model=trainee.model, optimizer=trainee.optimizer, warmup=WARMUP)


def warm(make: Make, device: torch.device) -> Trainee:
    """A trainee with its optimizer's state in place, at the step that a profile starts from."""
    trainee = make(device)
    for _ in range(WARMUP):
        trainee.step()
    return trainee


@dataclass(frozen=True)
class Training:
    """What some steps of training left behind, on the CPU."""

    losses: tuple[torch.Tensor, ...]
    gradients: tuple[torch.Tensor | None, ...]
    parameters: tuple[torch.Tensor, ...]

    def equals(self, other: "Training") -> bool:
        """Whether every bit is the same."""
        return all(
            (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
            for mine, theirs in (
                (self.losses, other.losses),
                (self.gradients, other.gradients),
                (self.parameters, other.parameters),
            )
            for a, b in zip(mine, theirs, strict=True)
        )


def train(make: Make, device: torch.device, run: Callable[[Trainee], torch.Tensor], steps: int = 2) -> Training:
    """Warm up, then train some steps, each of them executed by `run`."""
    trainee = warm(make, device)
    torch.manual_seed(2)
    losses = tuple(run(trainee).cpu() for _ in range(steps))
    parameters = list(trainee.model.parameters())
    return Training(
        losses,
        tuple(None if parameter.grad is None else parameter.grad.cpu() for parameter in parameters),
        tuple(parameter.detach().cpu() for parameter in parameters),
    )


def plainly(trainee: Trainee) -> torch.Tensor:
    """A step without any plan."""
    return trainee.step()


class Move(NamedTuple):
    """One swap: out after op `out`, released before op `release`, back before op `back`."""

    tensor: TensorId
    out: int
    release: int
    back: int


def candidates(graph: OpGraph, least_bytes: int = 1) -> list[tuple[Tensor, int, int]]:
    """Tensors that autograd keeps, with their last forward and first backward use."""
    found = []
    for tensor in graph.tensors:
        touched = sorted({*tensor.uses, *(() if tensor.born is None else (tensor.born,))})
        forward = [op for op in touched if graph.ops[op].phase == "forward"]
        backward = [op for op in touched if graph.ops[op].phase == "backward"]
        if forward and backward and forward[-1] + 2 < backward[0] and tensor.bytes >= least_bytes:
            found.append((tensor, forward[-1], backward[0]))
    return [entry for entry in found if entry[0].kind in ("activation", "other")]


def sensible(graph: OpGraph, least_bytes: int = 1) -> list[Move]:
    """Everything that can leave does, is released one op later, and is back one op early."""
    return [Move(tensor.id, last, last + 2, first - 1) for tensor, last, first in candidates(graph, least_bytes)]


def schedule_of(graph: OpGraph, moves: list[Move]) -> Schedule:
    """The schedule of these moves, each of its waits written out."""
    ids, actions, place = count(), [], dict[tuple[str, TensorId], int]()
    sizes, uses = {t.id: t.bytes for t in graph.tensors}, {t.id: t.uses for t in graph.tensors}
    last, due = None, defaultdict[int, list[int]](list)

    def add(lane: str, do: str, op: int, name: TensorId | None, after: list[int]) -> int:
        data = () if name is None else (name,)
        size = 0 if name is None else sizes[name]
        waits = tuple(sorted(after))
        actions.append(Action(id=next(ids), lane=lane, do=do, op=op, data=data, bytes=size, after=waits))  # type: ignore[arg-type]
        return actions[-1].id

    for op in range(len(graph.ops)):
        for move in (move for move in moves if move.release == op):
            last = add("0.compute", "release", op, move.tensor, [place["out", move.tensor]])
        for move in (move for move in moves if move.back == op):
            place["in", move.tensor] = add("0.in", "swap_in", op, move.tensor, [] if last is None else [last])
            use = next((use for use in uses[move.tensor] if use >= op), None)
            if use is not None:
                due[use].append(place["in", move.tensor])
        last = add("0.compute", "compute", op, None, due[op])
        for move in (move for move in moves if move.out == op):
            place["out", move.tensor] = add("0.out", "swap_out", op, move.tensor, [last])
    return Schedule(lanes=("0.compute", "0.out", "0.in"), actions=tuple(actions))
