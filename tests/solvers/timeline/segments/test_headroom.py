"""The search for the largest aim, against counting down one by one where what fits has an end."""

from hypothesis import given
from hypothesis import strategies as st

from solvers.ir.errors import InfeasibleBudget
from solvers.ir.schedule import Schedule
from solvers.ir.solution import Solution, Status
from solvers.timeline.segments.headroom import FINEST, PlanAt, in_turns, largest_fitting, planned_and_held, risen


@given(st.integers(1, 100_000), st.integers(0, 100_000), st.integers(0, 100_000))
def test_where_less_always_fits_the_largest_is_found(budget: int, least: int, fits: int) -> None:
    asked = list[int]()

    def attempt(size: int) -> str | None:
        asked.append(size)
        return "it fits" if size <= fits else None

    found = largest_fitting(budget, least, attempt)
    if budget < least:
        assert found is None and not asked
        return
    assert all(least <= size <= budget for size in asked) and len(asked) <= 32
    if fits < least:
        assert found is None and asked[-1] == least
        return
    assert found is not None and found[1] == "it fits"
    assert min(fits, budget) - max(1, int(FINEST * budget)) <= found[0] <= min(fits, budget)


def test_what_was_found_was_tried_where_less_need_not_fit() -> None:
    fitting = {1000 - 10, 500}
    assert largest_fitting(1000, 100, lambda size: size if size in fitting else None) == (990, 990)


def test_turns_end_at_the_least_aim() -> None:
    asked = list[int]()
    assert in_turns(520, (505, 1000), lambda size: asked.append(size)) is None
    assert asked == [520, 510]
    assert in_turns(520, (0, 1000), lambda size: size if size < 515 else None) == (510, 510)


def test_what_is_found_rises_by_halves_towards_the_budget() -> None:
    asked = list[int]()

    def attempt(size: int) -> int | None:
        asked.append(size)
        return size if size <= 780 else None

    assert risen((600, 600), 1000, attempt) == (700, 700)
    assert asked == [800, 700]
    assert risen((996, 996), 1000, attempt) == (996, 996)  # nothing worth a try


def planner_of(solver: str, asked: list[int], over_us: int, least: int = 0) -> PlanAt:
    """Plans that take the longer the less they may use; none for less than `least`."""

    def plan(aim: int) -> Solution[Schedule]:
        asked.append(aim)
        if aim < least:
            raise InfeasibleBudget(f"{aim} bytes are too few", least)
        schedule = Schedule(lanes=(), actions=())
        return Solution(status=Status.FEASIBLE, plan=schedule, solver=solver, objective=2000 - aim + over_us)

    return plan


def test_a_slow_planner_is_asked_only_where_a_quick_one_found_room() -> None:
    quick, slow = list[int](), list[int]()

    def held(answer: Solution[Schedule]) -> bool:
        return (answer.objective or 0) >= 1400

    found = planned_and_held(1000, 100, held, planner_of("slow", slow, 0), planner_of("quick", quick, 50))
    assert found is not None and found[1].solver == "quick" and 640 <= found[0] <= 650
    assert slow[0] == found[0] and len(slow) <= 4 < len(quick)
    better = planned_and_held(1000, 100, held, planner_of("slow", [], -20), planner_of("quick", [], -20))
    assert better is not None and better[1].solver == "slow"


def test_none_is_held_where_not_even_the_fewest_bytes_are() -> None:
    asked = list[int]()
    plan_at = planner_of("quick", asked, 0, least=300)
    assert planned_and_held(1000, 200, lambda answer: False, plan_at) is None
    assert min(asked) == 200
