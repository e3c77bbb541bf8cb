"""The corrected integer programme = the front's look-up = trying everything, on random and on real layers."""

import pytest
from msgspec.structs import replace

from solvers.check import check_plan
from solvers.ir import Limits, RecomputeLayerProblem, Status
from solvers.ir.codec import plan_file
from solvers.recompute.layer import Heu
from solvers.recompute.layer.ilp import mix_bound
from tests.solvers.recompute.layer.brute_force import all_policies, best_single, memory, mixes, random_problem
from tests.solvers.recompute.layer.real import SHAPES, costs, stage

STAGES = ((8, 4, 0.02), (6, 1, 0.1), (12, 2, 0.3))
LIMITS = Limits(time_s=60)


def agree(problem: RecomputeLayerProblem, engine: str) -> int | None:
    """What all three say; the integer programme's plan is measured by us, not by the engine."""
    tried = best_single(problem)
    looked_up = Heu().solve(problem, LIMITS)
    programmed = Heu(method="ilp", engine=engine).solve(problem, LIMITS)
    assert looked_up.objective == tried
    assert programmed.objective == tried
    assert programmed.bound is None or looked_up.bound is None or programmed.bound <= looked_up.bound
    return tried


@pytest.mark.parametrize("engine", ["highs", "cpsat"])
def test_they_agree_on_random_layers(engine: str) -> None:
    answers = [agree(random_problem(seed, max_ops=6, max_windows=3), engine) for seed in range(30)]
    assert sum(answer is None for answer in answers) >= 3
    assert sum(answer is not None and answer > 0 for answer in answers) >= 8


@pytest.mark.parametrize("shape", SHAPES, ids=[shape for shape, *_ in SHAPES])
def test_they_agree_on_real_layers(shape: tuple[str, int, int, str]) -> None:
    layer = costs(*shape)
    answers = [agree(stage(layer, *numbers), "highs") for numbers in STAGES]
    assert answers[0]


def test_they_agree_where_a_stall_hides_recomputation() -> None:
    layer = costs("gpt-7b", 4, 16, "lynx-nvlink")
    without, with_stall = (agree(stage(layer, 8, 4, 0.1, stall_us), "highs") for stall_us in (0, 2000))
    assert without is not None
    assert with_stall is not None
    assert with_stall < without


def test_both_prove_the_least_budget() -> None:
    found = 0
    for seed in range(60):
        problem = random_problem(seed)
        answer = Heu(method="ilp", engine="cpsat").solve(problem, LIMITS)
        if answer.status is Status.INFEASIBLE:
            assert answer.least_budget_bytes == mixes(problem)[1] == Heu().solve(problem, LIMITS).least_budget_bytes
            assert answer.reason is not None
            assert f"exactly {answer.least_budget_bytes} bytes" in answer.reason
            found += 1
    assert found >= 5


def test_the_relaxation_bounds_every_mix() -> None:
    told = 0
    for seed in range(40):
        problem = random_problem(seed)
        bound, best = mix_bound(problem, "highs", LIMITS), mixes(problem)[0]
        if bound is not None and best is not None:
            assert bound <= best + 1e-6
            told += bound > 0.5
    assert told >= 5


def in_units_of(problem: RecomputeLayerProblem, unit: int) -> RecomputeLayerProblem:
    """The problem with so many times larger ops, and a budget that lies one byte below a policy's need."""
    ops = tuple(replace(op, output_bytes=op.output_bytes * unit) for op in problem.ops)
    larger = replace(problem, ops=ops, static_bytes=0, layer_input_bytes=0)
    needs = sorted({memory(larger, (policy,) * larger.layers) for policy in all_policies(larger)})
    return replace(larger, budget_bytes=max(0, needs[min(2, len(needs) - 1)] - 1))


def test_a_byte_counts_where_tensors_are_of_gigabytes() -> None:
    for seed in range(100):
        problem = in_units_of(random_problem(seed, max_ops=3), 2**30)
        best, solution = best_single(problem), Heu(method="ilp").solve(problem, LIMITS)
        if best is None:
            assert solution.status is Status.INFEASIBLE, seed
        else:
            assert solution.objective is not None, seed
            assert check_plan(problem, plan_file(solution, problem.KIND, None)).violations == (), seed


@pytest.mark.parametrize("unit", [2**46, 2**53])
def test_sizes_beyond_the_engines_are_an_answer_not_an_error(unit: int) -> None:
    problem = replace(random_problem(3), layers=8, inflight_microbatches=8, budget_bytes=2**50)
    problem = replace(problem, ops=tuple(replace(op, output_bytes=unit) for op in problem.ops))
    solution = Heu(method="ilp").solve(problem, LIMITS)
    assert solution.status is Status.UNKNOWN
    assert solution.reason is not None
    assert solution.reason.endswith("give coarser units")
