"""A program may profile itself inside a session, at any moment."""

import pytest
import torch
from torch.autograd import profiler

from runtime.loop.profilers import give_way_to_profilers
from runtime.swap.session import Session
from runtime.swap.stages import StageSettings
from tests.runtime.swap.training import Trainer, run, steadily

STEPS = 14
SOON = StageSettings(warm_up_iterations=1, policies=3)


def profiling_from_mid_step(trainer: Trainer, _: Session | None) -> list[torch.Tensor]:
    """Starts a profiler in the forward pass of each step from the sixth to the eighth, policies being made."""
    losses = [trainer.step() for _ in range(5)]
    for _number in range(3):
        own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
        hook = trainer.model.head.register_forward_hook(lambda *_, own=own: own.start())
        losses.append(trainer.step())
        hook.remove()
        own.stop()
        assert any(event.key == "aten::cross_entropy_loss" for event in own.key_averages())
    return [*losses, *(trainer.step() for _ in range(STEPS - 8))]


def test_a_profiler_may_start_while_an_iteration_is_recorded(device: torch.device) -> None:
    expected = run(steadily(STEPS), device)
    budget = int(0.75 * expected.peak_bytes)
    ran = run(profiling_from_mid_step, device, budget, stages=SOON)
    assert ran.equals(expected)
    assert ran.peak_bytes <= budget
    assert ran.report is not None
    assert any("started a torch.profiler" in remark for remark in ran.report.remarks)
    assert any(policy.kept for policy in ran.report.policies)


def test_every_recording_is_told_before_the_profiler_starts() -> None:
    told: list[str] = []
    with give_way_to_profilers(lambda: told.append("outer")):
        with give_way_to_profilers(lambda: told.append("inner")), torch.profiler.profile():
            assert told[:2] == ["outer", "inner"]
        told.clear()
        with profiler.profile():
            assert set(told) == {"outer"}
    told.clear()
    with torch.profiler.profile():
        assert told == []


@pytest.mark.parametrize("name", ["_prepare_profiler", "_enable_profiler"])
def test_the_functions_of_pytorch_are_as_before_afterwards(name: str) -> None:
    before = getattr(profiler, name)
    with give_way_to_profilers(lambda: None):
        assert getattr(profiler, name) is not before
    assert getattr(profiler, name) is before
