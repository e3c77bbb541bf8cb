"""From a tape to the layer problem, and from a plan back to what a block stores."""

import pytest
import torch
from torch import nn

from runtime.recompute import EVERYTHING, record
from runtime.recompute.calls import returned_by
from runtime.recompute.layer import OUT_OF_ORDER, Layer, policy_of, units_of
from solvers.ir.errors import InvalidInput
from solvers.ir.recompute import LayerGroup
from tests.accelerators import prepared


@pytest.fixture
def device() -> torch.device:
    return prepared("sim")


def layer_of(module: nn.Module, device: torch.device, waits: tuple[float, ...] = ()) -> Layer:
    given = torch.ones(8, 64, device=device, requires_grad=True)
    module.to(device)
    with record(device, EVERYTHING, timed=True) as tape:
        result = module(given)
    units = units_of(tape, [value for _, value in returned_by(tape, [result]).values()])
    return Layer(units, (), waits, 2048, tuple(node.name for node in tape.nodes))


def test_a_unit_is_a_storage_with_its_writers(device: torch.device) -> None:
    layer = layer_of(nn.Sequential(nn.Linear(64, 128), nn.ReLU(inplace=True), nn.Linear(128, 64)), device)
    (wide,) = layer.units  # what the block returns, nothing inside reads
    assert (wide.nodes, wide.saved, wide.bytes, wide.inputs) == ((0, 1), True, 8 * 128 * 4, ())
    assert wide.time_us > 0 and wide.fixed is None


def test_sizes_are_the_allocators(device: torch.device) -> None:
    layer = layer_of(nn.Sequential(nn.LayerNorm(64), nn.Tanh(), nn.Linear(64, 64)), device)
    assert layer.units[0].bytes == 0 or layer.units[0].bytes % 512 == 0
    assert all(unit.bytes % 512 == 0 for unit in layer.units)


def test_what_is_read_between_two_writers_is_stored(device: torch.device) -> None:
    class Twice(nn.Module):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            first = given * 2
            second = first.exp()
            return second + first.add_(1)

    layer = layer_of(Twice(), device)
    assert layer.units[0].fixed == OUT_OF_ORDER[0]
    assert layer.decided() == tuple(range(1, len(layer.units)))


def test_windows_are_whole_microseconds_and_the_plan_finds_its_wait_again(device: torch.device) -> None:
    module = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64))
    layer = layer_of(module, device, waits=(0.4, 17.9))
    ((window, wait),) = layer.windows()
    assert (window.phase, window.time_us, wait) == ("backward", 17, 1)
    problem = layer.problem(layers=3, inflight=1, last_stage=True, budget_bytes=1 << 30, static_bytes=7)
    assert (problem.layers, problem.static_bytes, problem.layer_input_bytes) == (3, 7, 2048)
    assert [op.output_bytes for op in problem.ops] == [unit.bytes for unit in layer.units]
    policy = policy_of(layer, LayerGroup(layers=3, stored=(1,), recomputed=((0, 0),)))
    assert policy.in_backward == {1: (0,)} and policy.in_forward == {}
    assert list(policy.store.store)[:2] == [0, 1]


def test_nothing_to_decide_is_said(device: torch.device) -> None:
    layer = Layer((), (), (), 0, ())
    with pytest.raises(InvalidInput, match="no operator of the blocks can run again: give other blocks"):
        layer.problem(layers=1, inflight=1, last_stage=True, budget_bytes=1, static_bytes=0)
