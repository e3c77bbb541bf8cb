"""The table of predicted peaks: its figures from cases told by hand, and one model that really runs."""

from pathlib import Path

import pytest

from experiments.protrain.estimates import figures
from experiments.protrain.peaks import PeakCase
from solvers.ir.layout import POLICIES, Policy
from tests.accelerators import prepare_sim
from tests.experiments.protrain.test_tables import computed

REFUSED = prepare_sim()
MIB = 2**20


def case(policy: Policy, predicted: int, without: int) -> PeakCase:
    return PeakCase("m", (policy,) * 2, 1, 10 * MIB, {"all": predicted, "intra": without, "none": without - MIB})


def test_figures_are_percent_of_the_executed_peak() -> None:
    found = figures(
        [case("keep", 10 * MIB, 9 * MIB), case("swap", 11 * MIB, 8 * MIB), case("checkpoint", MIB * 10, MIB * 10)]
    )
    assert found["mixes"] == 3
    assert found["largest error"] == pytest.approx(10)
    assert found["predicted, mean error"] == pytest.approx(10 / 3)
    assert found["without inter-operator deltas, mean error"] == pytest.approx(-10)
    assert found["without inter-operator deltas, lowest error"] == pytest.approx(-20)
    assert found["without any deltas, lowest error"] == pytest.approx(-30)
    assert found["all blocks swap"] == {
        "executed": 10, "predicted": 11, "without inter-operator deltas": 8, "without any deltas": 7
    }  # fmt: skip
    assert all(f"all blocks {policy}" in found for policy in POLICIES)


@pytest.mark.skipif(REFUSED is not None, reason=str(REFUSED))
def test_a_small_model_is_profiled_once_and_predicted(tmp_path: Path) -> None:
    model = {"label": "tiny", "layers": 3, "width": 32, "context": 32, "batch": 4}
    result = computed(tmp_path, "peaks", mixes=6, models=[model])
    assert result.named("mixes").points == {"tiny": 6}
    assert result.named("largest error").numbers()["tiny"] < 1
    assert result.named("without any deltas, mean error").numbers()["tiny"] < -1
    executed, predicted = result.named("executed").numbers(), result.named("predicted").numbers()
    assert list(executed) == [f"tiny, all blocks {policy}" for policy in POLICIES]
    assert predicted == pytest.approx(executed, rel=0.01)
    assert executed["tiny, all blocks keep"] > executed["tiny, all blocks checkpoint"]
