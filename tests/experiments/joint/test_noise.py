"""Planned passes on devices whose operators' times vary."""

import gc
import math
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from experiments.joint import noise
from experiments.recompute.models import Size
from solvers.ir.solution import Limits
from solvers.joint.draft import Draft
from solvers.joint.given import Given
from solvers.joint.greedy import greedy
from solvers.joint.swaps import timed
from tests.accelerators import prepared

SMALL = Size(layers=2, width=64, heads=2, tokens=128, batch=16, vocabulary=64)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One planned pass of a small model by shapes; afterwards the device has bytes again."""
    monkeypatch.setattr(noise, "SIZE", SMALL)
    monkeypatch.setattr(noise, "PASSES", 1)
    monkeypatch.setattr(noise, "LEVELS", (0.2,))
    yield
    gc.collect()
    prepared("sim")


def quickly(given: Given, _: Limits) -> Draft:
    """The greedy's plan, timed."""
    choice = greedy(given)
    assert choice is not None
    return timed(given, choice, quick=True)[0]


def test_the_same_plan_takes_another_time_under_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "PLANNERS", {"greedy": quickly})
    budget = int(0.8 * noise.peak_of("gpt"))
    found = noise.growth_of("gpt", "greedy", budget, 1, Limits(time_s=math.inf, work=0.02))
    assert 0 < abs(found.mean[0]) < 0.2 and found.worst == found.mean and found.quiet_us > 0


def test_a_technique_without_a_plan_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "PLANNERS", {"swapped": lambda *_: None})
    told = CliRunner().invoke(noise.command, ["--model", "gpt", "--seeds", "1"], standalone_mode=False)
    assert told.exception is None and told.output.splitlines()[-1] == "| gpt | swapped | no plan | |"
