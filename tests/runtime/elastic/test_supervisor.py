"""What the supervisor makes of failures at odd times: whose moment counts, and what it goes on from."""

import sys

import pytest

from runtime.elastic import Options, Outcome, parse_kills, train
from runtime.elastic.plans import Policy
from solvers.ir import InvalidInput
from tests.runtime.elastic.jobs import NAP_S, costs
from tests.runtime.elastic.test_train import JOB, PATIENT, live, same, workers


def last(outcome: Outcome, event: str) -> float:
    """When that was, in seconds since the start."""
    return float(str(next(one["at_s"] for one in reversed(outcome.events) if one["event"] == event)))


def test_a_failure_is_timed_from_itself_not_from_an_answer_lost_before() -> None:
    """Each survivor of step 4 has lost an answer in step 1: whoever reports first, that moment is over."""
    outcome = live(4, 6, "0@1.unheard, 1@1.unheard, 3@1.unheard, 2@4.forward")
    same(outcome, 6)
    assert outcome.recoveries[-1].lost == (2,)
    since_us = 1e6 * (last(outcome, "lost") - last(outcome, "injected"))
    assert outcome.recoveries[-1].parts_us["detect"] == pytest.approx(since_us, abs=5)  # events are in whole us


@pytest.mark.parametrize("policy", ["auto", "dynamic"])
def test_a_failure_before_all_layers_are_there_begins_anew(policy: Policy) -> None:
    outcome = live(4, 3, "1@0.regroup", policy=policy)
    same(outcome, 3)
    first = outcome.recoveries[0]
    assert first.lost == (1,)
    assert first.restored.startswith("the layers were not all there yet; ")


def test_a_generation_from_the_beginning_that_is_cut_short_is_begun_again() -> None:
    """A stage's only node dies, so all begin anew, and another one dies while they do."""
    injections, _ = parse_kills("0@2.forward, 1@0.regroup:2")
    options = Options(
        canonical=True, injections=injections, hang_s=PATIENT, timeout_s=PATIENT, problem=costs(3), memory_bytes=10**9
    )
    outcome = train(JOB, nodes=3, steps=4, pipeline=3, options=options)
    same(outcome, 4)
    assert [recovery.lost for recovery in outcome.recoveries] == [(0,), (1,)]
    assert outcome.recoveries[0].restored.endswith("training begins anew")
    assert outcome.recoveries[1].restored.startswith("the layers were not all there yet; ")


def test_microbatches_longer_than_the_timeout_are_refused_in_the_end() -> None:
    options = Options(timeout_s=NAP_S - 0.6, hang_s=PATIENT, problem=costs(2))
    with pytest.raises(InvalidInput, match=r"^generations ended 4 times without a step .*: give more than timeout_s"):
        train("tests.runtime.elastic.jobs:sleepy", nodes=2, steps=1, pipeline=2, options=options)
    assert not workers()


def test_an_interrupt_while_a_training_is_set_up_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["runtime.elastic.train"], "Keeper", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(JOB, nodes=2, steps=1, options=Options(problem=costs(2)))
    assert not workers()
