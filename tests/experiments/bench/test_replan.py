"""The section `replan`: figures told by hand and a clock of our own, and one small cluster in truth."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from experiments.bench import replan
from experiments.bench.replan import CLUSTERS, Cluster, replan_figures
from solvers.ir import ReplanPlan, Solution, Status
from solvers.ir.replan import NewPipeline
from solvers.replan.instances import HOUR_US
from tests.experiments.bench.clocks import Clock, alone

SMALL = CLUSTERS[0]
NONE: Solution[ReplanPlan] = Solution(status=Status.UNKNOWN, plan=None, solver="s")


def pipeline(*layers: int) -> NewPipeline:
    return NewPipeline(layers=layers, nodes=tuple(range(len(layers))), microbatches=1)


def planned(objective: int, *pipelines: NewPipeline, bound: int | None = None) -> Solution[ReplanPlan]:
    policy = "dynamic" if pipelines else "reroute"
    plan = ReplanPlan(policy=policy, pipelines=pipelines, transfers=None)  # type: ignore[arg-type]
    return Solution(
        status=Status.OPTIMAL if objective == bound else Status.FEASIBLE,
        plan=plan,
        solver="s",
        objective=objective,
        bound=bound,
    )


def test_a_plan_in_words_counts_pipelines_by_depth_deepest_first() -> None:
    assert replan._plan_in_words(planned(1, pipeline(3, 3), pipeline(2, 2, 2), pipeline(4, 2))) == (
        "1 x 3 stages, 2 x 2 stages"
    )
    assert replan._plan_in_words(planned(1)) == "reroute"
    assert replan._plan_in_words(NONE) == "no plan"


def test_what_the_heuristic_loses_is_a_ratio_of_objectives_or_a_reason() -> None:
    assert replan._lost(planned(30), planned(20)) == (1.5, "exact-replan's objective", "reroute")
    assert replan._lost(NONE, planned(20)) == (None, "", "unknown")
    assert replan._lost(replace(NONE, reason="it was late"), planned(20)) == (None, "", "it was late")
    assert replan._lost(planned(30), NONE) == (None, "", "feasible")


def test_medians_are_of_the_clock_and_of_the_processor_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the clock 5, 1 and 9 ms, of the processor 2, 4 and 3 ms; the answer is the last one."""
    clock = Clock(perf_counter=alone(0.005, 0.001, 0.009), process_time=alone(0.002, 0.004, 0.003))
    monkeypatch.setattr(replan, "time", clock)
    answers = iter([planned(1), planned(2), planned(3)])
    answer, clock_ms, processor_ms = replan._timed(lambda: next(answers), 3)
    assert answer.objective == 3
    assert (clock_ms, processor_ms) == pytest.approx((5, 3))


def test_times_stand_over_their_goals_and_the_cache_over_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cold 50 ms of the goal of 100, the heuristic 7 ms, the cache 2 ms of 1; gap (20 − 15) / 20."""
    exact = planned(20, pipeline(16, 16), bound=15)
    given = iter([(exact, 50.0, 40.0), (planned(30), 7.0, 7.0), (exact, 2.0, 2.0)])

    def timed(solve: Callable[[], object], runs: int) -> tuple[Solution[ReplanPlan], float, float]:
        assert runs == 6
        return next(given)

    monkeypatch.setattr(replan, "_timed", timed)
    cold, heuristic, cached = replan_figures(6, [SMALL])
    name = "8 nodes less 1, 64 GiB"
    assert (cold.name, cold.value, cold.unit) == (f"exact-replan, {name}", 50, "ms")
    assert (cold.ratio, cold.ratio_to) == (0.5, "goal of 100 ms")
    assert cold.how == "feasible, gap 2.5e-01, 1 x 2 stages; processor 40 ms"
    assert (heuristic.name, heuristic.value, heuristic.unit) == (f"algorithm1, {name}", 7, "ms")
    assert (heuristic.ratio, heuristic.ratio_to, heuristic.how) == (1.5, "exact-replan's objective", "reroute")
    assert (cached.name, cached.value, cached.unit) == (f"cached, {name}", 2, "ms")
    assert (cached.ratio, cached.ratio_to, cached.how) == (2, "goal of 1 ms", "lookup")


def test_a_clusters_problem_is_what_its_name_says() -> None:
    """Depth 4 and 8 pipelines are 32 nodes; three are lost: numbers 0, 293 mod 32 = 5 and 586 mod 32 = 10."""
    cluster = Cluster(layers=32, depth=4, data=8, microbatches=64, lost=3, memory_gib=48, goal_ms=100)
    problem = cluster.problem()
    assert problem.name == cluster.name == "32 nodes less 3, 48 GiB"
    assert problem.current is not None and problem.current.failed == (0, 5, 10)
    assert (problem.nodes, problem.microbatches, problem.memory_bytes) == (29, 64, 48 * 2**30)
    assert problem.expected_interval_us == 6 * HOUR_US
    assert problem.last_extra_us[0] > 0 and problem.last_static_bytes > 0
    headless = Cluster(
        layers=32, depth=4, data=8, microbatches=64, lost=3, memory_gib=48, goal_ms=100, head=False
    ).problem()
    assert headless.name == "32 nodes less 3, 48 GiB, no head"
    assert (headless.last_extra_us, headless.last_static_bytes) == ((0, 0), 0)
    assert replace(headless, name="", last_extra_us=(1, 1), last_static_bytes=1) == replace(
        problem, name="", last_extra_us=(1, 1), last_static_bytes=1
    )


def test_a_cluster_is_planned_cold_by_the_heuristic_and_from_the_cache() -> None:
    exact, heuristic, cached = replan_figures(1, CLUSTERS[:1])
    assert exact.name == "exact-replan, 8 nodes less 1, 64 GiB" and exact.how.startswith("optimal, gap 0")
    assert heuristic.ratio is not None and heuristic.ratio >= 1 and heuristic.ratio_to == "exact-replan's objective"
    assert cached.value is not None and exact.value is not None and cached.value < exact.value
    assert exact.ratio == exact.value / CLUSTERS[0].goal_ms


def test_the_goals_of_the_issue_are_those_of_the_sizes() -> None:
    goals = {cluster.depth * cluster.data: cluster.goal_ms for cluster in CLUSTERS}
    assert goals == {8: 100, 32: 100, 256: 100, 1024: 500, 2048: 1000}
    for cluster in CLUSTERS:
        current = cluster.problem().current
        assert current is not None and len(set(current.failed)) == cluster.lost
