"""Programs that nothing was tuned for: each trains, begins alike every time, and is what its docstring says."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from experiments.bench.programs import Build, Residual, mlp, programs, resnet, tied_gpt, wide_mlp
from experiments.models.gpt import Gpt

CPU = torch.device("cpu")


def test_the_one_of_a_library_is_there_where_the_library_is(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ["MLP", "MLP, wide", "ResNet with BatchNorm", "tied GPT"]
    monkeypatch.setattr("experiments.bench.programs.find_spec", lambda name: None)
    assert list(programs()) == own
    monkeypatch.setattr("experiments.bench.programs.find_spec", lambda name: object())
    assert list(programs()) == [*own, "GPT-2 of transformers"]


@pytest.mark.parametrize("name", programs())
def test_steps_begin_alike_and_lower_the_loss(name: str) -> None:
    torch.manual_seed(99)
    workload = programs()[name](CPU)
    losses = [float(workload.step()) for _ in range(3)]
    assert losses[2] < losses[0]
    assert all(not parameter.requires_grad or parameter.grad is not None for parameter in workload.model.parameters())
    torch.manual_seed(100)
    assert float(programs()[name](CPU).step()) == losses[0]


@pytest.mark.parametrize(("build", "width"), [(mlp, 128), (wide_mlp, 512)])
def test_a_perceptron_has_six_blocks_of_a_product_and_gelu(build: Build, width: int) -> None:
    kinds = [type(module) for module in build(CPU).model.modules() if not list(module.children())]
    assert kinds == [nn.Linear, nn.GELU] * 6
    assert {tuple(each.shape) for each in build(CPU).model.parameters()} == {(width, width), (width,)}


def test_a_residual_block_adds_its_image_and_normalises_twice() -> None:
    """With the last norm's scale at zero, as its shift begins, only the image is left, and relu cuts it at zero."""
    block = Residual(3)
    assert isinstance(block.norms[1], nn.BatchNorm2d)
    nn.init.zeros_(block.norms[1].weight)
    image = torch.randn(2, 3, 8, 8)
    assert torch.equal(block(image), image.clamp(min=0))
    nn.init.ones_(block.norms[1].weight)
    assert not torch.equal(block(image), image.clamp(min=0))
    assert block(image).shape == image.shape


def test_the_residual_network_tells_ten_classes_apart() -> None:
    model = resnet(CPU).model
    assert sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) == 8
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_the_tied_gpt_has_one_table_for_words_in_and_out() -> None:
    model = tied_gpt(CPU).model
    assert isinstance(model, Gpt)
    assert model.head.weight is model.tokens.weight


def test_gpt_2_has_no_dropout() -> None:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    model = programs()["GPT-2 of transformers"](CPU).model
    rates = {module.p for module in model.modules() if isinstance(module, nn.Dropout)}
    assert rates == {0.0}
