"""What follows a pass: launching a plan's moves takes the host's lead, for which the rest of the step may pay."""

import gc

import pytest
import torch

from experiments.hardware import read_hardware
from experiments.recompute.models import Trainee
from runtime.device import use_sim
from runtime.profile.launches import Measured
from runtime.recompute.course import LAST, Event, Happened
from runtime.recompute.filling import Reading, filled_once
from runtime.recompute.joint import JointStep
from runtime.recompute.joint_rest import held_up
from runtime.recompute.launches import AHEAD, REST, read_launches
from runtime.recompute.report import RecomputeReport
from solvers.ir.joint import JointOp
from tests.accelerators import prepared
from tests.runtime.recompute.training import QUICK, Outcome, ordinary, trained

__all__ = ["QUICK"]
MARK, ELSE = Happened.MARK, Happened.ELSE
WAIT = 1
pytestmark = pytest.mark.usefixtures("quick")


def timed(share: float | None, solver: str, peak: int = 0) -> tuple[Outcome, float, RecomputeReport | None]:
    """Small GPTs' training, whose optimizer keeps the host busier than the device, how long its last step took, and
    what is said of a joint plan."""
    gc.collect()
    sim = use_sim(read_hardware("sim-small"))
    moments: list[int] = []

    def loop(trainee: Trainee, optimizer: torch.optim.Optimizer, index: int) -> torch.Tensor:
        torch.accelerator.synchronize()
        moments.append(sim.now_ns())
        loss = ordinary(trainee, optimizer, index)
        torch.accelerator.synchronize()
        moments.append(sim.now_ns())
        return loss

    try:
        budget = None if share is None else int(share * peak)
        found = trained(sim.device, "gpt", loop=loop, budget=budget, solver=solver, around=True)
        joint = found.session is not None and isinstance(found.session.whole, JointStep)
        report = found.session.report() if found.session is not None and joint else None
    finally:
        gc.collect()
        prepared("sim")
    return found, (moments[-1] - moments[-2]) / 1000, report


@pytest.mark.parametrize("share", [0.85, 0.6])
def test_moves_that_win_a_pass_and_lose_a_step_are_not_made(share: float) -> None:
    plain, plain_us, _ = timed(None, "")
    peak, took = max(plain.peaks[1:]), dict[str, float]()
    for solver in ("joint", "greedy-joint", "opt"):
        found, took[solver], report = timed(share, solver, peak)
        assert found.equals(plain) and max(found.peaks[1:]) <= share * peak
        assert (report is None) == (solver == "opt")
        if report is not None:
            assert report.predicted_pass_us == pytest.approx(report.pass_us, rel=0.005)
            assert plain_us + report.exposed_us == pytest.approx(took[solver], rel=0.005)
    assert took["joint"] <= min(took.values())


def told(*rest: Reading, within: int = 0) -> Measured:
    """What follows a pass of a forward and a backward part, in whose forward part the host waits or does not."""
    marks = [(-1, MARK, index, 0, 0) for index in (0, 1, LAST)]
    events: list[Event] = [*marks, *((-1, ELSE, 0, 0, 0) for _ in rest[1:])]
    passed: list[Reading] = [(0, 0, 0, 0, 0), (10, 4, 12, within, 0), (20, 6, 24, 0, 0)]
    parts, beside = read_launches(events, [(*one, 0, 0, 0) for one in (*passed, *rest)], (), 0)
    assert parts is not None and not beside
    return parts[AHEAD[0]][REST]


def test_what_follows_counts_until_the_host_waits() -> None:
    first, last = (3, 40, 42, 0, 0), (5, 60, 61, 0, 0)
    waits = (5, 60, 61, WAIT, 0)
    behind = told(first, waits, last)
    assert behind.host_waits and behind.end_ns - behind.device_ns == 40 + 61 - 8  # whatever comes then
    here = told(first, last, within=WAIT)
    assert here.host_waits and (here.device_ns, here.end_ns) == (3 + 5 + 10, 40 + 60 + 12)
    never = told(first, last)
    assert (never.device_ns, never.end_ns, never.host_waits) == (3 + 5, 4 + 6 + 40 + 60, 0)
    assert told((0, 0, 0, 0, 0)) == Measured(0, 10, 10, 0)


def test_what_fills_memory_that_stays_is_the_first_steps_alone() -> None:
    """Two states and a temporary; then gradients go, and the next pass begins with some activations."""
    levels = [100, 100, 120, 120, 150, 150, 155, 150, 40, 70]
    kernel, nothing = (1, 4, 5, 0, 0), (0, 0, 0, 0, 0)

    def events(begun: int) -> list[Event]:
        rest = [(-1, ELSE, 0, 0, level) for level in levels[1:]]
        return [(-1, MARK, 0, 0, begun), (-1, MARK, LAST, 0, levels[0]), *rest]

    readings: list[Reading] = [nothing, nothing, nothing, nothing, kernel, nothing, kernel, kernel, kernel, nothing]
    readings += [kernel, kernel]
    assert filled_once(events(70 - 50), readings) == {4, 6}
    assert filled_once(events(70 - 20), readings) == {4}
    assert filled_once(events(70), readings) == set()  # it took nothing for good
    waits: list[Reading] = [*readings[:4], (1, 4, 5, WAIT, 0), *readings[5:]]
    assert filled_once(events(70 - 50), waits) == {6}
    assert filled_once(events(20)[2:], readings) == set()  # no pass has ended
    assert told((1, 4, 5, 0, 0), (1, 4, 5, 0, 0)).end_ns == 10 + 8


def test_a_pass_ends_once_its_host_is_as_far_ahead_as_what_follows_needs() -> None:
    def op(launch_us: int, tail_us: int | None = None, *, host_waits: bool = False) -> JointOp:
        return JointOp(
            name="end", time_us=9, output_bytes=0, inputs=(), comm=False,
            launch_us=launch_us, tail_us=tail_us, host_waits=host_waits,
        )  # fmt: skip

    assert held_up(op(4, 3), 10) == op(4 + 10 - 3, 3)
    assert held_up(op(4, 3), 3) == held_up(op(4, 3), 0) == op(4, 3)
    assert held_up(op(4, host_waits=True), 100) == op(4, host_waits=True)
