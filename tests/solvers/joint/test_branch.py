"""Trees: every plan is in some leaf, no tree proves too much, and some prove more than their root."""

import random
from functools import cache

from solvers.check.joint.stretches import add_up
from solvers.engines.duals import UNIT
from solvers.ir import JointOp, JointProblem, Limits, SwapLink
from solvers.joint import Joint, crowded
from solvers.joint.branch import split
from solvers.joint.given import given_of
from solvers.joint.stretch import Stretch, StretchProof
from solvers.joint.stretches import together

SEEDS = range(10)


@cache
def chain(seed: int, half: int = 6) -> JointProblem:
    """Forward and backward of a chain, at a budget near the least: beyond brute force, and small for a tree."""
    source, ops = random.Random(f"chain {seed}"), list[JointOp]()
    for t in range(2 * half):
        before, twin = {t - 1} if t else set(), 2 * half - 1 - t
        inputs = before if t < half else before | {twin, max(0, twin - source.randint(0, 1))}
        time_us, size = source.randint(1, 7), source.randint(1, 6 if t < half else 4)
        ops.append(JointOp(name=f"op{t}", time_us=time_us, output_bytes=size, inputs=tuple(sorted(inputs)), comm=False))
    least = max(sum(ops[i].output_bytes for i in {t, *op.inputs}) for t, op in enumerate(ops))
    rate = source.choice([400_000, 1_000_000, 3_000_000])
    link = SwapLink(out_bytes_per_s=rate, in_bytes_per_s=rate, latency_us=0)
    budget = least + source.randint(0, 4)
    return JointProblem(name=f"chain-{seed}", budget_bytes=budget, static_bytes=0, ops=tuple(ops), link=link)


def root_of(problem: JointProblem) -> tuple[Stretch, StretchProof]:
    given = given_of(problem)
    stretch = Stretch(given, 0, len(given) - 1, set(range(len(given))))
    root = crowded.proof(stretch, Limits(), "highs")
    assert root is not None
    return stretch, root


def test_no_tree_proves_too_much_and_some_prove_more_than_their_root() -> None:
    more = best = 0
    for seed in SEEDS:
        problem = chain(seed)
        stretch, root = root_of(problem)
        tree = split(stretch, root, Limits(), "highs")
        faults, bound = add_up(problem, {"form": "stretches/1", "unit": UNIT, "stretches": [tree.part]})
        assert faults == [] and root.late <= tree.late, seed
        assert together(given_of(problem), [tree]).bound_us <= bound
        plan = Joint(singles=False).solve(problem, Limits(work=0.05))
        assert plan.objective is not None and bound <= plan.objective, (seed, bound, plan.objective)
        more, best = more + (len(tree.leaves) > 1), best + (bound == plan.objective)
    assert more > 2 and best > 2


def test_same_limits_same_tree() -> None:
    trees = [split(*root_of(chain(19)), Limits(), "highs") for _ in range(2)]
    assert trees[0] == trees[1]


def test_without_time_the_root_stays() -> None:
    stretch, root = root_of(chain(4))
    assert split(stretch, root, Limits(time_s=0.0), "highs") is root
