"""Heuristics against optimal: every figure is that of the swap room, and the budget is the share that it says."""

from pathlib import Path

import pytest

from experiments.reproduction import Cells, Result
from experiments.smartswap.optimal import POLICIES, optimal, within
from runtime.device.native import why_missing
from solvers.ir import Limits
from solvers.ir.codec import problem_to_raw, write_json
from solvers.swap import CapuchinSwap, GreedySwap, MilpSwap
from solvers.swap.free_times import exact_free_times, free_times
from solvers.swap.instances import llama2
from solvers.swap.limited import cost_of_missing

pytestmark = pytest.mark.skipif(why_missing("runtime._sim") is not None, reason="the simulated device is not built")
PROFILE = {"layers": 2, "width": 64, "heads": 2, "context": 32, "batch": 4}
LIMITS = {"time_s": 600.0, "work": 0.2}
PROBLEM = llama2(layers=2)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder: Path = tmp_path_factory.mktemp("optimal")
    write_json(folder / "tiny.json", problem_to_raw(PROBLEM))
    return optimal(
        Cells(folder / "cells", hardware_names=("sim-small",)),
        instance=str(folder / "tiny.json"),
        profile=PROFILE,
        device="sim-small",
        budgets=[0.7, 0.001],
        links_gb_per_s=[12],
        milp={"whole_tensors": 0},
        limits=LIMITS,
        delays=[1, 4],
    )


def test_a_budget_is_a_share_of_what_the_peak_adds() -> None:
    low, high = min(PROBLEM.memory_bytes), max(PROBLEM.memory_bytes)
    half = within(PROBLEM, 0.5, 6)
    assert half.budget_bytes == (low + high) // 2
    assert (half.link.out_bytes_per_s, half.link.in_bytes_per_s) == (6 * 10**9, 6 * 10**9)
    assert half.link.latency_us == PROBLEM.link.latency_us
    assert within(PROBLEM, 1.0, 6).budget_bytes == high


def test_the_figures_are_those_of_the_room(result: Result) -> None:
    label, problem, limits = (
        "llama budget 0.7 link 12",
        within(PROBLEM, 0.7, 12),
        Limits(time_s=LIMITS["time_s"], work=LIMITS["work"]),
    )
    base = sum(op.time_us for op in problem.ops)
    milp = cost_of_missing(problem, MilpSwap(whole_tensors=0), limits)
    wanted = {
        "printed greedy": GreedySwap(printed=True).solve(problem, limits).objective,
        "repaired greedy, limited": cost_of_missing(problem, GreedySwap(), limits).limited_us,
        "capuchin": CapuchinSwap().solve(problem, limits).objective,
        "milp, limited": milp.limited_us,
        "milp": milp.full_us,
        "bound": milp.full.bound,
    }
    for name, end_us in wanted.items():
        assert end_us is not None
        assert result.named(f"stall, {name}").points[label] == pytest.approx(100 * (end_us - base) / base), name
    assert milp.cost_us is not None
    assert milp.cost_us > 0
    missing = result.named("cost of missing information, milp").points[label]
    assert missing == pytest.approx(100 * milp.cost_us / base)
    assert milp.full.overhead_gap is not None
    assert result.named("overhead gap, milp").points[label] == pytest.approx(100 * milp.full.overhead_gap)


def test_the_free_time_list_is_the_rooms(result: Result) -> None:
    label, problem = "llama budget 0.7 link 12", within(PROBLEM, 0.7, 12)
    plan = GreedySwap(printed=True).solve(problem, Limits()).plan
    assert plan is not None
    exact = exact_free_times(problem, plan)
    for delay in (1, 4):
        listed = free_times(problem, plan, delay=delay)
        early = [op < true for op, true in zip(listed, exact, strict=True)]
        late = [op > true for op, true in zip(listed, exact, strict=True)]
        assert result.named(f"released too early, delay {delay}").points[label] == pytest.approx(
            100 * sum(early) / len(early)
        )
        assert result.named(f"released too late, delay {delay}").points[label] == pytest.approx(
            100 * sum(late) / len(late)
        )
    one, four = (result.named(f"released too early, delay {delay}").numbers() for delay in (1, 4))
    assert four[label] <= one[label]


def test_a_budget_that_nothing_meets_has_no_numbers(result: Result) -> None:
    for graph in ("llama", "gpt"):
        for name in (*POLICIES, "bound"):
            assert result.named(f"stall, {name}").points[f"{graph} budget 0.001 link 12"] == "no plan"
    counted = result.named("settings where it costs nothing, milp").points
    (free,) = counted.values()
    assert free in (0.0, 1.0)  # of the two settings that have a plan, the Llama's costs something


def test_the_profile_is_swapped_too(result: Result) -> None:
    points = {name: result.named(f"stall, {name}").points["gpt budget 0.7 link 12"] for name in ("bound", "milp")}
    assert isinstance(points["bound"], float)
    assert isinstance(points["milp"], float)
    assert 0 <= points["bound"] <= points["milp"]
    assert result.failed == 0
