"""What is done to programs: tensors sent away by hand, a schedule executed step by step."""

import contextlib
import random
import weakref
from collections.abc import Callable, Iterator

import torch
from torch import nn

from runtime.device import use_sim
from runtime.profile import profile_step
from runtime.swap import SwapExecutor, ensure_in, is_swapped_out, swap_out
from solvers.ir.solution import Limits
from solvers.swap import GreedySwap
from solvers.swap.lower import lower
from solvers.swap.make import make_swap_problem
from tests.runtime.swap.fuzz.layers import all_tensors
from tests.runtime.swap.fuzz.program import Program
from tests.runtime.swap.fuzz.training import Loop, Trace, Untreated, tensors_of

WARM = 2
"""Iterations that a schedule's profile leaves alone, so that the optimizer has its state."""


class ByHand(Untreated):
    """After each part of the forward pass, and before every iteration, some tensors leave, whatever they are."""

    def __init__(self, seed: int, share: float = 0.3) -> None:
        self._rng = random.Random(seed)
        self._share = share
        self._loop: Loop | None = None
        self.left = 0

    @contextlib.contextmanager
    def around(self, loop: Loop) -> Iterator[None]:
        """Remember whose tensors they are; at the end all are back."""
        self._loop = loop
        yield
        ensure_in(loop.model, *loop.optimizers, [hidden for _, hidden in loop.kept])

    def turn(self, run: Callable[[], None]) -> None:
        """Send some of everything that lives between iterations away first."""
        assert self._loop is not None
        parameters = list(all_tensors(self._loop.model))
        gradients = [one.grad for one in parameters if one.grad is not None]
        for tensor in [*parameters, *gradients, *tensors_of(self._loop.optimizers)]:
            self._perhaps(tensor)
        run()

    def tick(self, hidden: torch.Tensor) -> None:
        """Send this activation away, or one of the graph behind it, or let one leave when its gradient arrives."""
        self._perhaps(hidden)
        if hidden.requires_grad and self._rng.random() < self._share:
            known = weakref.ref(hidden)  # a hook that held its tensor would keep a graph without backward for ever
            hidden.register_hook(lambda gradient: self._perhaps(known()))  # type: ignore[no-untyped-call]

    def before_copy(self, model: nn.Module) -> None:
        """A deep copy reads past the dispatcher."""
        ensure_in(model)

    def _perhaps(self, tensor: torch.Tensor | None) -> None:
        if self._rng.random() >= self._share or tensor is None or tensor.is_cpu:
            return
        if tensor.untyped_storage().nbytes() > 0 and not is_swapped_out(tensor):
            swap_out(tensor.detach())
            self.left += 1


class Planned(Untreated):
    """Every iteration is executed under the greedy schedule of the program's plain iteration, changes or not."""

    def __init__(self, program: Program, device: torch.device, fraction: float) -> None:
        self._executor = _executor(program, device, fraction)
        self.as_planned = 0

    def turn(self, run: Callable[[], None]) -> None:
        """Run it as a step of the executor."""
        if self._executor is None:
            run()
            return
        with self._executor.step() as step:
            run()
        self.as_planned += step.counts.as_planned

    def before_copy(self, model: nn.Module) -> None:
        """A deep copy reads past the dispatcher."""
        ensure_in(model)


def _executor(program: Program, device: torch.device, fraction: float) -> SwapExecutor | None:
    """For the first iteration that changes nothing; None where the budget has no plan, or all iterations change."""
    plain = [number for number, turn in enumerate(program.turns) if not turn.changes]
    if not plain:
        return None
    loop = Loop(program, device)
    graph = profile_step(lambda: loop.run_turn(plain[0], Trace()), device, warmup=WARM)
    budget = int(fraction * max(graph.memory_bytes))
    problem = make_swap_problem(graph, use_sim(races="raise").hardware, budget, least_tensor_bytes=1)
    plan = GreedySwap().solve(problem, Limits()).plan
    return None if plan is None else SwapExecutor(lower(problem, plan), graph, device, trace=False)
