"""The figures of the room's README: drawn again they are the same, and they mean what they say."""

from solvers.partition.instances import random_stage_times
from solvers.partition.losses import figures, split_losses, step_losses
from solvers.partition.table import UNFIT


def test_a_loss_is_relative_to_the_best() -> None:
    told = figures([100, 110, None, 240], [100, 100, 100, 200])
    assert (told.instances, told.optimal, told.stuck) == (4, 1, 1)
    assert [round(value, 6) for value in (told.mean_percent, told.max_percent)] == [10.0, 20.0]
    assert round(told.p95_percent, 6) == 19.0
    assert figures([None], [5]).stuck == 1


def test_the_greedy_loop_loses_sometimes_and_never_wins() -> None:
    rows = split_losses(range(120))
    assert len(rows) > 100
    assert all(row.dp_us <= (row.greedy_us or row.dp_us) for row in rows)
    assert all((row.greedy_us or 0) <= (row.balanced_us or row.greedy_us or 0) for row in rows)
    told = figures([row.greedy_us for row in rows], [row.dp_us for row in rows])
    assert 0.5 * told.instances < told.optimal < told.instances
    assert 0 < told.mean_percent < 5
    assert rows == split_losses(range(120))


def test_the_largest_stage_cost_is_only_a_proxy_of_the_step() -> None:
    rows = step_losses(range(12), stages=8, layers=24, microbatches=16)
    assert all(row.exact and row.bound_us == row.fastest_us for row in rows)
    assert all(row.fastest_us <= min(row.dp_us, row.balanced_us or row.dp_us) for row in rows)
    assert any(row.fastest_us < row.dp_us for row in rows)


def test_instances_are_costlier_with_more_layers_and_do_not_always_fit() -> None:
    for seed in range(20):
        costs = random_stage_times(seed).costs_us()
        fitting = costs < UNFIT
        for row, fits in zip(costs, fitting, strict=True):
            assert (row[fits][1:] >= row[fits][:-1]).all()
            assert fits[1 : fits.sum() + 1].all()
