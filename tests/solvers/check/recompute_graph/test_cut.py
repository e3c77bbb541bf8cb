"""The rows of the cut relaxation: each holds in every plan, which is what the bounds of certificates rest on."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from solvers.check.keyed import Row
from solvers.check.recompute_graph.bound import packed
from solvers.check.recompute_graph.cut import CutRelaxation, Shape
from solvers.check.recompute_graph.judge import base_us, judge_recompute_graph
from solvers.ir import RecomputeGraphProblem
from solvers.recompute.graph.replay import replay
from tests.solvers.check.recompute_graph.naive_cut import (
    Point,
    cleaned,
    column_keys,
    held,
    plan_of,
    random_problem,
    random_sets,
    random_shape,
    row_keys,
)


@dataclass(frozen=True)
class Seen:
    """A valid plan seen through a shape: its objective, and its most bytes in use in each stage."""

    problem: RecomputeGraphProblem
    shape: Shape
    point: Point
    objective: int
    peaks: list[int]


def random_plans(seeds: range, holding: bool = False) -> Iterator[Seen]:
    """Valid plans of tiny problems whose budget is just the plan's peak, each seen through four shapes.

    What nothing reads is taken away first: the plan stays valid and costs no more. `holding`: some ops run once only.
    """
    for seed in seeds:
        source = random.Random(seed)
        problem = random_problem(source)
        problem = held(source, problem) if holding else problem
        compute, keep = random_sets(source, problem)
        problem = replace(problem, budget_bytes=replay(problem, compute, keep[:-1]).peak_bytes)
        before = judge_recompute_graph(problem, plan_of(compute, keep))
        compute, keep = cleaned(problem, compute, keep)
        after = judge_recompute_graph(problem, plan_of(compute, keep))
        assert before.violations == after.violations == ()
        assert before.objective_us is not None
        assert after.objective_us is not None
        assert after.objective_us <= before.objective_us
        peaks = replay(problem, compute, keep[:-1]).peaks
        problem = replace(problem, budget_bytes=max(peaks))
        for number in range(4):
            shape = random_shape(source, problem, whole=number % 2 == 0)
            yield Seen(problem, shape, Point(problem, shape, compute, keep), after.objective_us, peaks)


def column_values(relaxation: CutRelaxation, point: Point) -> dict[str, int]:
    """The values of the columns that there are; those that there are not stand for nothing."""
    values = {}
    for key in column_keys(relaxation.problem, relaxation.shape):
        column, value = relaxation.columns.get(key), point.value(key)
        assert 0 <= value <= (0 if column is None else column.upper), (key, value)
        if column is not None:
            values[key] = value
    return values


def spare(seen: Seen, key: str, row: Row, values: dict[str, int]) -> int:
    """By how much a row holds; each row has one side. A stage's memory is held against its own peak, not the budget."""
    total = sum(weight * values[name] for name, weight in row.weights.items())
    if row.lower is not None:
        assert row.upper is None
        return total - row.lower
    assert row.upper is not None
    family, *numbers = key.split("/")
    unused = seen.problem.budget_bytes - seen.peaks[int(numbers[0])] if family == "memory" else 0
    return row.upper - total - unused


@pytest.mark.parametrize("holding", [False, True], ids=["all run again", "some run once"])
def test_every_row_holds_in_every_plan(holding: bool) -> None:
    """2,400 plans and shapes: the plan's point keeps every row and costs no more than the plan.

    Rows of each family hold with nothing to spare somewhere: one that asked for more would be seen.
    """
    tight: Counter[str] = Counter()
    count = 0
    for seen in random_plans(range(600), holding):
        relaxation = CutRelaxation(seen.problem, seen.shape)
        values = column_values(relaxation, seen.point)
        costs = sum(relaxation.columns[key].cost_us * value for key, value in values.items())
        assert base_us(seen.problem) + costs <= seen.objective, (seen, values)
        for key in row_keys(seen.problem, seen.shape):
            row = relaxation.rows.get(key)
            if row is not None:
                left = spare(seen, key, row, values)
                assert left >= 0, (seen, key, row, values)
                tight[key.split("/")[0]] += left == 0
        count += 1
    assert count == 2400
    families = "need own input hide keep once read from window memory later again closed"
    assert min(tight[family] for family in families.split()) >= 10, tight


def test_a_zone_holds_what_the_knapsack_says() -> None:
    """For random prices by time, what is hidden in a zone is worth no more than its windows can hold."""
    source, hidden = random.Random(0), 0
    for seen in random_plans(range(600, 900)):
        relaxation = CutRelaxation(seen.problem, seen.shape)
        for zone, stages in enumerate(relaxation.windows):
            found = [(seen.point.value(key), time) for key, time, where in relaxation.hidden if where == zone]
            prices = {time: source.randint(1, 9) for _, time in found if time > 0}
            worth = sum(prices.get(time, 0) * value for value, time in found)
            room = [seen.problem.ops[t].time_us for t in stages]
            assert worth <= sum(packed(tuple(prices.items()), capacity) for capacity in room)
            hidden += worth > 0
    assert hidden >= 20
