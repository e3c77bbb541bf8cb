"""`balanced`: the layers as evenly as possible, and where the rest goes."""

from itertools import product

import pytest

from solvers.ir import InvalidInput, Limits, Status
from solvers.partition import Balanced, even_split, partition_problem
from solvers.partition.balanced import Remainder


@pytest.mark.parametrize(
    ("layers", "stages", "remainder", "counts"),
    [
        (40, 4, "middle", (10, 10, 10, 10)),
        (9, 4, "middle", (2, 2, 3, 2)),
        (10, 4, "middle", (2, 3, 3, 2)),
        (11, 4, "middle", (2, 3, 3, 3)),
        (7, 3, "middle", (2, 3, 2)),
        (8, 3, "middle", (2, 3, 3)),
        (10, 4, "front", (3, 3, 2, 2)),
        (10, 4, "back", (2, 2, 3, 3)),
        (5, 1, "back", (5,)),
    ],
)
def test_where_the_rest_goes(layers: int, stages: int, remainder: Remainder, counts: tuple[int, ...]) -> None:
    assert even_split(layers, stages, remainder) == counts
    table = [[None, *(10 * n for n in range(1, layers + 1))]] * stages
    solution = Balanced(remainder=remainder).solve(partition_problem("even", table), Limits())
    assert solution.plan is not None
    assert (solution.plan.layers, solution.status, solution.bound) == (counts, Status.FEASIBLE, None)
    assert solution.objective == 10 * max(counts)


@pytest.mark.parametrize("remainder", ["front", "middle", "back"])
def test_no_two_stages_differ_by_more_than_one(remainder: Remainder) -> None:
    for layers, stages in product(range(1, 40), range(1, 17)):
        counts = even_split(layers, stages, remainder)
        assert sum(counts) == layers
        assert max(counts) - min(counts) == (layers % stages > 0)


def test_it_says_where_it_does_not_fit() -> None:
    tight = partition_problem("tight", [[None, 1, None, None, None], [None, 1, 2, 3, None]])
    solution = Balanced().solve(tight, Limits())
    assert (solution.status, solution.plan) == (Status.UNKNOWN, None)
    assert solution.reason == "stuck at 2, 2 layers, where stage 0 does not fit; a partition that fits exists: use dp"
    impossible = partition_problem("few", [[None, 1]] * 3)
    assert Balanced().solve(impossible, Limits()).status is Status.INFEASIBLE


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no choice for remainder 'end'"):
        Balanced(remainder="end")  # type: ignore[arg-type]
