"""Blocks that are not called in the order in which they stand: two lists that take turns, a decoder declared first."""

from functools import cache

import pytest
import torch
from torch import nn
from torch.nn import functional

from experiments.recompute.models import Trainee
from runtime.recompute.calls import Call
from runtime.recompute.numbering import Numbering
from runtime.recompute.policy import ON_DEMAND
from runtime.recompute.tape import Tape
from tests.accelerators import prepared
from tests.runtime.recompute.training import QUICK, Outcome, limited, trained

__all__ = ["QUICK"]


def called(*passes: list[int]) -> Numbering:
    calls: list[Call] = []
    for blocks in passes:
        before = None
        for block in blocks:
            before = Call(block, ON_DEMAND, before, tape=Tape.__new__(Tape), backward_waits=(0, 0))
            calls.append(before)
    return Numbering(range(5)).called(calls)


def test_blocks_are_numbered_in_the_order_in_which_passes_call_them() -> None:
    assert called([0, 1, 2, 3, 4]).numbers == [0, 1, 2, 3, 4]
    assert called([0, 3, 1, 4]).numbers == [0, 2, 4, 1, 3], "two lists that take turns; what was not called, behind"
    assert called([0, 2, 4], [1, 2, 3]).numbers == [0, 1, 2, 3, 4], "passes that dropped blocks"
    assert called([3, 4], [0, 1, 2]).numbers == [0, 1, 2, 3, 4], "passes of their own, as they stand"
    assert called([0, 1], [1, 0]).numbers == [0, 1, 2, 3, 4], "no order is that of both"


class Turns(nn.Module):
    """Recurrent layers and norms, in lists of their own, with dropout between; the head stands before both."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        self.layers = nn.ModuleList(nn.GRU(32, 16, bidirectional=True, batch_first=True) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(x + functional.dropout(layer(x)[0], 0.1))
        return x.square().mean()


def turns(device: torch.device) -> Trainee:
    model, x = Turns().to(device), torch.randn(32, 8, 32).to(device)
    return Trainee(model, (*model.norms, *model.layers), lambda: model(x))


@cache
def free() -> Outcome:
    return trained(prepared("sim"), turns)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("solver", ["joint", "greedy-joint"])
def test_lists_that_take_turns_keep_the_budget_on_a_device_of_that_size(solver: str) -> None:
    """Taken for three passes of one norm each, they took up to two fifths more."""
    device, budget = prepared("sim"), int(0.8 * max(free().peaks[1:]))
    kept = trained(device, turns, budget=budget, solver=solver, loop=limited(device, budget), around=True)
    assert kept.equals(free()) and max(kept.peaks[1:]) <= budget
    assert kept.session is not None
    report = kept.session.report()
    assert report.replanned == report.diverged == 0
    assert report.pass_us == pytest.approx(report.predicted_pass_us, rel=0.01)
