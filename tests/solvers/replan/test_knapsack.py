"""The knapsack over depths against a table over all nodes."""

import random
import tracemalloc
from itertools import combinations_with_replacement

import pytest

from solvers.replan import knapsack
from solvers.replan.knapsack import at_most, counted, fill, fill_few, least_useful, useful


def test_no_filling_counts_more() -> None:
    for seed in range(200):
        source = random.Random(seed)
        nodes = source.choice([source.randint(1, 30), source.randint(200, 700)])
        worth = {depth: source.randint(0, 12) for depth in source.sample(range(1, 20), source.randint(1, 6))}
        best = [0] * (nodes + 1)
        for have in range(1, nodes + 1):
            fitting = [best[have - depth] + value for depth, value in worth.items() if depth <= have]
            best[have] = max([best[have - 1], *fitting])
        counts = fill(worth, nodes)
        assert sum(depth * count for depth, count in counts.items()) <= nodes
        assert counted(worth, counts) == best[nodes]


def test_no_few_pipelines_count_more() -> None:
    for seed in range(100):
        source = random.Random(seed)
        nodes, most = source.randint(1, 40), source.randint(1, 6)
        worth = {depth: source.randint(0, 12) for depth in source.sample(range(1, 12), source.randint(1, 5))}
        reached = {0: 0}
        for _ in range(most):
            steps = [(have + depth, sum_ + value) for have, sum_ in reached.items() for depth, value in worth.items()]
            for have, sum_ in steps:
                if have <= nodes:
                    reached[have] = max(sum_, reached.get(have, 0))
        counts, best = fill(worth, nodes, most), max(reached.values())
        assert sum(counts.values()) <= most and sum(depth * count for depth, count in counts.items()) <= nodes
        assert counted(worth, counts) <= best <= at_most(worth, nodes, most) < best + 2 * max(worth.values()) + 1
        assert counted(worth, counts) >= best - max(worth.values())


def test_depths_that_are_of_no_use_are_in_no_filling_that_counts_enough() -> None:
    for seed in range(150):
        source = random.Random(seed)
        nodes, most = source.randint(1, 14), source.randint(1, 6)
        worth = {depth: source.randint(1, 12) for depth in source.sample(range(1, 9), source.randint(1, 5))}
        for least in range(1, 30):
            some = useful(worth, nodes, most, least)
            used = {depth for filling in _fillings(worth, nodes, most, least) for depth in filling}
            assert used <= some.keys()
            counts = fill(worth, nodes, nodes, least)
            enough = bool(_fillings(worth, nodes, nodes, least))
            assert enough == (counted(worth, counts) >= least)
            for depth in worth:
                others = {other: value for other, value in worth.items() if other != depth}
                fewest = least_useful(depth, others, nodes, most, least)
                assert depth not in used or worth[depth] >= fewest or not others


def _fillings(worth: dict[int, int], nodes: int, most: int, least: int) -> list[tuple[int, ...]]:
    """All sets of pipelines that count at least so many microbatches."""
    return [
        chosen
        for number in range(1, most + 1)
        for chosen in combinations_with_replacement(worth, number)
        if sum(chosen) <= nodes and sum(worth[depth] for depth in chosen) >= least
    ]


def test_numbers_of_pipelines_are_tried_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pipelines in any portions."""
    for seed in range(60):
        source = random.Random(seed)
        nodes, most = source.randint(20, 60), source.randint(1, 6)
        worth = {depth: source.randint(0, 12) for depth in source.sample(range(1, 20), source.randint(2, 9))}
        whole = fill(worth, nodes, most)
        with monkeypatch.context() as patched:
            patched.setattr(knapsack, "_CELLS", 100)
            assert fill(worth, nodes, most) == whole


def test_a_thousand_depths_fit_memory() -> None:
    """A table of all numbers of pairs of depths would have 5e7 entries."""
    worth = {depth: depth + depth * depth // 900 for depth in range(1, 1001)}
    tracemalloc.start()
    counts, bound = fill(worth, 20_000, 15), at_most(worth, 5_000, 4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**30
    assert counts == {1000: 15} and bound >= counted(worth, {1000: 4})


def test_a_million_nodes_need_no_table_of_a_million() -> None:
    counts = fill({16: 16, 15: 14, 7: 5}, 1_000_003)
    assert counted({16: 16, 15: 14, 7: 5}, counts) == 16 * 62_500


def test_nothing_fits() -> None:
    assert fill({}, 5) == fill({7: 3}, 5) == fill({2: 0}, 5) == {}


def test_few_pipelines_of_any_depths_are_filled_exactly() -> None:
    for seed in range(40):
        source = random.Random(seed)
        nodes, most = source.randint(1, 14), source.randint(1, 6)
        worth = {depth: source.randint(1, 12) for depth in source.sample(range(1, 9), source.randint(1, 5))}
        for least in range(1, 40):
            counts, some = fill_few(worth, nodes, most, least), _fillings(worth, nodes, most, least)
            assert counts is not None and bool(counts) == bool(some)
            if counts:
                assert sum(counts.values()) <= most and sum(depth * count for depth, count in counts.items()) <= nodes
                assert counted(worth, counts) >= least
    three = {1: 16, 5: 13, 6: 1, 10: 16, 12: 18, 16: 19}
    assert counted(three, fill(three, 29, 3)) == 52 < counted(three, fill_few(three, 29, 3, 53) or {}) == 53


@pytest.mark.skipif(knapsack.NATIVE is None, reason="the native extension was not built: run make build")
def test_the_native_extension_says_the_same_prices_and_fillings() -> None:
    source = random.Random(1)
    for _ in range(500):
        worth = {source.randint(1, 60): source.randint(0, 200) for _ in range(source.randint(1, 20))}
        nodes, most = source.randint(1, 2000), source.randint(1, 200)
        assert knapsack._prices(worth, nodes, most) == knapsack.prices_in_python(worth, nodes, most), worth
        filled = knapsack._fill_all(worth, nodes)
        assert list(filled.items()) == list(knapsack.fill_in_python(worth, nodes).items()), worth
