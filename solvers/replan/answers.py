"""What the solvers of this room answer alike: a mapped plan with its exact objective, or why there is none."""

from collections.abc import Sequence
from fractions import Fraction

from solvers.ir.replan import NewPipeline, ReplanPlan, ReplanProblem, Transfer
from solvers.ir.solution import Call, Solution
from solvers.replan.estimate.objective import step_us, stretched_us
from solvers.replan.holding import why_not_held
from solvers.replan.rerouting_rules import why_not_rerouted
from solvers.replan.transfer.owners import checkpoint_reasons
from solvers.replan.transfer.restore import restore

Split = tuple[tuple[int, ...], int]
"""A pipeline to be: layers per stage, and microbatches per step."""


def dynamic(
    call: Call, problem: ReplanProblem, splits: Sequence[Split], reason: str | None = None
) -> Solution[ReplanPlan]:
    """The plan of these pipelines, on the nodes where it moves least; without a plan where its transition never pays.

    Nodes and transfers are `restore`'s (Kuhn-Munkres, then senders by max-flow); without `current` no nodes are named.
    """
    proof = _why_none(problem, fitting=True)
    if proof is not None:
        return call.infeasible(proof)
    pipelines, transfers, lost_us = _mapped(problem, splits)
    objective = stretched_us(problem, step_us(problem, splits), lost_us)
    if objective is None:
        return call.unknown(
            f"{call.solver}'s plan takes {float(lost_us):.0f} us to set up, but the expected interval is "
            f"{problem.expected_interval_us} us: keep the running plan, or restart faster"
        )
    plan = ReplanPlan(policy="dynamic", pipelines=pipelines, transfers=transfers)
    return call.found(plan, objective, reason=reason)


def _mapped(
    problem: ReplanProblem, splits: Sequence[Split]
) -> tuple[tuple[NewPipeline, ...], tuple[Transfer, ...] | None, Fraction]:
    """The pipelines on their nodes, the transfers, and what the transition takes (restart included)."""
    if problem.current is None:
        pipelines = tuple(NewPipeline(layers=layers, microbatches=count, nodes=None) for layers, count in splits)
        return pipelines, None, Fraction(0)
    restored = restore(problem, splits)
    return restored.pipelines, restored.transfers, restored.transfer_us + (problem.restart_us or 0)


def without_plan(call: Call, problem: ReplanProblem, reason: str) -> Solution[ReplanPlan]:
    """INFEASIBLE with the proof where no decision at all is valid, else UNKNOWN and what this solver lacked."""
    proof = why_none(problem)
    return call.unknown(reason) if proof is None else call.infeasible(proof)


def better(first: Solution[ReplanPlan], second: Solution[ReplanPlan]) -> Solution[ReplanPlan]:
    """The answer of less objective, ties to the first; an answer with a plan before one without."""
    if second.objective is None:
        return first
    return second if first.objective is None or second.objective < first.objective else first


def why_none(problem: ReplanProblem) -> str | None:
    """Why no decision for this problem is valid, in a sentence; None where that is not proven here.

    States without a living replica void every decision. Otherwise rerouting is one decision, judged as it stands, and
    every other one re-plans: it takes at least `restart_us`, and pipelines that memory holds.
    """
    return _why_none(problem, fitting=False)


def _why_none(problem: ReplanProblem, fitting: bool) -> str | None:
    """`why_none`; memory is not asked again where pipelines that fit are known."""
    lost = checkpoint_reasons(problem)
    if lost:
        return lost[0]
    if problem.expected_interval_us == 0:
        return "the expected interval is 0 us, in which nothing can be trained: expect a longer one"
    if problem.current is not None and why_not_rerouted(problem) is None:
        return None
    return _why_no_restart(problem) or (None if fitting else why_not_held(problem))


def _why_no_restart(problem: ReplanProblem) -> str | None:
    interval, restart = problem.expected_interval_us, problem.restart_us
    if interval is not None and restart is not None and restart >= interval:
        return f"a restart takes {restart} us, but the expected interval is {interval} us: restart faster"
    return None
