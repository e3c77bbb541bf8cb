"""The state machine: failures in transitions, idle nodes, newcomers; and what must hold whatever happens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ir import InvalidInput
from solvers.replan.cluster import (
    AlwaysReplan,
    AlwaysReroute,
    Chameleon,
    Change,
    Checkpoints,
    Cluster,
    ClusterSetting,
    Event,
    Failures,
    Placed,
    Policy,
    Repair,
    Running,
    RunResult,
    parse_trace,
    random_failures,
    run,
)
from tests.solvers.replan.cluster.settings import (
    SECOND,
    any_checkpoints,
    by_hand,
    model,
    policies,
    settings_of_any_kind,
)


@dataclass(frozen=True)
class Scripted:
    """Any state trains at 10 s a step on the first `used` nodes alive; a transition takes 100 s."""

    used: int = 2
    takes_newcomers: bool = False
    asked: list[tuple[str, int]] = field(default_factory=list)
    checkpoints: Checkpoints | None = None

    def failed(self, cluster: Cluster, running: Running) -> Change:
        self.asked.append(("failed", running.alive))
        return self._change(running, self.used)

    def repaired(self, cluster: Cluster, running: Running) -> Change | None:
        self.asked.append(("repaired", running.alive))
        return self._change(running, running.alive) if self.takes_newcomers else None

    def _change(self, running: Running, used: int) -> Change:
        nodes = running.nodes()
        pipeline = Placed((4,), tuple(nodes[:used]), 8)
        return Change(Running((pipeline,), frozenset(nodes[used:]), 10 * SECOND), 100 * SECOND, "scripted")


def simulated(policy: Scripted, *lines: str, nodes: int = 4) -> RunResult:
    setting = by_hand(problem=model(nodes, 8, 4))
    return run(setting, policy, parse_trace(lines, nodes))


def test_a_failure_in_a_transition_begins_it_anew() -> None:
    policy = Scripted()
    result = simulated(policy, "90000,remove,0", "150000,remove,1")
    assert policy.asked == [("failed", 3), ("failed", 2)]
    # 90 = 3·30 | 60 in vain | 100 | 750 = 75·10
    assert result.transition_us == 160 * SECOND and result.steps == 3 + 75
    assert [span.doing for span in result.spans] == ["training", "transition", "transition", "training"]


def test_until_a_transition_is_done_the_old_pipelines_count() -> None:
    """Node 3 has a stage in the old pipelines (and may be sending), not in the new one: all begins anew."""
    policy = Scripted()
    assert simulated(policy, "90000,remove,0", "150000,remove,3").transition_us == 160 * SECOND
    assert policy.asked == [("failed", 3), ("failed", 2)]


def test_a_node_that_is_to_get_a_stage_may_fail_before_it_has_one() -> None:
    """Node 4 was idle when node 0 failed, and is in the new pipeline."""
    policy = Scripted(used=4)
    assert simulated(policy, "90000,remove,0", "150000,remove,4", nodes=5).transition_us == 160 * SECOND
    assert policy.asked == [("failed", 4), ("failed", 3)]


def test_a_failure_of_an_idle_node_interrupts_nothing() -> None:
    policy = Scripted()
    training = simulated(policy, "90000,remove,0", "300000,remove,3")
    assert policy.asked == [("failed", 3)]
    assert training.lost_us == 0 and training.steps == 3 + 81 and training.failures == 2
    in_transition = simulated(Scripted(), "90000,remove,0", "150000,remove,4", nodes=5)
    assert in_transition.transition_us == 100 * SECOND and in_transition.nodes[-1].alive == 3


def test_newcomers_wait_for_the_end_of_a_transition() -> None:
    policy = Scripted(takes_newcomers=True)
    result = simulated(policy, "90000,remove,0", "150000,add,0")
    assert policy.asked == [("failed", 3), ("repaired", 4)]
    assert result.transition_us == 200 * SECOND and result.nodes[-1].staged == 4
    at = [(entry.at_us // SECOND, entry.alive, entry.staged) for entry in result.nodes]
    assert at == [(0, 4, 4), (90, 3, 3), (150, 4, 3), (190, 4, 2), (290, 4, 4)]


def test_a_failure_at_the_very_end_of_a_transition_meets_the_new_pipelines() -> None:
    """Node 3 is idle from that instant on."""
    policy = Scripted()
    result = simulated(policy, "90000,remove,0", "190000,remove,3")
    assert policy.asked == [("failed", 3)] and result.transition_us == 100 * SECOND


def test_failures_of_one_instant_are_one_decision() -> None:
    policy = Scripted(used=1)
    simulated(policy, "90000,remove,0", "90000,remove,1", "90000,remove,2")
    assert policy.asked == [("failed", 1)]


def test_a_cluster_may_fill_up_after_the_beginning() -> None:
    lines = [*(f"0,add,spot-{node}" for node in range(3)), "500000,add,spot-3"]
    failures = parse_trace(lines, 4, start="empty")
    # three nodes: launched in 10 s, 490 = 13·36 + 22 | 10 | four single nodes, 490 = 20·24 + 10
    result = run(by_hand(), Chameleon(), failures)
    assert result.steps == 13 + 20 and result.transition_us == 20 * SECOND and result.repairs == 4
    never = run(by_hand(), Chameleon(), Failures((), frozenset(range(4))))
    assert never.stopped_us == never.duration_us and never.microbatches == 0


def test_repaired_nodes_are_used_at_once_or_at_the_next_decision() -> None:
    failures = parse_trace(["90000,remove,0", "450000,add,0", "900000,remove,1"], 4)
    setting = by_hand(expected_interval_us=400 * SECOND)
    at_once = run(setting, AlwaysReplan(), failures)
    assert at_once.decisions == {"replan": 3}
    waiting = run(setting, AlwaysReplan(rejoin="next-decision"), failures)
    assert waiting.decisions == {"keep": 1, "replan": 2}
    # 90 = 3·30 | 10 | 350 = 9·36 + 26 | 10 | 440 = 18·24 + 8 | 10 | 90 = 2·36 + 18; without it 800 = 22·36 + 8
    assert (at_once.steps, waiting.steps) == (3 + 9 + 18 + 2, 3 + 22 + 2)


def test_a_repaired_node_takes_its_gap_back() -> None:
    failures = parse_trace(["90000,remove,0", "450000,add,0"], 4)
    result = run(by_hand(expected_interval_us=400 * SECOND), AlwaysReroute(), failures)
    # 90 = 3·30 | 360 = 6·54 + 36 | 10 | 540 = 18·30
    assert result.decisions == {"fill": 1, "reroute": 1} and result.steps == 3 + 6 + 18


def test_sharded_states_are_lost_with_their_node() -> None:
    setting = by_hand(problem=model(4, 8, 4, sharded_optimizer=True))
    failures = parse_trace(["90000,remove,0"], 4)
    for policy in (Chameleon(), AlwaysReplan(), AlwaysReroute()):
        assert run(setting, policy, failures).decisions == {"restore": 1}, policy


def test_an_event_of_a_stranger_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^node 4 fails, but the cluster has 4 nodes \(0…3\): correct it$"):
        run(by_hand(), Chameleon(), Failures((Event(1, 4, "failed"),)))


def test_memory_that_fits_no_initial_pipeline_is_refused() -> None:
    setting = by_hand(problem=model(4, 8, 4, memory_bytes=2000))
    with pytest.raises(InvalidInput, match=r"^no pipeline of depth 2 fits a node's 2000 bytes: raise depth or memory"):
        run(setting, Chameleon(), Failures(()))


@settings(max_examples=60, deadline=None)
@given(settings_of_any_kind(), any_checkpoints(), st.integers(0, 2**32))
def test_the_books_balance_for_every_policy(setting: ClusterSetting, checkpoints: Checkpoints, seed: int) -> None:
    failures = random_failures(setting, seed)
    alive: set[Sequence[tuple[int, int]]] = set()
    for name, policy in policies(checkpoints).items():
        try:
            result = run(setting, policy, failures, seed)
        except InvalidInput as error:
            assert "no pipeline of depth" in str(error)
            return
        check_books(result, setting, name)
        assert result == run(setting, policy, failures, seed), "the same again"
        alive.add(tuple(alive_over_time(result)))
    assert len(alive) == 1, "every policy meets the same failures"


def check_books(result: RunResult, setting: ClusterSetting, name: str) -> None:
    times = [result.training_us, result.lost_us, result.transition_us, result.stopped_us, result.saving_us]
    times.append(result.unfinished_us)
    assert sum(times) == result.duration_us == setting.duration_us and min(times) >= 0, name
    assert result.microbatches == result.steps * setting.problem.microbatches >= 0
    at = 0
    for span in result.spans:
        assert span.start_us == at < span.end_us
        assert (span.step_us is not None) == (span.doing == "training")
        at = span.end_us
    assert at == result.duration_us
    assert sum(span.end_us - span.start_us for span in result.spans if span.doing == "stopped") == result.stopped_us
    assert all(0 <= entry.staged <= entry.alive <= setting.problem.nodes for entry in result.nodes)
    whole = sum((span.end_us - span.start_us) // span.step_us for span in result.spans if span.step_us)
    if "restore" not in result.decisions and result.saving_us == 0:
        assert result.steps == whole, name
    assert result.steps <= whole


def alive_over_time(result: RunResult) -> list[tuple[int, int]]:
    """The nodes alive, changes only."""
    changes: list[tuple[int, int]] = []
    for entry in result.nodes:
        if not changes or changes[-1][1] != entry.alive:
            changes.append((entry.at_us, entry.alive))
    return changes


def test_a_policy_of_more_choices_is_not_worse_on_average() -> None:
    """Chameleon against its own parts, over 20 seeds of frequent failures with repairs (not seed by seed)."""
    setting = by_hand(
        problem=model(12, 24, 12),
        depth=3,
        data_parallel=4,
        failures_per_device_hour=0.3,
        duration_us=8 * 3600 * SECOND,
        repair=Repair(1800),
        restart_us=200 * SECOND,
    )
    checkpoints = Checkpoints(600 * SECOND, 0, 200 * SECOND)
    choices: list[Policy] = [
        Chameleon(checkpoints=checkpoints),
        AlwaysReplan(checkpoints=checkpoints),
        AlwaysReroute(checkpoints=checkpoints),
    ]
    done = [0, 0, 0]
    for seed in range(20):
        failures = random_failures(setting, seed)
        for number, policy in enumerate(choices):
            done[number] += run(setting, policy, failures).microbatches
    assert done[0] > max(done[1:])


def test_ten_thousand_devices_for_a_month() -> None:
    """At the rate of interruptions of Llama 3.1 (419 in 54 days on 16,384 GPUs), some 140 failures: seconds each."""
    problem = model(1250, 1248, 64, max_depth=16, layer_sync_us=1000)
    setting = ClusterSetting(
        problem,
        16,
        78,
        duration_us=30 * 24 * 3600 * SECOND,
        failures_per_device_hour=419 / (54 * 24 * 16384),
        tensor_parallel=8,
        repair=Repair(24 * 3600),
        restart_us=60 * SECOND,
        bytes_per_s=10**6,
    )
    failures = random_failures(setting, 0)
    assert 100 < sum(event.kind == "failed" for event in failures.events) < 190
    for policy in (Chameleon(), AlwaysReplan()):
        result = run(setting, policy, failures)
        assert result.effective_ratio > 0.98
        assert sum(result.decision_s) < 30


@pytest.mark.parametrize("name", ["chameleon", "recycle", "always-reroute", "checkpoint-only"])
def test_an_empty_cluster_that_fills_at_once_is_a_full_one(name: str) -> None:
    """All nodes come at time 0, under any names, and nothing takes time: the same steps as where they were there."""
    setting = by_hand(restart_us=0)
    policy = policies(Checkpoints(0))[name]
    later = ["60000,remove,{1}", "300000,add,{1}", "500000,remove,{2}", "500000,remove,{0}"]
    full = parse_trace([line.format(*range(4)) for line in later], 4)
    names = ["i-a", "i-b", "i-c", "i-d"]
    empty = parse_trace([*(f"0,add,{one}" for one in names), *(line.format(*names) for line in later)], 4, "empty")
    told, other = run(setting, policy, full), run(setting, policy, empty)
    assert told.steps == other.steps > 0
    assert (told.training_us, told.lost_us, told.stopped_us) == (other.training_us, other.lost_us, other.stopped_us)
    assert other.repairs == told.repairs + 4


@pytest.mark.parametrize("name", policies(Checkpoints(0)))
def test_the_first_start_restores_nothing(name: str) -> None:
    """A launch takes what the policy's restart takes, not what reading a checkpoint takes: there is none yet."""
    restart_s = 60 if name == "oobleck" else 10
    lines = [f"100000,add,{one}" for one in "abcd"]
    found = run(by_hand(), policies(Checkpoints(0, 300 * SECOND))[name], parse_trace(lines, 4, "empty"))
    assert (found.stopped_us, found.transition_us) == (100 * SECOND, restart_s * SECOND)


def test_an_empty_cluster_waits_for_enough_nodes() -> None:
    """Two nodes come after 100 s and have four of the eight microbatches each, 4 * 12 s; two more after 400 s."""
    lines = ["100000,add,a", "100000,add,b", "400000,add,c", "400000,add,d"]
    found = run(by_hand(restart_us=0), AlwaysReplan(), parse_trace(lines, 4, "empty"))
    assert found.stopped_us == 100 * SECOND
    assert [span.doing for span in found.spans] == ["stopped", "training", "training"]
    assert [(span.start_us // SECOND, span.step_us) for span in found.spans[1:]] == [
        (100, 48 * SECOND), (400, 30 * SECOND),
    ]  # fmt: skip
