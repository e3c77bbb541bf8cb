"""Oobleck's templates: the recursion's split, and what the search over all splits finds."""

import pytest
from hypothesis import given, settings

from solvers.check.replan.judge import pipeline_us, stage_times_us
from solvers.ir import ReplanProblem
from solvers.replan.oobleck_templates import template_layers, templates_of
from tests.solvers.replan.brute_force import fits, splits
from tests.solvers.replan.clusters import before, grid
from tests.strategies import replan_problems


def planned_us(problem: ReplanProblem, layers: tuple[int, ...]) -> int:
    """T1 + T2 + T3 of Oobleck for four microbatches a stage, the first slowest stage setting the pace."""
    times = [forward + backward for forward, backward in stage_times_us(problem, layers)]
    slowest = times.index(max(times))
    return sum(times) + (4 * len(times) - len(times) + slowest) * times[slowest] + sum(times[slowest:])


@settings(max_examples=300, deadline=None)
@given(problem=replan_problems())
def test_the_recursion_finds_the_fastest_split_that_fits(problem: ReplanProblem) -> None:
    """Where all layers are alike; a head may mislead it, since a half is judged before the other half is known."""
    alike = problem.first_extra_us == problem.last_extra_us == (0, 0)
    for depth in range(1, min(problem.layers, problem.max_depth) + 1):
        fitting = [split for split in splits(problem.layers, depth) if fits(problem, split, depth)]
        found = template_layers(problem, depth)
        assert (found is None) == (not fitting)
        if found is not None:
            assert found in fitting
            fastest = min(planned_us(problem, split) for split in fitting)
            assert planned_us(problem, found) == fastest if alike else planned_us(problem, found) >= fastest


def test_a_heavy_end_may_mislead_the_recursion() -> None:
    """Six layers of 3 us, 6 us more on the last stage of some depth: its split is slower than the best one."""
    problem = before(grid(1, 1, 6, 2, last_extra_us=(3, 3), forward_us=1, backward_us=2))
    gaps = []
    for depth in range(1, 7):
        found = template_layers(problem, depth)
        assert found is not None
        gaps.append(planned_us(problem, found) - min(planned_us(problem, split) for split in splits(6, depth)))
    assert max(gaps) == 12
    assert min(gaps) == 0


@pytest.mark.parametrize("depth", [3, 5, 6])
def test_a_heavy_head_takes_layers_from_the_last_stage(depth: int) -> None:
    problem = before(grid(2, 1, 30, 8, last_extra_us=(3000, 6000)))
    layers = template_layers(problem, depth)
    assert layers is not None
    assert layers[-1] < min(layers[:-1])


def test_templates_know_their_times() -> None:
    problem = before(grid(2, 2, 7, 9, p2p_us=30))
    templates = templates_of(problem, 2)
    assert [template.depth for template in templates] == [2, 3, 4, 5, 6, 7]
    for template in templates:
        assert template.row_us.tolist() == [0, *[pipeline_us(problem, template.layers, m) for m in range(1, 10)]]
    assert templates_of(grid(2, 2, 7, 9, failed=[0], p2p_us=30), 2) is templates


def test_memory_sets_the_least_template() -> None:
    problem = before(grid(2, 4, 32, 64, memory_bytes=20_000))
    assert templates_of(problem, 1)[0].depth == 2
    assert template_layers(problem, 1) is None
    assert template_layers(problem, 33) is None
