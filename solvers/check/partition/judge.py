"""Judge of `partition` decisions (formats.md 6): every layer in one stage, every stage within its table."""

from solvers.check.verdict import Verdict
from solvers.ir.partition import PartitionPlan, PartitionProblem


def judge_partition(problem: PartitionProblem, plan: PartitionPlan) -> Verdict:
    """The decision's violations, and the largest stage cost where it has none."""
    if len(plan.layers) != problem.stages:
        return Verdict((f"layers has {len(plan.layers)} entries, but the problem has {problem.stages} stages",))
    violations = []
    if sum(plan.layers) != problem.layers:
        violations.append(f"layers sums to {sum(plan.layers)}, but the problem has {problem.layers} layers")
    costs = []
    for stage, count in enumerate(plan.layers):
        cost = problem.cost_us[stage][count] if 1 <= count <= problem.layers else None
        if not 1 <= count <= problem.layers:
            violations.append(f"stage {stage} has {count} layers, outside 1…{problem.layers}")
        elif cost is None:
            violations.append(f"stage {stage} has {count} layers, which do not fit: cost_us[{stage}][{count}] is null")
        else:
            costs.append(cost)
    return Verdict(tuple(violations)) if violations else Verdict((), max(costs))


def is_feasible(problem: PartitionProblem) -> bool:
    """Whether any decision is valid: which layer counts the first stages can have in total."""
    reached = {0}
    for row in problem.cost_us:
        reached = {done + n for done in reached for n in range(1, problem.layers - done + 1) if row[n] is not None}
    return problem.layers in reached
