"""Planned recomputation, the same bodies on sim and on CUDA, where models are larger: equal bits within the budget."""

import gc
from functools import partial

import pytest
import torch

from experiments.recompute.models import MODELS, Size, Trainee
from runtime.recompute import plan
from solvers.ir.solution import Limits
from tests.accelerators import ON_EACH_AT_LENGTH
from tests.runtime.recompute import training
from tests.runtime.recompute.training import SMALL, trained

LARGE = Size(layers=6, width=512, heads=8, tokens=256, batch=16, vocabulary=4096)
SHARE = 0.8
pytestmark = pytest.mark.usefixtures("repeatable_kernels")


@ON_EACH_AT_LENGTH
@pytest.mark.parametrize("solver", ["heu", "opt", "joint", "greedy-joint"])
@pytest.mark.parametrize("name", ["gpt", "resnet"])
def test_a_model_trains_within_the_budget_as_it_trains_plainly(
    device: torch.device, name: str, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(place: torch.device) -> Trainee:
        return MODELS[name](SMALL if place.type == "sim" else LARGE, place)

    def emptied() -> None:
        gc.collect()
        torch.accelerator.synchronize(device)
        torch.accelerator.empty_cache()

    monkeypatch.setattr(training, "plan", partial(plan, limits=Limits(time_s=2.0)))
    plain = trained(device, build)
    emptied()
    budget = int(SHARE * max(plain.peaks))
    kept = trained(device, build, budget=budget, solver=solver)
    assert kept.equals(plain)
    assert kept.session is not None
    report = kept.session.report()
    print(report)
    corrected = 0 if device.type == "sim" else report.replanned  # cuDNN chooses workspaces when it runs
    settled = min(1 + corrected, len(kept.peaks) - 1)
    assert max(kept.peaks[settled:]) <= budget < max(plain.peaks), report
    assert report.diverged == 0
