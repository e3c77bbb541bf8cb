"""A module that moves to sim and back keeps its parameters, tied ones and an optimizer's included."""

from typing import Any

import pytest
import torch
from torch import nn

from runtime.device import SimDevice, native, use_sim

pytestmark = pytest.mark.skipif(
    native.why_missing("runtime._sim") is not None, reason=str(native.why_missing("runtime._sim"))
)


@pytest.fixture(autouse=True)
def sim() -> SimDevice:
    return use_sim()


class Tied(nn.Module):
    """Two layers, one of them in a module of its own, with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 4))
        self.last.weight = self.first.weight

    @property
    def last(self) -> nn.Linear:
        last = self.rest[1]
        assert isinstance(last, nn.Linear)
        return last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.rest(self.first(x)))


def test_tied_weights_stay_tied_there_and_back() -> None:
    net = Tied()
    weight = net.first.weight
    for device in ("sim", "cpu", "sim"):
        net.to(device)
        assert net.first.weight is net.last.weight is weight
        assert isinstance(weight, nn.Parameter) and weight.device.type == device and weight.requires_grad
    assert len(list(net.parameters())) == 3


def test_an_optimizer_that_was_built_before_trains_what_was_moved() -> None:
    net = Tied()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    net.to("sim")
    before = net.first.weight.detach().cpu()
    net(torch.ones(2, 4, device="sim")).sum().backward()
    optimizer.step()
    assert not torch.equal(net.first.weight.detach().cpu(), before)


def test_gradients_and_attributes_move_along() -> None:
    net = nn.Linear(4, 4)
    vars(net.weight)["sharded"] = "by rows"
    net(torch.ones(2, 4)).sum().backward()
    assert net.weight.grad is not None
    gradient = net.weight.grad.clone()
    net.to("sim")
    assert vars(net.weight)["sharded"] == "by rows"
    assert net.weight.grad.device.type == "sim"
    assert torch.equal(net.weight.grad.cpu(), gradient)


def test_a_living_graph_costs_the_identity_but_not_the_ties() -> None:
    net = Tied().to("sim")
    loss = net(torch.ones(2, 4, device="sim")).sum()
    net.cpu()
    assert net.first.weight is net.last.weight
    assert net.first.weight.device.type == "cpu" and loss.device.type == "sim"


def test_recurrent_nets_keep_their_flat_weights() -> None:
    net = nn.LSTM(4, 4).to("sim")
    assert all(flat is own for flat, own in zip(net._flat_weights, net.parameters(), strict=True))


def test_moves_between_other_devices_are_pytorchs_own() -> None:
    net = Tied().to(torch.float64)
    assert net.first.weight is net.last.weight and net.first.weight.dtype == torch.float64


def test_new_parameters_are_made_where_pytorch_was_told_so() -> None:
    net = nn.Linear(4, 4)
    weight = net.weight
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        assert net.to("sim").weight is not weight
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


def test_lazy_modules_get_their_shapes_on_the_device() -> None:
    """Their parameters have a class of their own until the first call, which a moved parameter keeps."""
    builds: tuple[tuple[Any, tuple[int, ...]], ...] = (
        (nn.LazyLinear, (2, 3)),
        (nn.LazyConv1d, (2, 3, 5)),
        (nn.LazyConvTranspose2d, (2, 3, 5, 5)),
    )
    for build, shape in builds:
        words, results = torch.ones(shape), []
        for device in ("cpu", "sim"):
            torch.manual_seed(0)
            net = build(4, kernel_size=2) if build is not nn.LazyLinear else build(4)
            results.append(net.to(device)(words.to(device)).detach().cpu())
        assert torch.equal(*results)


def test_a_parameter_keeps_its_class() -> None:
    class Marked(nn.Parameter):
        pass

    net = nn.Linear(4, 4)
    net.weight = Marked(net.weight.detach())
    assert isinstance(net.to("sim").weight, Marked) and net.weight.device.type == "sim"
