"""Loops whose outcome is compared bit by bit: with a session and without."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from experiments.recompute.models import MODELS, Size, Trainee
from runtime.device import limited_memory, memory_stats
from runtime.recompute import RecomputeSession, plan
from solvers.ir.solution import Limits

SMALL = Size(layers=4, width=32, heads=2, tokens=64, batch=16, vocabulary=64)
"""Every byte is computed; activations outweigh the parameters."""
STEPS = 4
QUICK = Limits(time_s=math.inf, work=0.02)
"""What a planner of small models gets, of deterministic work."""

Loop = Callable[[Trainee, torch.optim.Optimizer, int], torch.Tensor]


@dataclass
class Outcome:
    """What training leaves behind, on the CPU, and what it took."""

    tensors: list[torch.Tensor]
    peaks: list[int] = field(default_factory=list)
    session: RecomputeSession | None = None

    def equals(self, other: "Outcome") -> bool:
        """Losses, gradients, parameters, buffers and the states of random generators, bit by bit."""
        pairs = zip(self.tensors, other.tensors, strict=True)
        return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def ordinary(trainee: Trainee, optimizer: torch.optim.Optimizer, _: int) -> torch.Tensor:
    """One step as anybody writes it."""
    optimizer.zero_grad()
    loss = trainee.loss()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def limited(device: torch.device, budget: int) -> Loop:
    """Ordinary steps, on a device of just that size from the second one on."""

    def loop(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
        with limited_memory(device, budget) if index else nullcontext():
            return ordinary(trainee, optimizer, index)

    return loop


def trained(
    device: torch.device,
    make: str | Callable[[torch.device], Trainee],
    *,
    loop: Loop = ordinary,
    budget: int | None = None,
    solver: str | None = "heu",
    around: bool = False,
    steps: int = STEPS,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Outcome:
    """So many steps; `around`: one session around all of them, else entered for each. `within`: all of it in there."""
    torch.manual_seed(0)
    trainee = MODELS[make](SMALL, device) if isinstance(make, str) else make(device)
    optimizer = torch.optim.AdamW(trainee.model.parameters(), lr=1e-3, foreach=False)
    session = None
    if budget is not None:
        session = plan(trainee.model, budget=budget, solver=solver, blocks=trainee.blocks)
    whole = session if around and session is not None else nullcontext()
    each = nullcontext() if around or session is None else session
    losses, peaks = [], []
    with within(), whole:
        for index in range(steps):
            if session is None:
                torch.accelerator.reset_peak_memory_stats(device)
            with each:
                losses.append(loop(trainee, optimizer, index))
                peaks.append(memory_stats(device).peak_bytes)
    gradients = [one.grad for one in trainee.model.parameters() if one.grad is not None]
    left = [*losses, *gradients, *trainee.model.parameters(), *trainee.model.buffers()]
    states = [torch.get_rng_state()]
    return Outcome([one.detach().cpu().clone() for one in left] + states, peaks, session)
