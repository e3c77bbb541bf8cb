"""`python -m experiments.joint.noise`: how much longer planned passes take where every operator's time varies.

A plan is made on a device without noise. Then the same plan, that of swaps alone, that of recomputation alone, and
storing everything are carried out on devices whose operators each take up to so much more or less: executed by shapes
on sim, `growth` is the mean pass of the noisy device over that of the quiet one, less 1. A pass begins with the first
block and ends with its backward pass.
"""

import gc
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click
import torch

from experiments.command_line import run
from experiments.hardware import read_hardware
from experiments.recompute.models import MODELS, Size, Trainee
from runtime.device import memory_stats, use_sim
from runtime.recompute import plan
from runtime.recompute.joint import JointStep
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.solution import Limits, Solution, Status, Watch
from solvers.joint import Joint
from solvers.joint.choice import keep_all
from solvers.joint.draft import Draft, draft_of, measure, plan_of
from solvers.joint.given import Given, given_of
from solvers.joint.singles import recompute_only, swap_only

SIZE = Size(layers=6, width=256, heads=4, tokens=256, batch=16, vocabulary=512)
"""Operators outlast their launches."""
ROOMY_BYTES = 1 << 33
LEVELS = (0.05, 0.1, 0.2)
PASSES = 4
"""Planned ones of a training."""

Planner = Callable[[Given, Limits], Draft | None]


def _jointly(given: Given, limits: Limits) -> Draft | None:
    found = Joint().solve(given.problem, limits).plan
    return None if found is None else draft_of(given, found)


PLANNERS: dict[str, Planner] = {
    "all stored": lambda given, _: Draft(keep_all(given).again),
    "recomputed": recompute_only,
    "swapped": swap_only,
    "joint": _jointly,
}


@dataclass(frozen=True)
class _Asked:
    """A solver that answers with what a planner drafts, or with a plan that there is."""

    planner: Planner
    known: JointPlan | None = None

    def solve(self, problem: JointProblem, limits: Limits, watch: Watch | None = None) -> Solution[JointPlan]:
        """The plan with the time that it takes in this problem."""
        del watch
        given = given_of(problem)
        draft = self.planner(given, limits) if self.known is None else draft_of(given, self.known)
        if draft is None:
            return Solution(status=Status.UNKNOWN, plan=None, solver="asked", reason="this technique alone has no plan")
        took = measure(given, draft).objective_us
        return Solution(
            status=Status.FEASIBLE, plan=plan_of(given, draft), solver="asked", objective=took, base=given.base_us
        )


@dataclass(frozen=True)
class Growth:
    """By noise: the mean growth of a technique's pass, and that of the longest single one."""

    quiet_us: float
    mean: tuple[float, ...]
    worst: tuple[float, ...]


def _device(noise: float = 0.0, seed: int = 0) -> torch.device:
    gc.collect()
    hardware = read_hardware("sim-small")
    return use_sim(hardware, shapes_only=True, capacity_bytes=ROOMY_BYTES, noise=noise, seed=seed).device


def _step(trainee: Trainee, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    trainee.loss().backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _passes(
    name: str, device: torch.device, budget: int, asked: _Asked, limits: Limits
) -> Iterator[tuple[float, JointPlan]]:
    """How long each planned pass of a training takes, and by which plan; nothing of the training is left."""
    torch.manual_seed(0)
    trainee = MODELS[name](SIZE, device)
    optimizer = torch.optim.AdamW(trainee.model.parameters(), lr=1e-3, foreach=False)
    session = plan(trainee.model, budget=budget, solver="greedy-joint", blocks=trainee.blocks)
    session.plans.whole = JointStep(asked, limits, device)
    for index in range(1 + PASSES):
        with session:
            _step(trainee, optimizer)
        took, decided = (session.report().pass_us, session.solution) if index else (None, None)
        if took is not None and decided is not None and decided.plan is not None:
            yield took, decided.plan


def peak_of(name: str) -> int:
    """The most that a step takes without a plan."""
    device = _device()
    trainee = MODELS[name](SIZE, device)
    optimizer = torch.optim.AdamW(trainee.model.parameters(), lr=1e-3, foreach=False)
    _step(trainee, optimizer)
    torch.accelerator.reset_peak_memory_stats(device)
    _step(trainee, optimizer)
    return memory_stats(device).peak_bytes


def growth_of(name: str, technique: str, budget: int, seeds: int, limits: Limits) -> Growth:
    """Of one technique on one model."""
    quiet, known = list(_passes(name, _device(), budget, _Asked(PLANNERS[technique]), limits))[-1]
    fixed, mean, worst = _Asked(PLANNERS[technique], known), [], []
    for noise in LEVELS:
        took = [
            us for seed in range(1, 1 + seeds) for us, _ in _passes(name, _device(noise, seed), budget, fixed, limits)
        ]
        mean.append(sum(took) / len(took) / quiet - 1)
        worst.append(max(took) / quiet - 1)
    return Growth(quiet, tuple(mean), tuple(worst))


@click.command("noise")
@click.option("--model", "models", multiple=True, default=("gpt", "resnet", "gpt2"), show_default=True)
@click.option(
    "--share", type=click.FloatRange(0, 1, min_open=True), default=0.6, show_default=True, help="Of the peak."
)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--work", type=click.FloatRange(0, min_open=True), default=0.1, show_default=True, help="Of a planner.")
def command(models: tuple[str, ...], share: float, seeds: int, work: float) -> int:
    """Print a table: a row for each technique on each model."""
    click.echo(
        "| model | technique | pass (µs) | " + " | ".join(f"±{noise:.0%}: mean, worst" for noise in LEVELS) + " |"
    )
    click.echo("|---|---|---|" + "---|" * len(LEVELS))
    for name in models:
        budget = int(share * peak_of(name))
        for technique in PLANNERS:
            most = ROOMY_BYTES if technique == "all stored" else budget
            try:
                found = growth_of(name, technique, most, seeds, Limits(time_s=math.inf, work=work))
            except InfeasibleBudget:
                click.echo(f"| {name} | {technique} | no plan |" + " |" * len(LEVELS))
                continue
            cells = [f"{mean:+.2%}, {worst:+.2%}" for mean, worst in zip(found.mean, found.worst, strict=True)]
            click.echo(f"| {name} | {technique} | {found.quiet_us:,.0f} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(run(command, "joint.noise", sys.argv[1:]))
