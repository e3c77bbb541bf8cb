"""Predicted against executed peaks, on a model that runs in milliseconds."""

import random

import pytest

from experiments.models.gpt import GptShape
from experiments.protrain.peaks import TRAININGS, PeakCase, error_table, peak_cases, policy_mixes
from solvers.ir.layout import POLICIES
from tests.accelerators import prepare_sim

REFUSED = prepare_sim()


@pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))
def test_a_dozen_mixes_of_a_gpt_are_predicted_within_a_hundredth() -> None:
    shape = GptShape(layers=5, width=32, context=32, batch=2)
    cases = peak_cases({"tiny": shape}, mixes=12)
    assert len({case.policies for case in cases}) > 8
    assert max(abs(case.error()) for case in cases) < 0.01
    assert min(case.error("intra") for case in cases) < -0.01  # attention and GELU are no modules: nobody hooks them
    assert all(case.error("none") <= case.error("intra") <= case.error() for case in cases)


@pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))
@pytest.mark.parametrize("name", [name for name in TRAININGS if name])
def test_so_they_are_with_frozen_blocks_and_under_autocast(name: str) -> None:
    shape = GptShape(layers=5, width=64, context=32, batch=2)  # weights outweigh activations
    cases = peak_cases({"tiny": shape}, mixes=8, training=TRAININGS[name])
    assert max(abs(case.error()) for case in cases) < 0.01
    assert all(case.error("none") <= case.error("intra") <= case.error() for case in cases)


def test_mixes_are_drawn_with_many_shares() -> None:
    mixes = list(policy_mixes(8, 40, random.Random(0)))
    assert mixes[:3] == [(policy,) * 8 for policy in POLICIES]
    assert {mix.count("swap") for mix in mixes} >= {0, 1, 2, 3, 4, 8}
    assert mixes == list(policy_mixes(8, 40, random.Random(0)))


def test_the_table_says_mean_and_worst() -> None:
    cases = [
        PeakCase("m", ("keep",), 1, 1000, {"all": 1010, "intra": 900, "none": 500}),
        PeakCase("m", ("swap",), 1, 1000, {"all": 1000, "intra": 1000, "none": 500}),
    ]
    row = error_table(cases).splitlines()[1].split()
    assert row == ["m", "2", "+0.50%", "+1.00%", "-5.00%", "-10.00%", "-50.00%", "-50.00%"]
