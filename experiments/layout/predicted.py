"""Layouts of several models executed, and what was predicted of each step and peak.

`python -m experiments.layout.predicted` prints a row a layout; `--out FOLDER` keeps rows and table there.
"""

import argparse
import gc
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.bits import same_bits
from experiments.hardware import read_hardware
from experiments.layout.kinds import BATCH, CONTEXT, Make, kinds, seeded
from experiments.layout.predicted_table import table_of
from experiments.models import Batches
from experiments.rows import commit, rows_to_text
from experiments.tables import to_markdown, to_text
from runtime.device import SimDevice, reset_peak_memory, use_sim
from runtime.layout import report, unwrap, wrap
from runtime.layout.deciding import Asked, Decided, decide
from runtime.layout.measuring import measure
from runtime.layout.report import LayoutReport
from runtime.profile.memory import MemoryProfile, ProfiledBlock
from solvers.check.layout.buffers import bound_to_buffers, passes_of
from solvers.ir import Limits, Row
from solvers.ir.errors import InfeasibleBudget
from solvers.ir.layout import LayoutPlan, LayoutProblem, Policy

ROOM = 1 << 32
STEPS = 4
"""States are made in the first step, and updates overlap from the second on; the last one counts."""
SOLVERS = ("search", "exact-layout", "zero3-offload", "colossal-static", "fsdp")
BUDGET = 0.45
"""Of what the model takes with everything on the device: the solvers' budget."""
NAME = "protrain-predicted"


@dataclass(frozen=True)
class Measured:
    """A model's profile, its problem with all the memory there is, and the losses of plain training."""

    name: str
    make: Make
    profile: MemoryProfile
    roomy: Decided
    losses: list[Tensor]

    @property
    def budget_bytes(self) -> int:
        """What solvers are given."""
        return int(BUDGET * self.roomy.peak_bytes())


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over what is trained."""
    return torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-3, fused=True)


def losses_of(model: nn.Module, optimizer: torch.optim.Optimizer, sim: SimDevice, steps: int = STEPS) -> list[Tensor]:
    """An ordinary loop; each batch is on the device before its step, and the peak is counted from the second one on."""
    batches, losses = Batches(BATCH, CONTEXT, 0), []
    torch.manual_seed(1)
    for number in range(steps):
        inputs, targets = (part.to(sim.device) for part in batches[number])
        if number == 1:
            reset_peak_memory(sim.device)
        optimizer.zero_grad()
        loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
        del loss
    return losses


def opened(noise: float = 0.0, seed: int = 0) -> SimDevice:
    """A fresh device, on which what an earlier run left in circles does not count."""
    gc.collect()
    torch.set_num_threads(1)
    sim = use_sim(read_hardware("sim-small"), noise=noise, seed=seed)
    sim.reset()
    return sim


def measured(name: str, make: Make) -> Measured:
    """The model trained plainly, and measured."""
    sim = opened()
    model = seeded(make).to(sim.device)
    losses = losses_of(model, optimizer_of(model), sim)
    del model
    sim = opened()
    model = seeded(make)
    inputs, targets = (part.to(sim.device) for part in Batches(BATCH, CONTEXT, 0)[0])
    profile = measure(model, lambda: model(inputs, targets).backward(), sim.device)
    asked = Asked(ROOM, ROOM, None, "search", Limits(work=1.0), None, True)
    return Measured(name, make, profile, decide(profile, model, optimizer_of(model), sim.device, asked), losses)


def random_plan(problem: LayoutProblem, seed: int) -> LayoutPlan:
    """Any chunks, any policies, and buffers from the least that are possible up."""
    drawn = random.Random(seed)
    share = drawn.choice((0.0, 0.3, 0.6))
    persistent = tuple(number for number in range(len(problem.chunks)) if drawn.random() < share)
    least = max(len(bound) for bound in bound_to_buffers(problem, passes_of(problem, persistent)))
    away = len(problem.chunks) - len(persistent)
    shares = [drawn.random() for _ in range(3)]
    policies: list[Policy] = ["keep", "swap", "checkpoint"]
    chosen = tuple(drawn.choices(policies, shares)[0] if block.choice else "keep" for block in problem.blocks)
    return LayoutPlan(persistent=persistent, buffers=drawn.randint(least, max(least, away)), policies=chosen)


def solved(one: Measured, solver: str, profile: MemoryProfile | None = None) -> LayoutPlan | str:
    """What a solver decides within the budget, from the model's own profile or another; a sentence where nothing."""
    sim, model = opened(), seeded(one.make)
    asked = Asked(one.budget_bytes, ROOM, None, solver, Limits(work=1.0), None, True)
    try:
        return decide(profile or one.profile, model, optimizer_of(model), sim.device, asked).plan
    except InfeasibleBudget as refused:
        return str(refused)


def executed(one: Measured, plan: LayoutPlan, noise: float = 0.0) -> tuple[LayoutReport, bool]:
    """The report after the last step, and whether losses are plain training's."""
    sim, model = opened(noise), seeded(one.make)
    optimizer = optimizer_of(model)
    wrap(model, optimizer, budget=ROOM, host_budget=ROOM, plan=plan, profile=one.profile, device=sim.device)
    losses = losses_of(model, optimizer, sim)
    told = report(model)
    unwrap(model)
    return told, all(same_bits(ours, theirs) for ours, theirs in zip(losses, one.losses, strict=True))


def misjudged(profile: MemoryProfile, seed: int) -> MemoryProfile:
    """The profile with each block's times too short or too long, by up to half or twice."""
    drawn = random.Random(seed)

    def wrong(block: ProfiledBlock) -> ProfiledBlock:
        forward, backward = (2 ** drawn.uniform(-1, 1) for _ in range(2))
        return replace(
            block,
            forward_us=round(block.forward_us * forward),
            backward_us=round(block.backward_us * backward),
        )

    return replace(profile, blocks=tuple(map(wrong, profile.blocks)))


def rows_of(one: Measured, seeds: int, noise: float) -> Iterator[Row]:
    """Random layouts, every solver's, and those of the searches again with noise and from a wrong profile."""
    for seed in range(seeds):
        yield row_of(one, f"random {seed}", random_plan(one.roomy.problem, seed))
    for solver in SOLVERS:
        yield row_of(one, solver, solved(one, solver), noise=noise)
    yield row_of(one, "search, wrong profile", solved(one, "search", misjudged(one.profile, 0)))


def row_of(one: Measured, policy: str, plan: LayoutPlan | str, noise: float = 0.0) -> Row:
    """One layout executed, with its prediction; or why there is none."""
    found: dict[str, Any] = {}
    if isinstance(plan, LayoutPlan):
        told, equal = executed(one, plan)
        counts = {name: plan.policies[1:-1].count(name) for name in ("keep", "swap", "checkpoint")}
        found = {
            "persistent": len(plan.persistent),
            "chunks": len(told.problem.chunks),
            "buffers": plan.buffers,
            **counts,
            "step_us": told.step_us,
            "predicted_step_us": told.predicted_step_us,
            "planned_step_us": told.planned_step_us,
            "peak_bytes": told.peak_bytes,
            "predicted_peak_bytes": told.predicted_peak_bytes,
            "equal_losses": equal,
            "departures": told.departures,
        }
        if noise:
            noisy, same = executed(one, plan, noise)
            found |= {"noise_step_us": noisy.step_us, "noise_equal_losses": same}
    return Row(
        experiment=NAME,
        asked={"model": one.name, "policy": policy, "noise": noise},
        outcome="ok" if found else "infeasible",
        reason=plan if isinstance(plan, str) else None,
        figures=found,
        provenance=f"sim-executed, hardware sim-small, torch {torch.__version__}",
        commit=commit(),
        seed=0,
    )


def run(models: Mapping[str, Make], seeds: int, noise: float) -> list[Row]:
    """All rows, printed as they come."""
    rows: list[Row] = []
    for name, make in models.items():
        one = measured(name, make)
        for row in rows_of(one, seeds, noise):
            rows.append(row)
            print(" | ".join(table_of([row]).body[0]), flush=True)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Execute, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6, help="random layouts of each model")
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--models", nargs="*", help="names of models; all by default")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    chosen = {name: make for name, make in kinds().items() if not options.models or name in options.models}
    rows = run(chosen, options.seeds, options.noise)
    table = table_of(rows)
    print(to_text([table]))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "predicted.jsonl").write_text(rows_to_text(rows))
        (options.out / "predicted.md").write_text(to_markdown([table]))


if __name__ == "__main__":
    main()
