"""Operators with several results in plans of the whole step: each result stays, goes and comes again by itself."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import pytest
import torch
from torch import nn
from torch.nn import functional

from experiments.recompute.models import Trainee
from runtime.recompute.footprint import Peaks
from runtime.recompute.graph import Place, Step, step_of
from runtime.recompute.layer import Layer, Unit
from runtime.recompute.results_apart import other_results, results_together, units_deed
from runtime.recompute.work import Deed
from solvers.check.plan import judge_of
from solvers.ir.recompute import RecomputeGraphPlan, RecomputeGraphProblem
from solvers.ir.schedule import Action
from solvers.ir.solution import Limits, Solution, Status
from solvers.planner import AnySolver
from tests.accelerators import prepared
from tests.runtime.recompute.training import Outcome, trained
from tests.soaking import some


class Adding(nn.Module):
    """Dropout before an operator that does not save it, and one whose result is written: a mask, and what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(64, 128), nn.Linear(128, 64), nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        hidden = self.second(functional.dropout(self.first(x), 0.2).relu())
        result = functional.dropout(hidden, 0.2)
        result += x
        return torch.sigmoid(self.norm(result)) * 0.5


def adding(device: torch.device) -> Trainee:
    blocks = [Adding() for _ in range(4)]
    model, data = nn.Sequential(nn.Linear(16, 64), *blocks, nn.Linear(64, 8)).to(device), torch.randn(512, 16)
    data = data.to(device)
    return Trainee(model, tuple(blocks), lambda: model(data).square().mean())


def normalizing(device: torch.device) -> Trainee:
    """Group norms whose output only `relu` reads, and whose statistics autograd saves."""
    blocks = [
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU(), nn.Dropout(0.1)) for _ in range(5)
    ]
    model, data = nn.Sequential(nn.Conv2d(3, 8, 1), *blocks).to(device), torch.randn(16, 3, 16, 16).to(device)
    return Trainee(model, tuple(blocks), lambda: model(data).square().mean())


MAKERS: dict[str, Callable[[torch.device], Trainee]] = {"adding": adding, "normalizing": normalizing}


def random_plan(problem: RecomputeGraphProblem, dice: random.Random) -> RecomputeGraphPlan:
    """Valid by construction: what is there goes at random, what lacks runs again, and so does some of the rest."""
    ops, first, count = problem.ops, problem.replays_from, len(problem.ops)
    readers = [[t for t, op in enumerate(ops) if one in op.inputs] for one in range(count)]
    shares = [dice.choice((0.2, 0.5, 0.8)), dice.choice((0.3, 0.7, 0.95))]
    compute, keep, there = list[tuple[int, int]](), list[tuple[int, int]](), set[int]()

    @cache
    def due(one: int, t: int) -> bool:
        return any(by > t or (by < first and ops[by].replay and due(by, t)) for by in readers[one])

    def lacking(one: int, ran: set[int]) -> None:
        if one not in there | ran:
            for other in ops[one].inputs:
                lacking(other, ran)
            ran.add(one)

    for t, op in enumerate(ops):
        keep += [(t, one) for one in there]
        ran = set[int]()
        for one in op.inputs:
            lacking(one, ran)
        for one in range(first):
            if t >= first and dice.random() < 0.02 and ops[one].replay and due(one, t):
                lacking(one, ran)
        compute += [(t, one) for one in sorted(ran | {t})]
        there = {
            one
            for one in there | ran | {t}
            if due(one, t) and (
                not ops[one].replay or any(t < by < first for by in readers[one]) or dice.random() < shares[t >= first]
            )
        }  # fmt: skip
    return RecomputeGraphPlan(compute=tuple(compute), keep=tuple(sorted(keep)))


@dataclass(frozen=True)
class Anything:
    """Answers with a random plan, as little sensible as it may be."""

    seed: int

    def solve(
        self, problem: RecomputeGraphProblem, limits: Limits, watch: object = None
    ) -> Solution[RecomputeGraphPlan]:
        """A plan that the judge accepts."""
        found = random_plan(problem, random.Random(self.seed))
        verdict = judge_of(problem.KIND).decision(problem, found)
        assert not verdict.violations
        return Solution(
            status=Status.FEASIBLE, plan=found, solver="anything", objective=verdict.objective_us,
            base=sum(op.time_us for op in problem.ops),
        )  # fmt: skip


@cache
def plainly(name: str) -> Outcome:
    return trained(prepared("sim"), MAKERS[name], steps=3)


def kept_by(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    solver: AnySolver = Anything(seed)
    monkeypatch.setattr(import_module("runtime.recompute.decisions"), "build_solver", lambda *_: solver)
    return trained(prepared("sim"), MAKERS[name], budget=1 << 30, solver="opt", steps=3)


@pytest.mark.parametrize(
    ("name", "seed"),
    some([("adding", 15), ("adding", 23), ("normalizing", 16), ("normalizing", 2), ("adding", 22), ("normalizing", 8)]),
)
def test_any_valid_plan_takes_what_it_says(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node kept all its results, and let go of all of them: up to a tenth more, and what ran again on demand."""
    kept = kept_by(name, seed, monkeypatch)
    assert kept.equals(plainly(name)) and kept.session is not None
    report = kept.session.report()
    assert (report.on_demand, report.left_out, report.diverged) == (0, 0, 0)
    assert max(kept.peaks[1:]) <= report.predicted_peak_bytes


def step_of_units(*units: Unit) -> tuple[Step, list[Layer]]:
    """A step of one block with these units, each of which the backward pass reads."""
    layer = Layer(units=units, forward_waits_us=(), backward_waits_us=(), input_bytes=512, names=("op",) * 6)
    return step_of([layer], Peaks(1 << 20, 1 << 20, {0: 1 << 20}), beyond_bytes=0, name="", source=""), [layer]


def unit(nodes: tuple[int, ...], values: tuple[tuple[int, int], ...], *, saved: bool = False) -> Unit:
    """It reads what the block is given."""
    return Unit("op", nodes, saved, (), 5.0, 512 * len(values), False, None, values, (512,) * len(values))


def test_a_node_that_writes_in_place_runs_for_what_it_writes_only() -> None:
    """Dropout (node 1), to whose result something is added (node 2): a mask, and the sum."""
    mask, added, last = unit((1, 2), ((1, 1),), saved=True), unit((1, 2), ((2, 0),)), unit((3,), ((3, 0),), saved=True)
    step, layers = step_of_units(mask, added, last)
    first, second, third = (step.places.index(Place("unit", 0, index)) for index in range(3))
    assert other_results(step, layers) == {first: {second}, second: {first}}
    assert units_deed(step, layers, "replay", [first], [second]) == Deed("replay", 0, (1,), ((1, 0),))
    assert units_deed(step, layers, "drop", [second, third], [first]) == Deed("drop", 0, (1, 2, 3), ((1, 1),))
    assert units_deed(step, layers, "replay", [first, second], [second]) == Deed("replay", 0, (1, 2))
    assert units_deed(step, layers, "replay", [first], []) == Deed("replay", 0, (1, 2)), "the sum is there"


def test_what_one_run_makes_comes_at_once_where_nothing_reads_it_before() -> None:
    """Statistics ahead of the output come with it, but those that the backward pass has read by then."""
    step, layers = step_of_units(unit((1,), ((1, 1),), saved=True), unit((1,), ((1, 0),)))
    statistics, output = (step.places.index(Place("unit", 0, index)) for index in range(2))
    begin = step.places.index(Place("begin", 0))

    early, late = (Action(id=0, lane="0.compute", do="recompute", op=op) for op in (statistics, output))
    other, reader = (Action(id=0, lane="0.compute", do="compute", op=op) for op in (0, begin))
    gone = Action(id=0, lane="0.compute", do="release", op=statistics)
    assert results_together(step, layers, [early, other, late, reader]) == [other, early, late, reader]
    for actions in ([early, reader, late], [early, gone, late, reader]):
        assert results_together(step, layers, actions) == actions
