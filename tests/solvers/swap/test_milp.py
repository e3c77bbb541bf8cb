"""`milp-swap`: the optimum on tiny instances, a valid bound on all, never worse than what it starts from."""

import math
import signal
import threading
from pathlib import Path

import msgspec
import pytest

from solvers.ir import InvalidProblem, Limits, Status, Swap, SwapPlan, SwapProblem, SwapTensor
from solvers.ir.codec import read_problem
from solvers.ir.solution import INTERRUPTED
from solvers.swap import GreedySwap, MilpSwap, milp
from solvers.swap.evaluate import instance, least_budget
from solvers.swap.exact import exact
from solvers.swap.floor import floor_ticks
from solvers.swap.instances import llama2
from solvers.swap.relaxation import fluid
from tests.soaking import in_soak
from tests.solvers.swap.brute_force import optimum, random_problem

TINY = 300
TO_THE_END = Limits(time_s=math.inf)
"""These instances end with a proof, however busy the machine is."""


def test_the_exact_answer_equals_trying_everything() -> None:
    searched = 0
    for seed in range(TINY):
        problem = random_problem(seed, max_tensors=3 + (seed % 25 == 0))
        best, answer = optimum(problem), MilpSwap().solve(problem, TO_THE_END)
        if best is None:
            assert answer.status is Status.INFEASIBLE
            assert answer.least_budget_bytes == least_budget(problem)
            continue
        assert (answer.status, answer.objective, answer.bound) == (Status.OPTIMAL, best, best), seed
        searched += "CP-SAT" in (answer.engine or "")
    assert searched > 120


@pytest.mark.parametrize("engine", ["highs", "cpsat", "gurobi"])
def test_every_engine_proves_the_same_optimum(engine: str) -> None:
    pytest.importorskip("gurobipy" if engine == "gurobi" else "scipy")
    from solvers.engines import solve

    for seed in range(12):
        problem = random_problem(seed, max_ops=6)
        best, given = optimum(problem), instance(problem)
        if best is None or not given.busy:
            continue
        model = exact(given, 2 * best)
        answer = solve(model.model, TO_THE_END, engine)
        assert answer.status is Status.OPTIMAL
        assert answer.objective == best, (engine, seed)


def test_the_fluid_bound_never_exceeds_the_optimum() -> None:
    from solvers.engines import solve

    bound_says_something = 0
    for seed in range(TINY):
        problem = random_problem(seed)
        best, given = optimum(problem), instance(problem)
        if best is None or not given.busy:
            continue
        relaxation = fluid(given, best)
        answer = solve(relaxation.model, TO_THE_END, "highs")
        assert answer.row_duals is not None
        bound = relaxation.bound_ticks(relaxation.model.dual_bound(answer.row_duals))
        assert bound <= best + 1e-6, seed
        bound_says_something += bound > given.base
    assert bound_says_something > 20


def test_coarse_relaxations_and_the_closed_form_never_exceed_the_optimum() -> None:
    from solvers.engines import solve

    raised = {"floor": 0, "coarse": 0}
    for seed in range(TINY):
        problem = random_problem(seed)
        best, given = optimum(problem), instance(problem)
        if best is None or not given.busy:
            continue
        coarse = fluid(given, best, most=2)
        answer = solve(coarse.model, TO_THE_END, "highs")
        assert answer.row_duals is not None
        bounds = {"floor": floor_ticks(given), "coarse": coarse.bound_ticks(coarse.model.dual_bound(answer.row_duals))}
        for name, bound in bounds.items():
            assert bound <= best + 1e-6, (name, seed)
            raised[name] += bound > given.base
    assert min(raised.values()) > 15, raised


@pytest.mark.parametrize(("gbps", "fraction"), [(8, 0.3), in_soak(8, 0.5), in_soak(24, 0.3), (24, 0.5)])
def test_two_thousand_tensors_have_a_close_bound_and_plan_at_once(fraction: float, gbps: int) -> None:
    """The base was the bound before (gap up to 75 %); a slow link is a step that waits for transfers nearly always."""
    problem = llama2(layers=100, budget_fraction=fraction, link_bytes_per_s=gbps * 10**9)
    answer = MilpSwap().solve(problem, Limits(time_s=math.inf, work=0.01))
    assert answer.gap is not None
    assert answer.gap < 0.005
    assert answer.bound > answer.base * 1.05  # type: ignore[operator]


def test_a_given_plan_is_never_worsened() -> None:
    problem = llama2(layers=2, budget_fraction=0.4, link_bytes_per_s=8_000_000_000)
    good = MilpSwap().solve(problem, Limits(time_s=math.inf, work=1.0))
    start = good.plan
    assert isinstance(start, SwapPlan)
    again = MilpSwap(start=start).solve(problem, Limits(time_s=math.inf, work=0.01))
    assert again.objective is not None
    assert good.objective is not None
    assert again.objective <= good.objective


def test_same_seed_and_work_give_the_same_plan() -> None:
    problem = llama2(layers=2, budget_fraction=0.5, link_bytes_per_s=8_000_000_000)
    first, second = (MilpSwap().solve(problem, Limits(time_s=math.inf, work=0.5, seed=7)) for _ in range(2))
    assert first.plan == second.plan
    assert (first.objective, first.bound) == (second.objective, second.bound)


@pytest.mark.parametrize(
    ("swaps", "named"),
    [
        ([("nobody's", 3)], "lacks"),
        ([("0.norm1.square.0", 0)], "outside 2…84"),
        ([("0.norm1.square.0", 85)], "outside 2…84"),
        ([("0.norm1.square.0", 84), ("0.norm1.square.0", 84)], "twice"),
    ],
)
def test_a_start_that_is_no_plan_of_the_problem_is_refused(swaps: list[tuple[str, int]], named: str) -> None:
    problem = llama2(layers=2, budget_fraction=0.4, link_bytes_per_s=8_000_000_000)
    start = SwapPlan(swaps=tuple(Swap(tensor=tensor, swap_in_at=at) for tensor, at in swaps))
    with pytest.raises(InvalidProblem, match=named):
        MilpSwap(start=start).solve(problem, Limits(work=0.01))


def contended(scale: int) -> SwapProblem:
    """An instance whose optimum needs the exact model, with all its times so many times longer."""
    problem = random_problem(next(seed for seed in range(TINY) if _is_searched(random_problem(seed))))
    ops = tuple(msgspec.structs.replace(op, time_us=op.time_us * scale) for op in problem.ops)
    rates = {side: max(1, getattr(problem.link, side) // scale) for side in ("out_bytes_per_s", "in_bytes_per_s")}
    link = msgspec.structs.replace(problem.link, latency_us=problem.link.latency_us * scale, **rates)
    return msgspec.structs.replace(problem, ops=ops, link=link)


def _is_searched(problem: SwapProblem) -> bool:
    return "CP-SAT" in (MilpSwap().solve(problem, TO_THE_END).engine or "")


def test_small_instances_of_seconds_are_proven_too() -> None:
    # 10⁻⁶ of a makespan of seconds is microseconds: CP-SAT's exact bound must not lose them.
    problem = contended(1_000_000)
    answer = MilpSwap().solve(problem, TO_THE_END)
    assert (answer.status, answer.objective) == (Status.OPTIMAL, optimum(problem))
    assert answer.objective is not None
    assert answer.objective > 10_000_000


def test_a_small_instance_takes_no_share_of_a_long_time_limit() -> None:
    answer = MilpSwap().solve(contended(1), Limits(time_s=600.0))
    assert answer.status is Status.OPTIMAL
    assert answer.solve_time_s < 60.0  # a share of the limit would be minutes


def test_times_beyond_exact_floats_are_bounded_but_not_proven() -> None:
    problem = contended(2**48)
    answer, best = MilpSwap().solve(problem, TO_THE_END), optimum(problem)
    assert best is not None
    assert answer.bound is not None
    assert answer.bound <= best
    assert answer.status is Status.FEASIBLE
    assert "too large for the exact model" in (answer.reason or "")


def test_an_empty_tensor_on_a_link_without_latency_takes_no_time() -> None:
    problem = contended(1)
    empty = SwapTensor(id="empty", bytes=0, last_forward_use=0, first_backward_use=len(problem.ops) - 1)
    link = msgspec.structs.replace(problem.link, latency_us=0)
    problem = msgspec.structs.replace(
        problem, tensors=(*problem.tensors, empty), link=link, budget_bytes=least_budget(problem)
    )
    assert instance(problem).busy
    best = optimum(problem)
    assert best is not None
    assert MilpSwap().solve(problem, TO_THE_END).objective == best
    relaxed = MilpSwap(exact_tensors=0).solve(problem, Limits(time_s=math.inf, work=0.1)).bound
    assert relaxed is not None
    assert relaxed <= best


def test_the_time_limit_holds_from_the_start() -> None:
    problem = llama2(layers=64, budget_fraction=0.4, link_bytes_per_s=8_000_000_000)
    answer = MilpSwap().solve(problem, Limits(time_s=0.0))
    assert answer.plan is not None and answer.status is Status.FEASIBLE


@pytest.mark.parametrize("after_s", [0.02, 0.7])
def test_ctrl_c_ends_the_whole_search_and_keeps_the_plan(after_s: float) -> None:
    """So long after its first news, by which it has a plan."""
    problem = llama2(layers=40, budget_fraction=0.4, link_bytes_per_s=8_000_000_000)
    timer = threading.Timer(after_s, signal.raise_signal, [signal.SIGINT])

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        if timer.ident is None:
            timer.start()
        return False

    answer = MilpSwap().solve(problem, Limits(time_s=600.0), watch)
    assert answer.solve_time_s < 300
    assert answer.plan is not None
    assert answer.reason == INTERRUPTED


def test_ctrl_c_before_the_first_plan_is_answered_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swapping everything is a plan whenever there is one, and it takes no search."""

    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(milp._Search, "_begin", interrupted)
    answer = MilpSwap().solve(llama2(layers=4, budget_fraction=0.5, link_bytes_per_s=8_000_000_000), Limits())
    assert answer.plan is not None
    assert answer.reason == INTERRUPTED


def test_watch_sees_progress_and_stops_the_search() -> None:
    seen: list[tuple[float | None, float | None]] = []

    def watch(incumbent: float | None, bound: float | None, elapsed_s: float) -> bool:
        seen.append((incumbent, bound))
        return len(seen) >= 3

    problem = llama2(layers=4, budget_fraction=0.4, link_bytes_per_s=8_000_000_000)
    answer = MilpSwap().solve(problem, Limits(time_s=120.0), watch)
    assert len(seen) == 3
    assert answer.plan is not None
    assert answer.solve_time_s < 100


def test_the_large_instance_has_a_small_gap_and_beats_the_heuristic() -> None:
    problem = llama2(layers=8, budget_fraction=0.5)
    greedy = GreedySwap().solve(problem, TO_THE_END)
    answer = MilpSwap().solve(problem, Limits(time_s=math.inf, work=0.2))
    assert answer.objective is not None
    assert greedy.objective is not None
    assert answer.objective <= greedy.objective
    assert answer.gap is not None
    assert answer.gap <= 0.01


def test_a_looser_budget_or_a_faster_link_never_hurts_when_seeded_with_the_neighbour() -> None:
    problem = llama2(layers=2, budget_fraction=0.35, link_bytes_per_s=8_000_000_000)
    plan, previous = None, None
    for fraction in (0.0, 0.1, 0.3):
        extra = int(fraction * (max(problem.memory_bytes) - problem.budget_bytes))
        looser = msgspec.structs.replace(problem, budget_bytes=problem.budget_bytes + extra)
        answer = MilpSwap(start=plan).solve(looser, Limits(time_s=math.inf, work=0.1))
        assert answer.objective is not None
        assert previous is None or answer.objective <= previous
        plan, previous = answer.plan, answer.objective


def test_the_bound_with_whole_tensors_is_valid_and_at_least_the_fluid_one() -> None:
    from solvers.engines import solve
    from solvers.swap.discrete import discrete

    higher = 0
    for seed in range(80):
        problem = random_problem(seed, max_ops=8)
        best, given = optimum(problem), instance(problem)
        if best is None or not given.busy:
            continue
        whole, plain = discrete(given, best, given.busy), fluid(given, best)
        assert whole is not None
        tight, loose = (solve(model.model, TO_THE_END, "highs").bound for model in (whole, plain))
        assert tight is not None
        assert loose is not None
        assert whole.bound_ticks(tight) <= best + 1e-4, seed
        assert whole.bound_ticks(tight) >= plain.bound_ticks(loose) - 1e-4, seed
        higher += whole.bound_ticks(tight) > plain.bound_ticks(loose) + 0.5
    assert higher > 5


@pytest.mark.soak
def test_larger_instances_are_solved_as_by_trying_everything() -> None:
    for seed in range(10_000, 10_060):
        problem = random_problem(seed, max_ops=9, max_tensors=4)
        best, answer = optimum(problem), MilpSwap().solve(problem, TO_THE_END)
        expected = (Status.INFEASIBLE, None) if best is None else (Status.OPTIMAL, best)
        assert (answer.status, answer.objective) == expected, seed


@pytest.mark.soak
def test_the_shipped_instance_has_the_promised_gaps() -> None:
    path = Path(__file__).parents[3] / "experiments" / "instances" / "swap-llama2-32l.json"
    problem, _ = read_problem(path)
    assert isinstance(problem, SwapProblem)
    answer = MilpSwap().solve(problem, Limits(time_s=10.0))
    assert answer.gap is not None
    assert answer.overhead_gap is not None
    assert answer.base is not None
    assert answer.bound is not None
    assert answer.gap <= 0.01
    assert answer.overhead_gap <= 0.05
    assert answer.bound >= 1.05 * answer.base, (
        "the optimum's overhead is at least 5 % of the base, so the gap says something"
    )


def test_an_engine_that_cannot_bound_a_large_instance_says_so() -> None:
    problem = llama2(layers=4, budget_fraction=0.5)
    answer = MilpSwap(engine="cpsat").solve(problem, Limits(time_s=math.inf, work=0.05))
    assert answer.base is not None
    assert answer.bound is not None
    assert answer.bound > answer.base, "the closed form needs no engine"
    assert answer.reason is not None
    assert "CP-SAT cannot solve the relaxation" in answer.reason
