"""The replan judge: step times by hand and by a ticking clock, memory, rerouting, and transfers after a failure."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.check.replan.judge import judge_replan, one_f_one_b, pipeline_us, stage_times_us
from solvers.ir import CurrentPipeline, CurrentState, Hosts, NewPipeline, ReplanPlan, ReplanProblem, Transfer
from tests.solvers.check.replan.naive_pipeline import naive_pipeline_us
from tests.strategies import replan_plans, replan_problems


def problem(**fields: Any) -> ReplanProblem:
    """Four layers of 1 + 2 us, eight microbatches, five nodes of ample memory."""
    usual: dict[str, Any] = {
        "name": "story", "nodes": 5, "microbatches": 8, "layers": 4, "forward_us": 1, "backward_us": 2,
        "first_extra_us": (0, 0), "last_extra_us": (0, 0), "p2p_us": 0, "sync_us": 7, "memory_bytes": 10**6,
        "layer_static_bytes": 100, "layer_activation_bytes": 10, "first_static_bytes": 30, "last_static_bytes": 40,
        "max_depth": 4,
    }  # fmt: skip
    return ReplanProblem(**{**usual, **fields})


def dynamic(*pipelines: tuple[Any, ...], transfers: list[tuple[int, int, int]] | None = None) -> ReplanPlan:
    """Pipelines as (layers, microbatches[, nodes]), transfers as (layer, from, to)."""
    moved = None if transfers is None else tuple(Transfer(layer=n, source=a, target=b) for n, a, b in transfers)
    listed = tuple(
        NewPipeline(layers=layers, microbatches=m, nodes=nodes[0] if nodes else None) for layers, m, *nodes in pipelines
    )
    return ReplanPlan(policy="dynamic", pipelines=listed, transfers=moved)


def test_a_single_stage_runs_its_microbatches_one_after_another() -> None:
    """8 · 4 layers · 3 us = 96; one pipeline needs no sync; a single stage carries both extras: 8 · (12 + 5 + 4)."""
    assert judge_replan(problem(), dynamic(((4,), 8))).objective_us == 96
    extras = problem(first_extra_us=(1, 4), last_extra_us=(2, 2))
    assert judge_replan(extras, dynamic(((4,), 8))).objective_us == 168


def test_symmetric_pipelines_meet_the_closed_form() -> None:
    """F3: (m + P − 1)(t_f + t_b) = (4 + 2 − 1) · 2 layers · 3 us = 30, and 7 us of sync for two pipelines."""
    assert judge_replan(problem(), dynamic(((2, 2), 4), ((2, 2), 4))).objective_us == 37


def test_messages_delay_the_pipeline() -> None:
    """One microbatch through two stages: F 2, hop 3, F 2, B 4, hop 3, B 4 = 18."""
    assert pipeline_us(problem(p2p_us=3), (2, 2), 1) == 18


def test_the_slowest_pipeline_decides() -> None:
    """[2,2] with 5: (5 + 1) · 6 = 36; [4] with 3: 3 · 12 = 36; with 4 and 4: 30 and 48. And 7 of sync."""
    assert judge_replan(problem(), dynamic(((2, 2), 5), ((4,), 3))).objective_us == 43
    assert judge_replan(problem(), dynamic(((2, 2), 4), ((4,), 4))).objective_us == 55


def test_layers_are_synchronized_one_after_another_on_the_fullest_stage() -> None:
    """[2,2] beside [4]: four rounds of 10 us, and 7 us; a single pipeline synchronizes with nobody."""
    cluster = problem(layer_sync_us=10)
    assert judge_replan(cluster, dynamic(((2, 2), 5), ((4,), 3))).objective_us == 36 + 7 + 40
    assert judge_replan(cluster, dynamic(((2, 2), 4), ((2, 2), 4))).objective_us == 30 + 7 + 20
    assert judge_replan(cluster, dynamic(((4,), 8))).objective_us == 96


def test_one_f_one_b_orders() -> None:
    def text(stage: int, depth: int, microbatches: int) -> str:
        return " ".join(f"{kind}{batch}" for kind, batch in one_f_one_b(stage, depth, microbatches))

    assert text(0, 3, 4) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert text(2, 3, 4) == "F0 B0 F1 B1 F2 B2 F3 B3"
    assert text(0, 4, 2) == "F0 F1 B0 B1"


@given(replan_problems(), st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple), st.integers(1, 7))
def test_the_recurrence_agrees_with_a_ticking_clock(
    cluster: ReplanProblem, layers: tuple[int, ...], microbatches: int
) -> None:
    expected = naive_pipeline_us(stage_times_us(cluster, layers), microbatches, cluster.p2p_us)
    assert pipeline_us(cluster, layers, microbatches) == expected


def test_memory_by_f8() -> None:
    """Stages [3, 1], 8 microbatches. Stage 0: 3·100 + min(2, 8)·3·10 + 30 = 390; stage 1: 100 + 10 + 40 = 150."""
    assert judge_replan(problem(memory_bytes=390), dynamic(((3, 1), 8))).clean
    assert judge_replan(problem(memory_bytes=389), dynamic(((3, 1), 8))).violations == (
        "pipelines[0], stage 0 needs 390 bytes, but a node has 389",
    )
    assert judge_replan(problem(memory_bytes=149), dynamic(((3, 1), 8))).violations[1] == (
        "pipelines[0], stage 1 needs 150 bytes, but a node has 149"
    )
    one = problem(memory_bytes=509, microbatches=1)  # a single stage: 4·100 + 1·4·10 + 30 + 40 = 510
    assert judge_replan(one, dynamic(((4,), 1))).violations == (
        "pipelines[0], stage 0 needs 510 bytes, but a node has 509",
    )


@pytest.mark.parametrize(
    ("pipelines", "words"),
    [
        ([], "pipelines is empty, but a dynamic plan needs at least one"),
        ([((2, 1), 8)], "pipelines[0] holds 3 layers, but the model has 4"),
        ([((4, 0), 8)], "pipelines[0], stage 1 has 0 layers, below 1"),
        ([((), 8)], "pipelines[0] holds 0 layers, but the model has 4"),
        ([((2, 2), 7)], "the pipelines count 7 microbatches, but a step has 8"),
        ([((2, 2), 8), ((4,), 0)], "pipelines[1] has 0 microbatches, below 1"),
        ([((1, 1, 1, 1), 4), ((2, 2), 4)], "the pipelines use 6 nodes, but 5 are alive"),
        ([((2, 2), 8, (0,))], "pipelines[0] has 2 stages, but nodes lists 1"),
        ([((2, 2), 8, (3, 3))], "pipelines[0] uses node 3, which already has a stage"),
    ],
)
def test_broken_pipelines_are_refused(pipelines: list[Any], words: str) -> None:
    verdict = judge_replan(problem(), dynamic(*pipelines))
    assert words in verdict.violations
    assert verdict.objective_us is None


def test_a_pipeline_is_at_most_max_depth_deep() -> None:
    assert judge_replan(problem(max_depth=1), dynamic(((2, 2), 8))).violations == (
        "pipelines[0] has 2 stages, but max_depth is 1",
    )


def test_transfers_need_owners() -> None:
    assert judge_replan(problem(), dynamic(((4,), 8), transfers=[(0, 0, 1)])).violations == (
        "transfers lists 1, but the problem has no current owners of layers",
    )


def current(*failed: int, layers: tuple[int, ...] = (2, 2), second: tuple[int, ...] = (2, 2)) -> CurrentState:
    """Nodes 0, 1 run one pipeline and 2, 3 another, four microbatches each."""
    pipelines = (
        CurrentPipeline(layers=layers, nodes=(0, 1), microbatches=4),
        CurrentPipeline(layers=second, nodes=(2, 3), microbatches=4),
    )
    return CurrentState(pipelines=pipelines, failed=failed)


def failure(*failed: int, **fields: Any) -> ReplanProblem:
    """Some of four nodes failed; 1 byte a microsecond, 50 us to restart, a failure every 1000 us expected."""
    usual = {
        "nodes": 4 - len(failed),
        "current": current(*failed),
        "restart_us": 50,
        "bytes_per_s": 1_000_000,
        "expected_interval_us": 1000,
    }
    return problem(**{**usual, **fields})


REPLANNED = [((2, 2), 5, (0, 1)), ((4,), 3, (2,))]
"""Node 3 failed; node 2 takes all four layers of the second pipeline and lacks layers 2 and 3."""


def test_the_step_is_stretched_by_the_transition() -> None:
    """T_step 43 as above. Layers 2 and 3 (100, and 100 + 40 with the last bytes) come from node 1: 240 us.

    T_trans = 50 + 240 = 290; 43 · 1000 / 710 = 60.56…, rounded up.
    """
    moved = dynamic(*REPLANNED, transfers=[(2, 1, 2), (3, 1, 2)])
    assert judge_replan(failure(3), moved).objective_us == 61


def test_an_idle_node_may_join() -> None:
    """An idle node 4 joins beside node 2 and receives layers 2 and 3 from node 1: 240 us, so T_trans = 290 again."""
    both = dynamic(((2, 2), 4, (0, 1)), ((2, 2), 4, (2, 4)), transfers=[(2, 1, 4), (3, 1, 4)])
    assert judge_replan(failure(3, nodes=4), both).objective_us == 53  # 37 · 1000 / 710 = 52.1…
    assert judge_replan(failure(3, nodes=4, expected_interval_us=290), both).violations == (
        "the transition takes 290 us, but the expected interval is 290 us",
    )


def test_the_busiest_node_may_be_a_receiver() -> None:
    """Nodes 2, 3 failed; idle node 4 receives layers 0, 1 from node 0 (100 + 30, 100) and 2, 3 from node 1 (240).

    It receives for 470 us, more than either sends: T_trans = 520, and 43 · 1000 / 480 = 89.58….
    """
    moved = dynamic(*REPLANNED[:1], ((4,), 3, (4,)), transfers=[(0, 0, 4), (1, 0, 4), (2, 1, 4), (3, 1, 4)])
    assert judge_replan(failure(2, 3, nodes=3), moved).objective_us == 90


def test_nodes_of_one_host_are_faster() -> None:
    """100 and 140 bytes from node 1 to node 2: 240 us between hosts of two, half of that within one host of four."""
    moved = dynamic(*REPLANNED, transfers=[(2, 1, 2), (3, 1, 2)])
    for nodes, us in ((2, 240), (4, 120)):
        hosted = failure(3, hosts=Hosts(nodes=nodes, bytes_per_s=2_000_000))
        assert judge_replan(hosted, moved).objective_us == -(-43 * 1000 // (1000 - 50 - us))


def test_a_node_adds_up_what_it_sends_near_and_far() -> None:
    """Nodes 0, 1 and 2, 3 share hosts; idle nodes 4, 5 the third. Node 1 sends layers 2, 3 to node 2: 240 us.

    To idle node 4, and on to no one: as long. Both: node 1 is busy for 480 us, its receivers for 240 each.
    """
    hosted = failure(3, nodes=5, hosts=Hosts(nodes=2, bytes_per_s=4_000_000))
    plan = dynamic(((4,), 4, (2,)), ((2, 2), 4, (0, 4)), transfers=[(2, 1, 2), (3, 1, 2), (2, 1, 4), (3, 1, 4)])
    assert judge_replan(hosted, plan).objective_us == -(-(48 + 7) * 1000 // (1000 - 50 - 480))
    beside = dynamic(((4,), 4, (2,)), ((2, 2), 4, (1, 0)), transfers=[(2, 1, 2), (3, 1, 2), *SWAPPED])
    assert judge_replan(hosted, beside).objective_us == -(-(48 + 7) * 1000 // (1000 - 50 - 300))


SWAPPED = [(0, 0, 1), (1, 0, 1), (2, 1, 0), (3, 1, 0)]
"""Nodes 0 and 1 exchange their stages within their host: 230 bytes one way, 240 the other, 60 us of node 1's."""


def test_on_hosts_idle_nodes_have_the_smallest_names() -> None:
    """Node 7 would stand beside nobody: one node is idle, and that is node 4."""
    hosted = failure(3, nodes=4, hosts=Hosts(nodes=4, bytes_per_s=2_000_000))
    far = dynamic(((2, 2), 4, (0, 1)), ((2, 2), 4, (2, 7)), transfers=[(2, 1, 7), (3, 1, 7)])
    assert judge_replan(failure(3, nodes=4), far).clean
    assert judge_replan(hosted, far).violations == ("the pipelines use node 7, but the idle nodes are [4]",)


@pytest.mark.parametrize(
    ("pipelines", "transfers", "words"),
    [
        (REPLANNED, [(2, 1, 2)], "node 2 lacks layer 3 (held by nodes [1]), but no transfer brings it"),
        (REPLANNED, None, "node 2 lacks layer 2 (held by nodes [1]), but no transfer brings it"),
        (
            REPLANNED,
            [(2, 3, 2), (3, 1, 2)],
            "transfers[0]: layer 2 from node 3 to node 2, but the sender is not alive with that layer",
        ),
        (
            REPLANNED,
            [(2, 0, 2), (3, 1, 2)],
            "transfers[0]: layer 2 from node 0 to node 2, but the sender is not alive with that layer",
        ),
        (
            REPLANNED,
            [(2, 1, 2), (3, 1, 2), (0, 0, 2)],
            "transfers[2]: layer 0 from node 0 to node 2, but the receiver does not lack that layer",
        ),
        (
            REPLANNED,
            [(2, 1, 2), (3, 1, 2), (3, 1, 2)],
            "transfers[2]: layer 3 from node 1 to node 2, where it already arrived by an earlier transfer",
        ),
        ([((2, 2), 8, (0, 3))], [], "pipelines[0] uses node 3, which has failed"),
        ([((2, 2), 8)], [], "pipelines[0].nodes is null, but with current every stage needs a node"),
        (
            [((2, 2), 8, (0, 9))],
            [(2, 1, 9), (3, 1, 9)],
            "the pipelines use nodes [9], but only 0 of 3 nodes alive were idle",
        ),
    ],
)
def test_broken_transfers_are_refused(pipelines: list[Any], transfers: Any, words: str) -> None:
    verdict = judge_replan(failure(3), dynamic(*pipelines, transfers=transfers))
    assert words in verdict.violations
    assert verdict.objective_us is None


def test_a_layer_that_nobody_holds_is_lost() -> None:
    words = "node 0 lacks layer 2 (held by no node alive), but no transfer brings it"
    assert words in judge_replan(failure(1, 3), dynamic(((4,), 8, (0,)), transfers=[])).violations


REROUTE = ReplanPlan(policy="reroute", pipelines=(), transfers=None)


def test_rerouting_shares_the_lost_microbatches() -> None:
    """F7: D = 2, one of two nodes of stage 1 failed: (4 · 2/1 + 2 − 1) · 6 us = 54, and 7 us of sync; no transition."""
    assert judge_replan(failure(3), REROUTE).objective_us == 61


def test_rerouting_counts_the_slowest_stage_and_rounds_up() -> None:
    """Three pipelines of [3, 1] layers with 2 microbatches, one node gone: (2 · 3/2 + 1) · 9 us + 7 = 43.

    With 1 microbatch each: (3/2 + 1) · 9 + 7 = 29.5, rounded up.
    """
    for microbatches, expected in ((2, 43), (1, 30)):
        pipelines = tuple(
            CurrentPipeline(layers=(3, 1), nodes=(2 * d, 2 * d + 1), microbatches=microbatches) for d in range(3)
        )
        state = CurrentState(pipelines=pipelines, failed=(5,))
        cluster = failure(nodes=5, microbatches=3 * microbatches, current=state)
        assert judge_replan(cluster, REROUTE).objective_us == expected


def test_rerouting_needs_memory_for_its_share() -> None:
    """Two stages of two layers; without failure stage 0 holds min(2, 1) = 1 microbatch: 200 + 20 + 30 = 250.

    With one node of stage 0 gone the other computes 2: 200 + 40 + 30 = 270.
    """
    pipelines = tuple(CurrentPipeline(layers=(2, 2), nodes=(2 * d, 2 * d + 1), microbatches=1) for d in range(2))
    state = CurrentState(pipelines=pipelines, failed=(2,))
    cluster = failure(nodes=3, microbatches=2, current=state, memory_bytes=269)
    assert judge_replan(cluster, REROUTE).violations == ("current, stage 0 needs 270 bytes, but a node has 269",)


@pytest.mark.parametrize(
    ("cluster", "plan", "words"),
    [
        (problem(), REROUTE, "policy is reroute, but the problem has no current pipelines to keep"),
        (failure(1, 3), REROUTE, "stage 1 has lost all its 2 nodes: rerouting needs one"),
        (
            failure(3, current=current(3, second=(1, 3))),
            REROUTE,
            "policy is reroute, which needs alike pipelines, but current.pipelines[1] has layers [1, 3] and "
            "4 microbatches, the first [2, 2] and 4",
        ),
        (failure(3, microbatches=9), REROUTE, "current counts 8 microbatches, but a step has 9"),
        (
            failure(3),
            ReplanPlan(policy="reroute", pipelines=dynamic(((4,), 8)).pipelines, transfers=None),
            "policy is reroute, which keeps the current pipelines, but pipelines lists 1",
        ),
        (
            failure(3),
            ReplanPlan(policy="reroute", pipelines=(), transfers=(Transfer(layer=2, source=1, target=2),)),
            "policy is reroute, which moves no layers, but transfers lists 1",
        ),
    ],
)
def test_broken_reroutes_are_refused(cluster: ReplanProblem, plan: ReplanPlan, words: str) -> None:
    verdict = judge_replan(cluster, plan)
    assert words in verdict.violations
    assert verdict.objective_us is None


def test_a_lost_shard_of_the_optimizer_states_needs_a_checkpoint() -> None:
    assert judge_replan(failure(3, sharded_optimizer=True), REROUTE).violations == (
        "node 3 held the only copy of its shard of the optimizer states: load a checkpoint",
    )
    assert judge_replan(failure(sharded_optimizer=True), REROUTE).violations == ()


@given(st.data())
def test_any_well_formed_plan_is_judged(data: st.DataObject) -> None:
    """Never an exception; an objective if and only if there is no violation, and never below a step's compute time."""
    cluster = data.draw(replan_problems())
    verdict = judge_replan(cluster, data.draw(replan_plans(cluster)))
    assert verdict.clean == (verdict.objective_us is not None)
    if verdict.objective_us is not None:
        assert verdict.objective_us >= cluster.forward_us + cluster.backward_us
