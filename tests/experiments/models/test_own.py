"""One's own model by its factory's name."""

from pathlib import Path

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


THEIRS = """
import torch

def build(step):
    model = torch.nn.Linear(2, 2)
    return model, torch.optim.SGD(model.parameters(), 0.1), step

def broken(device): raise RuntimeError("no\\ndata")
def stumbling(device): return build(lambda: [][0])
def silent(device): return build(lambda: None)
def wide(device): return build(lambda: torch.zeros(2))
def hungry(device):
    def step(): raise torch.OutOfMemoryError("full")
    return build(step)
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_own_models.py").write_text(THEIRS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "their_own_models:broken raised RuntimeError at their_own_models.py:8 (no\ndata): correct it"),
        ("stumbling", "the step of their_own_models:stumbling raised IndexError at their_own_models.py:9"),
        ("silent", "the step of their_own_models:silent returned a NoneType: it must return the loss"),
        ("wide", "the step of their_own_models:wide returned shape (2,): it must return the loss"),
    ],
)
def test_what_ones_own_code_does_wrong_is_told_with_its_place(name: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        OwnModel(factory=f"their_own_models:{name}").build(CPU).step()
    assert message in str(caught.value)


@pytest.mark.usefixtures("theirs")
def test_out_of_memory_in_a_step_stays_an_answer() -> None:
    workload = OwnModel(factory="their_own_models:hungry").build(CPU)
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        workload.step()
