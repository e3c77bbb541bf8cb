"""The facade: names lead to solvers, a graph and its hardware to a schedule."""

import dataclasses
import re
from typing import Any

import msgspec
import pytest

from solvers import planner as facade
from solvers.ir import (
    Device,
    EngineMissing,
    Hardware,
    InvalidInput,
    Limits,
    Link,
    Op,
    OpGraph,
    Schedule,
    Tensor,
)
from solvers.ir.errors import InfeasibleBudget
from solvers.kinds import KINDS
from solvers.planner import (
    SOLVERS,
    build_solver,
    lower_plan,
    make_problem,
    plan_ahead,
    planner,
    solver_names,
)
from solvers.replan import after_failure, next_failures
from tests.solvers.replan.clusters import grid

MEGABYTE = 1_000_000
HARDWARE = Hardware(
    name="hand-made",
    devices=(Device(name="0", memory_bytes=1000 * MEGABYTE),),
    links=(Link(a="0", b="host", bytes_per_s=3_000 * MEGABYTE),),
)
GRAPH = OpGraph(
    name="six ops",
    ops=tuple(
        Op(name=f"op{number}", phase="forward" if number < 3 else "backward", time_us=10_000) for number in range(6)
    ),
    tensors=(Tensor(id="A", bytes=60 * MEGABYTE, born=0, uses=(5,), saved=True, kind="activation"),),
    memory_bytes=tuple(size * MEGABYTE for size in (100, 150, 200, 200, 150, 100)),
)
"""A leaves in 20 ms (10-30 ms), so op 2 waits 10 ms; A returns at op 4 (50-70 ms), so op 5 runs at 70-80 ms."""


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_every_name_leads_to_a_frozen_solver_of_its_own_name_and_kind(name: str) -> None:
    entry = SOLVERS[name]
    solver = build_solver(name, {})
    assert getattr(solver, "NAME", None) == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(solver, next(iter(facade.solver_parameters(name)), "anything"), None)
    assert entry.kind in KINDS
    assert len(entry.about) <= 60


@pytest.mark.parametrize("name", solver_names("swap"))
def test_from_graph_to_schedule(name: str) -> None:
    solution = planner(name, limits=Limits(time_s=10, seed=3))(GRAPH, HARDWARE, 150 * MEGABYTE)
    assert (solution.base, solution.solver, solution.seed) == (60_000, name, 3)
    assert solution.objective is not None and solution.objective >= 80_000
    assert solution.objective == 80_000 or not SOLVERS[name].exact
    assert isinstance(solution.plan, Schedule)
    assert [action.do for action in solution.plan.actions if action.data] == ["swap_out", "release", "swap_in"]


@pytest.mark.parametrize("name", solver_names("swap"))
def test_an_infeasible_budget_is_refused_with_the_least_budget(name: str) -> None:
    with pytest.raises(InfeasibleBudget, match="139000000 bytes, the least feasible one exactly 140000000") as caught:
        planner(name)(GRAPH, HARDWARE, 139 * MEGABYTE)
    assert caught.value.least_budget_bytes == 140 * MEGABYTE
    assert planner(name)(GRAPH, HARDWARE, 140 * MEGABYTE).plan is not None


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"graph": 3}, "graph is a int: give an OpGraph"),
        ({"hardware": "sim-small"}, "hardware is a str: give a Hardware"),
        ({"budget": 0.6}, "the budget is 0.6: give whole bytes, or text such as '8GiB' or '55%'"),
        ({"budget": True}, "the budget is True: give whole bytes"),
        ({"budget": "55"}, "budget is '55', a number without a unit: write 55%"),
    ],
)
def test_what_is_no_graph_hardware_or_budget_is_said(asked: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"graph": GRAPH, "hardware": HARDWARE, "budget": 1 << 30} | asked
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        planner("greedy-swap")(given["graph"], given["hardware"], given["budget"])


def test_a_budget_may_be_a_share_of_the_peak() -> None:
    peak = max(GRAPH.memory_bytes)
    asked, told = (planner("greedy-swap")(GRAPH, HARDWARE, budget) for budget in (peak * 9 // 10, "90%"))
    assert asked.plan == told.plan


def test_plans_for_the_next_failures_are_made_ahead() -> None:
    running = grid(2, 2, 4, 4)
    cache = plan_ahead(running, "oobleck")
    assert len(cache) == len(next_failures(running))
    answer = cache.plan(after_failure(running, (3,)))
    assert answer is not None and answer.solver == "oobleck" and answer.plan is not None
    with pytest.raises(InvalidInput, match="dp solves partition problems, but failures make replan ones"):
        plan_ahead(running, "dp")


def test_a_replan_plan_becomes_a_schedule() -> None:
    problem = grid(2, 3, 4, 6, failed=[1])
    plan = build_solver("oobleck", {}).solve(problem, Limits()).plan
    assert plan is not None
    schedule = lower_plan(problem, plan)
    assert {action.do for action in schedule.actions} >= {"collective_start", "collective_wait"}


def test_the_watch_sees_the_search() -> None:
    seen: list[float | None] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append(incumbent)
        return False

    planner("milp-swap", watch=watch)(GRAPH, HARDWARE, 150 * MEGABYTE)
    assert 80_000 in seen


def test_without_a_budget_it_is_the_devices_memory() -> None:
    problem = make_problem("swap", GRAPH, HARDWARE, None)
    assert problem.budget_bytes == 1000 * MEGABYTE  # type: ignore[attr-defined]


def test_unknown_names_are_refused_at_once_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="no solver 'milp-swpa': did you mean 'milp-swap'"):
        planner("milp-swpa")
    with pytest.raises(InvalidInput, match="no parameter of milp-swap 'engin': did you mean 'engine'"):
        planner("milp-swap", {"engin": "highs"})
    with pytest.raises(InvalidInput, match="no kind 'swop': did you mean 'swap'"):
        make_problem("swop", GRAPH, HARDWARE, None)
    with pytest.raises(InvalidInput, match=r"partition problems cannot be made from a graph: this works for .*swap"):
        make_problem("partition", GRAPH, HARDWARE, None)


def test_an_invalid_plan_has_no_schedule() -> None:
    from solvers.ir import SwapPlan

    with pytest.raises(InvalidInput):
        lower_plan(make_problem("swap", GRAPH, HARDWARE, 150 * MEGABYTE), SwapPlan(swaps=()))


def test_a_faulty_plan_is_never_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from solvers.ir import BayplanError
    from solvers.swap import GreedySwap

    honest = GreedySwap().solve(make_problem("swap", GRAPH, HARDWARE, 150 * MEGABYTE), Limits())  # type: ignore[arg-type]
    false = msgspec.structs.replace(honest, objective=70_000)
    monkeypatch.setattr(GreedySwap, "solve", lambda *_: false)
    with pytest.raises(BayplanError, match="does not pass its check"):
        planner("greedy-swap")(GRAPH, HARDWARE, 150 * MEGABYTE)


def test_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    facade.require_engine("milp-swap", "auto")
    with pytest.raises(InvalidInput, match="greedy-swap uses no engine"):
        facade.require_engine("greedy-swap", "highs")
    monkeypatch.setattr("solvers.engines.choice.is_present", lambda engine: False)
    facade.require_engine("milp-swap", "auto")
    with pytest.raises(EngineMissing, match="engine highs needs highspy, which is not installed: pip install highspy"):
        facade.require_engine("milp-swap", "highs")
