"""What policies choose from, move by move, and the policies that choose."""

from dataclasses import replace

import msgspec
import pytest

from solvers.ir import CurrentPipeline, CurrentState, InvalidInput, Limits
from solvers.replan.algorithm1 import Algorithm1
from solvers.replan.cluster import (
    AlwaysReplan,
    Change,
    CheckpointOnly,
    Checkpoints,
    Cluster,
    PaperRerouting,
    Placed,
    RecyclePolicy,
    Repair,
    ReroutingLaw,
    Running,
    SimulatedRerouting,
    SymmetricPolicy,
    moves,
    parse_trace,
    random_failures,
    run,
)
from solvers.replan.cluster.rerouting import rerouted_step_us
from solvers.replan.estimate.rerouting import rerouted_nodes_us
from solvers.replan.estimate.sync import sync_us
from solvers.replan.exact.solver import ExactReplan
from solvers.replan.recycle import Recycle
from solvers.replan.reroute import Reroute
from tests.solvers.replan.cluster.settings import SECOND, by_hand, model

LAW = PaperRerouting()


def grid(*nodes: tuple[int | None, int | None], idle: frozenset[int] = frozenset(), m: int = 4) -> Running:
    """Pipelines of two stages with two layers each."""
    return Running(tuple(Placed((2, 2), pair, m) for pair in nodes), idle, 30 * SECOND)


def wide(nodes: int, microbatches: int, **changed: object) -> Cluster:
    """A cluster of pipelines of two stages."""
    return Cluster(by_hand(problem=model(nodes, microbatches, 4), data_parallel=nodes // 2, **changed))


def test_rerouting_is_f7() -> None:
    """The step that the room's `reroute` gives a problem of the same state."""
    cluster, running = wide(8, 16), grid((None, 1), (2, 3), (4, None), (None, 7))
    change = moves.reroute(cluster, running, LAW)
    assert change is not None and change.lost_us == 0 and change.reason == "reroute"
    current = CurrentState(
        pipelines=tuple(CurrentPipeline(layers=(2, 2), nodes=(2 * n, 2 * n + 1), microbatches=4) for n in range(4)),
        failed=(0, 5, 6),
    )
    beside = {"restart_us": 0, "bytes_per_s": 1, "expected_interval_us": 10**12}
    problem = msgspec.structs.replace(cluster.problem, nodes=5, current=current, **beside)
    assert change.running.step_us == Reroute().solve(problem, Limits()).objective == (16 // 2 + 1) * 6 * SECOND


def test_rerouting_with_uneven_microbatches_counts_all_of_them() -> None:
    """Ten microbatches on three pipelines (4 + 3 + 3): with one node gone its stage's two peers have five each."""
    cluster = wide(6, 10)
    running = Running(
        tuple(Placed((2, 2), (node, node + 1), m) for node, m in ((0, 4), (2, 3), (4, 3))), frozenset(), 1
    )
    whole, torn = moves.reroute(cluster, running, LAW), moves.reroute(cluster, running.without(frozenset({2})), LAW)
    assert whole is not None and whole.running.step_us == (4 + 1) * 6 * SECOND
    assert torn is not None and torn.running.step_us == (5 + 1) * 6 * SECOND


@pytest.mark.parametrize("law", [PaperRerouting(), SimulatedRerouting(), Recycle()])
def test_no_law_reroutes_around_a_stage_without_survivor(law: PaperRerouting) -> None:
    cluster = wide(4, 8)
    assert moves.reroute(cluster, grid((None, 1), (None, 3)), law) is None
    assert law.step_us(cluster.problem, (2, 2), 4, (2, 0), 2) is None
    some = moves.reroute(cluster, grid((None, 1), (2, 3)), law)
    assert some is not None and (some.running.step_us or 0) >= 30 * SECOND


@pytest.mark.parametrize("law", [SimulatedRerouting(), Recycle(floor="none")])
def test_rerouting_counts_where_nodes_are_missing_not_how_pipelines_are_numbered(law: ReroutingLaw) -> None:
    """Two stages of one pipeline missing, or of two: other times; whichever pipelines these are: the same."""
    cluster = wide(6, 9)
    both, apart, alike = (
        rerouted_step_us(cluster.problem, grid(*nodes, m=3), law)
        for nodes in (
            ((None, None), (2, 3), (4, 5)),
            ((None, 1), (2, None), (4, 5)),
            ((0, 1), (2, None), (None, 5)),
        )
    )
    assert apart == alike
    lost = {"both": {(0, 0), (0, 1)}, "apart": {(0, 0), (1, 1)}}
    if isinstance(law, SimulatedRerouting):
        found = [rerouted_nodes_us(cluster.problem, (2, 2), 3, lost[name], 3) for name in ("both", "apart")]
        sync = sync_us(cluster.problem, [(2, 2)] * 3)
        assert [both, apart] == [one + sync for one in found]


def test_pipelines_that_differ_are_not_rerouted() -> None:
    running = Running((Placed((2, 2), (0, None), 4), Placed((1, 3), (2, 3), 4)), frozenset(), 1)
    assert moves.reroute(wide(4, 8), running, LAW) is None


def test_rerouting_needs_memory_for_what_is_taken_over() -> None:
    """One microbatch a pipeline, then two on the survivor of stage 0: two layers of 1 B each are in flight twice."""
    setting = by_hand(problem=model(4, 2, 4, memory_bytes=2 * 1000 + 2 + 1))
    assert moves.reroute(Cluster(setting), grid((0, 1), (2, 3), m=1), LAW) is not None
    assert moves.reroute(Cluster(setting), grid((None, 1), (2, 3), m=1), LAW) is None
    assert moves.reroute(Cluster(setting), grid((0, None), (2, 3), m=1), LAW) is not None


def test_idle_nodes_take_all_gaps() -> None:
    cluster = wide(8, 16, bytes_per_s=1000)
    running = grid((None, 1), (2, None), (4, 5), (6, 7), idle=frozenset({8, 9, 10}))
    change = moves.fill(cluster, running, LAW, 10 * SECOND)
    assert change is not None and change.reason == "fill"
    assert change.lost_us == (10 + 2) * SECOND, "two layers of 1000 B for each of the two nodes, at the same time"
    after = change.running
    assert after.step_us == 30 * SECOND and all(pipeline.whole for pipeline in after.pipelines)
    assert after.staged == 8 and after.idle < {8, 9, 10}


def test_too_few_idle_nodes_go_where_most_are_missing() -> None:
    """Stage 0 misses two of four, stage 1 one: the node goes to stage 0, and the step falls from 16/2 to 16/3."""
    cluster = wide(8, 16, bytes_per_s=1000)
    running = grid((None, 1), (None, 3), (4, None), (6, 7), idle=frozenset({9}))
    change = moves.fill(cluster, running, LAW, 10 * SECOND)
    assert change is not None and change.lost_us == (10 + 2) * SECOND and not change.running.idle
    assert [pipeline.nodes.count(None) for pipeline in change.running.pipelines].count(1) == 2
    assert sum(pipeline.nodes[0] is None for pipeline in change.running.pipelines) == 1
    assert change.running.step_us == 38 * SECOND  # (16/3 + 1)·6
    assert moves.fill(cluster, grid((None, 1), (None, 3), m=8, idle=frozenset({9})), LAW, 0) is None, (
        "none to copy from"
    )
    assert moves.fill(cluster, grid((0, 1), (2, 3), idle=frozenset({9})), LAW, 0) is None, "no gap"
    assert moves.fill(cluster, grid((None, 1), (2, 3)), LAW, 0) is None, "no idle node"


def test_one_peer_copies_to_one_after_the_other() -> None:
    """Three of four nodes of stage 0 are gone and two join: the one survivor sends its two layers twice."""
    cluster = wide(8, 16, bytes_per_s=1000)
    running = grid((None, 1), (None, 3), (None, 5), (6, 7), idle=frozenset({8, 9}))
    change = moves.fill(cluster, running, LAW, 0)
    assert change is not None and change.lost_us == 4 * SECOND


def test_a_rival_that_is_better_even_without_transfers_saves_the_search() -> None:
    cluster = wide(4, 8, expected_interval_us=100 * SECOND)
    running = grid((None, 1), (2, 3))
    splits = cluster.splits(Algorithm1(), 3, 2)
    assert splits is not None
    full = moves.replan(cluster, running, splits, 10 * SECOND)
    assert full is not None and full.running.step_us == 36 * SECOND
    cheap, dear = (replace(full, running=replace(full.running, step_us=step * SECOND), lost_us=0) for step in (39, 41))
    # (1 - 10/100)/36 = 1/40
    assert moves.replan(cluster, running, splits, 10 * SECOND, rival=cheap) is None
    assert moves.replan(cluster, running, splits, 10 * SECOND, rival=dear) == full


def test_f2_prefers_the_shorter_transition_where_two_are_worth_the_same() -> None:
    cluster = wide(4, 8, expected_interval_us=5 * SECOND)
    running = grid((0, 1), (2, 3))
    slow = replace(running, step_us=100 * SECOND)
    long, short = Change(slow, 30 * SECOND, "long"), Change(running, 20 * SECOND, "short")
    assert moves.best(cluster, 4, [long, None, short]) == short, "both outlast the interval: worth nothing"
    assert moves.best(cluster, 4, [None, moves.stop(running)]) is None


def test_recycle_adds_pipelines_when_enough_nodes_have_joined() -> None:
    """Stage 0 loses both nodes; two are left for one pipeline (54 s); when the others are back there are two again."""
    lines = ["90000,remove,0", "90000,remove,2", "300000,add,0", "400000,add,2"]
    policy = RecyclePolicy(rerouting=LAW, checkpoints=Checkpoints(0, 0, 20 * SECOND))
    result = run(by_hand(expected_interval_us=900 * SECOND), policy, parse_trace(lines, 4))
    assert result.decisions == {"grow": 1, "keep": 1, "restore": 1}
    # 90 = 3·30 | 20 | 290 = 5·54 + 20 | 10 | 590 = 19·30 + 20
    assert result.steps == 3 + 5 + 19 and result.transition_us == 30 * SECOND


def test_recycle_stops_for_good_where_it_is_told_to() -> None:
    policy = RecyclePolicy(Recycle(lost_stage="stop"), LAW)
    result = run(by_hand(), policy, parse_trace(["90000,remove,0", "90000,remove,2"], 4))
    assert result.decisions == {"stop": 1} and result.stopped_us == 910 * SECOND and result.steps == 3


def test_recycle_replans_where_rerouting_ends_but_states_live() -> None:
    """Memory for one layer's activation beyond: the survivor of a stage cannot take over, yet nothing is lost."""
    setting = by_hand(problem=model(4, 2, 4, memory_bytes=4 * 1000 + 2 + 1, max_depth=4), data_parallel=2)
    tight = replace(setting, problem=msgspec.structs.replace(setting.problem, memory_bytes=2 * 1000 + 2 + 1))
    failures = parse_trace(["90000,remove,0"], 4)
    policy = RecyclePolicy(Recycle(lost_stage="replan"), LAW)
    assert run(setting, policy, failures).decisions == {"reroute": 1}
    assert run(tight, policy, failures).decisions == {"replan": 1}


def test_varuna_goes_back_to_a_checkpoint_and_grows_as_planned() -> None:
    policy = SymmetricPolicy(Checkpoints(60 * SECOND, 5 * SECOND, 20 * SECOND))
    setting = by_hand(expected_interval_us=1000 * SECOND)
    result = run(setting, policy, parse_trace(["100000,remove,0", "300000,add,0"], 4))
    assert result.decisions == {"regroup": 1, "restore": 1}
    # 100 = 65 + 30 undone + 5 | 20 | three single nodes, 180 = 2·(2·36 + 5) + 26 cut | 5 + 20 | four of them,
    # 24 s: 675 = 8·(3·24 + 5) + 2·24 + 11
    assert result.steps == 2 + 4 + 24 + 2
    assert (result.lost_us, result.transition_us) == ((30 + 5 + 26) * SECOND, 45 * SECOND)
    assert (result.saving_us, result.unfinished_us) == ((5 + 10 + 40) * SECOND, 11 * SECOND)


def test_a_planned_restart_saves_the_work_before_it() -> None:
    policy = SymmetricPolicy(Checkpoints(10**4 * SECOND, 5 * SECOND, 20 * SECOND))
    setting = by_hand(expected_interval_us=1000 * SECOND)
    result = run(setting, policy, parse_trace(["100000,remove,0", "300000,add,0", "500000,remove,1"], 4))
    # 100 undone | 20 | 180 = 5·36 saved | 25 | 175 undone | 20 | 480 = 13·36 + 12
    assert result.steps == 5 + 13 and result.lost_us == 275 * SECOND and result.transition_us == 65 * SECOND


def test_checkpoint_only_never_grows_beyond_its_degree() -> None:
    setting = by_hand(problem=model(7, 8, 4), bytes_per_s=1)
    result = run(setting, CheckpointOnly(Checkpoints(0)), parse_trace(["100000,remove,0"], 7))
    assert result.nodes[-1].alive == 6 and result.nodes[-1].staged == 4
    assert result.steps == 33 and result.lost_us == 10 * SECOND


def test_a_planned_restart_that_fails_loses_the_work_since_the_last_checkpoint_after_all() -> None:
    """The same, but node 1 fails during the planned restart: what it would have saved is not saved."""
    policy = SymmetricPolicy(Checkpoints(10**4 * SECOND, 5 * SECOND, 20 * SECOND))
    setting = by_hand(expected_interval_us=1000 * SECOND)
    result = run(setting, policy, parse_trace(["100000,remove,0", "300000,add,0", "310000,remove,1"], 4))
    assert result.decisions == {"regroup": 1, "restore": 2}
    # 100 undone | 20 | 180 undone | 10 of the planned restart | 20 | 670 = 18·36 + 22
    assert result.steps == 18 and result.lost_us == 280 * SECOND and result.transition_us == 50 * SECOND


def test_parameters_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^least_data_parallel is 0, below 1: give at least 1, or none$"):
        CheckpointOnly(Checkpoints(0), least_data_parallel=0)
    with pytest.raises(InvalidInput, match=r"choice for rejoin"):
        CheckpointOnly(Checkpoints(0), rejoin="sometimes")  # type: ignore[arg-type]  # as a file may have it


def test_a_planner_that_is_exact_is_not_worse() -> None:
    """Step times, not luck: over the same failures, ExactReplan's plans train at least as much as Algorithm 1's."""
    setting = by_hand(
        problem=model(8, 20, 7, last_extra_us=(SECOND, 2 * SECOND), max_depth=4, memory_bytes=4100),
        depth=2,
        data_parallel=4,
        duration_us=3 * 3600 * SECOND,
        failures_per_device_hour=0.3,
        repair=Repair(1000),
    )
    checkpoints = Checkpoints(0, 0, 60 * SECOND)
    exact = heuristic = 0
    for seed in range(6):
        failures = random_failures(setting, seed)
        exact += run(setting, AlwaysReplan(ExactReplan(), checkpoints=checkpoints), failures).steps
        heuristic += run(setting, AlwaysReplan(Algorithm1(), checkpoints=checkpoints), failures).steps
    assert exact > 1.02 * heuristic
