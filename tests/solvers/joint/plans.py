"""Random decisions of the widest meaning, as plans: what no solver would decide is among them."""

import random
from collections.abc import Collection
from itertools import pairwise

from msgspec.structs import replace

from solvers.check.joint import peak_of
from solvers.ir import JointPlan, JointProblem
from solvers.joint.draft import Draft, first_reader, host_peak, kept_of, measure, plan_of
from tests.solvers.joint.brute_force import general, launched
from tests.solvers.joint.drafts import random_draft


def random_plan(seed: int) -> tuple[JointProblem, JointPlan, JointPlan]:
    """A problem, a plan that takes its memory (it may send away what nothing has read yet), and its least retention."""
    source = random.Random(f"plan {seed}")
    problem = _problem(source, seed)
    given, draft = random_draft(problem, seed)
    again = [_fitting(problem, t, run) for t, run in enumerate(draft.again)]
    kept = kept_of(given, again)
    draft = Draft(again, tuple(one for one in draft.away if first_reader(kept, one) is not None))
    lean = plan_of(given, draft)
    plan = _fatter(source, lean, len(problem.ops)) if source.random() < 0.3 else lean
    peak = peak_of(problem, plan)
    assert peak is not None
    if source.random() < 0.3 and measure(given, draft).violation is None:
        problem = replace(problem, host_budget_bytes=host_peak(given, draft))
    return replace(problem, budget_bytes=peak.bytes + source.choice((0, 0, 1, 4))), plan, lean


def _problem(source: random.Random, seed: int) -> JointProblem:
    """Up to 14 ops; communication takes longer than in tiny instances, so that much can run behind it."""
    problem = general(seed, source.randint(3, 14))
    ops = tuple(replace(op, time_us=op.time_us + op.comm * source.randint(0, 20)) for op in problem.ops)
    problem = replace(problem, ops=ops, host_budget_bytes=None, budget_bytes=2**40)
    return launched(problem, seed) if source.random() < 0.5 else problem


def _fitting(problem: JointProblem, t: int, run: Collection[int]) -> set[int]:
    """Of what runs again in a stage as much as its communication hides."""
    op, found = problem.ops[t], set[int]()
    for i in sorted(run):
        hidden = sum(problem.ops[j].time_us for j in (*found, i)) <= op.time_us
        if not op.comm or (hidden and not problem.ops[i].comm and i not in op.inputs):
            found.add(i)
    return found


def _fatter(source: random.Random, plan: JointPlan, count: int) -> JointPlan:
    """The same, with outputs kept longer than anything reads them."""
    keep, gone = set(plan.keep), {(t, e.op) for e in plan.swap for t in range(e.out_after + 1, e.in_at)}
    for before, t in pairwise(range(count)):
        there = {i for s, i in (*keep, *plan.compute) if s == before}
        keep |= {(t, i) for i in there if source.random() < 0.5} - gone - set(plan.compute)
    return replace(plan, keep=tuple(sorted(keep)))
