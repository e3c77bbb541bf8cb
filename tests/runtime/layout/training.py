"""The same training plain and wrapped, under random layouts, and what of it must be equal."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from runtime.layout import report, unwrap, wrap
from runtime.layout.deciding import Asked, Decided, decide
from runtime.layout.measuring import measure
from runtime.profile.memory import MemoryProfile
from solvers.check.layout.buffers import bound_to_buffers, passes_of
from solvers.ir.layout import LayoutPlan, LayoutProblem, Policy
from solvers.ir.solution import Limits
from tests.runtime.layout.models import loss_of

ROOM = 1 << 30
Make = Callable[[], nn.Module]
MakeOptimizer = Callable[[Sequence[nn.Parameter]], Optimizer]
Loop = Callable[[nn.Module, Optimizer], list[Tensor]]


def adamw(parameters: Sequence[nn.Parameter]) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, fused=True)


def plain_loop(model: nn.Module, optimizer: Optimizer, steps: int = 3) -> list[Tensor]:
    """As people train."""
    losses = []
    for number in range(steps):
        loss = loss_of(model, number)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
    return losses


@dataclass(frozen=True)
class Trained:
    """What training gives: losses, and all states by name, on the host."""

    losses: list[Tensor]
    states: dict[str, Tensor]

    def same_as(self, other: "Trained") -> bool:
        """Whether every bit is the same."""
        pairs = zip(self.losses, other.losses, strict=True)
        return (
            all(torch.equal(one, two) for one, two in pairs)
            and self.states.keys() == other.states.keys()
            and all(torch.equal(one, other.states[name]) for name, one in self.states.items())
        )


def trained(model: nn.Module, losses: list[Tensor]) -> Trained:
    return Trained(losses, {name: one.detach().cpu().clone() for name, one in model.state_dict().items()})


def train_plainly(make: Make, optimizer: MakeOptimizer = adamw, loop: Loop = plain_loop) -> Trained:
    """The whole model on the device."""
    torch.manual_seed(0)
    model = make().to("sim")
    torch.manual_seed(1)
    return trained(model, loop(model, optimizer(list(model.parameters()))))


class Layouts:
    """A model's profile and problem, once; training under any plan."""

    def __init__(
        self,
        make: Make,
        chunk_bytes: int | None = 20_000,
        make_optimizer: MakeOptimizer = adamw,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.make, self.chunk_bytes, self.make_optimizer = make, chunk_bytes, make_optimizer
        self.dtype = dtype
        torch.manual_seed(0)
        model = make()
        optimizer = make_optimizer(list(model.parameters()))
        self.profile: MemoryProfile = measure(
            model,
            lambda: torch.autograd.backward(loss_of(model, 0)),
            torch.device("sim", 0),
            dtype,
        )
        asked = Asked(ROOM, ROOM, None, "search", Limits(), chunk_bytes, True, dtype)
        self.decided: Decided = decide(self.profile, model, optimizer, torch.device("sim", 0), asked)

    @property
    def problem(self) -> LayoutProblem:
        return self.decided.problem

    def random_plan(self, seed: int, policies: tuple[Policy, ...] = ("keep", "swap", "checkpoint")) -> LayoutPlan:
        """Any chunks, any policies, and buffers from the least that are possible up."""
        drawn, problem = random.Random(seed), self.problem
        chunks = range(len(problem.chunks))
        share = drawn.choice((0.0, 0.3, 0.6))
        persistent = tuple(number for number in chunks if drawn.random() < share)
        least = max(len(bound) for bound in bound_to_buffers(problem, passes_of(problem, persistent)))
        away = len(problem.chunks) - len(persistent)
        buffers = least if drawn.random() < 0.4 else drawn.randint(least, max(least, away))
        chosen = tuple(drawn.choice(policies) if block.choice else "keep" for block in problem.blocks)
        return LayoutPlan(persistent=persistent, buffers=buffers, policies=chosen)

    def wrapped(self, plan: LayoutPlan | None, *, overlap: bool = True) -> tuple[nn.Module, Optimizer]:
        """A fresh model under a plan."""
        torch.manual_seed(0)
        model = self.make()
        optimizer = self.make_optimizer(list(model.parameters()))
        wrap(
            model,
            optimizer,
            budget=ROOM,
            host_budget=ROOM,
            plan=plan,
            profile=self.profile,
            chunk_bytes=self.chunk_bytes,
            overlap_update=overlap,
            compute_dtype=self.dtype,
        )
        torch.manual_seed(1)
        return model, optimizer

    def train(
        self, plan: LayoutPlan | None, loop: Loop = plain_loop, *, overlap: bool = True, departs: bool = False
    ) -> Trained:
        """Train under a plan; unless told, no step departs from it."""
        model, optimizer = self.wrapped(plan, overlap=overlap)
        losses = loop(model, optimizer)
        assert departs or report(model).departures == 0, report(model)
        result = trained(model, losses)
        unwrap(model)
        return result
