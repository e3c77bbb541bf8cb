"""A plan's schedule takes the plan's time to the microsecond, passes its judge, and hides what it says."""

import math

import pytest
from msgspec.structs import replace

from solvers.check import check_plan, check_schedule
from solvers.ir import InvalidProblem, Limits, PipelineProblem, Schedule, parse_schedule
from solvers.ir.codec import plan_file
from solvers.partition.baselines import AdaPipeStep, CheckmateStep, HeuStep, Lynx
from solvers.partition.bayplan import Bayplan
from solvers.partition.lower import lower
from solvers.planner import AnySolver
from solvers.timeline import simulate
from tests.solvers.partition.steps import busy_problem, random_step

LIMITS = Limits(time_s=math.inf)
SOLVERS: tuple[AnySolver, ...] = (
    Lynx(),
    Lynx(cut="dp", hide="all"),
    AdaPipeStep(),
    CheckmateStep(),
    HeuStep(),
    Bayplan(),
)


def lowered(problem: PipelineProblem, solver: AnySolver) -> tuple[int, Schedule] | None:
    """The plan's time and schedule; None where there is no plan."""
    answer = solver.solve(problem, LIMITS)
    if answer.plan is None:
        return None
    assert check_plan(problem, plan_file(answer, "pipeline", None)).violations == ()
    assert answer.objective is not None
    return answer.objective, lower(problem, answer.plan)


def test_random_steps_take_their_objective_and_pass() -> None:
    """60 random problems and six solvers: some 200 schedules, of 1F1B and GPipe, with stalls and without."""
    seen = 0
    for seed in range(60):
        problem = random_step(seed)
        for solver in SOLVERS:
            try:
                found = lowered(problem, solver)
            except InvalidProblem as refused:
                assert "no schedule has room" in str(refused)
                break
            if found is None:
                continue
            objective, schedule = found
            assert simulate(problem, schedule).makespan_us == objective, (seed, solver)
            assert check_schedule(problem, schedule).violations == (), (seed, solver)
            seen += 1
    assert seen > 150


@pytest.fixture(scope="module")
def busy() -> tuple[PipelineProblem, Schedule]:
    problem = busy_problem()
    found = lowered(problem, Lynx(hide="all"))
    assert found is not None
    return problem, found[1]


def test_recomputation_stands_inside_collectives(busy: tuple[PipelineProblem, Schedule]) -> None:
    """On the compute lane between start and wait of a collective, of the problem's windows' time at most."""
    problem, schedule = busy
    lane = [action for action in schedule.actions if action.lane == "0.compute"]
    started = {(a.op, a.microbatch, a.direction): a for a in schedule.actions if a.lane == "0.comm"}
    spans = {span.action: span for span in simulate(problem, schedule).spans}
    inside = 0
    for number, action in enumerate(lane):
        if action.do != "collective_wait":
            continue
        start = started[action.op, action.microbatch, action.direction]
        assert action.after == (start.id,)
        first = number
        while lane[first - 1].do == "recompute":
            first -= 1
        assert lane[first - 1].id in start.after
        assert spans[action.id].end_us == spans[start.id].end_us, "recomputation that outlasts its collective"
        inside += number - first
    assert inside > 0


def test_it_says_who_talks_to_whom(busy: tuple[PipelineProblem, Schedule]) -> None:
    problem, schedule = busy
    sends = [action for action in schedule.actions if action.do == "send"]
    assert len(sends) == 2 * (len(problem.stages) - 1) * problem.microbatches
    for action in sends:
        rank = int(action.lane.split(".")[0])
        assert action.peer == rank + (1 if action.direction == "forward" else -1)
    assert all(action.microbatch is not None for action in schedule.actions)


def test_it_is_text_and_comes_back(busy: tuple[PipelineProblem, Schedule]) -> None:
    _, schedule = busy
    assert parse_schedule(schedule.text()) == schedule
    assert " pass=backward peer=0 " in schedule.text() + " "


def test_foreign_plans_and_windows_without_room_are_refused() -> None:
    problem = busy_problem()
    plan = Lynx().solve(problem, LIMITS).plan
    assert plan is not None
    with pytest.raises(InvalidProblem, match="give a plan of this problem"):
        lower(replace(problem, layers=10), plan)
    with pytest.raises(InvalidProblem, match="no schedule has room for them: shorten the windows"):
        lower(replace(problem, backward_us=9), plan)
