"""Fine-tuning with parts of the model frozen: what has no backward keeps nothing, whatever its policy."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from runtime.device import SimDevice
from runtime.profile.memory import find_blocks, peak_bytes, profile_memory
from solvers.ir.layout import POLICIES
from tests.runtime.profile.memory.models import Adapted, Residual, Stack, chain, rectified, task
from tests.runtime.profile.memory.test_peaks import assert_predicted, executed, mixes

BLOCKS = 6


def freeze(model: nn.Module, blocks: tuple[int, ...], *names: str) -> nn.Module:
    """The model with these of its blocks frozen, and these of its modules."""
    found = list(find_blocks(model).values())
    for module in (*(found[number] for number in blocks), *(model.get_submodule(name) for name in names)):
        module.requires_grad_(False)
    return model


def half_a_block() -> nn.Module:
    """Training begins in the middle of block 1."""
    return freeze(chain(BLOCKS), (0,), "0", "2.widen")


def adapters() -> nn.Module:
    """A frozen model with something small to train in every block."""
    model = chain(BLOCKS).requires_grad_(False)
    for block in find_blocks(model).values():
        assert isinstance(block, Residual)
        block.widen, block.narrow = Adapted(block.widen), Adapted(block.narrow)  # type: ignore[assignment]
    return model


class Cut(Stack):
    """The loss of what comes before block 2 passes it by, so that a frozen block stands between trained ones."""

    def between(self, number: int, hidden: Tensor, given: Tensor) -> Tensor:
        if number == 1:
            self.before = hidden
            return hidden.detach()
        return hidden + self.__dict__.pop("before") if number == 2 else hidden


MODELS: dict[str, Callable[[], nn.Module]] = {
    "the first layer": lambda: freeze(chain(BLOCKS), (), "0"),
    "the first half": lambda: freeze(chain(BLOCKS), (0, 1, 2), "0"),
    "the first half, blocks that save no result": lambda: freeze(rectified(BLOCKS), (0, 1, 2), "0"),
    "all but the head": lambda: freeze(chain(BLOCKS), tuple(range(BLOCKS)), "0"),
    "in the middle": lambda: freeze(chain(BLOCKS), (2, 3)),
    "behind a cut": lambda: freeze(Cut(BLOCKS, block=Residual), (2,), "first"),
    "half a block": half_a_block,
    "all but adapters": adapters,
}


@pytest.mark.parametrize("kind", MODELS)
def test_peaks_of_partly_frozen_models_are_predicted(kind: str, sim: SimDevice) -> None:
    torch.manual_seed(0)
    work = task(MODELS[kind](), torch.randn(512, 32))
    profile = profile_memory(work.model, work.step, sim.device)
    assert_predicted(profile, work, mixes(BLOCKS, 8), sim)


def test_frozen_first_blocks_keep_nothing_and_have_no_backward(sim: SimDevice) -> None:
    work = task(MODELS["the first half"](), torch.randn(512, 32))
    profile = profile_memory(work.model, work.step, sim.device)
    assert [block.frozen for block in profile.blocks] == [True] * 3 + [False] * 3
    hidden = 512 * 64 * 4
    for block in profile.blocks[:3]:
        assert (block.backward_us, block.activation_bytes, block.input_bytes, block.saved) == (0, 0, 0, ())
        assert block.forward_us > 0
        assert block.forward_transient_bytes > hidden  # what it is given is there while it runs
    assert profile.first.activation_bytes == 0  # the first layer's result goes when block 0 is done
    assert all(block.backward_us > 0 for block in profile.blocks[3:])
    trained = {one.blocks for one in profile.parameters if one.trainable}
    assert {block for blocks in trained for block in blocks} == {4, 5, 6, 7}


def test_no_policy_of_a_frozen_block_changes_anything(sim: SimDevice) -> None:
    work = task(MODELS["the first half"](), torch.randn(256, 32))
    profile = profile_memory(work.model, work.step, sim.device)
    peaks = {peak_bytes(profile, (policy,) * 3 + ("keep", "swap", "checkpoint")) for policy in POLICIES}
    assert len(peaks) == 1


def test_the_backward_of_the_first_trained_block_ends_with_the_backward_pass(sim: SimDevice) -> None:
    """Not with the optimizer, though its inputs, which need no gradient, never tell."""
    work = task(MODELS["all but adapters"](), torch.randn(256, 32))
    blocks = profile_memory(work.model, work.step, sim.device).blocks
    assert 0 < blocks[0].backward_us < 2 * blocks[1].backward_us
    profile = profile_memory(work.model, work.step, sim.device)
    assert {one.place.block for one in profile.segments if one.place.module == "optimizer"} == {None}


def test_what_runs_without_gradients_is_no_block(sim: SimDevice) -> None:
    """Under `torch.no_grad` there is nothing to choose; it belongs to what runs before the first block."""

    class Half(Stack):
        def forward(self, data: Tensor) -> Tensor:
            with torch.no_grad():
                hidden = self.blocks[1](self.blocks[0](self.first(data)))
            result: Tensor = self.last(self.blocks[3](self.blocks[2](hidden)))
            return result

    work = task(Half(4), torch.randn(256, 32))
    profile = profile_memory(work.model, work.step, sim.device)
    assert [block.name for block in profile.blocks] == ["blocks.2", "blocks.3"]
    for policies in mixes(2, 6):
        assert peak_bytes(profile, policies) == pytest.approx(executed(work, policies, 1, sim), rel=1e-3), policies


def test_a_model_larger_than_the_device(sim: SimDevice) -> None:
    data = torch.randn(64, 32)
    work = task(MODELS["the first half"](), data, optimizer=False)
    roomy = profile_memory(work.model, work.step, sim.device)
    small = profile_memory(work.model, work.step, sim.device, on_demand=True)
    for policies in mixes(BLOCKS, 8):
        assert peak_bytes(small, policies) == pytest.approx(peak_bytes(roomy, policies), rel=0.01), policies
