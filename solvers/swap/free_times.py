"""The free-time list: before which op each swapped block is released (Algorithm 2, `SetFreeTime`; §4.4.2, §5.2)."""

from collections.abc import Sequence
from dataclasses import replace

from solvers.ir.errors import InvalidInput, InvalidProblem
from solvers.ir.swap import SwapPlan, SwapProblem
from solvers.swap.evaluate import choices_of, evaluate, instance
from solvers.swap.layers import layer_of_op, logical_layers


def free_times(
    problem: SwapProblem, plan: SwapPlan, layers: int = 32, estimated: bool = True, delay: int = 1
) -> tuple[int, ...]:
    """The op before which each swap's block is released, as the paper's simulator of logical layers has it.

    Swaps are taken in the order in which they leave. From the layer of its last forward use on, each takes the first
    logical layer (`layers` a phase) whose time left exceeds its swap-out time, and is released where the `delay`-th
    layer after it begins; at the latest before its own swap-in. `estimated` takes layer times from Eq. (1), else from
    the op times. In the plan's list order; raises `InvalidProblem` on another problem's plan, `InvalidInput` on a delay
    below 1.
    """
    if delay < 1:
        raise InvalidInput(f"delay is {delay}, below 1: a block is released in a later layer")
    given, choices = instance(problem), choices_of(problem, plan)
    groups = logical_layers(problem, layers, estimated)
    layer_of = layer_of_op(groups)
    released = [issue for _, issue in choices]
    for number in sorted(range(len(choices)), key=lambda number: given.first[choices[number][0]]):
        tensor, issue = choices[number]
        for place in range(layer_of[given.first[tensor]], layer_of[issue - 1] + 1):
            if groups[place].out_left > given.out_time[tensor]:
                groups[place].out_left -= given.out_time[tensor]
                last = min(place + delay, len(groups)) - 1
                released[number] = min(groups[last].stop, issue)
                break
    return tuple(released)


def exact_free_times(problem: SwapProblem, plan: SwapPlan) -> tuple[int, ...]:
    """For each swap the first op at whose ready time its swap-out has ended, by the exact recursion.

    In the plan's list order; raises `InvalidProblem` on a plan that is invalid or another problem's.
    """
    given, choices = instance(problem), choices_of(problem, plan)
    every_op = replace(given, busy=list(range(len(given.time))))
    timeline = evaluate(every_op, choices)
    if timeline is None:
        raise InvalidProblem("the plan leaves an op without enough memory: check it with `bayplan check` first")
    return tuple(timeline.released)


def over_budget_bytes(problem: SwapProblem, plan: SwapPlan, released: Sequence[int]) -> int:
    """The most by which memory exceeds the budget if blocks are given back before these ops and no op ever waits.

    0 where the budget is kept; a block that is released too late shows here, one that is released too early in time.
    """
    given, choices = instance(problem), choices_of(problem, plan)
    change = [0] * (len(given.time) + 1)
    for (tensor, issue), release in zip(choices, released, strict=True):
        change[release] += given.size[tensor]
        change[issue] -= given.size[tensor]
    absent = worst = 0
    for need, step in zip(given.need, change, strict=False):
        absent += step
        worst = max(worst, need - absent)
    return worst
