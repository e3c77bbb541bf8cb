"""The step of a plan on its nodes: what ran when, how long nodes stood idle, and how far the formulas are off."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from solvers.ir.replan import CurrentState, ReplanPlan, ReplanProblem
from solvers.ir.report import Report, Span
from solvers.replan.estimate.objective import step_us
from solvers.replan.estimate.paper import f7_us
from solvers.replan.estimate.sync import sync_us
from solvers.replan.timeline.step import Drawn, Step, dynamic_step, rerouted_step
from solvers.replan.timeline.transfers import Sent, busiest_us, send_one_by_one


@dataclass(frozen=True)
class Simulated:
    """A transition and the step after it; times in µs.

    `transfer_us` is what the transfers take one by one, `modelled_transfer_us` the objective's figure: the busiest
    node's. `formula_us` is the step by the objective's formula with its synchronization: F5 followed exactly, or F7 of
    rerouting, which no schedule need meet.
    """

    report: Report
    restart_us: int
    transfer_us: int
    modelled_transfer_us: Fraction
    step: Step
    formula_us: Fraction

    @property
    def step_us(self) -> int:
        """The slowest pipeline and the synchronization."""
        return self.step.compute_us + self.step.sync_us

    @property
    def bubble_share(self) -> float:
        """The share of the nodes' time, until the slowest pipeline ends, in which they compute nothing."""
        whole = self.step.compute_us * len(self.step.busy_us)
        return 1 - sum(self.step.busy_us.values()) / whole if whole else 0.0

    @property
    def busiest(self) -> tuple[int, int]:
        """The node that computes longest in the step, and for how long."""
        return max(self.step.busy_us.items(), key=lambda item: (item[1], -item[0]))

    @property
    def idlest(self) -> tuple[int, int]:
        """The node with a stage that computes least."""
        return min(self.step.busy_us.items(), key=lambda item: (item[1], item[0]))


def simulate_step(problem: ReplanProblem, plan: ReplanPlan) -> Simulated:
    """The plan's transition and its first step; the plan must be valid (`bayplan check`).

    Raises `InvalidInput` where rerouting is impossible, or a step has more passes than can be drawn.
    """
    dynamic = plan.policy == "dynamic"
    if dynamic or problem.current is None:
        step = dynamic_step(problem, plan)
        formula = Fraction(step_us(problem, [(one.layers, one.microbatches) for one in plan.pipelines]))
    else:
        step = rerouted_step(problem, problem.current)
        formula = _f7_us(problem, problem.current)
    restart = (problem.restart_us or 0) if dynamic else 0
    sent = send_one_by_one(problem, plan.transfers or ())
    transfer_us = max((one.end_us for one in sent), default=0)
    report = _report(problem, step, restart, sent, transfer_us)
    return Simulated(report, restart, transfer_us, busiest_us(problem, plan.transfers or ()), step, formula)


def step_report(problem: ReplanProblem, plan: ReplanPlan) -> Report:
    """The report of `simulate_step` alone."""
    return simulate_step(problem, plan).report


def _f7_us(problem: ReplanProblem, current: CurrentState) -> Fraction:
    """The objective's step of rerouting, before it is rounded up."""
    first, degree, gone = current.pipelines[0], len(current.pipelines), set(current.failed)
    failed = [sum(one.nodes[stage] in gone for one in current.pipelines) for stage in range(len(first.layers))]
    step = f7_us(problem, first.layers, first.microbatches, failed, degree)
    return step + sync_us(problem, [first.layers] * degree)


def _report(problem: ReplanProblem, step: Step, restart: int, sent: Sequence[Sent], transfer_us: int) -> Report:
    begin = restart + transfer_us
    drawn = [*_transition(step, restart, sent), *(one.later(begin) for one in step.drawn)]
    spans = tuple(
        Span(action=number, lane=one.lane, label=one.label, start_us=one.start_us, end_us=one.end_us)
        for number, one in enumerate(drawn)
    )
    bubble = step.compute_us * len(step.busy_us) - sum(step.busy_us.values())
    return Report(
        name=problem.name,
        how="simulated",
        source=f"solvers.replan.timeline, {step.how}",
        makespan_us=begin + step.compute_us + step.sync_us,
        budget_bytes=problem.memory_bytes,
        peak_bytes=max(step.held_bytes),
        stall_us={"bubble": bubble},
        spans=spans,
    )


def _transition(step: Step, restart: int, sent: Sequence[Sent]) -> Iterator[Drawn]:
    if restart:
        for node in sorted(step.busy_us):
            yield Drawn(f"{node}.host", "restart", 0, restart)
    for one in sent:
        what = f"layer {one.transfer.layer}"
        start, end = restart + one.start_us, restart + one.end_us
        yield Drawn(f"{one.transfer.source}.out", f"send {what} to node {one.transfer.target}", start, end)
        yield Drawn(f"{one.transfer.target}.in", f"receive {what} from node {one.transfer.source}", start, end)
