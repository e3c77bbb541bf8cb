"""Settings become policies: seconds microseconds, words planners and laws; what means nothing is refused."""

from typing import Any

import pytest

from experiments.cluster.policies import KNOWN, PolicyConf, PolicyKind, make_policies, make_policy
from solvers.ir import InvalidInput
from solvers.replan import Algorithm1, ExactReplan, Oobleck, Recycle, Symmetric
from solvers.replan.cluster import (
    AlwaysReplan,
    AlwaysReroute,
    Chameleon,
    CheckpointOnly,
    Checkpoints,
    OobleckPolicy,
    PaperRerouting,
    Policy,
    RecyclePolicy,
    SimulatedRerouting,
    SymmetricPolicy,
)

SAVED = Checkpoints(interval_us=3_600_000_000, save_us=1_500_000, restore_us=0)
HOURLY: dict[str, Any] = {"checkpoint_s": 3600, "save_s": 1.5}


@pytest.mark.parametrize(
    ("conf", "policy"),
    [
        (PolicyConf(), Chameleon()),
        (
            PolicyConf(PolicyKind.chameleon, planner="algorithm1", rerouting="simulated", restart_s=0.25),
            Chameleon(planner=Algorithm1(), rerouting=SimulatedRerouting(), restart_us=250_000),
        ),
        (PolicyConf(PolicyKind.always_replan, planner="exact"), AlwaysReplan(planner=ExactReplan())),
        (
            PolicyConf(PolicyKind.always_reroute, planner="algorithm1", rerouting="filled", restart_s=2),
            AlwaysReroute(planner=Algorithm1(), rerouting=Recycle(), restart_us=2_000_000),
        ),
        (
            PolicyConf(PolicyKind.oobleck, batches="equal", faults=2, least_depth=3, restart_s=1),
            OobleckPolicy(solver=Oobleck(batches="equal", faults=2, least_depth=3), restart_us=1_000_000),
        ),
        (
            PolicyConf(PolicyKind.recycle, rerouting="formula", lost_stage="stop", restart_s=3),
            RecyclePolicy(solver=Recycle(lost_stage="stop"), rerouting=PaperRerouting(), restart_us=3_000_000),
        ),
        (
            PolicyConf(PolicyKind.symmetric, batches="equal", **HOURLY),
            SymmetricPolicy(solver=Symmetric(batches="equal"), checkpoints=SAVED),
        ),
        (
            PolicyConf(PolicyKind.checkpoint, rejoin="at-once", **HOURLY),
            CheckpointOnly(rejoin="at-once", checkpoints=SAVED),
        ),
    ],
    ids=lambda value: value.policy.value if isinstance(value, PolicyConf) else "",
)
def test_a_policy_is_what_its_settings_say(conf: PolicyConf, policy: Policy) -> None:
    assert make_policy("mine", conf) == policy


def test_every_policy_may_save_checkpoints_and_choose_when_nodes_rejoin() -> None:
    for kind in PolicyKind:
        made: Any = make_policy("mine", PolicyConf(kind, rejoin="next-decision", **HOURLY))
        assert (made.rejoin, made.checkpoints) == ("next-decision", SAVED)
        every_step: Any = make_policy("mine", PolicyConf(kind, checkpoint_s=0, restore_s=2))
        assert every_step.checkpoints == Checkpoints(interval_us=0, save_us=0, restore_us=2_000_000)
    assert set(KNOWN) == set(PolicyKind)


def test_policies_keep_their_names_and_order() -> None:
    found = make_policies({"b": PolicyConf(), "a": PolicyConf(PolicyKind.recycle)})
    expected: dict[str, Policy] = {"b": Chameleon(), "a": RecyclePolicy()}
    assert found == expected
    assert list(found) == ["b", "a"]


@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        (
            PolicyConf(PolicyKind.symmetric, planner="exact", faults=1, checkpoint_s=1),
            "policies.mine.faults means nothing to symmetric: leave it out",  # of two the first by name
        ),
        (
            PolicyConf(PolicyKind.always_replan, rerouting="formula"),
            "policies.mine.rerouting means nothing to always_replan: leave it out",
        ),
        (
            PolicyConf(PolicyKind.recycle, lost_stage="checkpont"),
            "there is no lost_stage of policies.mine 'checkpont': did you mean 'checkpoint'?",
        ),
        (PolicyConf(rejoin="at once"), "there is no rejoin of policies.mine 'at once': did you mean 'at-once'?"),
        (PolicyConf(planner="exat"), "there is no planner of policies.mine 'exat': did you mean 'exact'?"),
        (
            PolicyConf(PolicyKind.checkpoint),
            "policies.mine goes back to checkpoints, but saves none: give checkpoint_s",
        ),
        (
            PolicyConf(save_s=1, restore_s=2),
            "policies.mine.restore_s is of checkpoints, but without checkpoint_s none is saved: give checkpoint_s, "
            "or set restore_s and save_s to null",
        ),
    ],
)
def test_what_means_nothing_is_refused_in_a_sentence(conf: PolicyConf, sentence: str) -> None:
    with pytest.raises(InvalidInput) as fault:
        make_policy("mine", conf)
    assert str(fault.value) == sentence


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"restart_s": 1_000_001}, "restart_s is 1000001, outside 0…1e+06: choose a value inside"),
        ({"save_s": -0.5}, "save_s is -0.5, outside 0…1e+06: choose a value inside"),
        ({"checkpoint_s": -1}, "checkpoint_s is -1, outside 0…1e+06: choose a value inside"),
        ({"restore_s": float("inf")}, "restore_s is inf, outside 0…1e+06: choose a value inside"),
        ({"faults": 1001}, "faults is 1001, outside 0…1000: choose a value inside"),
        ({"least_depth": 0}, "least_depth is 0, outside 1…4096: choose a value inside"),
    ],
)
def test_times_and_counts_that_no_policy_has_are_refused(fields: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidInput) as fault:
        PolicyConf(**fields)  # type: ignore[arg-type]
    assert str(fault.value) == sentence


def test_the_ends_of_each_range_are_allowed() -> None:
    PolicyConf(restart_s=0, checkpoint_s=1e6, save_s=0, restore_s=1e6, faults=1000, least_depth=4096)
    PolicyConf(faults=0, least_depth=1)
