"""Others' policies beside a problem: what the judge says of one, and a plan of ours at the same budget."""

from dataclasses import dataclass

from msgspec.structs import replace

from solvers.check.joint import Peak, peak_of
from solvers.check.plan import judge_of
from solvers.ir.fields import LARGEST
from solvers.ir.joint import JointPlan, JointProblem
from solvers.ir.policy import Policy
from solvers.ir.solution import Limits, Solution
from solvers.joint.policy import plan_of_policy
from solvers.planner import build_solver, require_valid


@dataclass(frozen=True)
class JudgedPolicy:
    """What a policy does: `violations` by the judge; its step in µs, had it the memory (None: it cannot run at all).

    `peak` is where its memory is fullest; `again_us` what it computes again.
    """

    plan: JointPlan
    violations: tuple[str, ...]
    step_us: int | None
    base_us: int
    peak: Peak | None
    again_us: int

    @property
    def clean(self) -> bool:
        """Whether it keeps the budget and all rules."""
        return not self.violations


def judged_policy(problem: JointProblem, policy: Policy) -> JudgedPolicy:
    """The verdict on a policy; raises `InvalidInput` where it names what is not there."""
    plan = plan_of_policy(problem, policy)
    judge = judge_of(problem.KIND).decision
    verdict = judge(problem, plan)
    roomy = verdict if verdict.clean else judge(_with_all_memory(problem), plan)
    return JudgedPolicy(
        plan=plan,
        violations=verdict.violations,
        step_us=roomy.objective_us,
        base_us=sum(op.time_us for op in problem.ops),
        peak=peak_of(problem, plan),
        again_us=sum(problem.ops[op].time_us for stage, op in plan.compute if op != stage),
    )


def _with_all_memory(problem: JointProblem) -> JointProblem:
    return replace(problem, budget_bytes=LARGEST)


def counter_plan(problem: JointProblem, solver: str, limits: Limits) -> Solution[JointPlan]:
    """A judged plan at the same budget; INFEASIBLE where there is none, UNKNOWN where none was found in time."""
    found: Solution[JointPlan] = build_solver(solver, {}).solve(problem, limits)
    if found.plan is not None:
        require_valid(problem, found.plan, solver)
    return found


def where(problem: JointProblem, peak: Peak) -> str:
    """Where memory is fullest, in words: a recomputation is told as one."""
    op, stage = problem.ops[peak.op].name, problem.ops[peak.stage].name
    if peak.op == peak.stage:
        return f"at op {peak.op} ({op})"
    return f"while op {peak.op} ({op}) is computed again for op {peak.stage} ({stage})"
