"""What the supervisor makes of failures at odd times: whose moment counts, and what it goes on from."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from runtime.elastic import Options, Outcome, parse_kills, train
from runtime.elastic.children import Children, Ended, Inbox, Started
from runtime.elastic.events import EventLog, Stopwatch
from runtime.elastic.keeper import Keeper
from runtime.elastic.measure import Link
from runtime.elastic.messages import Config, Done, Hello, Killed, Progress, Report, Sent, Upward
from runtime.elastic.plans import Planning, Policy
from runtime.elastic.posts import Node, Posts
from runtime.elastic.store import open_store
from runtime.elastic.supervisor import TICK_S, Supervisor
from runtime.elastic.watching import beat_key
from solvers.ir import InvalidInput
from tests.runtime.elastic.jobs import NAP_S, costs
from tests.runtime.elastic.test_train import JOB, PATIENT, live, same, workers
from tests.soaking import in_soak


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


@dataclass
class Still:
    """Instead of processes: nobody is started, so what the supervisor hears is the test's to say."""

    nursery_pid: int = 0

    def counted(self, step: int, loss: float) -> None:
        """Nobody needs to know."""


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    """Of two members of generation 1, both beating."""
    store, inbox, log = open_store("127.0.0.1", 0), Inbox(), EventLog(None)
    config = Config(
        job=JOB, host="127.0.0.1", port=store.port, steps=1, canonical=True, timeout_s=PATIENT, hang_s=PATIENT,
    )  # fmt: skip
    posts = Posts(store, inbox, cast("Children", Still()), Keeper(None, inbox, log))
    made = Supervisor(config, posts, Planning(costs(2), "exact-replan", Link()), log, {})
    made.identity = {"the seed": "1"}
    made.generation, made.members, made.nodes = 1, (0, 1), {0: Node(10), 1: Node(11)}
    for node in made.nodes.values():
        store.set(beat_key(node.pid), str(time.monotonic()))
    yield made


def hear(supervisor: Supervisor, *messages: Upward) -> None:
    for message in messages:
        supervisor.inbox.put(Sent(time.monotonic_ns(), message))


def test_a_failure_while_all_pause_for_a_joiner_is_no_join(supervisor: Supervisor) -> None:
    """Its moment is told when its end is."""
    supervisor.pausing = True
    hear(supervisor, Killed(node=1, moment="forward", how="kill", step=0))
    hear(supervisor, Report(node=0, generation=1, step=0, final=False, arrived=True, why="reset by peer"))
    supervisor.inbox.put(Ended(11, -9))
    for _ in range(3):
        supervisor._take(1.0)
    assert supervisor.gathering is not None
    assert supervisor.gathering.why == "node 0 has lost its peers (reset by peer)"
    assert supervisor.gathering.watch.failed == supervisor.killed_ns[1]


def test_an_answer_lost_on_purpose_is_over_in_the_next_generation(supervisor: Supervisor) -> None:
    """Who lost it goes on, and later reports another's failure: that began when it did, which nobody has told yet."""
    hear(supervisor, Killed(node=0, moment="unheard", how="kill", step=0))
    supervisor._take(1.0)
    assert list(supervisor.killed_ns) == [0]
    supervisor._call(supervisor.planning.start([0, 1], 2), [0, 1], Stopwatch(), "an answer was lost")
    hear(supervisor, Report(node=0, generation=2, step=0, final=False, arrived=True, why="reset by peer"))
    supervisor._take(1.0)
    assert supervisor.gathering is not None
    assert supervisor.gathering.watch.failed is None


def test_a_pause_for_a_joiner_is_a_join(supervisor: Supervisor) -> None:
    supervisor.pausing = True
    hear(supervisor, Report(node=0, generation=1, step=1, final=False, arrived=True, why=""))
    supervisor._take(1.0)
    assert supervisor.gathering is not None
    assert supervisor.gathering.why == ""
    assert supervisor.gathering.watch.failed == supervisor.gathering.watch.known


def test_a_hello_before_the_word_that_its_process_has_started_is_kept(supervisor: Supervisor) -> None:
    hear(supervisor, Hello(node=2, pid=12, identity={"the seed": "1"}))
    supervisor.inbox.put(Started(2, 12))
    supervisor._take(1.0)
    supervisor._take(1.0)
    assert supervisor.nodes[2] == Node(12, ready=True)
    assert supervisor.born == {12: 2}


def test_hearts_are_not_looked_at_after_every_message(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five thousand messages; once a tick is enough, however long they take."""
    looks: list[float] = []
    monkeypatch.setattr(supervisor, "_look_for_hangs", lambda: looks.append(time.monotonic()))
    monkeypatch.setattr(supervisor, "_pause_for_joiners", lambda: None)
    hear(supervisor, *[Progress(node=0, generation=1, step=0, loss=1.0, took_us=1) for _ in range(5000)])
    hear(supervisor, *[Done(node=node, generation=1, digests={0: "same"}) for node in (0, 1)])
    assert supervisor.run().losses == (1.0,)
    assert all(later - sooner >= TICK_S for sooner, later in pairwise(looks))


def test_a_message_that_came_late_is_told_with_where_it_was(supervisor: Supervisor) -> None:
    """Three seconds on the way to this process, one in it."""
    now = time.monotonic_ns()
    message = Hello(node=2, pid=12, identity={"the seed": "1"})
    supervisor.inbox.put(Sent(now - 4 * 10**9, message, heard_ns=now - 10**9))
    assert Sent(now, message, heard_ns=now).waited_us(now) == Sent(now, message).waited_us(now) == (0, 0)
    supervisor._take(1.0)
    (late,) = [one for one in supervisor.log.events if one["event"] == "heard-late"]
    assert (late["what"], late["to_ear_us"]) == ("Hello", 3_000_000)
    assert 1_000_000 <= int(str(late["in_ear_us"])) < 60_000_000


@pytest.mark.parametrize("policy", ["auto", in_soak("dynamic")])
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


@pytest.mark.soak
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


@pytest.mark.soak
def test_a_resumed_training_that_fails_before_all_layers_are_read_reads_them_again(tmp_path: Path) -> None:
    live(4, 2, "3@1.update", checkpoint_dir=tmp_path)  # the last step's checkpoint, though its part of it was lost
    outcome = live(4, 4, "1@2.regroup", checkpoint_dir=tmp_path, resume=True)
    same(outcome, 4)
    first = outcome.recoveries[0]
    assert (outcome.resumed, first.lost, first.step) == (2, (1,), 2)
    assert first.restored.endswith("all layers go back to the checkpoint before step 2")
