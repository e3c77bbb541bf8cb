"""Executed plans in a race: one profile of the model, a plan for each budget, and the executor around each step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec

import torch

from experiments.models.workload import Step, Workload
from runtime.device import limited_memory
from runtime.profile import profile_step
from runtime.profile.machine import by_direction, hardware_of
from runtime.swap import SwapExecutor
from solvers.ir.graph import OpGraph
from solvers.ir.hardware import Hardware
from solvers.ir.solution import Limits
from solvers.planner import planner

WARMED = 2
"""Steps before the one that is profiled, and before plans are executed: the optimizer's states are there then."""
OPTIMIZING, ENGINE, QUICK = "milp-swap", "highspy", "greedy-swap"


@dataclass
class Plans:
    """Plans one model for several budgets, on a profile that is made once; hardware is measured unless given."""

    limits: Limits = field(default_factory=lambda: Limits(time_s=5.0))
    hardware: Hardware | None = None
    solver: str = field(default_factory=lambda: OPTIMIZING if find_spec(ENGINE) is not None else QUICK)
    _graph: OpGraph | None = None

    @contextmanager
    def executed(
        self, work: Workload, device: torch.device, budget_bytes: int, tell: Callable[[torch.Tensor], None]
    ) -> Iterator[tuple[Step, str]]:
        """A step under the plan for that budget, and what is to be said of the plan; no more memory is there inside.

        `tell` is given the losses of the steps that this takes beforehand.
        """
        for _ in range(WARMED):
            tell(work.step())
        if self._graph is None:
            losses: list[torch.Tensor] = []

            def step() -> torch.Tensor:
                losses.append(work.step())
                return losses[-1]

            self._graph = profile_step(step, device, model=work.model, optimizer=work.optimizer, warmup=0)
            tell(losses.pop())
        hardware = by_direction(self.hardware or hardware_of(device))
        answer = planner(self.solver, limits=self.limits)(self._graph, hardware, budget_bytes)
        executor = SwapExecutor(answer.plan, self._graph, device, trace=False)
        gap = "no bound" if answer.overhead_gap is None else f"overhead gap {answer.overhead_gap:.1%}"
        with limited_memory(device, budget_bytes):
            told = f"{self.solver}, {answer.status.value}, {gap}, predicted {answer.objective:.0f} us"
            yield lambda: executor.run(work.step).value, told
