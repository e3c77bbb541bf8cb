"""Predicted peaks against those of steps that really run under the policies."""

import random

import pytest
import torch
from torch import nn

from runtime.device import SimDevice
from runtime.profile.memory import MemoryProfile, block_policies, peak_bytes, profile_memory
from runtime.profile.memory.peaks import Deltas
from solvers.ir.errors import InvalidInput
from solvers.ir.layout import POLICIES, Policy
from tests.runtime.profile.memory.models import Attending, Masked, Task, chain, rectified, task


def tasks(kind: str) -> Task:
    torch.manual_seed(0)
    if kind == "mask":
        return task(Masked(5, 32), torch.randint(0, 50, (4, 48)))
    return task((chain if kind == "chain" else rectified)(5), torch.randn(512, 32))


def executed(work: Task, policies: tuple[Policy, ...], interval: int, sim: SimDevice) -> int:
    with block_policies(work.model, policies, sim.device, interval):
        work.step()
        torch.accelerator.reset_peak_memory_stats(sim.device)
        work.step()
        return torch.accelerator.max_memory_allocated(sim.device)


def mixes(blocks: int, count: int, seed: int = 0) -> list[tuple[Policy, ...]]:
    draw = random.Random(seed)
    uniform: list[tuple[Policy, ...]] = [(policy,) * blocks for policy in POLICIES]
    return uniform + [tuple(draw.choice(POLICIES) for _ in range(blocks)) for _ in range(count - len(uniform))]


def assert_predicted(
    profile: MemoryProfile, work: Task, policies: list[tuple[Policy, ...]], sim: SimDevice, within: float = 1e-3
) -> None:
    """Predicted peaks are the executed ones, with swaps back in one block and two blocks ahead by turns."""
    for number, mix in enumerate(policies):
        interval = 1 + number % 2
        predicted, real = peak_bytes(profile, mix, interval), executed(work, mix, interval, sim)
        assert predicted == pytest.approx(real, rel=within), mix


@pytest.mark.parametrize("kind", ["chain", "rectified", "mask"])
def test_a_dozen_mixes_are_predicted_from_one_profile(kind: str, sim: SimDevice) -> None:
    """Swap and checkpoint beside each other, blocks that save their own result, a mask that all share."""
    work = tasks(kind)
    profile = profile_memory(work.model, work.step, sim.device)
    assert_predicted(profile, work, mixes(5, 12), sim, 1e-4)  # 512 bytes: a scalar dies a moment later


@pytest.mark.parametrize("frozen", [False, True])
def test_an_encoder_and_its_decoder(frozen: bool, sim: SimDevice) -> None:
    """Hugging Face's T5: two stacks, the encoder's result and a bias of positions go into every block behind them."""
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        num_layers=2,
        d_model=32,
        num_heads=2,
        d_kv=16,
        d_ff=64,
        vocab_size=60,
        use_cache=False,
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config).to("sim").train()
    model.encoder.requires_grad_(not frozen)  # with the table of words that both share
    tokens = torch.randint(0, 60, (2, 24)).to("sim")

    def step() -> None:
        model.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()

    profile = profile_memory(model, step, sim.device)
    assert [block.frozen for block in profile.blocks] == [frozen, frozen, False, False]
    for policies in mixes(4, 8):
        predicted, real = peak_bytes(profile, policies), executed(Task(model, step), policies, 1, sim)
        assert predicted == pytest.approx(real, rel=1e-3), policies


def test_blocks_that_are_given_one_tensor_several_times(sim: SimDevice) -> None:
    """The recomputation must find it the same object again: else it saves other tensors than forward."""
    model = Attending(4, 64, lambda width: nn.MultiheadAttention(width, 2, batch_first=True))
    work = task(model, torch.randn(4, 40, 32))
    profile = profile_memory(work.model, work.step, sim.device)
    for number, policies in enumerate(mixes(4, 8)):
        interval = 1 + number % 2
        assert peak_bytes(profile, policies, interval) == executed(work, policies, interval, sim), policies


def test_the_profiled_step_is_the_one_with_every_block_checkpointed(sim: SimDevice) -> None:
    work = tasks("chain")
    profile = profile_memory(work.model, work.step, sim.device)
    assert peak_bytes(profile, ("checkpoint",) * 5) <= profile.peak_bytes  # which does not stop recomputing early


def test_without_deltas_between_modules_the_peak_is_underestimated(sim: SimDevice) -> None:
    """The softmax and the sum with the residual run between the linear layers, where hooks on modules see nothing."""
    work = tasks("chain")
    profile = profile_memory(work.model, work.step, sim.device)
    kept: tuple[Policy, ...] = ("keep",) * 5
    levels: tuple[Deltas, ...] = ("all", "intra", "none")
    found = [peak_bytes(profile, kept, deltas=deltas) for deltas in levels]
    assert found == sorted(found, reverse=True)
    assert found[1] < 0.96 * found[0]


def test_policies_change_no_bit_of_the_training(sim: SimDevice) -> None:
    def trained(policies: tuple[Policy, ...] | None) -> list[torch.Tensor]:
        work = tasks("mask")
        for _ in range(3):
            if policies is None:
                work.step()
                continue
            with block_policies(work.model, policies, sim.device):
                work.step()
        return [parameter.detach().cpu() for parameter in work.model.parameters()]

    plain, mixed = trained(None), trained(("swap", "checkpoint", "keep", "swap", "keep"))
    assert all(torch.equal(one, other) for one, other in zip(plain, mixed, strict=True))


def test_gradients_that_stay_from_step_to_step(sim: SimDevice) -> None:
    """`zero_grad(set_to_none=False)` keeps them on the device: no step grows by them."""
    model = chain(4).to("sim")
    data = torch.randn(256, 32).to("sim")

    def step() -> None:
        model.zero_grad(set_to_none=False)
        model(data).square().mean().backward()

    work = Task(model, step)
    step()
    profile = profile_memory(model, step, sim.device)
    assert {segment.gradient_bytes for segment in profile.segments} == {0}
    for policies in mixes(4, 5):
        assert peak_bytes(profile, policies) == executed(work, policies, 1, sim)


def test_wrong_policies_are_refused_in_a_sentence(sim: SimDevice) -> None:
    work = tasks("chain")
    profile = profile_memory(work.model, work.step, sim.device)
    with pytest.raises(InvalidInput, match="2 policies for 5 blocks: give one for each"):
        peak_bytes(profile, ("keep", "keep"))
    with pytest.raises(InvalidInput, match="policy 'drop' is unknown: choose of keep, swap, checkpoint"):
        peak_bytes(profile, ["drop"] * 5)  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="interval is 0: give at least 1"):
        peak_bytes(profile, ("keep",) * 5, 0)
    with pytest.raises(InvalidInput, match="deltas 'inter' are unknown: choose of all, intra, none"):
        peak_bytes(profile, ("keep",) * 5, deltas="inter")  # type: ignore[arg-type]
