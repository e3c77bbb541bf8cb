"""The analytic time beside the lanes': what the drawn configurations are, and what their ratios must be."""

from pathlib import Path

import numpy as np

from experiments.hardware import read_hardware
from experiments.protrain.analytic import BUFFERS, CELL, PERSIST, drawn_from
from experiments.shapes import read_shape
from solvers.layout.baselines import fits
from solvers.layout.evaluate import instance, least_buffers
from solvers.layout.interleaved import interleaved_plan
from solvers.layout.make import Rank, problem_from_shape
from solvers.layout.search import Space
from tests.experiments.protrain.test_tables import computed

ROW = {"label": "10B", "shape": "gpt2-10b", "hardware": "protrain-3090"}


def test_drawn_configurations_fit_and_can_run() -> None:
    problem = problem_from_shape(read_shape("gpt2-10b"), read_hardware("protrain-3090"), Rank(ranks=4), batch=32)
    given = instance(problem)
    space = Space(given)
    drawn = drawn_from(space, 3000, np.random.default_rng(0))
    assert len(drawn) > 50
    for numbers in drawn[:100].tolist():
        row, column = divmod(numbers[CELL], space.layouts.valid.shape[1])
        persist = int(space.persist[numbers[PERSIST]])
        counts = int(space.layouts.swap[row]), int(space.layouts.checkpoint[column])
        plan = interleaved_plan(problem, persist, numbers[BUFFERS], *counts)
        assert fits(given, plan)
        assert plan.buffers >= least_buffers(given, plan.persistent)


def test_ratios_are_in_order_and_draws_are_halved(tmp_path: Path) -> None:
    result = computed(tmp_path, "analytic", rows=[ROW], batches=[8], draws=20)
    for kind in ("spare buffers", "least buffers"):
        ratios = [
            result.named(f"{kind}: lane time over analytic, {statistic}").numbers()["10B batch 8"]
            for statistic in ("smallest", "median", "largest")
        ]
        assert ratios == sorted(ratios)
    assert result.named("configurations with spare buffers").points == {"10B batch 8": 10}
    assert result.named("configurations with the least buffers").points == {"10B batch 8": 10}
    assert result.named("best analytic over the best of the kept, on the lanes").numbers()["10B batch 8"] >= 1


def test_what_does_not_fit_has_no_ratio(tmp_path: Path) -> None:
    result = computed(tmp_path, "analytic", rows=[ROW], batches=[4096])
    assert {one.points["10B batch 4096"] for one in result.series} == {"out of memory"}
