"""`opt` is at least as good as the solvers that it contains, and answers every tiny graph."""

import random

import pytest

from solvers.check import check_plan, prove
from solvers.ir import Limits, RecomputeGraphProblem, RecomputeOp
from solvers.ir.codec import plan_file, problem_sha256
from solvers.recompute.graph import Checkmate, Opt, OptIntervals, OptMilp
from solvers.recompute.graph.instances import at_position, random_layered, unet, wide_layers
from tests.soaking import some
from tests.solvers.recompute.graph.layered import transformer


def chains(seed: int) -> RecomputeGraphProblem:
    """Two chains of 7 ops that meet at the end, each read again in turn: at the least budget little may stay."""
    source = random.Random(seed)

    def op(*inputs: int) -> RecomputeOp:
        time_us, size = source.randint(1, 20), source.randint(1, 8)
        return RecomputeOp(name="op", time_us=time_us, output_bytes=size, inputs=tuple(sorted(inputs)), comm=False)

    ops = [op(), op()]
    ops += [op(i - 2, *([source.randrange(i - 2)] if i > 4 else [])) for i in range(2, 13)]
    ops.append(op(11, 12))
    return at_position(
        RecomputeGraphProblem(name=f"chains {seed}", budget_bytes=0, static_bytes=0, ops=tuple(ops)), 0.0
    )


@pytest.mark.parametrize("seed", range(6))
def test_tiny_graphs_at_their_least_budgets_are_decided(seed: int) -> None:
    problem = chains(seed)
    answer, exact = Opt().solve(problem, Limits(work=4.0)), OptMilp().solve(problem, Limits(work=8.0))
    assert answer.objective == exact.objective
    assert answer.status is exact.status or "it is optimal" in (answer.reason or "")
    sha256 = problem_sha256(problem)
    file = plan_file(answer, problem.KIND, sha256)
    assert prove(problem, file, check_plan(problem, file, sha256)).is_proven


GRAPHS = (random_layered(50, seed=3), wide_layers(60, seed=2), unet(depth=1), transformer(layers=2, position=0.4))


@pytest.mark.parametrize("problem", some(GRAPHS), ids=lambda one: one.name)
def test_it_is_no_worse_than_its_members_with_half_the_work(problem: RecomputeGraphProblem) -> None:
    found = Opt().solve(problem, Limits(work=1.0)).objective
    assert found is not None
    base = sum(op.time_us for op in problem.ops)
    for member in (OptIntervals(), OptMilp(engine="cpsat"), Checkmate()):
        other = member.solve(problem, Limits(work=0.5)).objective
        assert other is None or found <= other + base // 1000
