"""What a session needs around it: the tensors that are there, an allocator that asks for help."""

import pytest
import torch
from torch import nn

from runtime.device import limited_memory
from runtime.device.native import core
from runtime.swap.surroundings import relieved, tensors_on
from solvers.ir.errors import InvalidInput

MIB = 1 << 20


def test_parameters_gradients_and_states_are_found(device: torch.device) -> None:
    model = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 8).to(device)).sum().backward()
    optimizer.step()
    found = {id(tensor) for tensor in tensors_on(device)}  # other tests' fake tensors have no address
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    states = [optimizer.state[parameter]["exp_avg"] for parameter in model.parameters()]
    assert {id(tensor) for tensor in [*model.parameters(), *gradients, *states]} <= found
    assert all(tensor.device == device for tensor in tensors_on(device))


def test_the_allocator_asks_the_engine_inside_only(device: torch.device) -> None:
    engine = core.SwapSession(device)
    engine.start()
    try:
        with limited_memory(device, 3 * MIB):
            old = [torch.full((MIB // 4,), float(number)).to(device) for number in range(2)]
            engine.add_resident(old)
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(2 * MIB, dtype=torch.uint8, device=device)
            with relieved(device):
                new = torch.empty(2 * MIB, dtype=torch.uint8, device=device)
            assert engine.end_iteration().counts.passive >= 1
            del new
    finally:
        engine.stop()
    assert [int(tensor[0].item()) for tensor in old] == [0, 1]


def test_an_allocator_that_asks_nobody_is_refused() -> None:
    with pytest.raises(InvalidInput, match="asks nobody"), relieved(torch.device("xpu", 0)):
        pytest.fail("must not begin")
