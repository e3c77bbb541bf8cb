"""Every wait of a solved schedule is needed: without any single one, the simulated device's race check speaks up."""

import msgspec
import pytest
import torch

from runtime.device import use_sim
from runtime.swap import SwapExecutor
from solvers.ir.graph import OpGraph
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Limits
from solvers.swap import GreedySwap, MilpSwap
from solvers.swap.lower import lower
from tests.runtime.execute.test_executor import gpt, tight
from tests.runtime.execute.training import Trainee, graph_of, schedule_of, sensible, small, warm


def races(schedule: Schedule, graph: OpGraph, trainee: Trainee, device: torch.device) -> int:
    """The races of one step under the schedule, which must otherwise go as planned."""
    sim = use_sim(races="record")
    counts = SwapExecutor(schedule, graph, device, trace=False).run(trainee.step).counts
    assert counts.as_planned
    return len(sim.races())


def without(schedule: Schedule, action: int, wait: int) -> Schedule:
    """The schedule less one edge."""
    return Schedule(
        lanes=schedule.lanes,
        actions=tuple(
            msgspec.structs.replace(each, after=tuple(one for one in each.after if one != wait))
            if each.id == action
            else each
            for each in schedule.actions
        ),
    )


def test_a_race_inside_the_engine_is_raised_when_the_step_ends(device: torch.device) -> None:
    """PyTorch swallows what an observer throws; the executor keeps it."""
    graph = graph_of(small, device)
    schedule = schedule_of(graph, sensible(graph, 1024))
    release = next(action for action in schedule.actions if action.do == "release")
    executor = SwapExecutor(without(schedule, release.id, release.after[0]), graph, device)
    trainee = warm(small, device)
    use_sim(races="raise")
    with pytest.raises(RuntimeError, match="race"):
        executor.run(trainee.step)
    use_sim(races="off")
    SwapExecutor(schedule, graph, device).run(trainee.step)


@pytest.mark.parametrize("make", [gpt, small])
@pytest.mark.parametrize("solver", [GreedySwap(), MilpSwap()])
def test_no_wait_can_be_dropped_unnoticed(device: torch.device, make: object, solver: GreedySwap | MilpSwap) -> None:
    assert make in (gpt, small)
    build = gpt if make is gpt else small
    graph = graph_of(build, device)
    problem = tight(graph)
    plan = solver.solve(problem, Limits(time_s=600, work=0.1)).plan
    assert plan is not None
    schedule = lower(problem, plan)
    trainee = warm(build, device)
    assert races(schedule, graph, trainee, device) == 0
    edges = [(action.id, wait) for action in schedule.actions for wait in action.after]
    assert len(edges) >= 3
    unnoticed = [edge for edge in edges if races(without(schedule, *edge), graph, trainee, device) == 0]
    assert unnoticed == []
