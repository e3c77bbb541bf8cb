"""The section `deep`: what is drawn, and figures of answers told by hand."""

import pytest

from experiments.bench import deep
from experiments.bench.deep import SEEDS, Planned, deep_cluster, deep_figures
from solvers.ir import ReplanPlan, Solution, Status

NONE: Solution[ReplanPlan] = Solution(status=Status.INFEASIBLE, plan=None, solver="s", reason="nothing fits")


def answer(objective: int, bound: int) -> Solution[ReplanPlan]:
    return Solution(
        status=Status.OPTIMAL if objective == bound else Status.FEASIBLE,
        plan=ReplanPlan(policy="reroute", pipelines=(), transfers=None),
        solver="s",
        objective=objective,
        bound=bound,
    )


def test_clusters_are_large_deep_and_have_a_head() -> None:
    sizes = set()
    for seed in SEEDS:
        problem = deep_cluster(seed)
        assert problem.current is not None and problem == deep_cluster(seed)
        depth, lost = len(problem.current.pipelines[0].layers), len(problem.current.failed)
        assert 33 <= depth <= problem.max_depth <= 64 and depth <= problem.layers
        assert 1000 <= problem.nodes + lost <= 2048 and lost in (1, 3, 7)
        assert problem.last_extra_us[0] > 0 and problem.first_static_bytes > 0
        sizes.add((depth, problem.nodes))
    assert len(sizes) > 30


def test_the_slowest_stands_beside_the_quickest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four clusters one has no plan; 200, 300 and 800 ms; gap (100 − 99) / 100."""
    found = {
        1: Planned(1, answer(100, 99), 800, True),
        2: Planned(2, NONE, 5, False),
        3: Planned(3, answer(50, 50), 300, False),
        4: Planned(4, answer(50, 50), 200, True),
    }
    monkeypatch.setattr(deep, "planned", found.__getitem__)
    slowest, quickest = deep_figures([1, 2, 3, 4])
    assert slowest.name == "exact-replan, 3 random clusters of 33 to 64 stages: slowest"
    assert (slowest.value, slowest.ratio, slowest.ratio_to) == (800, 0.8, "goal of 1000 ms")
    assert slowest.how == "seed 1, of the processor; steps proven: 2, whole objectives: 2, gap ≤ 1.0e-02, open: 1"
    assert (quickest.value, quickest.ratio, quickest.ratio_to) == (200, 4, "for the slowest")
    assert quickest.how == "seed 4; median 300 ms; 1 more have no plan"
    assert deep_figures([2])[0].value is None


def test_a_drawn_cluster_is_planned_with_its_step_proven() -> None:
    found = deep.planned(212)
    assert found.answer.plan is not None and found.step_proven and found.processor_ms > 0
