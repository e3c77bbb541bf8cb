"""Figures of a rival's log, and that one process of it trains: the restart of everyone with its last checkpoint."""

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from experiments.elastic.rivals.runs import Loss, ran, read, torchrun
from experiments.elastic.rivals.stage import Asked
from runtime.elastic import load_job, parse_kills, train_alone
from solvers.ir.errors import BayplanError

JOB = "tests.runtime.elastic.jobs:small"


def step(at_s: float, number: int, loss: float = 1.0, **more: int) -> dict[str, object]:
    return {"at_s": at_s, "event": "step", "step": number, "loss": loss, **more}


def test_what_a_restart_costs_is_counted_in_seconds_and_in_steps() -> None:
    events = [
        {"at_s": 0.0, "event": "started", "step": 0},
        *(step(1.0 + number, number) for number in range(5)),
        {"at_s": 5.5, "event": "injected", "node": 1, "step": 5, "how": "kill"},
        {"at_s": 20.0, "event": "started", "step": 3},
        *(step(18.0 + number, number, 2.0) for number in range(3, 7)),
    ]
    done = read(events)
    # Step 5 counts at 23 s: 17.5 s after the kill, of which one is its own; steps 3 and 4 had counted before.
    assert done.failures == [Loss("kill", 5, 16_500_000, 2)]
    assert (done.step_us, done.restarts, done.losses[3]) == (1_000_000, 2, 2.0)


def test_a_step_that_another_process_told_after_the_failure_had_counted_too() -> None:
    events = [step(1, 0), step(2, 1), {"at_s": 2.9, "event": "injected", "node": 1, "step": 3, "how": "kill"}]
    done = read([*events, step(3, 2), *(step(9.0 + number, number) for number in range(1, 4))])
    assert done.failures == [Loss("kill", 3, 8_100_000, 2)]


def test_of_replicas_the_first_one_tells_a_step() -> None:
    events = [step(1, 0, 1.0, replicas=4), step(1.1, 0, 9.0, replicas=4), step(2, 1, 1.0, replicas=3)]
    done = read([*events, {"at_s": 2.5, "event": "injected", "node": 0, "step": 2, "how": "stop"}])
    assert (done.losses, done.replicas) == ({0: 1.0, 1: 1.0}, {0: 4, 1: 3})
    assert done.failures == [Loss("stop", 2, None, 0)]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_torchrun_restarts_everyone_from_the_last_checkpoint(tmp_path: Path) -> None:
    """Two processes of one pipeline; the second one is killed in step 3, and a checkpoint was made before step 2."""
    kills, _ = parse_kills("1@3.backward")
    asked = Asked(job=JOB, nodes=2, pipeline=2, steps=5, every=2, hang_s=60, kills=kills)
    done = ran(partial(torchrun, asked), asked, tmp_path / "run")
    (failure,) = done.failures
    assert (failure.how, failure.step, failure.steps_redone) == ("kill", 3, 1)
    assert failure.lost_us is not None and failure.lost_us > 0
    expected = train_alone(load_job(JOB, torch.device("cpu")), 5, canonical=False).losses
    assert [done.losses[number] for number in range(5)] == pytest.approx(expected, rel=1e-5)


def test_nothing_is_left_of_a_run_whose_workers_go_on(tmp_path: Path) -> None:
    """A launcher whose worker, in a session of its own as torchrun's are, would wait for ever after the last step."""
    code = (
        "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True); input()"
    )
    asked = Asked(job=JOB, nodes=2, pipeline=2, steps=1, every=2, hang_s=0.5, kills=())
    pids: list[int] = []

    def launch(folder: Path) -> list[subprocess.Popen[bytes]]:
        one = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert one.stdout is not None
        pids.extend([one.pid, int(one.stdout.readline())])
        (folder / "events.jsonl").write_text(json.dumps(step(1.0, 0)) + "\n")
        return [one]

    assert ran(launch, asked, tmp_path / "run").losses == {0: 1.0}
    assert len(pids) == 2
    until = time.monotonic() + 60
    while any(map(runs, pids)):
        assert time.monotonic() < until, "it goes on"
        time.sleep(0.05)


def runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_run_that_does_not_come_to_its_end_says_what_was_said(tmp_path: Path) -> None:
    asked = Asked(job=JOB, nodes=2, pipeline=2, steps=5, every=2, hang_s=60, kills=())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "said-0").write_text("hello\nno room left\n")
    with pytest.raises(BayplanError, match="run ended without step 0: no room left"):
        ran(lambda folder: [], asked, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "asked.json").read_text())["job"] == JOB
