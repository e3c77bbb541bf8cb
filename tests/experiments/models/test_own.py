"""One's own model by its factory's name."""

import pytest
import torch

from experiments.models import Gpt, OwnModel
from solvers.ir import InvalidInput

CPU = torch.device("cpu")


def test_ones_own_model_is_built_from_its_factory() -> None:
    workload = OwnModel(factory="experiments.models.gpt:demo").build(CPU)
    assert isinstance(workload.model, Gpt)


@pytest.mark.parametrize(
    ("factory", "recompute", "message"),
    [
        ("experiments.models.gpt:demmo", False, "did you mean 'demo'?"),
        ("experiments.models.gtp:demo", False, "no module"),
        ("demo", False, "MODULE:FACTORY"),
        ("experiments.models.gpt:demo", True, "leave 'recompute' out of baselines"),
    ],
)
def test_a_factory_that_is_not_there_is_refused(factory: str, recompute: bool, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        OwnModel(factory=factory).build(CPU, recompute=recompute)
    assert message in str(caught.value)
