"""Trainings that lose processes, against the same training in one process that loses none: every bit, every sample."""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from runtime.elastic import PARTS, Alone, Options, Outcome, load_job, parse_kills, train, train_alone
from runtime.elastic.messages import Moment
from solvers.ir import InvalidInput
from tests.runtime.elastic.jobs import LAYERS, costs

JOB = "tests.runtime.elastic.jobs:small"
PATIENT = 60.0
"""Seconds after which a process counts as hung, where none is stopped: other work shares this machine."""
REAL = str(torch.__version__)


def alone(steps: int) -> Alone:
    return train_alone(load_job(JOB, torch.device("cpu")), steps)


def live(nodes: int, steps: int, kills: str = "", hang_s: float = PATIENT, **more: Any) -> Outcome:
    injections, joins = parse_kills(kills)
    options = Options(
        canonical=True, injections=injections, joins=joins, hang_s=hang_s, timeout_s=PATIENT, problem=costs(nodes),
        **more,
    )  # fmt: skip
    return train(JOB, nodes=nodes, steps=steps, pipeline=2, options=options)


def same(outcome: Outcome, steps: int) -> None:
    expected = alone(steps)
    assert outcome.losses == expected.losses
    assert outcome.digests == expected.digests
    assert outcome.replicas_equal


def injected(outcome: Outcome) -> list[tuple[object, object]]:
    return [(event["node"], event["moment"]) for event in outcome.events if event["event"] == "injected"]


@pytest.mark.soak
def test_eight_seven_six_seven_eight(tmp_path: Path) -> None:
    """One process is killed, one is stopped; it comes back, and a fresh one takes the other's place."""
    steps = 80
    outcome = live(8, steps, "2@3.forward, 5@8.backward.stop, return@16, fresh@45", hang_s=10, run_dir=tmp_path)
    same(outcome, steps)
    assert outcome.nodes == (8, 7, 6, 7, 8)
    lost = [recovery.lost for recovery in outcome.recoveries]
    assert lost == [(2,), (5,), (), ()]
    assert [len(recovery.joined) for recovery in outcome.recoveries] == [0, 0, 1, 1]
    for recovery in outcome.recoveries:
        parts = [recovery.parts_us[name] for name in PARTS]
        assert all(part is not None and part >= 0 for part in parts), recovery
        assert recovery.total_us == sum(part or 0 for part in parts)
    assert outcome.recoveries[1].parts_us["detect"] > 1_000_000  # type: ignore[operator]  # silence is told by time only
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert len(lines) == len(outcome.events)


@pytest.mark.soak
def test_every_moment() -> None:
    """A process dies at each moment of a step and of a recovery, two die at once, a vote's answer is lost."""
    kills = (
        "0@2.forward, fresh@3, 1@22.backward, fresh@23, 2@42.send, fresh@43, 3@62.recv, fresh@63, 4@82.all-reduce, "
        "fresh@83, 5@102.vote, fresh@103, 6@122.update, fresh@123, 7@142.unheard, 7@150.forward, 8@150.regroup, "
        "fresh@151, fresh@152, 9@172.forward, 10@172.backward"
    )  # far apart: a fresh process may take seconds to join where this machine is busy
    steps = 176
    outcome = live(8, steps, kills)
    same(outcome, steps)
    moments = [str(moment) for _, moment in injected(outcome)]
    wanted = ["forward", "backward", "send", "recv", "all-reduce", "vote", "update", "unheard", "forward", "regroup"]
    assert moments[:10] == wanted
    assert sorted(moments[10:]) == ["backward", "forward"]
    assert set(moments) == set(get_args(Moment)) - {"transfer"}  # who has a transfer is the plan's to say: test_soak.py
    lost = sorted(node for recovery in outcome.recoveries for node in recovery.lost)
    assert lost == list(range(11))
    assert all(recovery.restored == "" for recovery in outcome.recoveries)


def test_five_failures() -> None:
    """Between the gradients' vote and the optimizer's step, in a pass, during a recovery from that, and two at once.

    They are far apart: a fresh process may take seconds to join where this machine is busy.
    """
    steps = 45
    kills = "0@2.update, fresh@3, 1@20.forward, 2@20.regroup, fresh@21, fresh@22, 3@40.backward, 4@40.all-reduce"
    outcome = live(6, steps, kills)
    same(outcome, steps)
    assert sorted(map(str, injected(outcome))) == [
        "(0, 'update')", "(1, 'forward')", "(2, 'regroup')", "(3, 'backward')", "(4, 'all-reduce')"
    ]  # fmt: skip
    assert sorted(node for recovery in outcome.recoveries for node in recovery.lost) == [0, 1, 2, 3, 4]
    assert outcome.nodes[0] == 6 and outcome.warnings == ()


@pytest.mark.soak
def test_where_every_owner_of_a_layer_is_gone_training_begins_anew() -> None:
    """Both nodes of the first stage die, one in the recovery from the other: no peer has its layers, and it is told."""
    steps = 6
    outcome = live(4, steps, "0@3.vote, 2@3.regroup")
    same(outcome, steps)
    last = outcome.recoveries[-1]
    assert "have no holder alive" in last.restored
    assert last.restored.endswith("; there is no checkpoint, so training begins anew")
    assert (last.step, last.nodes) == (0, 2)


@pytest.mark.soak
def test_with_sums_in_floating_point_losses_are_close() -> None:
    """A kill between transfers, with plain sums."""
    injections, _ = parse_kills("1@2.forward, 2@2.transfer")
    outcome = train(
        JOB, nodes=6, steps=5, pipeline=2, options=Options(injections=injections, hang_s=PATIENT, timeout_s=PATIENT)
    )
    assert outcome.losses == pytest.approx(alone(5).losses, rel=1e-5)
    assert outcome.replicas_equal
    assert len(outcome.digests) == LAYERS


def test_too_few_are_left() -> None:
    with pytest.raises(InvalidInput, match=r"^1 process is left, but the job needs more .*: start with more nodes"):
        live(2, 4, "1@1.forward")
    assert not workers()


def test_nodes_that_are_too_small_for_the_model_are_refused_at_the_start() -> None:
    with pytest.raises(
        InvalidInput, match=r"^a node of these 4 needs \d+ bytes at the start, but memory_bytes is 1000"
    ):
        live(4, 4, memory_bytes=1000)
    assert not workers()


def test_microbatches_of_other_shapes_are_refused_and_nothing_is_left_running() -> None:
    options = Options(hang_s=PATIENT, timeout_s=PATIENT)
    with pytest.raises(InvalidInput, match=r"in step 1 microbatch \d has torch.float32 numbers of shape \(5, 12\)"):
        train("tests.runtime.elastic.jobs:uneven", nodes=2, steps=3, pipeline=2, options=options)
    assert not workers()


def test_workers_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "1.0")  # here, not in the workers
    sentence = (
        rf"^node \d is not what the supervisor is, in torch's version \({re.escape(REAL)}, not 1.0\): start all from "
        r"the same installation, with the same job and settings$"
    )
    with pytest.raises(InvalidInput, match=sentence):
        train(JOB, nodes=2, steps=3, options=Options(hang_s=PATIENT, timeout_s=PATIENT, problem=costs(2)))
    assert not workers()


def test_workers_of_another_configuration_are_refused() -> None:
    """A program's default type of numbers is its own: workers would train in single precision."""
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(
            InvalidInput, match=r", in the default type of numbers \(torch.float32, not torch.float64\)"
        ):
            train(JOB, nodes=2, steps=3, options=Options(hang_s=PATIENT, timeout_s=PATIENT, problem=costs(2)))
    finally:
        torch.set_default_dtype(torch.float32)
    assert not workers()


def test_a_process_that_comes_later_with_another_configuration_is_not_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's rate is read from a file, which is edited while it trains: the others go on, and it is told."""
    job, steps = "tests.runtime.elastic.jobs:drifting", 7
    monkeypatch.setenv("BAYPLAN_TESTS_DRIFT", str(tmp_path))
    (tmp_path / "rate").write_text("0.01")

    def edit(event: Mapping[str, object]) -> None:
        if event["event"] == "step" and event["step"] == 1:
            (tmp_path / "rate").write_text("0.5")
        elif event["event"] == "refused":
            (tmp_path / "refused").touch()

    injections, joins = parse_kills("1@1.forward, fresh@2")
    options = Options(
        canonical=True, injections=injections, joins=joins, hang_s=PATIENT, timeout_s=PATIENT, problem=costs(4),
        watch=edit,
    )  # fmt: skip
    outcome = train(job, nodes=4, steps=steps, pipeline=2, options=options)
    same(outcome, steps)  # the rate is still that of the start
    assert outcome.nodes == (4, 3)
    assert outcome.warnings == (
        "node 4 is not what the supervisor is, in the optimizer's lr of layer 0 (0.5, not 0.01) and in 5 more: start "
        "all from the same installation, with the same job and settings; training goes on without it",
    )
    assert not workers()


def wait_for(true: object, most_s: float = 120) -> None:
    until = time.monotonic() + most_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def workers() -> set[int]:
    """Processes that this one has started, directly or not, whose command is the nursery's: itself and its forks."""
    return {pid for pid in descendants(os.getpid()) if b"runtime.elastic.nursery" in command(pid) and alive(pid)}


def descendants(pid: int) -> set[int]:
    try:
        children = {
            int(one) for file in Path(f"/proc/{pid}/task").glob("*/children") for one in file.read_text().split()
        }
    except OSError:
        return set()
    return children.union(*map(descendants, children))


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
