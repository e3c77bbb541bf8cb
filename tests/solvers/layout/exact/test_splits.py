"""Where the certified tree splits: how far found chunks reach, then windows of swapped blocks, then sums."""

import numpy as np

from solvers.engines import solve
from solvers.ir import Limits
from solvers.layout.evaluate import instance
from solvers.layout.exact.bound import BoundTree
from solvers.layout.exact.splits import REACH, QueueSplits, fractional
from tests.solvers.layout.test_instances import generated

MOST_US = 3_554_303


def test_sums_are_split_before_single_decisions() -> None:
    whole = {"checkpoints": 0, "swaps": 1, "persistents": 2, "buffers": 3, "swap/0": 4, "swap/1": 5}
    assert fractional(whole, np.array([1, 2, 3.4, 4.1, 0.5, 0])) == ("persistents", 3)
    assert fractional(whole, np.array([1, 2, 3, 4, 0.1, 0.4])) == ("swap/1", 0)
    assert fractional(whole, np.array([1, 2, 3, 4, 1, 0.0])) is None


def test_reach_is_halved_until_it_is_known_well_then_windows_are_split() -> None:
    """Of row D: swapped blocks that keep loads from running ahead where found chunks end hold up the network most."""
    tree = BoundTree(instance(generated("layout-gpt2-10b-3090")), MOST_US, queue=True)
    assert isinstance(tree.split, QueueSplits)
    answer = solve(tree.model, Limits(time_s=60), "highs")
    assert answer.x is not None
    limits: dict[str, tuple[int, int]] = {}
    places = []
    for half in (0, 0, 1, 1):
        place = tree.split(answer.x, limits, 3_449_151.0)
        assert place is not None and place[0].startswith("reach/") and place[1] == 0
        limits[place[0]] = (half, half)
        places.append(int(place[0].removeprefix("reach/")))
    low, high = max(places[:2]), min(places[2:])
    assert 0 < high - low <= REACH
    place = tree.split(answer.x, limits, 3_449_151.0)
    assert place is not None and place[0].split("/")[0] in ("some", "swap")
    taken = limits | {place[0]: (0, 0)}
    again = tree.split(answer.x, taken, 3_449_151.0)
    assert again is not None and again[0] != place[0]


def test_a_problem_without_swaps_is_split_at_sums() -> None:
    """No window holds anything up there; the split is one that the plain tree makes, too."""
    given = instance(generated("layout-gpt2-10b-3090"))
    tree = BoundTree(given, MOST_US, queue=True)
    assert isinstance(tree.split, QueueSplits)
    x = np.zeros(tree.model.columns)
    x[tree.whole["persistents"]] = 2.5
    known = {f"reach/{chunk}": (0, 0) for chunk in range(len(given.problem.chunks))}
    x[tree.split.lanes.reduced[-1]] = x[tree.split.lanes.into[-1]] = MOST_US
    assert tree.split(x, known, 3_449_151.0) == ("persistents", 2)
