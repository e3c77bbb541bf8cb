"""What one profiled step says about blocks and parameters, and what cannot be profiled."""

import pytest
import torch
from torch import nn

from runtime.device import SimDevice
from runtime.profile.memory import profile_memory
from solvers.ir.errors import InvalidInput
from tests.runtime.profile.memory.models import Masked, Residual, chain, task


def test_blocks_hold_what_their_shapes_say(sim: SimDevice) -> None:
    work = task(chain(3, width=64), torch.randn(512, 32))
    profile = profile_memory(work.model, work.step, sim.device)
    hidden = 512 * 64 * 4
    assert [block.name for block in profile.blocks] == ["1", "2", "3"]
    for block in profile.blocks:
        assert block.input_bytes == hidden
        assert block.activation_bytes == hidden + 3 * hidden + hidden  # input, softmax, the result of relu
        assert block.forward_us > 0
        assert block.backward_us > block.forward_us
    first, second, _ = profile.blocks
    assert set(first.saved) & set(second.saved) == set(second.inputs)  # held once, though both save it


def test_parameters_come_in_the_order_of_their_first_use(sim: SimDevice) -> None:
    work = task(Masked(2, 16), torch.randint(0, 50, (2, 8)))
    profile = profile_memory(work.model, work.step, sim.device)
    names = [parameter.name for parameter in profile.parameters]
    assert names[:2] == ["head.weight", "scale"]  # tied to the embedding, which runs first; declared elsewhere
    assert names[2].startswith("layers.0.")
    assert profile.parameters[0].blocks == (0, 3)
    assert [parameter.trainable for parameter in profile.parameters[:3]] == [True, False, True]
    assert {block for parameter in profile.parameters[2:] for block in parameter.blocks} == {1, 2}


def test_parameters_used_nowhere_are_said(sim: SimDevice) -> None:
    work = task(Masked(2, 16), torch.randint(0, 50, (2, 8)))
    profile = profile_memory(work.model, work.step, sim.device)
    assert [parameter.name for parameter in profile.unused] == ["unused.weight", "unused.bias"]
    assert profile.remarks() == (
        "2 parameters are used nowhere (unused.weight, unused.bias): in no chunk, always on the device",
    )


def test_the_trace_grows_with_the_model_and_with_nothing_else(sim: SimDevice) -> None:
    """One pass over one step: each block more adds the same number of segments."""
    counts = []
    for blocks in (3, 6, 9):
        work = task(chain(blocks), torch.randn(16, 32))
        counts.append(len(profile_memory(work.model, work.step, sim.device).segments))
    assert counts[2] - counts[1] == counts[1] - counts[0]


def test_fixed_bytes_are_neither_parameters_nor_states(sim: SimDevice) -> None:
    model, data = chain(3).to("sim"), torch.randn(256, 32).to("sim")
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    before = torch.accelerator.memory_allocated(sim.device)
    profile = profile_memory(model, step, sim.device, optimizer=optimizer)
    others = before - profile.parameter_bytes - 256 * 32 * 4
    assert profile.fixed_bytes == 256 * 32 * 4 + others


def test_hooks_and_wrappers_are_gone_afterwards(sim: SimDevice) -> None:
    work = task(chain(2), torch.randn(16, 32))
    profile_memory(work.model, work.step, sim.device)
    for module in work.model.modules():
        assert "forward" not in vars(module)
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_also_after_a_step_that_fails(sim: SimDevice) -> None:
    work = task(chain(2), torch.randn(16, 32))
    calls = 0

    def step() -> None:
        nonlocal calls
        work.step()
        calls += 1
        if calls == 2:
            raise LookupError("no data")

    with pytest.raises(LookupError, match="no data"):
        profile_memory(work.model, step, sim.device)
    assert all("forward" not in vars(module) for module in work.model.modules())
    assert profile_memory(work.model, work.step, sim.device).blocks


def test_what_cannot_be_profiled_is_refused_in_a_sentence(sim: SimDevice) -> None:
    work = task(chain(2), torch.randn(16, 32))
    with pytest.raises(InvalidInput, match="device cpu keeps no memory statistics"):
        profile_memory(work.model, work.step, "cpu")
    with pytest.raises(InvalidInput, match="Linear has no repeated blocks"):
        profile_memory(nn.Linear(2, 2), work.step, sim.device)
    with pytest.raises(InvalidInput, match="calls no block of Sequential with gradients on"):
        profile_memory(work.model, lambda: None, sim.device)
    first, *rest = work.model.children()
    with pytest.raises(InvalidInput, match="calls blocks of Sequential, but never the model itself"):
        profile_memory(work.model, lambda: rest[0](first(torch.ones(2, 32, device="sim"))).sum().backward(), sim.device)
    with pytest.raises(InvalidInput, match="block 1 of Sequential has no backward in the step"):
        profile_memory(work.model, lambda: work.model(torch.ones(2, 32, device="sim")), sim.device)


def test_a_step_of_several_microbatches_is_refused(sim: SimDevice) -> None:
    work = task(chain(2), torch.randn(16, 32))

    def step() -> None:
        work.step()
        work.step()

    with pytest.raises(InvalidInput, match="runs forward after a backward has begun"):
        profile_memory(work.model, step, sim.device)


def test_a_block_that_is_called_twice_counts_twice(sim: SimDevice) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Residual(32) for _ in range(2))

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            for layer in [*self.layers, *self.layers]:
                hidden = layer(hidden)
            return hidden

    work = task(Twice(), torch.randn(16, 32))
    profile = profile_memory(work.model, work.step, sim.device)
    assert [block.name for block in profile.blocks] == ["layers.0", "layers.1", "layers.0", "layers.1"]
    assert {parameter.blocks for parameter in profile.parameters} == {(1, 3), (2, 4)}
