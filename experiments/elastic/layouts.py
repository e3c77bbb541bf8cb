"""The estimator beside measured steps: what `solvers.replan` predicts of each layout that trained, and what it took.

The prediction takes a core for each process, as the planner does: the slowest pipeline by the 1F1B recurrence with the
job's own measured costs, and the synchronization. Where processes are more than cores, a second figure is the longer of
that and the step's whole computing over the cores, which no order of passes could beat here.
"""

import os
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from experiments.elastic.log import Event, trained_of
from experiments.tables import NOTHING, Table
from solvers.ir.errors import InvalidInput
from solvers.ir.replan import CurrentPipeline, ReplanProblem
from solvers.replan.estimate import step_us, sync_us
from solvers.replan.estimate.rerouting import rerouted_nodes_us

HEAD = ("plan", "nodes", "steps", "measured", "predicted", "on these cores", "measured over that")
NOTE = (
    "Step times in ms. Measured: the median of the layout's steps, its first one left out. Predicted: solvers.replan's "
    "estimate from costs measured before the start, a core for each process. On these cores ({cores}): the longer of "
    "that and all passes' time over the cores. Neither counts optimizer, sums in fixed point, the vote, or other work "
    "on the machine."
)


class LayoutStep(NamedTuple):
    """One layout; `step_us` is None where only its first step was seen."""

    layout: str
    nodes: int
    steps: int
    step_us: float | None
    predicted_step_us: int
    on_cores_us: int


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def layout_steps(events: Sequence[Event], on: int) -> list[LayoutStep]:
    """Every layout of a log with its predicted and measured step on so many cores; empty where costs are not told."""
    problem = problem_of(events)
    if problem is None:
        return []
    found = []
    for one in trained_of(events):
        pipelines = msgspec.convert(one.called["pipelines"], list[CurrentPipeline])
        predicted = predicted_us(problem, pipelines, one.called["failed"])
        took = median(one.took_us) if one.took_us else None
        work = -(-work_us(problem, pipelines) // on)
        found.append(
            LayoutStep(
                one.called["layout"], len(one.called["nodes"]), len(one.took_us), took, predicted, max(predicted, work)
            )
        )
    return found


def problem_of(events: Iterable[Event]) -> ReplanProblem | None:
    """The costs that the training was planned with."""
    for event in events:
        if event["event"] == "costs":
            try:
                return msgspec.convert(event["problem"], ReplanProblem)
            except (msgspec.ValidationError, KeyError) as error:
                raise InvalidInput(f"the event log is another version's ({error}): train again") from error
    return None


def predicted_us(problem: ReplanProblem, pipelines: Sequence[CurrentPipeline], failed: Sequence[int]) -> int:
    """The estimator's step of a layout; with `failed` nodes it is a rerouted one."""
    if not failed:
        return step_us(problem, [(one.layers, one.microbatches) for one in pipelines])
    first = pipelines[0]
    dead = {
        (number, stage)
        for number, one in enumerate(pipelines)
        for stage, node in enumerate(one.nodes)
        if node in failed
    }
    passes = rerouted_nodes_us(problem, first.layers, first.microbatches, dead, len(pipelines))
    return passes + sync_us(problem, [one.layers for one in pipelines])


def work_us(problem: ReplanProblem, pipelines: Sequence[CurrentPipeline]) -> int:
    """All passes of a step, one after the other."""
    extra = sum(problem.first_extra_us) + sum(problem.last_extra_us)
    one = problem.layers * (problem.forward_us + problem.backward_us) + extra
    return one * sum(pipeline.microbatches for pipeline in pipelines)


def layouts_table(steps: Sequence[LayoutStep] | Sequence[dict[str, Any]], on: int) -> Table:
    """A line for each layout, in the order of the training."""
    told = [LayoutStep(**one) if isinstance(one, dict) else one for one in steps]
    body = tuple(
        (
            one.layout, str(one.nodes), str(one.steps), _ms(one.step_us), _ms(one.predicted_step_us),
            _ms(one.on_cores_us), NOTHING if one.step_us is None else f"{one.step_us / one.on_cores_us:.2f}",
        )
        for one in told
    )  # fmt: skip
    return Table("The estimator beside measured steps", HEAD, body, NOTE.format(cores=on))


def _ms(value_us: float | None) -> str:
    return NOTHING if value_us is None else f"{value_us / 1e3:.1f}"
