"""The simulated step is the checker's, node by node: its end, its order, its synchronization, and its transition."""

from collections import defaultdict
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.check.replan.judge import judge_replan, one_f_one_b
from solvers.ir import InvalidInput, Limits, NewPipeline, ReplanPlan, ReplanProblem, Span, Transfer
from solvers.replan import Algorithm1
from solvers.replan.instances import eight_to_seven, figure_3
from solvers.replan.timeline import Simulated, simulate_step
from tests.solvers.replan.brute_force import REROUTE, random_problem
from tests.strategies import replan_problems


def before_failure(problem: ReplanProblem) -> ReplanProblem:
    """The same cluster with nothing lost and no state."""
    return msgspec.structs.replace(problem, current=None, restart_us=None, bytes_per_s=None, expected_interval_us=None)


def planned(*pipelines: tuple[tuple[int, ...], int]) -> ReplanPlan:
    """Unmapped pipelines."""
    listed = tuple(NewPipeline(layers=layers, microbatches=count, nodes=None) for layers, count in pipelines)
    return ReplanPlan(policy="dynamic", pipelines=listed, transfers=None)


def lanes(simulated: Simulated, lane: str) -> dict[int, list[Span]]:
    """The spans of every node's lane of that name, in order of start."""
    found: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(simulated.report.spans, key=lambda span: (span.start_us, span.end_us)):
        node, name = span.lane.split(".")
        if name == lane:
            found[int(node)].append(span)
    return found


def test_figure_3_by_hand() -> None:
    """Nine layers on four nodes: 3 · 30 ms the slowest stage. [2, 2, 2, 3] with 6: 5 · 90 + 9 · 30 = 720 ms at most.

    Two pipelines of it synchronize in three rounds of 4 ms.
    """
    simulated = simulate_step(before_failure(figure_3()), planned(((2, 2, 2, 3), 6), ((2, 2, 2, 3), 6)))
    assert simulated.step.sync_us == 3 * 4000
    assert simulated.step.compute_us == 720_000
    assert simulated.report.makespan_us == simulated.step_us == 732_000
    assert simulated.step.busy_us == {0: 360_000, 1: 360_000, 2: 360_000, 3: 540_000,
                                      4: 360_000, 5: 360_000, 6: 360_000, 7: 540_000}  # fmt: skip
    assert simulated.busiest == (3, 540_000)
    assert simulated.idlest == (0, 360_000)
    assert simulated.bubble_share == pytest.approx(1 - (6 * 36 + 2 * 54) / (8 * 72))
    comm = lanes(simulated, "comm")
    assert [span.label for span in comm[3]] == ["all-reduce layer 6", "all-reduce layer 7", "all-reduce layer 8"]
    assert {span.start_us for span in comm[0]} <= {720_000, 724_000, 728_000}


def test_stages_without_nodes_get_numbers_that_no_other_has() -> None:
    mapped = NewPipeline(layers=(5, 4), microbatches=6, nodes=(0, 3))
    free = NewPipeline(layers=(3, 3, 3), microbatches=6, nodes=None)
    plan = ReplanPlan(policy="dynamic", pipelines=(free, mapped), transfers=None)
    simulated = simulate_step(before_failure(figure_3()), plan)
    assert sorted(simulated.step.busy_us) == [0, 1, 2, 3, 4]
    assert simulated.step.busy_us[0] == 6 * 5 * 30_000 and simulated.step.busy_us[4] == 6 * 3 * 30_000


def test_a_transition_comes_before_the_step() -> None:
    """Restart 1.93 s; node 2 keeps its pipeline's layers 6 to 8 and gets 3 to 5 from node 4, a second each."""
    problem = figure_3()
    pipelines = (
        NewPipeline(layers=(3, 6), microbatches=6, nodes=(0, 2)),
        NewPipeline(layers=(3, 3, 3), microbatches=6, nodes=(3, 1, 5)),
    )
    moved = tuple(Transfer(layer=layer, source=4, target=2) for layer in (3, 4, 5))
    plan = ReplanPlan(policy="dynamic", pipelines=pipelines, transfers=moved)
    assert judge_replan(problem, plan).violations == ()
    simulated = simulate_step(problem, plan)
    assert simulated.restart_us == 1_930_000
    assert simulated.transfer_us == simulated.modelled_transfer_us == 3_000_000
    out = lanes(simulated, "out")[4]
    assert [span.end_us for span in out] == [2_930_000, 3_930_000, 4_930_000]
    assert [span.start_us for span in lanes(simulated, "in")[2]] == [1_930_000, 2_930_000, 3_930_000]
    assert min(span.start_us for row in lanes(simulated, "compute").values() for span in row) == 4_930_000
    assert simulated.report.makespan_us == 4_930_000 + simulated.step_us
    assert all(row[0].end_us == 1_930_000 for row in lanes(simulated, "host").values())


@settings(max_examples=60, deadline=None)
@given(replan_problems(failure=False), st.data())
def test_the_step_is_the_checker_s(problem: ReplanProblem, data: st.DataObject) -> None:
    """Any plan that the checker takes ends when the checker says; each node runs its 1F1B order, one pass at a time."""
    problem = msgspec.structs.replace(problem, memory_bytes=10**6, max_depth=4, nodes=8, data_parallel=None)
    depth = data.draw(st.integers(1, min(3, problem.layers)))
    first = (problem.layers - depth + 1, *(1,) * (depth - 1))
    plan = planned((first, 1), ((problem.layers,), problem.microbatches - 1))
    simulated = simulate_step(problem, plan)
    assert simulated.step_us == judge_replan(problem, plan).objective_us == simulated.formula_us
    for node, spans in lanes(simulated, "compute").items():
        assert all(before.end_us <= after.start_us for before, after in pairwise(spans))
        stage, count = (node, 1) if node < depth else (0, problem.microbatches - 1)
        order = one_f_one_b(stage, depth if node < depth else 1, count)
        said = [f"{'forward' if kind == 'F' else 'backward'} microbatch {batch}" for kind, batch in order]
        if all(span.end_us > span.start_us for span in spans):
            assert [span.label for span in spans] == said


def test_a_rerouted_step_does_every_pass_once_on_a_survivor() -> None:
    problem = eight_to_seven()
    assert problem.current is not None
    simulated = simulate_step(problem, REROUTE)
    compute = lanes(simulated, "compute")
    assert sorted(compute) == [0, 1, 2, 3, 4, 5, 6]
    assert sum(map(len, compute.values())) == 2 * 2 * 4 * 32
    assert [len(compute[node]) for node in (2, 3, 6)] == [64, 128, 64]
    rerouted = [span.label for span in compute[3] if span.label.startswith("rerouted")]
    assert len(rerouted) == 64
    assert all(label.endswith("of pipeline 1") for label in rerouted)
    assert simulated.report.peak_bytes == 8 * (problem.layer_static_bytes + 4 * problem.layer_activation_bytes) + (
        problem.first_static_bytes
    )
    assert (simulated.restart_us, simulated.transfer_us) == (0, 0)
    verdict = judge_replan(problem, REROUTE)
    assert -(-simulated.formula_us // 1) == verdict.objective_us
    assert abs(simulated.step_us / simulated.formula_us - 1) < 0.05
    assert simulated.report.stall_us["bubble"] == 7 * simulated.step.compute_us - sum(simulated.step.busy_us.values())


def test_plans_of_tiny_clusters_end_when_the_objective_says() -> None:
    """The objective is the step, stretched by what restart and the busiest node's transfers take."""
    replanned = 0
    for seed in range(60):
        problem = random_problem(seed)
        solution = Algorithm1().solve(problem, Limits())
        if solution.plan is None or solution.plan.policy == "reroute":
            continue
        simulated = simulate_step(problem, solution.plan)
        lost = simulated.restart_us + simulated.modelled_transfer_us
        assert simulated.transfer_us >= simulated.modelled_transfer_us
        interval = problem.expected_interval_us
        step = simulated.formula_us if interval is None else simulated.formula_us * interval / (interval - lost)
        assert -(-step // 1) == solution.objective
        assert simulated.step_us == simulated.formula_us
        replanned += 1
    assert replanned >= 20


def test_a_step_that_nobody_could_look_at_is_refused() -> None:
    problem = msgspec.structs.replace(before_failure(figure_3()), microbatches=10**5)
    with pytest.raises(InvalidInput, match="the step has 1200000 passes on its nodes, more than the 1000000"):
        simulate_step(problem, planned(((1, 1, 1, 2, 2, 2), 10**5)))
