"""What swapping costs: measured where iterations without it were seen, estimated where none was, and labelled so."""

import json
from dataclasses import dataclass

import pytest
import torch

from runtime.device import clock
from runtime.swap.cost import LATEST, StepTimes, SwapCost
from runtime.swap.session import Session
from runtime.swap.stages import StageSettings
from tests.runtime.swap.training import Trainer, run, steadily

SOON = StageSettings(warm_up_iterations=1, policies=2)


@dataclass
class FakeClock:
    """An iteration that took so long, and would have taken so long without swapping if that was measured."""

    took_us: float
    alone_us: float | None = None
    done: bool = True

    @property
    def measured(self) -> bool:
        return self.alone_us is not None

    def duration_us(self) -> float:
        assert self.done, "nobody waits for an iteration that runs"
        return self.took_us

    def without_swapping_us(self) -> float:
        assert self.alone_us is not None
        return self.alone_us


def test_iterations_without_swaps_are_measured() -> None:
    times = StepTimes()
    assert times.cost() is None
    for took in (100.0, 104.0, 102.0):
        times.ended(FakeClock(took), swapped=False)
    assert times.cost() is None, "nothing was swapped"
    for took in (120.0, 122.0, 130.0):
        times.ended(FakeClock(took, 90.0), swapped=True)
    cost = times.cost()
    assert cost == SwapCost(step_us=122.0, without_us=102.0, how="measured")
    assert cost.overhead == pytest.approx(20 / 102)


def test_marks_tell_where_no_iteration_was_without_swaps() -> None:
    """Of two, the one in which less stood in the way."""
    times = StepTimes()
    assert times.lacks_marks(settled=False) and times.lacks_marks(settled=True)
    times.ended(FakeClock(150.0), swapped=True)
    assert times.cost() is None
    times.ended(FakeClock(140.0, 120.0), swapped=True)
    assert not times.lacks_marks(settled=False) and times.lacks_marks(settled=True)
    times.ended(FakeClock(130.0, 105.0), swapped=True, settled=True)
    assert not times.lacks_marks(settled=True)
    assert times.cost() == SwapCost(step_us=130.0, without_us=105.0, how="estimated")
    assert str(times.cost()) == "130 us an iteration (measured), 105 us without swapping (estimated): +23.8%"


def test_an_iteration_takes_at_most_what_marks_say_of_one_without_swapping() -> None:
    times = StepTimes()
    assert times.at_most(150.0) == 150.0
    times.ended(FakeClock(140.0, 120.0), swapped=True)
    times.ended(FakeClock(130.0, 105.0), swapped=True, settled=True)
    assert (times.at_most(150.0), times.at_most(100.0)) == (105.0, 100.0)


def test_iterations_of_more_operators_are_told_for_as_many_as_steps_have() -> None:
    """As where the marked one had all its experts, and most that follow have not."""
    times = StepTimes()
    times.ended(FakeClock(220.0, 200.0), swapped=True, settled=True, operators=1000)
    for _ in range(3):
        times.ended(FakeClock(110.0), swapped=True, settled=True, operators=500)
    assert times.cost() == SwapCost(step_us=110.0, without_us=100.0, how="estimated")
    times.ended(FakeClock(50.0), swapped=False, operators=250)
    times.ended(FakeClock(204.0), swapped=False, operators=1000)
    assert times.cost() == SwapCost(step_us=110.0, without_us=101.0, how="measured")


def test_iterations_in_which_policies_are_tried_do_not_count_once_one_is_kept() -> None:
    times = StepTimes()
    times.ended(FakeClock(100.0), swapped=False)
    for took in (300.0, 200.0, 120.0):
        times.ended(FakeClock(took), swapped=True)
    for took in (112.0, 110.0, 114.0):
        times.ended(FakeClock(took), swapped=True, settled=True)
    assert times.cost() == SwapCost(step_us=112.0, without_us=100.0, how="measured")


def test_an_iteration_that_the_device_has_not_finished_is_left_out() -> None:
    times = StepTimes()
    times.ended(FakeClock(150.0, 140.0), swapped=True)
    times.ended(FakeClock(999.0, 1.0, done=False), swapped=True, settled=True)
    assert times.cost() == SwapCost(step_us=150.0, without_us=140.0, how="estimated")


def test_only_the_latest_count() -> None:
    times = StepTimes()
    for number in range(3 * LATEST):
        times.ended(FakeClock(1000.0 - number), swapped=number % 2 == 0)
    cost = times.cost()
    assert cost is not None
    assert cost.step_us < 1000 - LATEST


STEPS = 14


def free_step_us(device: torch.device) -> float:
    """Without a session, on the simulated clock: the last steps."""
    trainer, now = Trainer(device), clock(device)
    torch.manual_seed(5)
    for _ in range(STEPS - 4):
        trainer.step()
    torch.accelerator.synchronize()
    began = now()
    for _ in range(4):
        trainer.step()
    torch.accelerator.synchronize()
    return (now() - began) / 4e3


@pytest.mark.parametrize("share", [0.8, 0.65])
def test_the_estimate_is_near_what_an_iteration_takes_without_swapping(device: torch.device, share: float) -> None:
    free = run(steadily(2), device).peak_bytes
    alone_us = free_step_us(device)
    ran = run(steadily(STEPS), device, int(share * free), stages=SOON)
    report = ran.report
    assert report is not None and report.cost is not None
    assert report.cost.how == "estimated"
    assert report.cost.without_us == pytest.approx(alone_us, rel=0.02)
    assert report.cost.step_us >= report.cost.without_us
    durations = [iteration.duration_us for iteration in ran.iterations[-4:]]
    assert min(durations) <= report.cost.step_us * 1.001  # type: ignore[type-var, operator]
    assert "without swapping (estimated)" in str(report)
    assert json.loads(report.json())["cost"]["how"] == "estimated"


def test_a_loop_that_swaps_only_at_times_is_measured_on_both_sides(device: torch.device) -> None:
    """Something else takes the memory from the sixth step on."""
    peak = run(steadily(3), device).peak_bytes

    def program(trainer: Trainer, following: Session | None) -> list[torch.Tensor]:
        losses = [trainer.step() for _ in range(5)]
        ballast = None if following is None else torch.zeros(peak // 16, device=trainer.device)
        losses += [trainer.step() for _ in range(5)]
        del ballast
        return losses

    free = run(program, device)
    ran = run(program, device, peak, stages=StageSettings(warm_up_iterations=20))
    assert ran.equals(free)
    report = ran.report
    assert report is not None and report.cost is not None
    assert report.cost.how == "measured"
    plain = [iteration for iteration in ran.iterations[1:] if iteration.counts.out_bytes == 0]
    assert report.cost.without_us == pytest.approx(plain[0].duration_us, rel=0.05)


def test_where_nothing_is_swapped_that_is_said(device: torch.device) -> None:
    ran = run(steadily(4), device, "90%")
    assert ran.report is not None
    assert ran.report.cost is None
    assert "cost      nothing was swapped" in str(ran.report)
