"""Swapping: the requests of a step under a plan, host bytes, and rows that say what cannot be."""

import math
from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.fit.judge import Budget, allocated_peak
from experiments.fit.swap_plans import OTHERS, Planned, Search
from experiments.fit.swapping import swap_row
from experiments.fit.trace import graph_trace
from experiments.hardware import read_hardware
from experiments.shapes import read_shape
from experiments.stages import Stage
from solvers.ir import Hardware, Limits, Swap, SwapPlan, SwapProblem
from solvers.planner import make_problem
from solvers.swap import GreedySwap
from solvers.swap.evaluate import least_budget
from solvers.swap.lower import lower
from solvers.timeline import promised_peak_bytes
from solvers.timeline.segments import Event, repeated, under_schedule
from solvers.workload import Parallelism
from tests.experiments.fit.steps import MIB, machine, two_layers

EXACT = Limits()


def planned(budget_mib: int, *swaps: tuple[str, int]) -> Planned:
    trace = graph_trace(two_layers())
    problem = make_problem("swap", trace.graph, machine(), budget_mib * MIB)
    assert isinstance(problem, SwapProblem)
    plan = SwapPlan(swaps=tuple(Swap(tensor=name, swap_in_at=op) for name, op in swaps))
    schedule = lower(problem, plan)
    step = under_schedule(trace.step, schedule)
    return Planned("by hand", problem, plan, schedule, step, repeated(step, 3))


def test_a_tensor_gives_its_block_back_and_takes_another() -> None:
    """a0 (8) leaves after op 1, is away in ops 2 to 4, and returns at op 5: 40 bytes at op 4 in place of 48."""
    trace = graph_trace(two_layers())
    done = planned(40, ("a0", 5))
    assert allocated_peak(repeated(done.step, 1)) == 40 * MIB
    assert len(done.step.events) == len(done.step.ops) == len(trace.ops) + 2
    assert done.host_bytes == (8 * MIB, 8 * MIB)


def test_host_blocks_of_powers_of_two_take_more() -> None:
    """a1 would be 12, rounded 16; here b0 of 4 and a0 of 8 are away together."""
    graph = two_layers()
    sized = tuple(msgspec.structs.replace(t, bytes=9 * MIB) if t.id == "a0" else t for t in graph.tensors)
    trace = graph_trace(
        msgspec.structs.replace(graph, tensors=sized, memory_bytes=tuple(m + MIB for m in graph.memory_bytes))
    )
    problem = make_problem("swap", trace.graph, machine(), 60 * MIB)
    assert isinstance(problem, SwapProblem)
    plan = SwapPlan(swaps=(Swap(tensor="a0", swap_in_at=5),))
    schedule = lower(problem, plan)
    done = Planned("", problem, plan, schedule, under_schedule(trace.step, schedule), [])
    assert done.host_bytes == (9 * MIB, 16 * MIB)


@settings(max_examples=15)
@given(st.integers(0, 100), st.sampled_from(["gpt-300m", "llama-2-7b"]))
def test_the_replayed_peak_is_what_the_schedule_promises(share: int, shape: str) -> None:
    """Two ways to the same number: the schedule's own arithmetic, and the blocks of the replay."""
    cut = Parallelism(tensor=1, pipeline=1, sequence_parallel=False, microbatch=1, microbatches=1)
    hardware = read_hardware("a100-sxm-80")
    stage = Stage(read_shape(shape), cut, hardware, given_layers=3)
    trace = graph_trace(stage.graph)
    problem = make_problem("swap", trace.graph, hardware, 0)
    assert isinstance(problem, SwapProblem)
    least, peak = least_budget(problem), max(problem.memory_bytes)
    problem = msgspec.structs.replace(problem, budget_bytes=least + (peak - least) * share // 100)
    plan = GreedySwap().solve(problem, EXACT).plan
    assert plan is not None
    schedule = lower(problem, plan)
    step = under_schedule(trace.step, schedule)
    sizes = {tensor.id: tensor.bytes for tensor in problem.tensors}
    promised = promised_peak_bytes(problem.memory_bytes, sizes, schedule)
    rounding = 512 * len(trace.graph.tensors)
    assert promised - rounding <= allocated_peak(repeated(step, 2)) <= promised + rounding


def test_the_row_of_a_budget_that_swapping_meets() -> None:
    row = swap_row(graph_trace(two_layers()), machine(), Budget(96 * MIB), "by hand", "greedy-swap", EXACT)
    assert row.fits
    assert row.least_allocated_bytes == 40 * MIB, "a0 away in ops 2 to 4; b0 and a1 are used right before"
    assert (row.host_bytes, row.step_us, row.remarks) == (0, 80, ())


def test_the_row_below_the_least_memory() -> None:
    row = swap_row(graph_trace(two_layers()), machine(), Budget(39 * MIB), "by hand", "greedy-swap", EXACT)
    assert (row.fits, row.fits_allocated, row.margin_allocated_bytes) == (False, False, -MIB)
    shown = "peaks, host memory and step are those of the plan that needs the fewest segments, by greedy-swap"
    assert row.remarks == (shown,)
    assert row.asked == ("greedy-swap",), "not even the bytes fit: nobody else can help"
    assert row.host_bytes == 8 * MIB
    assert row.least_host_bytes == 8 * MIB, "48 without a plan, 40 with it"


def test_the_rows_of_growing_budgets() -> None:
    trace = graph_trace(two_layers())
    budgets = range(36, 70, 2)
    rows = [swap_row(trace, machine(), Budget(size * MIB), "by hand", "greedy-swap", EXACT) for size in budgets]
    assert [row.fits for row in rows] == [size >= 40 for size in budgets], "whole segments: nothing is lost"
    assert all((row.margin_reserved_bytes or 0) >= 0 for row in rows if row.fits)
    steps = [row.step_us or 0 for row in rows]
    assert steps == sorted(steps, reverse=True) and steps[-1] == 80


def test_nothing_that_waits_can_be_swapped() -> None:
    graph = two_layers()
    only = tuple(msgspec.structs.replace(op, phase="forward") for op in graph.ops)
    row = swap_row(
        graph_trace(msgspec.structs.replace(graph, ops=only)), machine(), Budget(MIB), "", "greedy-swap", EXACT
    )
    assert row.fits is None
    assert row.reason == "no tensor waits between the forward and the backward pass, so nothing can leave"


def test_a_machine_without_a_host_link_says_so() -> None:
    alone = Hardware(name="alone", devices=machine().devices)
    row = swap_row(graph_trace(two_layers()), alone, Budget(MIB), "", "greedy-swap", EXACT)
    assert row.reason is not None and row.reason.startswith("cannot be planned here: hardware 'alone' has no link")


def test_another_solver_has_its_turn_at_the_budget_that_fits() -> None:
    limits = Limits(time_s=math.inf, work=0.1)
    row = swap_row(graph_trace(two_layers()), machine(), Budget(42 * MIB), "", "milp-swap", limits)
    assert row.fits
    assert row.step_how == "simulated, plan of milp-swap"


def test_planned_requests_stay_in_the_order_of_operators() -> None:
    done = planned(40, ("a0", 5))
    ops = [op for op in done.step.ops if op is not None]
    assert ops == sorted(ops)


class Stubborn(Search):
    """Greedy's plans find no segments; of the others only `finds` has plans that do."""

    finds = ""
    tried: list[tuple[str, int, float]]

    def _planned(self, solver: str, budget_bytes: int, limits: Limits) -> Planned | None:
        self.tried.append((solver, budget_bytes // MIB, limits.time_s))
        done = planned(budget_bytes // MIB, ("a0", 5))
        spoilt = done.events if solver == self.finds else [Event(10**6, 64 * MIB), *done.events]
        return replace(done, solver=solver, events=spoilt)

    @staticmethod
    def of(finds: str, budget_mib: int) -> "Stubborn":
        search = Stubborn(graph_trace(two_layers()), machine(), Budget(budget_mib * MIB), 40 * MIB)
        search.finds, search.tried = finds, []
        return search


def test_where_the_first_says_no_the_others_are_asked() -> None:
    """Greedy needs 64 + 42 of 100 MiB: a near no. Capuchin says no, too; the third has a plan."""
    search = Stubborn.of("milp-swap", 100)
    found = search.found("greedy-swap", Limits(time_s=60))
    assert found is not None and found.fitting is not None
    assert found.fitting.solver == found.smallest.solver == "milp-swap"
    assert found.asked == ("greedy-swap", *OTHERS)
    assert {time_s for _, _, time_s in search.tried} == {2.0}, "nobody asked for them by name"
    assert [size for solver, size, _ in search.tried if solver == "capuchin-swap"] == [100, 80, 60, 40]


def test_a_far_no_is_not_asked_about() -> None:
    """108 of 60 MiB."""
    search = Stubborn.of("milp-swap", 60)
    found = search.found("greedy-swap", Limits())
    assert found is not None and found.fitting is None
    assert found.asked == ("greedy-swap",)


def test_the_solver_that_was_named_is_asked_whatever_the_first_says() -> None:
    search = Stubborn.of("capuchin-swap", 60)
    found = search.found("capuchin-swap", Limits(time_s=60))
    assert found is not None and found.fitting is not None
    assert found.fitting.solver == "capuchin-swap"
    assert {time_s for solver, _, time_s in search.tried if solver == "capuchin-swap"} == {60}


def test_a_first_solver_without_a_plan_ends_nothing() -> None:
    class Mute(Stubborn):
        def _planned(self, solver: str, budget_bytes: int, limits: Limits) -> Planned | None:
            return None if solver == "greedy-swap" else super()._planned(solver, budget_bytes, limits)

    search = Mute(graph_trace(two_layers()), machine(), Budget(60 * MIB), 40 * MIB)
    search.finds, search.tried = "capuchin-swap", []
    found = search.found("greedy-swap", Limits())
    assert found is not None and found.fitting is not None
    search = Mute(graph_trace(two_layers()), machine(), Budget(39 * MIB), 40 * MIB)
    search.tried = []
    assert search.found("greedy-swap", Limits()) is None, "less than the least, and nobody to say what it needs"
